"""Text as Java sees it, in plain Python, for single texts.

The twin `kernels.java_string` has the same rules for many texts and explains them. Importing numba for one text would
take longer than the work.
"""

from __future__ import annotations

import codecs

_REPLACEMENT = "\ufffd"
_JAVA = "java_utf8"


def decode_utf8(data: bytes) -> str:
    """`new String(data, UTF_8)` of Java 17."""
    return data.decode("utf-8", _JAVA)


def hash_code(text: str) -> int:
    """`String.hashCode` of `text`: h = 31 h + UTF-16 unit, wrapped to 32 bits. `text` comes from `decode_utf8`."""
    units = text.encode("utf-16-be")
    unsigned = 0
    for position in range(0, len(units), 2):
        unsigned = (31 * unsigned + (units[position] << 8) + units[position + 1]) & 0xFFFFFFFF
    return unsigned - 0x100000000 if unsigned >= 0x80000000 else unsigned


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD, and the position at which decoding continues: as Java does.

    Python does the same, except for encoded surrogates (ED A0..BF, followed by any byte).
    """
    assert isinstance(error, UnicodeDecodeError)
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and 0xA0 <= int.from_bytes(data[start + 1 : start + 2]) <= 0xBF:
        is_whole = int.from_bytes(data[start + 2 : start + 3]) & 0xC0 == 0x80
        end = start + 3 if is_whole else start + 2
    return _REPLACEMENT, end


codecs.register_error(_JAVA, _replace_as_java)
