"""Columns that a person names: which ones are printed, and by which one the rows are sorted."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.similar_names import similar


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
