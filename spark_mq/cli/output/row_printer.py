"""The rows of a table of a store, as the options of a command say: JSON, aligned columns, or a line for each field."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from spark_mq.cli.output.columns import parse_columns, sorted_rows
from spark_mq.cli.output.fields import print_fields
from spark_mq.cli.output.json_lines import plain_rows, print_json
from spark_mq.cli.output.terminal import terminal_width
from spark_mq.cli.output.text_table import TableStyle, TextTable, print_notes

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class RowPrinter:
    """Sorts and prints rows by `--columns`, `--sort`, `--json` and `--full`.

    Attributes:
        columns: The columns that were chosen; None if none were.
        sort: The value of `--sort`.
        is_full: Whether each field has a line of its own.
    """

    schema: Sequence[str]
    columns: Sequence[str] | None
    sort: str | None
    is_json: bool
    is_full: bool

    @classmethod
    def of(cls, arguments: argparse.Namespace, schema: Sequence[str]) -> Self:
        """The printer that the arguments of a command ask for."""
        columns = parse_columns(arguments.columns, schema)
        sorted_rows((), arguments.sort, schema)
        return cls(schema, columns, arguments.sort, arguments.json, arguments.full)

    def rows(self, table: pa.Table) -> list[Mapping[str, Any]]:
        """The rows of a table, sorted."""
        return sorted_rows(plain_rows(table), self.sort, self.schema)

    def print(self, rows: Rows, style: TableStyle, below: Callable[[], None] | None = None) -> None:
        """Print rows; nothing if there are none, except as JSON.

        Args:
            style: How the columns of a table behave on a terminal. A column that was chosen is never hidden.
            below: Prints what follows the rows, if they are not printed as JSON.
        """
        if self.is_json:
            print_json(rows if self.columns is None else [{name: row[name] for name in self.columns} for row in rows])
            return
        if not rows:
            return
        names, table = self.schema if self.columns is None else self.columns, None
        if self.is_full:
            print_fields(rows, names)
        else:
            table = TextTable(names, replace(style, shows_all=self.columns is not None), terminal_width())
            table.write([row[name] for name in names] for row in rows)
        if below is not None:
            below()
        if table is not None:
            print_notes(table)
