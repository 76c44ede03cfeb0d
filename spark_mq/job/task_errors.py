"""Errors out of tasks and of the operating system, as errors of this package.

A task that raises ends Spark's job. On the driver the error is one of Spark's own classes, whose text contains the
traceback of the task. This module finds the error of this package in that text.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from spark_mq import errors
from spark_mq.errors import SparkMqError

_FULL = ("No space left on device", "Disk quota exceeded")
"""Messages of the operating system for a full disk. Errors of Python, Arrow and Java all contain them."""
_DENIED = "Permission denied"
_FULL_CODES = (errno.ENOSPC, errno.EDQUOT)

_OS_ERROR = re.compile(r"^(?:\w*Error): (\[Errno \d+\] .+)$", re.MULTILINE)
"""The last line of a Python task's traceback, for an error of the operating system."""
_NO_FILESYSTEM = re.compile(r'(?:Class org\.apache\.hadoop\.fs\.(\w+)\S* not found|No FileSystem for scheme "?(\w+)"?)')
_DETAIL = re.compile(r"Detail: \[errno \d+\] (.+)")
"""Arrow's form of a message of the operating system."""
_RAISED_IN_A_TASK = re.compile(r"spark_mq\.errors\.(\w+): (.*)")
_RAISED_IN_SAIL = re.compile(r"(?:Python error: \[\S+\] )?(\w+): (.*)\nTraceback:")
"""How Sail's text of a Python error begins: the class has no module."""


def spark_errors() -> tuple[type[Exception], ...]:
    """The classes of Spark's errors; none in a process that has not imported Spark, where nothing raises them."""
    if "pyspark" not in sys.modules:
        return ()
    from spark_mq._compat import SPARK_ERRORS

    return SPARK_ERRORS


def job_errors() -> tuple[type[Exception], ...]:
    """What can end a job besides errors of this package: errors of the driver's filesystem, and Spark's errors."""
    return (OSError, *spark_errors())


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
    """A line that names the file or filesystem that failed, and what to do; None for an error about neither."""
    text = str(error)
    if isinstance(error, OSError):
        return with_remedy(text.partition("\n")[0])
    missing = _NO_FILESYSTEM.search(text)
    if missing is not None:
        return (
            f"Spark has no filesystem for such a path ({missing[0]}): start Spark with its package, for s3:// with "
            "spark-submit --packages org.apache.hadoop:hadoop-aws:VERSION, where VERSION is that of Spark's Hadoop"
        )
    os_errors = _OS_ERROR.findall(text)
    return with_remedy(os_errors[-1]) if os_errors else None


def with_remedy(problem: str) -> str:
    """A message of the operating system, with what to do about a full disk or about a file of another user, once."""
    if any(sign in problem for sign in _FULL):
        remedy = "a disk is full: make room for the output, and for temporary files (--scratch, else TMPDIR)"
    elif _DENIED in problem:
        remedy = "run this as the broker's user, or let this user read the store and write the output"
    else:
        return problem
    return problem if remedy in problem else f"{problem}: {remedy}"


def parse_task_error(text: str) -> SparkMqError | None:
    r"""The error of this package that ended a task; None if the text names no such error.

    A traceback can contain a chain of errors. The last error of the chain is the one that the task raised.

    >>> parse_task_error("Traceback ...\nspark_mq.errors.CorruptLogError: commitlog/0: the file ended at 7")
    CorruptLogError('commitlog/0: the file ended at 7')
    """
    in_sail = _RAISED_IN_SAIL.match(text)
    found = _RAISED_IN_A_TASK.findall(text) if in_sail is None else [in_sail.groups()]
    for name, message in reversed(found):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SparkMqError):
            return kind(message)
    return None


def unwrap_task_error(error: BaseException) -> SparkMqError | None:
    """The error of this package that `error` is, or that ended a task; None for any other error."""
    if isinstance(error, SparkMqError):
        return error
    return parse_task_error(str(error)) if isinstance(error, spark_errors()) else None


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """A context that raises an error of this package under its own name if Spark passes it on from a task."""
    try:
        yield
    except spark_errors() as error:
        task_error = unwrap_task_error(error)
        if task_error is None:
            raise
        raise task_error from error
