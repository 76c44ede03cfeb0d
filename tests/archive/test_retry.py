"""A stream whose Python process started too late, or whose files a vacuum removed, is started again, a few times."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from spark_mq.archive.delta_log import LATE_WORKER, TRIES, retry
from spark_mq.archive.report import ArchiveReport
from spark_mq.archive.writer import Archiver, Following

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


class Streams:
    """Streams of which the first ones of keys end with an error."""

    def __init__(self, errors: list[str]) -> None:
        self.errors, self.calls = errors, list[str]()
        self.messages = self.keys = SimpleNamespace(rows=0)

    def start_messages(self, *_: Any) -> Any:
        return query(None)

    def start_keys(self, *_: Any, **options: Any) -> Any:
        self.calls.append("start")
        return query(self.errors.pop(0) if self.errors else None)

    def retire_keys(self) -> None:
        self.calls.append("retire")

    def count(self) -> None:
        """Nothing is appended."""


def query(message: str | None) -> Any:
    def ended() -> None:
        if message is not None:
            raise StreamingQueryException(message)

    return SimpleNamespace(awaitTermination=ended, stop=lambda: None, isActive=False, lastProgress=None)


MISSING = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file part-0.parquet"


@pytest.mark.parametrize("seconds", [None, 0.1])
def test_keys_begin_again_after_a_vacuum(seconds: float | None) -> None:
    streams: Any = Streams([MISSING])
    following = Following(seconds, lambda: True, lambda batch: None, lambda end: None)
    Archiver(streams, following).run(ArchiveReport("store", "table", "c", "b"))
    assert streams.calls[:3] == ["start", "retire", "start"]


@pytest.mark.parametrize("seconds", [None, 0.1])
def test_other_errors_of_keys_end_the_run(seconds: float | None) -> None:
    streams: Any = Streams(["a segment expired"])
    following = Following(seconds, lambda: True, lambda batch: None, lambda end: None)
    with pytest.raises(StreamingQueryException):
        Archiver(streams, following).run(ArchiveReport("store", "table", "c", "b"))
    assert streams.calls == ["start"]
