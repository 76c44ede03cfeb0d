"""Tasks that run in this process: the rows of all parts in order, and no part after an error. No Spark here."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_mq.errors import CorruptLogError
from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks, TaskItems

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


class Loud:
    """Says when it is unpickled."""

    loaded = 0

    def __setstate__(self, state: dict[str, int]) -> None:
        Loud.loaded += 1
        self.__dict__ = state

    def __init__(self, number: int) -> None:
        self.number = number


def test_a_task_unpickles_its_own_item() -> None:
    items: TaskItems[Loud] = pickle.loads(pickle.dumps(TaskItems.of(map(Loud, range(1000)))))
    assert Loud.loaded == 0
    assert items[7].number == 7
    assert Loud.loaded == 1
    assert [items[number].number for number in range(1000)] == list(range(1000))


def test_locations_are_items(tmp_path: Path) -> None:
    location = Location.resolve(str(tmp_path))
    assert TaskItems.of([location])[0] == location
