"""The rows of a DataFrame as a table, CSV or JSON lines, printed as they come."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import DataType, TimestampType

from spark_mq.cli.output import csv_text, print_json, print_lines, visible
from spark_mq.errors import OptionError


def print_frame(frame: DataFrame, form: str) -> None:
    """Print all rows in the form `table`, `csv` (with a line of names) or `json` (one object a line).

    Raises `OptionError` where JSON would need two values of one name.
    """
    names = frame.columns
    if not names:  # of a statement that gives no rows, such as CREATE TABLE
        return
    lines = _lines(frame)
    if form == "table":
        print_lines(lines, names)
    elif form == "csv":
        _print_csv(lines, names)
    else:
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise OptionError(f"--format json: more than one column is called {twice[0]}: name them with AS")
        for line in lines:
            print_json([dict(zip(names, line, strict=True))])


def _lines(frame: DataFrame) -> Iterator[list[Any]]:
    """The rows' values, times with a zone as datetimes in UTC; partition by partition, so that any number will do."""
    shape: list[Callable[[Any], Any]] = [_shape(field.dataType) for field in frame.schema]
    for row in frame.toLocalIterator(prefetchPartitions=True):
        yield [convert(value) for convert, value in zip(shape, row, strict=True)]


def _shape(data_type: DataType) -> Callable[[Any], Any]:
    return _in_utc if isinstance(data_type, TimestampType) else _plain


def _in_utc(value: datetime | None) -> datetime | None:
    """Spark gives times in the zone of this process, without saying so."""
    return None if value is None else value.astimezone(UTC)


def _plain(value: Any) -> Any:
    """Structs as mappings, at any depth."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def _print_csv(lines: Iterator[list[Any]], names: list[str]) -> None:
    """As RFC 4180 has it; only for a terminal, what would steer it is written as escapes."""
    shown: Callable[[str], str] = visible if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(shown, names))
    for line in lines:
        writer.writerow(shown(csv_text(value)) for value in line)
