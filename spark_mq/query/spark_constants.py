"""The constants of comparisons, evaluated by Spark, which also shows by which type it compares them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_mq.query.comparisons import Comparator
from spark_mq.query.conditions import TIMESTAMP, Constant, Constants, TypedComparison, constants_of

_AS_INSTANT = "struct(typeof({0}), CAST({0} AS STRING), unix_micros(try_cast({0} AS TIMESTAMP_LTZ)))"
_COMPARES_AS_INSTANTS = (
    "CAST('2001-01-01 00:00:00' AS TIMESTAMP_LTZ) = '2001-01-01'",
    "CAST('2001-01-01 00:00:00.000001' AS TIMESTAMP_LTZ) > DATE '2001-01-01'",
)
"""Two expressions that show whether Spark casts text, and a date, to TIMESTAMP_LTZ before it compares it with one."""
_CAN_SEARCH = "array_contains(array('a', 'b'), 'b') AND NOT array_contains(array('a', 'b'), 'c')"
"""An expression that is true of Spark's own function: a session can have another one of this name."""


def evaluate(
    spark: SparkSession, comparisons: Sequence[TypedComparison], args: dict[str, Any] | None = None
) -> Constants:
    """The values of the constants of comparisons.

    If a constant cannot be evaluated, none has a value: Spark reports the error when it runs the query.

    Args:
        spark: The session whose settings apply.
        args: The values of named parameters, as `spark.sql` takes them.
    """
    texts = constants_of(comparisons)
    if not texts:
        return Constants({})
    searches = any(comparison.comparator == Comparator.CONTAINS for comparison, _ in comparisons)
    columns = [_AS_INSTANT.format(text) if is_instant else text for text, is_instant in texts]
    probes = [*_COMPARES_AS_INSTANTS, _CAN_SEARCH if searches else "true"]
    try:
        frame = spark.sql(f"SELECT {', '.join([*columns, *probes])}", args)
        row, schema = frame.collect()[0], frame.schema
    except PySparkException:
        return Constants({})
    values = {
        text: Constant(*row[index]) if text[1] else Constant(schema[index].dataType.simpleString(), row[index])
        for index, text in enumerate(texts)
    }
    *are_cast, can_search = row[-len(probes) :]
    casts = zip(("string", "date"), are_cast, strict=True)
    instant_types = {TIMESTAMP, *(data_type for data_type, is_cast in casts if is_cast)}
    return Constants(values, frozenset(instant_types), bool(can_search))
