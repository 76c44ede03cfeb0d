"""The rows of a DataFrame, printed as a table, as CSV or as JSON lines."""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.functions import col, unix_micros
from pyspark.sql.types import TimestampType

from spark_mq.cli.output.text_table import print_lines
from spark_mq.cli.output.value_text import csv_text, print_json, visible
from spark_mq.errors import OptionError
from spark_mq.format.timestamp import EPOCH


def print_dataframe(frame: DataFrame, form: str) -> None:
    """Print all rows; see `print_rows`. A statement that gives no rows, such as CREATE TABLE, prints nothing."""
    if frame.columns:
        print_rows(_lines(frame), frame.columns, form)


def print_rows(lines: Iterator[Sequence[Any]], columns: Sequence[str], form: str) -> None:
    """Print rows."""
    if form == "table":
        print_lines(lines, columns)
    elif form == "csv":
        _print_csv(lines, columns)
    else:
        repeated = [column for column, count in Counter(columns).items() if count > 1]
        if repeated:
            raise OptionError(f"--format json: more than one column is called {repeated[0]}: name them with AS")
        for line in lines:
            print_json([dict(zip(columns, line, strict=True))])


def _lines(frame: DataFrame) -> Iterator[list[Any]]:
    """The rows' values, with timestamps as datetimes in UTC. Only one or two partitions are in memory at a time."""
    fields = frame.schema.fields
    numbered = frame.toDF(*map(str, range(len(fields))))  # two columns can have one name
    are_moments = [isinstance(field.dataType, TimestampType) for field in fields]
    # PySpark converts timestamps to the local zone, in which a clock change makes some of them ambiguous.
    columns = [
        unix_micros(name) if is_moment else col(name)
        for name, is_moment in zip(numbered.columns, are_moments, strict=True)
    ]
    for row in numbered.select(columns).toLocalIterator(prefetchPartitions=True):
        yield [
            _moment(value) if is_moment else _plain(value) for value, is_moment in zip(row, are_moments, strict=True)
        ]


def _moment(micros: int | None) -> object:
    """The datetime in UTC, or the microseconds since 1970 themselves if Python's datetime cannot contain them."""
    try:
        return None if micros is None else EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros


def _plain(value: Any) -> Any:
    """The value with its structs as mappings, at any depth."""
    if isinstance(value, Row):
        return {name: _plain(item) for name, item in value.asDict().items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return bytes(value) if isinstance(value, bytearray) else value


def _print_csv(lines: Iterator[Sequence[Any]], columns: Sequence[str]) -> None:
    """Print CSV as in RFC 4180. On a terminal, control characters are written as escapes."""
    escape: Callable[[str], str] = visible if sys.stdout.isatty() else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(escape, columns))
    for line in lines:
        writer.writerow(escape(csv_text(value)) for value in line)
