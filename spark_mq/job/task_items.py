"""The items of a job's tasks, of which each task unpickles only its own; and the columns of the rows that tasks return.

Spark sends a job's function to every task, with everything that the function refers to. A job over ten terabytes has
75,000 tasks; if each of them unpickled the splits of all tasks, the job would take longer for that than for its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, Self, TypeVar, get_args, get_origin, get_type_hints

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.job.progress import mark_done

ArrowTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A task of a job: numbers, or rows of another task, in; rows out. `Tasks` runs it."""
TaskOf = Callable[[Location | None], ArrowTask]
"""Gives the task for the folder in which it marks its parts as done; None if nobody looks."""
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


_COLUMN_TYPES = {int: pa.int64(), str: pa.string(), bool: pa.bool_()}


def row_schema(row: type) -> pa.Schema:
    """The columns of rows that are a dataclass: integers, texts, flags, and lists of these or of dataclasses."""
    hints = get_type_hints(row)
    return pa.schema([(field.name, _column_type(hints[field.name])) for field in fields(row)])


def _column_type(hint: Any) -> pa.DataType:
    if is_dataclass(hint):
        return pa.struct(list(row_schema(hint)))  # type: ignore[arg-type]
    inner = get_args(hint)
    if get_origin(hint) in (list, tuple):
        return pa.list_(pa.field("element", _column_type(inner[0])))
    return _COLUMN_TYPES[inner[0] if inner else hint]
