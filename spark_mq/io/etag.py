"""What the ETag of an object of S3 tells about its bytes.

For most objects it is the MD5 of the bytes. For an upload in parts it is the MD5 of the MD5s of the parts, and the
number of parts. It is something else for some kinds of encryption, and then it tells nothing.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from typing import Final

_MIB: Final = 1 << 20
_PART_SIZES: Final = tuple(size * _MIB for size in (5, 8, 10, 15, 16, 25, 32, 50, 64, 100, 128, 200, 256))
"""The sizes of parts that clients use unless they are told another one."""
_MOST_HASHED: Final = 256 * _MIB
"""The most bytes that are hashed: more would take as long as to read some of the object."""
_ETAG: Final = re.compile(r'"?([0-9a-f]{32})(?:-([1-9][0-9]{0,4}))?"?')


def tells_only_zeros(etag: str, size: int) -> bool:
    """Whether an object certainly has only zeros; False if its ETag does not tell.

    Args:
        etag: The ETag, with or without quotation marks.
        size: The size of the object in bytes.

    Example:
        >>> tells_only_zeros('"b6d81b360a5672d80c27430f39153e2c"', 1 << 20)
        True
    """
    found = _ETAG.fullmatch(etag)
    if found is None:
        return False
    if found[2] is None:
        return size <= _MOST_HASHED and _of_zeros(size).hex() == found[1]
    count = int(found[2])
    return any(_of_parts(size, part) == found[1] for part in _PART_SIZES if -(-size // part) == count)


@cache
def _of_parts(size: int, part: int) -> str:
    """The hexadecimal digits of the ETag of zeros that are uploaded in parts."""
    whole, rest = divmod(size, part)
    digests = _of_zeros(part) * whole + (_of_zeros(rest) if rest else b"")
    return hashlib.md5(digests, usedforsecurity=False).hexdigest()


@cache
def _of_zeros(size: int) -> bytes:
    digest, block = hashlib.md5(usedforsecurity=False), bytes(min(size, _MIB))
    for _ in range(size // _MIB):
        digest.update(block)
    digest.update(bytes(size % _MIB))
    return digest.digest()
