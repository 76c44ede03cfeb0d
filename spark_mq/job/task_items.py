"""The items of a job's tasks, of which each task unpickles only its own.

Spark sends a job's function to every task, with everything that the function refers to. A job over ten terabytes has
75,000 tasks; if each of them unpickled the splits of all tasks, the job would take longer for that than for its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.job.progress import mark_done

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task of a job: numbers, or rows of another task, in; rows out. `Tasks` runs it."""
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
        """The items whose numbers a task gets. Each is marked as done when the next one is asked for.

        Args:
            batches: What a task gets: the numbers in the first column.
            done: The folder of the stage (`Progress.stage`); None if nobody looks.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield self[number]
                if done is not None:
                    mark_done(done, str(number))

    def __getitem__(self, number: int) -> Item:
        item: Item = pickle.loads(self.pickled[number])
        return item
