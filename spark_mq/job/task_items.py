"""The items of a job's tasks, of which each task unpickles only its own; and what tasks return, pickled.

Spark sends a job's function to every task, with everything that the function refers to. A job over ten terabytes has
75,000 tasks; if each of them unpickled the splits of all tasks, the job would take longer for that than for its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.job.progress import mark_done

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task of a job: numbers, or rows of another task, in; rows out. `Tasks` runs it."""
RESULTS = pa.schema([("result", pa.binary())])
"""The rows of a task that returns Python values."""
_RESULTS_PER_BATCH = 64
Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskItems(Generic[Item]):
    """Items by the number of their task, each pickled by itself."""

    pickled: tuple[bytes, ...]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """The items in this order."""
        return cls(tuple(map(pickle.dumps, items)))

    def each(self, batches: Iterable[pa.RecordBatch], done: Location | None) -> Iterator[Item]:
        """The items whose numbers a task gets. Each is marked as done, in `done`, when the next one is asked for."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self[number]
                if done is not None:
                    mark_done(done, str(number))

    def __getitem__(self, number: int) -> Item:
        item: Item = pickle.loads(self.pickled[number])
        return item


def pickled(results: Iterable[object]) -> Iterator[pa.RecordBatch]:
    """Rows of `RESULTS`, as soon as there are some of them."""
    texts = map(pickle.dumps, results)
    while batch := list(islice(texts, _RESULTS_PER_BATCH)):
        yield pa.record_batch([pa.array(batch, pa.binary())], schema=RESULTS)


def unpickled(rows: pa.Table) -> list[Any]:
    """The values of rows of `RESULTS`."""
    return [pickle.loads(data) for data in rows["result"].to_pylist()]
