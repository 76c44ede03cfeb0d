"""What the operating system, a filesystem or Spark says when files cannot be written, in a line."""

from __future__ import annotations

import errno
import os
import re

_FULL = ("No space left on device", "Disk quota exceeded")
"""What the operating system says of a full disk, in the text of an error of Python, of Arrow and of Java alike."""
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)

_OS_ERROR = re.compile(r"^(?:\w*Error): (\[Errno \d+\] .+)$", re.MULTILINE)
"""The last line of a Python task's traceback, for an error of the operating system."""
_NO_FILESYSTEM = re.compile(r'(?:Class org\.apache\.hadoop\.fs\.(\w+)\S* not found|No FileSystem for scheme "?(\w+)"?)')
_DETAIL = re.compile(r"Detail: \[errno \d+\] (.+)")
"""Arrow's name for what the operating system said."""


def is_full(error: BaseException) -> bool:
    """Whether the error says that a disk is full: the driver's own, or one that Spark passes on from a task."""
    if isinstance(error, OSError) and error.errno in _FULL_CODES:
        return True
    text = str(error)
    return any(sign in text for sign in _FULL)


def reason_of(error: BaseException) -> str:
    """What the operating system says, without the numbers and paths around it."""
    text = str(error)
    detail = _DETAIL.search(text)
    if detail is not None:
        return detail[1]
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno)
    return text.partition("\n")[0]


def storage_problem(error: BaseException) -> str | None:
    """A line that says which file or filesystem failed, and what to do; None for an error that is about neither.

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
    found = _OS_ERROR.findall(text)
    return found[-1] if found else None
