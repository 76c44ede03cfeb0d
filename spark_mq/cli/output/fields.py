"""Rows one field a line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spark_mq.cli.output.value_text import value_text


def print_fields(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the columns of each row, one a line, and an empty line between two rows. Values are whole."""
    width = max(map(len, columns), default=0) + 1
    for number, row in enumerate(rows):
        if number:
            print()
        for column in columns:
            print(f"{column + ':':<{width}} {value_text(row[column])}".rstrip())
