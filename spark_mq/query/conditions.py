"""Turns comparisons into conditions: Spark evaluates their constants, and shows by which type it compares them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import (
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from spark_mq.format.timestamp import EPOCH
from spark_mq.query.comparisons import Comparison
from spark_mq.source.condition import Condition, Operator, Value

_INTEGERS = (ByteType, ShortType, IntegerType, LongType)
_AS_INSTANT = "struct(typeof({0}), CAST({0} AS STRING), unix_micros(try_cast({0} AS TIMESTAMP_LTZ)))"
_COMPARES_AS_INSTANTS = (
    "CAST('2001-01-01 00:00:00' AS TIMESTAMP_LTZ) = '2001-01-01'",
    "CAST('2001-01-01 00:00:00.000001' AS TIMESTAMP_LTZ) > DATE '2001-01-01'",
)
"""Two expressions that show whether Spark casts text, and a date, to TIMESTAMP_LTZ before it compares it with one."""
_STARTS_WITH_DIGIT = re.compile(r"\s*\d")


def evaluate(
    spark: SparkSession,
    comparisons: Sequence[tuple[Comparison, DataType]],
    args: dict[str, Any] | None = None,
) -> dict[Comparison, Condition]:
    """The conditions that are exactly equivalent to comparisons, by comparison.

    Comparisons without an equivalent are left out: those for which Spark would cast the column, and those with NULL.
    If a constant cannot be evaluated, the result is empty: Spark reports the error when it runs the query.

    Args:
        spark: The session whose settings apply.
        comparisons: Each with the type of its column.
        args: The values of named parameters, as `spark.sql` takes them.
    """
    indexes: dict[tuple[str, bool], int] = {}
    for comparison, data_type in comparisons:
        for text in comparison.values:
            indexes.setdefault((text, isinstance(data_type, TimestampType)), len(indexes))
    if not indexes:
        return {}
    columns = [_AS_INSTANT.format(text) if is_instant else text for text, is_instant in indexes]
    try:
        frame = spark.sql(f"SELECT {', '.join([*columns, *_COMPARES_AS_INSTANTS])}", args)
        row, schema = frame.collect()[0], frame.schema
    except PySparkException:
        return {}
    casts = zip(("string", "date"), row[-len(_COMPARES_AS_INSTANTS) :], strict=True)
    instant_types = {data_type for data_type, is_cast in casts if is_cast} | {"timestamp"}
    conditions = {}
    for comparison, data_type in comparisons:
        is_instant = isinstance(data_type, TimestampType)
        value_indexes = [indexes[text, is_instant] for text in comparison.values]
        if is_instant:
            values = _instants(comparison.operator, (row[index] for index in value_indexes), instant_types)
        else:
            values = _plain_values(data_type, row, schema, value_indexes)
        if values is not None:
            conditions[comparison] = Condition(comparison.column, comparison.operator, values)
    return conditions


def _plain_values(
    data_type: DataType, row: Row, schema: StructType, indexes: Iterable[int]
) -> tuple[Value, ...] | None:
    """Text of the same collation for a text column, integers for an integer column; None for any other value."""
    values = []
    for index in indexes:
        is_integer = isinstance(data_type, _INTEGERS) and isinstance(schema[index].dataType, _INTEGERS)
        is_text = data_type == StringType() == schema[index].dataType
        if row[index] is None or not (is_integer or is_text):
            return None
        values.append(row[index])
    return tuple(values)


def _instants(operator: Operator, constants: Iterable[Row], instant_types: set[str]) -> tuple[Value, ...] | None:
    """Datetimes in UTC; None if Spark would not compare a value as an instant, or Python has no such datetime."""
    values = []
    for data_type, text, micros in constants:
        if data_type not in instant_types or micros is None:
            return None
        if data_type == "string" and operator == Operator.IN:  # other rules apply in a list: the value may stay text
            return None
        if data_type == "string" and not _STARTS_WITH_DIGIT.match(text):  # 'now' is another instant later
            return None
        try:
            values.append(EPOCH + timedelta(microseconds=micros))
        except OverflowError:
            return None
    return tuple(values)
