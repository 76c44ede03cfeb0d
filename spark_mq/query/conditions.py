"""Comparisons made conditions: Spark says what the constants are, and by which type it compares them."""

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
_AS_MOMENT = "struct(typeof({0}), CAST({0} AS STRING), unix_micros(try_cast({0} AS TIMESTAMP_LTZ)))"
_COMPARES_AS_MOMENTS = (
    "CAST('2001-01-01 00:00:00' AS TIMESTAMP_LTZ) = '2001-01-01'",
    "CAST('2001-01-01 00:00:00.000001' AS TIMESTAMP_LTZ) > DATE '2001-01-01'",
)
"""What Spark says to these tells whether it makes a moment of text, or of a date, before it compares it with one."""
_BEGINS_WITH_DIGIT = re.compile(r"\s*\d")


def evaluate(
    spark: SparkSession,
    comparisons: Sequence[tuple[Comparison, DataType]],
    args: dict[str, Any] | None = None,
) -> dict[Comparison, Condition]:
    """The conditions that say exactly what comparisons with columns of these types say; others are left out.

    Left out are comparisons for which Spark would cast the column, those with NULL, and all where a constant cannot be
    evaluated: what is wrong with it, Spark says when it runs the query.
    """
    texts: dict[tuple[str, bool], int] = {}
    for comparison, data_type in comparisons:
        for value in comparison.values:
            texts.setdefault((value, isinstance(data_type, TimestampType)), len(texts))
    if not texts:
        return {}
    columns = [_AS_MOMENT.format(text) if is_moment else text for text, is_moment in texts]
    try:
        frame = spark.sql(f"SELECT {', '.join([*columns, *_COMPARES_AS_MOMENTS])}", args)
        row, schema = frame.collect()[0], frame.schema
    except PySparkException:
        return {}
    as_moments = {kind for kind, is_so in zip(("string", "date"), row[-2:], strict=True) if is_so} | {"timestamp"}
    found = {}
    for comparison, data_type in comparisons:
        is_moment = isinstance(data_type, TimestampType)
        places = [texts[value, is_moment] for value in comparison.values]
        if is_moment:
            values = _moments(comparison.operator, (row[place] for place in places), as_moments)
        else:
            values = _plain_values(data_type, row, schema, places)
        if values is not None:
            found[comparison] = Condition(comparison.column, comparison.operator, values)
    return found


def _plain_values(data_type: DataType, row: Row, schema: StructType, places: Iterable[int]) -> tuple[Value, ...] | None:
    """Text of the same collation for text, integers for integers; None for anything else."""
    values = []
    for place in places:
        is_integer = isinstance(data_type, _INTEGERS) and isinstance(schema[place].dataType, _INTEGERS)
        is_text = data_type == StringType() == schema[place].dataType
        if row[place] is None or not (is_integer or is_text):
            return None
        values.append(row[place])
    return tuple(values)


def _moments(operator: Operator, constants: Iterable[Row], as_moments: set[str]) -> tuple[Value, ...] | None:
    """Moments in UTC; None where Spark would compare otherwise, or the moment is none that Python has."""
    values = []
    for data_type, text, micros in constants:
        if data_type not in as_moments or micros is None:
            return None
        if data_type == "string" and operator == Operator.IN:  # in a list, by rules of its own, it may stay text
            return None
        if data_type == "string" and not _BEGINS_WITH_DIGIT.match(text):  # 'now' is another moment later
            return None
        try:
            values.append(EPOCH + timedelta(microseconds=micros))
        except OverflowError:
            return None
    return tuple(values)
