"""What planning a query needs to know of a store's table: the names of its columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TableColumns:
    """Names of a table's columns.

    `default`: those of a read without a schema, in order. `extra`: those that only a schema that names them gives.
    `narrowing`: those by which a read can be told to give fewer rows.
    """

    default: tuple[str, ...]
    extra: tuple[str, ...] = ()
    narrowing: frozenset[str] = frozenset()

    @property
    def all(self) -> frozenset[str]:
        """The names of all columns."""
        return frozenset((*self.default, *self.extra))
