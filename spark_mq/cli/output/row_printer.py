"""The columns and the order of rows, and the rows as JSON, as aligned columns, or as a line for each field."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from spark_mq.cli.output.json_lines import plain_rows, print_json
from spark_mq.cli.output.terminal import terminal_width
from spark_mq.cli.output.text_table import TableStyle, TextTable, print_notes
from spark_mq.cli.output.value_text import print_fields
from spark_mq.errors import OptionError, similar

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, Any]]


def add_columns(command: argparse.ArgumentParser, with_full: bool = True) -> None:
    """Add `--columns` and, for a command that prints a table, `--full`."""
    command.add_argument("--columns", metavar="A,B,C", help="print only these columns, in this order; also with --json")
    if with_full:
        command.add_argument(
            "--full", action="store_true", help="print every row whole: one field a line, instead of a table"
        )


def add_sort(command: argparse.ArgumentParser) -> None:
    """Add `--sort`."""
    command.add_argument(
        "--sort",
        metavar="COLUMN",
        help="sort the rows by COLUMN, or by -COLUMN from the largest value on; NULL is last",
    )


def parse_columns(text: str | None, available: Sequence[str]) -> list[str] | None:
    """The columns that `--columns` names, in its order; None without the option."""
    if text is None:
        return None
    names = [name.strip() for name in text.split(",")]
    for index, name in enumerate(names):
        check_column("--columns", name, available)
        if name in names[:index]:
            raise OptionError(f"--columns {text}: {name} is named twice")
    return names


def check_column(option: str, name: str, available: Sequence[str]) -> None:
    """Raise `OptionError` if there is no such column; the error names similar columns, and all of them."""
    if name not in available:
        raise OptionError(
            f"{option}: there is no column {name!r}{similar(name, available)}; columns: {', '.join(available)}"
        )


def sorted_rows(
    rows: Iterable[Mapping[str, Any]], order: str | None, available: Sequence[str]
) -> list[Mapping[str, Any]]:
    """The rows in the order that `--sort` names: COLUMN or -COLUMN. Rows with NULL come last.

    Rows with equal values keep their order.
    """
    if order is None:
        return list(rows)
    column = order.removeprefix("-")
    check_column("--sort", column, available)
    known = [row for row in rows if row[column] is not None]
    known.sort(key=lambda row: _sortable(row[column]), reverse=order.startswith("-"))
    return known + [row for row in rows if row[column] is None]


def _sortable(value: Any) -> Any:
    return sorted(value.items()) if isinstance(value, Mapping) else value


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
