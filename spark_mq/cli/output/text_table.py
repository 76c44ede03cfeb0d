"""Rows as an aligned table: cut to the width of a terminal, whole for a program or a file.

On a terminal, text is shortened first, down to a least width. Then the least important columns are hidden. A line on
stderr names them. Numbers, times and ids are never cut, because a part of them would be another value.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from itertools import islice

from spark_mq.cli.output.terminal import terminal_width
from spark_mq.cli.output.value_text import cut, display_width, pad, size_text, value_text, visible

_ALIGNED_LINES = 1000
"""Lines that decide the widths of the columns; later lines can be wider."""
_SEPARATOR = "  "
_LEAST_WIDTH = 6
_MOST_PADDING = 200
"""The widest column of a table that is not on a terminal; a longer value moves the rest of its line."""


@dataclass(frozen=True)
class TableStyle:
    """How the columns of a table behave on a terminal.

    Attributes:
        importance: Columns by importance; other columns follow, from left to right.
        least: The least width of columns whose text can be cut, if it is not 6.
        preferred: Widths of columns that get this room before a less important column is shown.
        whole: Columns whose text is never cut.
        sizes: Columns that are numbers of bytes. On a terminal, they have units.
        shows_all: Whether no column is hidden, even if the lines are then too long.
        hint: What a person can do to see hidden columns and whole values.
    """

    importance: Sequence[str] = ()
    least: Mapping[str, int] = field(default_factory=dict)
    preferred: Mapping[str, int] = field(default_factory=dict)
    whole: Collection[str] = ()
    sizes: Collection[str] = ()
    shows_all: bool = False
    hint: str = ""


@dataclass(frozen=True)
class _Layout:
    """The columns that are printed, by their positions, with their widths."""

    shown: tuple[int, ...]
    widths: tuple[int, ...]
    to_the_right: tuple[bool, ...]


class TextTable:
    """Prints lines of values under the names of their columns, aligned, with numbers to the right.

    The lines of the first `write` decide which columns are shown, and their widths. `write` can be called again, for
    rows that come later.
    """

    def __init__(self, columns: Sequence[str], style: TableStyle | None = None, width: int | None = None) -> None:
        """A table of `columns`.

        Args:
            columns: The names of the columns, from left to right.
            style: How the columns behave on a terminal.
            width: The width of the terminal; None for any width.
        """
        self._columns = columns
        self._style = style or TableStyle()
        self._width = width
        self._layout: _Layout | None = None
        self._has_cut_text = False

    def write(self, lines: Iterable[Sequence[object]]) -> None:
        """Print the lines as they arrive, after the heading if it is not printed yet."""
        remaining = iter(lines)
        if self._layout is None:
            first = [self._cells(line) for line in islice(remaining, _ALIGNED_LINES)]
            heading = [visible(column) for column in self._columns]
            are_numbers = [any(is_number for _, is_number, _ in column) for column in zip(*first, strict=True)]
            are_cut = [
                any(can_cut for _, _, can_cut in column) and name not in self._style.whole
                for name, column in zip(self._columns, zip(*first, strict=True), strict=False)
            ]
            texts = [heading, *([text for text, _, _ in line] for line in first)]
            needed = [max(map(display_width, column)) for column in zip(*texts, strict=True)]
            count = len(self._columns)
            self._layout = self._fit(needed, are_numbers or [False] * count, are_cut or [False] * count)
            for line in texts:
                self._print(line)
        for rest in remaining:
            self._print([text for text, _, _ in self._cells(rest)])

    def notes(self) -> list[str]:
        """What a person should know about the table: the hidden columns, and that text was cut."""
        if self._layout is None or self._width is None:
            return []
        hidden = [name for index, name in enumerate(self._columns) if index not in self._layout.shown]
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

    def _fit(self, needed: Sequence[int], are_numbers: Sequence[bool], are_cut: Sequence[bool]) -> _Layout:
        everything = range(len(self._columns))
        if self._width is None:
            padded = tuple(min(width, _MOST_PADDING) for width in needed)
            return _Layout(tuple(everything), padded, tuple(are_numbers))
        least = [
            min(needed[index], max(display_width(visible(name)), self._style.least.get(name, _LEAST_WIDTH)))
            if are_cut[index]
            else needed[index]
            for index, name in enumerate(self._columns)
        ]
        shown = list(everything) if self._style.shows_all else self._most_important(needed, least, self._width)
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
        return _Layout(
            tuple(shown), tuple(widths[index] for index in shown), tuple(are_numbers[index] for index in shown)
        )

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

    def _print(self, line: Sequence[str]) -> None:
        layout = self._layout
        if layout is None:
            return
        cells = []
        for index, width, to_the_right in zip(layout.shown, layout.widths, layout.to_the_right, strict=True):
            text = line[index]
            if self._width is not None and not to_the_right and not self._is_whole(index):
                shortened = cut(text, max(width, 1))
                self._has_cut_text |= shortened is not text
                text = shortened
            cells.append(pad(text, width, to_the_right))
        print(_SEPARATOR.join(cells).rstrip())

    def _is_whole(self, index: int) -> bool:
        return self._columns[index] in self._style.whole


def print_lines(
    lines: Iterable[Sequence[object]],
    columns: Sequence[str],
    hint: str = "--format csv and --format json print all columns, and whole values",
) -> None:
    """Print lines of values under the names of their columns, aligned, with numbers to the right.

    Lines are printed as they arrive, so there can be any number of them. The first 1,000 decide the widths. On a
    terminal, lines are cut to its width, and a line on stderr says what is missing.
    """
    table = TextTable(columns, TableStyle(hint=hint), terminal_width())
    table.write(lines)
    print_notes(table)


def print_notes(table: TextTable) -> None:
    """Print on stderr what a person should know about the table."""
    sys.stdout.flush()
    for note in table.notes():
        print(f"spark-mq: {note}", file=sys.stderr)
