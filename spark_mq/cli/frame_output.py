"""The rows of a DataFrame as a table, CSV or JSON lines, printed as they come."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col, unix_micros
from pyspark.sql.types import TimestampType

from spark_mq.cli.output import csv_text, print_json, print_lines, visible
from spark_mq.errors import OptionError
from spark_mq.format.timestamp import EPOCH


def print_dataframe(frame: DataFrame, form: str) -> None:
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
    fields = frame.schema.fields
    numbered = frame.toDF(*map(str, range(len(fields))))  # two columns can have one name
    are_moments = [isinstance(field.dataType, TimestampType) for field in fields]
    # PySpark gives times in the zone of this process, which has no name for some of them.
    columns = [
        unix_micros(name) if is_moment else col(name)
        for name, is_moment in zip(numbered.columns, are_moments, strict=True)
    ]
    for row in numbered.select(columns).toLocalIterator(prefetchPartitions=True):
        yield [
            _moment(value) if is_moment else _plain(value) for value, is_moment in zip(row, are_moments, strict=True)
        ]


def _moment(micros: int | None) -> object:
    """A datetime in UTC; beyond what Python has, microseconds since 1970."""
    try:
        return None if micros is None else EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros


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
