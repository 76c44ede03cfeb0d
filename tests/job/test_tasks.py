"""Tasks that run in this process: the rows of all parts in order, and no part after an error. No Spark here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest

from spark_mq.errors import CorruptLogError
from spark_mq.job.tasks import LocalTasks

SCHEMA = pa.schema([("number", pa.int64()), ("square", pa.int64())])


def squares(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Two rows for an even number, none for an odd one."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            if number % 2 == 0:
                yield pa.RecordBatch.from_pylist([{"number": number, "square": number * number}] * 2, schema=SCHEMA)


@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("count", [0, 1, 9])
def test_rows_are_in_the_order_of_their_numbers(threads: int, count: int) -> None:
    rows = LocalTasks(threads).rows(squares, count, SCHEMA)
    assert rows.schema == SCHEMA
    assert rows["number"].to_pylist() == [number for number in range(0, count, 2) for _ in range(2)]


def test_parts_run_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=30)

    def meeting(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        both.wait()
        yield from squares(batches)

    assert LocalTasks(2).rows(meeting, 2, SCHEMA).num_rows == 2


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_ends_the_parts_that_have_not_begun(threads: int) -> None:
    begun: list[int] = []

    def failing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                begun.append(number)
                if number == 0:
                    raise CorruptLogError("commitlog/0: the file ended at 7")
                yield from squares([batch])
                waiting.wait(0.01)

    waiting = threading.Event()
    with pytest.raises(CorruptLogError, match="ended at 7"):
        LocalTasks(threads).rows(failing, 1000, SCHEMA)
    assert len(begun) < 1000
