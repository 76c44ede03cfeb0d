"""Filters as Spark columns: one job has many expressions, and has the answers of the plain evaluator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import spark_mq.filters
from spark_mq.errors import FilterError
from spark_mq.filters.columns import ColumnMessages
from spark_mq.filters.conditions import answers, evaluate
from spark_mq.filters.parser import parse_sql92
from tests.support.filter_cases import questions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXPRESSIONS = 40
ATOMS = ("a > 1", "a = 5L", "a < 2.5", "a = b", "a <= b", "a = TRUE", "a IN ('1', 'eu')", "a NOT ENDSWITH '1'")


def test_columns(spark: SparkSession) -> None:
    from pyspark.sql import functions as sf

    asked = questions(11, 200)
    conditions = [parse_sql92(text).condition for text in ATOMS]
    for text, _ in asked:
        try:
            conditions.append(parse_sql92(text).condition)
        except FilterError:
            continue
    conditions = conditions[:EXPRESSIONS]
    messages = [message for _, many in asked for message in many]
    frame = spark.createDataFrame([(message,) for message in messages], "properties MAP<STRING, STRING>").coalesce(1)
    asked_of = ColumnMessages(sf.col("properties"))
    given = sf.array(*(answers(condition, asked_of) for condition in conditions))
    matches = spark_mq.filters.sql92("a >= 1 AND b IS NOT NULL")
    tags = sf.col("properties")["TAGS"]
    tagged = [spark_mq.filters.tag(text, tags) for text in ("eu || 1", " || ", "*")]
    for message, row in zip(messages, frame.select(given, matches, *tagged).collect(), strict=True):
        assert row[0] == [int(evaluate(condition, message)) for condition in conditions], message
        assert row[1] == spark_mq.filters.matches("a >= 1 AND b IS NOT NULL", message)
        assert row[2:] == (message.get("TAGS") in ("eu", "1"), False, True)
