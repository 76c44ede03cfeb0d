"""What another run spoils is done again, and nothing else is."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from spark_mq.archive import retry
from spark_mq.archive.retry import TRIES, retry_on_conflict
from spark_mq.archive.writer import stream_errors
from spark_mq.errors import ArchiveInUseError

CONFLICT = "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Transaction conflict detected."
JUST_CREATED = "[DELTA_TABLE_NOT_FOUND] Delta table `/lake/messages` doesn't exist."


class Write:
    """Fails so many times with an error, then gives how often it was called."""

    def __init__(self, failures: int, error: str) -> None:
        self.calls = 0
        self._failures = failures
        self._error = error

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self._failures:
            raise PySparkException(self._error)
        return self.calls


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_WAIT_SECONDS", 0.0)


@pytest.mark.parametrize("failures", range(TRIES))
def test_a_conflict_is_tried_again(failures: int) -> None:
    assert retry_on_conflict(Write(failures, CONFLICT)) == failures + 1
    assert retry_on_conflict(Write(failures, JUST_CREATED)) == failures + 1


def test_there_is_an_end_to_it() -> None:
    write = Write(TRIES, CONFLICT)
    with pytest.raises(PySparkException, match="DELTA_CONCURRENT_APPEND"):
        retry_on_conflict(write)
    assert write.calls == TRIES


def test_any_other_error_is_raised_at_once() -> None:
    write = Write(1, "[PATH_NOT_FOUND] Path does not exist")
    with pytest.raises(PySparkException, match="PATH_NOT_FOUND"):
        retry_on_conflict(write)
    assert write.calls == 1


TWO_QUERIES = (
    "[STREAM_FAILED] Query terminated with exception: [CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. "
    "Multiple streaming jobs detected for 3.\nJVM stacktrace:\norg.apache.spark.SparkException: ...",
    "[STREAM_FAILED] Query terminated with exception: [DELTA_CONCURRENT_TRANSACTION.WITHOUT_HINT] Transaction conflict "
    "detected.\nJVM stacktrace:\nio.delta.exceptions.ConcurrentTransactionException: ...",
)


@pytest.mark.parametrize("text", TWO_QUERIES)
def test_two_runs_for_one_store_are_told_in_one_line(text: str) -> None:
    message = "another run archives this store into this table"
    with pytest.raises(ArchiveInUseError, match=message) as raised, stream_errors():
        raise PySparkException(text)
    assert "\n" not in str(raised.value)
