"""Sets of integers that a question asks for: offsets, times."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class IntegerSet:
    """IntegerSet from `first` to `last`, both included (None is open), and only those of `among`, if that is a set."""

    first: int | None = None
    last: int | None = None
    among: frozenset[int] | None = None

    def __contains__(self, value: int) -> bool:
        return (
            (self.first is None or value >= self.first)
            and (self.last is None or value <= self.last)
            and (self.among is None or value in self.among)
        )

    def __and__(self, other: Self) -> Self:
        firsts = [first for first in (self.first, other.first) if first is not None]
        lasts = [last for last in (self.last, other.last) if last is not None]
        return replace(
            self,
            first=max(firsts, default=None),
            last=min(lasts, default=None),
            among=intersection(self.among, other.among),
        )

    @property
    def is_all(self) -> bool:
        """Whether every integer is in it."""
        return self == ALL

    @property
    def is_empty(self) -> bool:
        """Whether no integer is in it."""
        if self.among is not None:
            return not any(value in self for value in self.among)
        return self.first is not None and self.last is not None and self.first > self.last

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the greatest integer in it, None where it is open; not of an empty set."""
        if self.among is None:
            return self.first, self.last
        values = [value for value in self.among if value in self]
        return min(values), max(values)


ALL = IntegerSet()


def intersection(left: frozenset[_T] | None, right: frozenset[_T] | None) -> frozenset[_T] | None:
    """What is in both; None is everything."""
    if left is None or right is None:
        return right if left is None else left
    return left & right
