"""Errors out of tasks: the errors of this package that Spark passes on as the text of a traceback.

A task that raises ends Spark's job. On the driver the error is one of Spark's own classes, whose text contains the
traceback of the task. This module finds the error of this package in that text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from spark_mq import errors
from spark_mq._compat import SPARK_ERRORS
from spark_mq.errors import SparkMqError

JOB_ERRORS: tuple[type[Exception], ...] = (OSError, *SPARK_ERRORS)
"""What can end a job besides the errors of this package: errors of the driver's filesystem, and Spark's errors."""

_RAISED_IN_A_TASK = re.compile(r"spark_mq\.errors\.(\w+): (.*)")


def parse_task_error(text: str) -> SparkMqError | None:
    r"""The error of this package that ended a task; None if the text names no such error.

    A traceback can contain a chain of errors. The last error of the chain is the one that the task raised.

    Args:
        text: The text of Spark's error, with the traceback of the task.

    >>> parse_task_error("Traceback ...\nspark_mq.errors.CorruptLogError: commitlog/0: the file ended at 7")
    CorruptLogError('commitlog/0: the file ended at 7')
    """
    for name, message in reversed(_RAISED_IN_A_TASK.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, SparkMqError):
            return kind(message)
    return None


def unwrap_task_error(error: BaseException) -> SparkMqError | None:
    """The error of this package that `error` is, or that ended a task; None for any other error."""
    if isinstance(error, SparkMqError):
        return error
    return parse_task_error(str(error)) if isinstance(error, SPARK_ERRORS) else None


@contextmanager
def reraise_task_errors() -> Iterator[None]:
    """A context that raises an error of this package under its own name if Spark passes it on from a task."""
    try:
        yield
    except SPARK_ERRORS as error:
        task_error = unwrap_task_error(error)
        if task_error is None:
            raise
        raise task_error from error
