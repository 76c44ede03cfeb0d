"""A stream whose Python process started too late is started again, a few times; any other error ends the run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.errors import StreamingQueryException

from spark_mq.archive.delta_log import LATE_WORKER, TRIES, retry

LATE = "[STREAM_FAILED] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"


def failing(times: int, message: str) -> tuple[Callable[[], str], list[int]]:
    calls: list[int] = []

    def run() -> str:
        calls.append(1)
        if len(calls) <= times:
            raise StreamingQueryException(message)
        return "done"

    return run, calls


def test_a_late_worker_is_tried_again() -> None:
    run, calls = failing(TRIES - 1, LATE)
    assert retry(LATE_WORKER, run) == "done"
    assert len(calls) == TRIES


def test_a_worker_that_is_always_late_ends_the_run() -> None:
    run, calls = failing(TRIES, LATE)
    with pytest.raises(StreamingQueryException):
        retry(LATE_WORKER, run)
    assert len(calls) == TRIES


def test_another_error_ends_the_run_at_once() -> None:
    run, calls = failing(1, "a segment expired")
    with pytest.raises(StreamingQueryException):
        retry(LATE_WORKER, run)
    assert len(calls) == 1
