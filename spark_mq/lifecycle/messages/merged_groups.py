"""Sums over the whole log by a few columns, in bounded memory: batches are summed, and their sums are merged."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

_MERGED_ROWS = 1 << 20
"""Sums of batches that are kept before they are merged."""


class MergedGroups:
    """Groups of rows by some columns: the number of rows, sums, and the least and the greatest value of a column.

    Args:
        by: The columns whose values make a group.
        summed: Integer columns of which each group has the sum.
        ranged: Columns of which each group has the least and the greatest value, as `COLUMN_min` and `COLUMN_max`.
    """

    def __init__(self, by: Sequence[str], summed: Sequence[str] = (), ranged: Sequence[str] = ()) -> None:
        self._by = list(by)
        self._summed = [*summed, "count"]
        self._ranged = list(ranged)
        self._parts: list[pa.Table] = []
        self._rows = 0
        self._merged = 0

    def add(self, rows: pa.Table) -> None:
        """Count rows, which have all columns of the groups."""
        rows = rows.append_column("count", pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows))
        for name in self._ranged:
            rows = rows.append_column(f"{name}_min", rows[name]).append_column(f"{name}_max", rows[name])
        part = self._group(rows)
        self._parts.append(part)
        self._rows += part.num_rows
        if self._rows > max(_MERGED_ROWS, 2 * self._merged):
            merged = self._group(pa.concat_tables(self._parts))
            self._parts, self._rows, self._merged = [merged], merged.num_rows, merged.num_rows

    def result(self) -> pa.Table | None:
        """The groups: columns `by`, `summed`, `count`, and two for each of `ranged`; None if no row was counted."""
        return self._group(pa.concat_tables(self._parts)) if self._parts else None

    def _group(self, rows: pa.Table) -> pa.Table:
        sums = [(name, "sum") for name in self._summed]
        sums += [(f"{name}_{end}", end) for name in self._ranged for end in ("min", "max")]
        grouped = rows.group_by(self._by, use_threads=False).aggregate(sums)
        names = {f"{name}_{function}": name for name, function in sums}
        return grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
