"""Sets of integers: offsets and times that a read asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self, TypeVar

_T = TypeVar("_T")


@dataclass(frozen=True)
class IntegerSet:
    """The integers from `first` to `last`, both included, that are in `values`.

    None as a bound is open, and None as `values` means every integer.
    """

    first: int | None = None
    last: int | None = None
    values: frozenset[int] | None = None

    def __contains__(self, value: int) -> bool:
        return (
            (self.first is None or value >= self.first)
            and (self.last is None or value <= self.last)
            and (self.values is None or value in self.values)
        )

    def __and__(self, other: Self) -> Self:
        firsts = [first for first in (self.first, other.first) if first is not None]
        lasts = [last for last in (self.last, other.last) if last is not None]
        return replace(
            self,
            first=max(firsts, default=None),
            last=min(lasts, default=None),
            values=intersection(self.values, other.values),
        )

    @property
    def is_all(self) -> bool:
        """Whether every integer is in the set."""
        return self == ALL

    @property
    def is_empty(self) -> bool:
        """Whether no integer is in the set."""
        if self.values is not None:
            return not any(value in self for value in self.values)
        return self.first is not None and self.last is not None and self.first > self.last

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The smallest and the largest integer of the set, None for an open bound. The set must not be empty."""
        if self.values is None:
            return self.first, self.last
        values = [value for value in self.values if value in self]
        return min(values), max(values)


ALL = IntegerSet()


def intersection(left: frozenset[_T] | None, right: frozenset[_T] | None) -> frozenset[_T] | None:
    """The elements of both sets; None is the set of everything."""
    if left is None or right is None:
        return right if left is None else left
    return left & right
