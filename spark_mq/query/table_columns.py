"""The names of a table's columns, which is all that planning a query needs to know about the table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableColumns:
    """Column names of one table.

    Attributes:
        default: The columns of a read without a schema, in order.
        extra: The columns that are read only if a schema names them.
        pushable: The columns on which a comparison can be pushed down into a read.
    """

    default: tuple[str, ...]
    extra: tuple[str, ...] = ()
    pushable: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """The names of all columns."""
        return frozenset((*self.default, *self.extra))
