"""Repeating what failed for a moment: a write that conflicts with another run, a stream whose worker was late."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TypeVar

from spark_mq._compat import SPARK_ERRORS

_Answer = TypeVar("_Answer")

TRIES = 5
_WAIT_SECONDS = 1.0
_CONFLICT = re.compile(
    "DELTA_(CONCURRENT_[A-Z]+|METADATA_CHANGED|PROTOCOL_CHANGED|CREATE_TABLE_WITH_NON_EMPTY_LOCATION|TABLE_NOT_FOUND)"
    "|FIELD_ALREADY_EXISTS"
)
"""Error conditions of Delta Lake 4.4 that mean only that another run committed first.

For a moment, a table that another run of the same session creates is not found, although its first commit is there:
Delta takes a list of commits that another query began before.
"""


_LATE_WORKER = "Python worker failed to connect back"
"""Spark gives a new Python process ten seconds, which are not enough on a machine that is busy for a moment."""


def is_late_worker(error: BaseException) -> bool:
    """Whether an error says only that a Python process started too late. A stream that is started again continues."""
    return _LATE_WORKER in str(error)


def retry_late_worker(run: Callable[[], _Answer]) -> _Answer:
    """The result of `run`, which is called again, at most `TRIES` times, if a Python process started too late."""
    return _retry(run, is_late_worker, 0.0)


def retry_on_conflict(write: Callable[[], _Answer]) -> _Answer:
    """The result of `write`, which is called again, at most `TRIES` times, if another run committed meanwhile.

    `write` must read the state of the table in each call.
    """
    return _retry(write, lambda error: _CONFLICT.search(str(error)) is not None, _WAIT_SECONDS)


def _retry(call: Callable[[], _Answer], is_momentary: Callable[[BaseException], bool], wait_seconds: float) -> _Answer:
    """The result of `call`, which is called at most `TRIES` times; the waits between become longer."""
    for number in range(1, TRIES):
        try:
            return call()
        except SPARK_ERRORS as error:
            if not is_momentary(error):
                raise
            time.sleep(wait_seconds * number)
    return call()
