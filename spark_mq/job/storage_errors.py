"""Errors of the operating system, a filesystem or Spark about files, as one line."""

from __future__ import annotations

import errno
import os
import re

_FULL = ("No space left on device", "Disk quota exceeded")
"""Messages of the operating system for a full disk. Errors of Python, Arrow and Java all contain them."""
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)

_OS_ERROR = re.compile(r"^(?:\w*Error): (\[Errno \d+\] .+)$", re.MULTILINE)
"""The last line of a Python task's traceback, for an error of the operating system."""
_NO_FILESYSTEM = re.compile(r'(?:Class org\.apache\.hadoop\.fs\.(\w+)\S* not found|No FileSystem for scheme "?(\w+)"?)')
_DETAIL = re.compile(r"Detail: \[errno \d+\] (.+)")
"""Arrow's form of a message of the operating system."""


def is_full(error: BaseException) -> bool:
    """Whether the error reports a full disk: an error of the driver, or of a task that Spark passes on."""
    if isinstance(error, OSError) and error.errno in _FULL_CODES:
        return True
    text = str(error)
    return any(sign in text for sign in _FULL)


def reason_of(error: BaseException) -> str:
    """The message of the operating system, without error numbers and paths."""
    text = str(error)
    detail = _DETAIL.search(text)
    if detail is not None:
        return detail[1]
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return text.partition("\n")[0]


def storage_problem(error: BaseException) -> str | None:
    """A line that names the file or filesystem that failed, and what to do; None for an error about neither.

    Args:
        error: An error of the driver, or Spark's error with the text of the error that ended a task.
    """
    text = str(error)
    if isinstance(error, OSError):
        return text.partition("\n")[0]
    missing = _NO_FILESYSTEM.search(text)
    if missing is not None:
        return (
            f"Spark has no filesystem for such a path ({missing[0]}): start Spark with its package, for s3:// with "
            "spark-submit --packages org.apache.hadoop:hadoop-aws:VERSION, where VERSION is that of Spark's Hadoop"
        )
    os_errors = _OS_ERROR.findall(text)
    return os_errors[-1] if os_errors else None
