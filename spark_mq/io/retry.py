"""Requests to a filesystem over a network, repeated when they fail.

The S3 client repeats a request that got an error of the server (500, 503) or a body that was cut short. It does not
repeat a listing whose text was cut short, and other filesystems may repeat nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from spark_mq.errors import StorageError
from spark_mq.io.hdfs import is_hdfs
from spark_mq.io.s3 import redacted

_T = TypeVar("_T")

_WAITS: Final = (0.1, 0.5, 2.0)
"""Seconds before the second, third and fourth try."""
_FINAL: Final = ("ACCESS_DENIED", "INVALID_ACCESS_KEY_ID", "SIGNATURE_DOES_NOT_MATCH", "INVALID_CLIENT_TOKEN_ID")
"""What the text of an error of S3 has if another try would get the same answer."""

_NO_BUCKET: Final = "NO_SUCH_BUCKET"


def repeated(name: str, request: Callable[[], _T], done: str = "read") -> _T:
    """The result of `request`, which is called again if it fails.

    Args:
        name: The file or folder, as a person may see it.
        request: The request.
        done: What the request does with the file, for errors: `read`, `written` or `removed`.

    Raises:
        FileNotFoundError: There is no such file.
        StorageError: All tries failed, or the server denies the access.

    """
    for wait in (*_WAITS, None):
        try:
            return request()
        except FileNotFoundError:
            raise
        except OSError as error:
            reason = redacted(str(error).partition("\n")[0])
            if isinstance(error, PermissionError) or any(code in reason for code in _FINAL):
                what = "check the rights, and the user (HADOOP_USER_NAME)" if is_hdfs(name) else "check the credentials"
                raise StorageError(f"{name}: the server denies the access: {reason}; {what}") from None
            if _NO_BUCKET in reason:
                raise StorageError(f"{name}: its bucket does not exist; create the bucket, or check its name") from None
            if wait is None:
                raise StorageError(
                    f"{name}: cannot be {done}, also after {len(_WAITS)} more tries: {reason}; "
                    f"check {what_to_check(name)}, or run again if the server was busy"
                ) from None
            time.sleep(wait)
    raise AssertionError("the last try returns or raises")


def what_to_check(name: str) -> str:
    """What a person checks if the filesystem of the path or URI cannot be reached."""
    if is_hdfs(name):
        return "the address and the port of the namenode, and that HDFS runs"
    return "the address, the region and the credentials"
