"""Rows: their columns and order, and an aligned table, cut to the width of a terminal, whole for a program or a file.

On a terminal, text is shortened first, down to a least width. Then the least important columns are hidden. A line on
stderr names them. Numbers, times and ids are never cut, because a part of them would be another value.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

from spark_mq.cli.output.terminal import say, terminal_width
from spark_mq.cli.output.value_text import (
    cut,
    display_width,
    pad,
    plain_rows,
    print_fields,
    print_json,
    value_text,
    visible,
)
from spark_mq.errors import OptionError, similar
from spark_mq.format.amounts import size_text

if TYPE_CHECKING:
    import pyarrow as pa

Rows = Sequence[Mapping[str, Any]]
_ALIGNED_LINES = 1000
"""Lines that decide the widths of the columns; later lines can be wider."""
_SEPARATOR = "  "
_LEAST_WIDTH = 6
_IDS = ("unique_key", "offset_message_id", "origin_message_id", "key")
"""Columns whose values often begin alike: what is cut off is the beginning."""
_MOST_PADDING = 64
"""The widest column of a table that is not on a terminal; a longer value moves the rest of its line."""


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
    """The rows in the order that `--sort` names: COLUMN or -COLUMN. Rows with NULL come last; the order is stable."""
    if order is None:
        return list(rows)
    column = order.removeprefix("-")
    check_column("--sort", column, available)
    known = [row for row in rows if row[column] is not None]

    def value(row: Mapping[str, Any]) -> Any:
        return sorted(row[column].items()) if isinstance(row[column], Mapping) else row[column]

    known.sort(key=value, reverse=order.startswith("-"))
    return known + [row for row in rows if row[column] is None]


class RowPrinter:
    """Sorts and prints rows by the arguments `--columns`, `--sort`, `--json` and `--full`."""

    def __init__(self, arguments: argparse.Namespace, schema: Sequence[str]) -> None:
        self._arguments, self._schema = arguments, schema
        self.columns = parse_columns(arguments.columns, schema)
        sorted_rows((), arguments.sort, schema)  # checks the column

    def rows(self, table: pa.Table) -> list[Mapping[str, Any]]:
        """The rows of a table, sorted."""
        return sorted_rows(plain_rows(table), self._arguments.sort, self._schema)

    def print(self, rows: Rows, style: TableStyle, below: Callable[[], None] | None = None) -> None:
        """Print rows; nothing if there are none, except as JSON."""
        if self._arguments.json:
            print_json(rows if self.columns is None else [{name: row[name] for name in self.columns} for row in rows])
            return
        if not rows:
            return
        names, table = self._schema if self.columns is None else self.columns, None
        if self._arguments.full:
            print_fields(rows, names)
        else:
            table = TextTable(names, replace(style, shows_all=self.columns is not None), terminal_width())
            table.write([row[name] for name in names] for row in rows)
        if below is not None:
            below()
        if table is not None:
            print_notes(table)


@dataclass(frozen=True)
class TableStyle:
    """How the columns of a table behave on a terminal.

    Columns that are not in `importance` follow, from left to right. `least` are the least widths of columns whose text
    can be cut, if not 6, and `preferred` those before a less important column is shown. The text of `whole` columns is
    never cut; `sizes` have units. With `shows_all` no column is hidden, even if the lines are too long. `hint` is what
    a person can do to see the rest.
    """

    importance: Sequence[str] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    preferred: Mapping[str, int] = field(default_factory=dict)
    whole: Collection[str] = ()
    sizes: Collection[str] = ()
    shows_all: bool = False
    hint: str = ""


_OF_QUERIES = TableStyle(hint="--format csv and --format json print all columns, and whole values")


class TextTable:
    """Prints lines of values under the names of their columns, aligned, with numbers to the right.

    The lines of the first `write` decide which columns are shown, and their widths. `write` can be called again, for
    rows that come later.
    """

    def __init__(self, columns: Sequence[str], style: TableStyle | None = None, width: int | None = None) -> None:
        self._columns = columns
        self._style = style or TableStyle()
        self._width = width
        self._widths: dict[int, int] = {}
        """The widths of the columns that are shown, by their positions."""
        self._to_the_right: list[bool] = []
        self._has_cut_text = False

    def write(self, lines: Iterable[Sequence[object]]) -> None:
        """Print the lines as they arrive, after the heading if it is not printed yet."""
        remaining = iter(lines)
        if not self._widths:
            first = [self._cells(line) for line in islice(remaining, _ALIGNED_LINES)]
            heading = [(visible(column), False, False) for column in self._columns]
            columns = list(zip(heading, *first, strict=True))
            needed = [max(display_width(text) for text, _, _ in cells) for cells in columns]
            are_cut = [
                any(can_cut for _, _, can_cut in cells) and name not in self._style.whole
                for name, cells in zip(self._columns, columns, strict=True)
            ]
            self._to_the_right = [any(is_number for _, is_number, _ in cells) for cells in columns]
            self._widths = self._fit(needed, are_cut)
            for line in (heading, *first):
                self._print(line)
        for rest in remaining:
            self._print(self._cells(rest))

    def notes(self) -> list[str]:
        """What a person should know about the table: the hidden columns, and that text was cut."""
        if not self._widths or self._width is None:
            return []
        hidden = [name for index, name in enumerate(self._columns) if index not in self._widths]
        said = [f"hidden columns: {visible(', '.join(hidden))}"] if hidden else []
        said += ["… stands for text that was cut"] if self._has_cut_text else []
        hint = f"; {self._style.hint}" if self._style.hint else ""
        return [f"the terminal has {self._width} columns; {'; '.join(said)}{hint}"] if said else []

    def _cells(self, line: Sequence[object]) -> list[tuple[str, bool, bool]]:
        """The text of each value, whether it is a number, and whether it may be cut."""
        return [self._cell(name, value) for name, value in zip(self._columns, line, strict=True)]

    def _cell(self, name: str, value: object) -> tuple[str, bool, bool]:
        is_number = isinstance(value, int | float | Decimal)
        if name in self._style.sizes and self._width is not None and isinstance(value, int):
            return size_text(value), True, False
        can_cut = not is_number and not isinstance(value, date | datetime) and value is not None
        return value_text(value), is_number, can_cut

    def _fit(self, needed: Sequence[int], are_cut: Sequence[bool]) -> dict[int, int]:
        """The widths of the columns that are shown, by their positions."""
        if self._width is None:
            return {index: min(width, _MOST_PADDING) for index, width in enumerate(needed)}
        least = [
            min(needed[index], max(display_width(visible(name)), self._style.least.get(name, _LEAST_WIDTH)))
            if are_cut[index]
            else needed[index]
            for index, name in enumerate(self._columns)
        ]
        shown = range(len(needed)) if self._style.shows_all else self._most_important(needed, least, self._width)
        room = self._width - sum(least[index] for index in shown) - len(_SEPARATOR) * (len(shown) - 1)
        widths = {index: least[index] for index in shown}
        growing = [index for index in shown if widths[index] < needed[index]]
        while room > 0 and growing:  # the room is shared equally among the columns that need it
            share = max(room // len(growing), 1)
            for index in growing:
                more = min(share, needed[index] - widths[index], room)
                widths[index] += more
                room -= more
            growing = [index for index in growing if widths[index] < needed[index]]
        return widths

    def _most_important(self, needed: Sequence[int], least: Sequence[int], width: int) -> list[int]:
        """The positions of the columns that fit into the width, chosen by importance; at least one."""
        names = list(self._columns)
        ranks = {name: rank for rank, name in enumerate(self._style.importance)}
        order = sorted(range(len(names)), key=lambda index: (ranks.get(names[index], len(ranks)), index))
        shown: list[int] = []
        taken = -len(_SEPARATOR)
        for index in order:
            before = taken + len(_SEPARATOR)
            if not shown or before + least[index] <= width:
                shown.append(index)
                taken = before + max(least[index], min(needed[index], self._style.preferred.get(names[index], 0)))
        return sorted(shown)

    def _print(self, line: Sequence[tuple[str, bool, bool]]) -> None:
        texts = []
        for index, width in self._widths.items():
            text, to_the_right = line[index][0], self._to_the_right[index]
            if self._width is not None and not to_the_right and self._columns[index] not in self._style.whole:
                shortened = cut(text, max(width, 1), self._columns[index] in _IDS)
                self._has_cut_text |= shortened is not text
                text = shortened
            texts.append(pad(text, width, to_the_right))
        print(_SEPARATOR.join(texts).rstrip())


def print_lines(
    lines: Iterable[Sequence[object]], columns: Sequence[str], style: TableStyle = _OF_QUERIES, most: int | None = None
) -> None:
    """Print lines as they arrive, on a terminal cut to its width, and at most `most`; stderr says what is missing."""
    table = TextTable(columns, style, width := terminal_width())
    remaining = iter(lines)
    table.write(remaining if width is None or most is None else islice(remaining, most))
    print_notes(table)
    more = sum(1 for _ in remaining)
    if more:
        say(f"{more:,} more rows; --json prints all")


def print_notes(table: TextTable) -> None:
    """Print on stderr what a person should know about the table."""
    sys.stdout.flush()
    for note in table.notes():
        say(note)
