"""The names of a table's columns, which is all that planning a query needs to know about the table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from spark_mq.query.comparisons import Comparator, Comparison
from spark_mq.store.config.named_store import STORE_COLUMNS


@dataclass(frozen=True)
class TableColumns:
    """Column names of one table.

    Attributes:
        default: The columns of a read without a schema, in order.
        extra: The columns that are read only if a schema names them.
        pushable: The columns on which a comparison can be pushed down into a read; of NOT IN and CONTAINS only those
            that the next two attributes name.
        enumerated: The columns that have few values, all of which are known, so that NOT IN is an IN.
        searchable: The columns that are arrays, and whose elements a read can look up.
        takes_conditions: Whether any condition on a pushable column can be given to a read, not only one value.
    """

    default: tuple[str, ...]
    extra: tuple[str, ...] = ()
    pushable: frozenset[str] = frozenset()
    enumerated: frozenset[str] = frozenset()
    searchable: frozenset[str] = frozenset()
    takes_conditions: bool = False

    def of_several(self) -> Self:
        """The columns of the table of several stores: those that name the store are the first ones."""
        extra = tuple(name for name in self.extra if name not in STORE_COLUMNS)
        pushable = self.pushable | frozenset(STORE_COLUMNS) if self.takes_conditions else self.pushable
        return replace(self, default=(*STORE_COLUMNS, *self.default), extra=extra, pushable=pushable)

    @property
    def all(self) -> frozenset[str]:
        """The names of all columns."""
        return frozenset((*self.default, *self.extra))

    def can_push(self, comparison: Comparison) -> bool:
        """Whether a read of the table can apply the comparison."""
        if comparison.comparator == Comparator.NOT_IN:
            return comparison.column in self.enumerated
        if comparison.comparator == Comparator.CONTAINS:
            return comparison.column in self.searchable
        return comparison.column in self.pushable
