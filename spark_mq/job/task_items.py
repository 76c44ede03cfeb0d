"""The items of a job's tasks, of which each task unpickles only its own.

Spark sends a job's function to every task, with everything that the function refers to. A job over ten terabytes has
75,000 tasks; if each of them unpickled the splits of all tasks, the job would take longer for that than for its work.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class TaskItems(Generic[Item]):
    """Items by the number of their task, each pickled by itself."""

    pickled: tuple[bytes, ...]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Self:
        """The items in this order."""
        return cls(tuple(map(pickle.dumps, items)))

    def __getitem__(self, number: int) -> Item:
        item: Item = pickle.loads(self.pickled[number])
        return item
