"""Queries over rows of messages, and the answers of Spark, for each engine that `spark_mq.sql` is tested with."""

from __future__ import annotations

from collections import Counter

from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, lit

from spark_mq.source.predicate import Condition, Operator
from tests.query.random_queries import Vocabulary

STORES = {"prod": "/data/store"}
SCHEMA = "topic STRING, queue_id INT, queue_offset BIGINT, store_timestamp TIMESTAMP"
ROWS = """
    ('a', 0, 0, '2026-11-20 00:00:00'), ('a', 0, 1, '2026-11-20 00:00:00.001'), ('a', 1, 0, '2026-11-20 12:00:00'),
    ('b', 0, 0, '2026-11-21 00:00:00'), ('b', 1, 1, NULL), ('b', 2, 2, '2026-11-21 00:00:00'), ('A', 1, 3, NULL),
    ('a', 0, 0, '2026-11-20 00:00:00'), (NULL, NULL, NULL, NULL), ('c ', 2, 0, '2026-11-22 00:00:00'),
    ('it''s', 2, 3, '2026-11-19 23:59:59.999')
"""
WORDS = Vocabulary(
    tables=("prod.messages", "messages"),
    constants={
        "topic": ("'a'", '"b"', "'A'", "'c '", "'c'", r"'it\'s'", "NULL", "'a' || ''", "'a' COLLATE UTF8_LCASE"),
        "queue_id": ("0", "1", "2", "1L", "-1", "1 + 1", "'1'", "1.5", "NULL", "(2)", "1e0"),
        "queue_offset": ("0", "1", "2", "3L", "2 * 1", "'1'", "0.5", "9223372036854775807"),
        "store_timestamp": (
            "TIMESTAMP '2026-11-20 00:00:00'",
            "DATE '2026-11-21'",
            "'2026-11-20'",
            "'2026-11-20 12:00:00'",
            "TIMESTAMP '2026-11-20 00:00:00.0005'",
            "TIMESTAMP '2026-11-19 00:00:00' + INTERVAL 1 DAY",
            "CAST('2026-11-20 00:00:00' AS TIMESTAMP_NTZ)",
            "DATE '2026-11-20' + INTERVAL '36' HOUR",
            "now()",
        ),
    },
    joins=(*Vocabulary.joins, "LEFT SEMI JOIN", "ANTI JOIN"),
    operators=(*Vocabulary.operators, "<=>"),
)

REAL = [
    "SELECT topic, count(*), max(store_timestamp) FROM {m} GROUP BY topic",
    "SELECT * EXCEPT (body, properties) FROM {m} WHERE topic = 'OrderEvents' AND queue_id IN (1, 3)",
    "SELECT a.queue_offset, b.queue_offset FROM {m} a LEFT JOIN {m} b ON a.queue_offset = b.queue_offset "
    "AND b.topic = 'PaymentLog' AND b.queue_id = 0 WHERE a.topic = 'OrderEvents' AND a.queue_id = 2",
    "SELECT commit_log_offset FROM {m} WHERE store_timestamp >= '2026-11-21 11:01:15.7' AND queue_offset < 20 "
    "UNION ALL SELECT c.commit_log_offset FROM {u} c ANTI JOIN {m} m ON c.commit_log_offset = m.commit_log_offset "
    "AND m.topic = 'OrderEvents' WHERE c.topic = 'OrderEvents'",
    "WITH o AS (SELECT * FROM {m} WHERE topic = 'OrderEvents') SELECT x.tags, count(*) FROM o x JOIN o y "
    "ON x.queue_id = y.queue_id WHERE x.queue_offset = 3 GROUP BY 1",
    "SELECT commit_log_offset, keys FROM {m} WHERE topic = 'OrderEvents' AND array_contains(keys, 'ORD-20') "
    "AND transaction_type <> 'ROLLBACK'",
    "SELECT topic, queue_id FROM {u} WHERE commit_log_offset IN (SELECT commit_log_offset FROM {m} WHERE "
    "commit_log_offset BETWEEN 212000 AND 220000) AND topic <> 'SequenceDemo'",
]


def rows(frame: DataFrame) -> Counter[str]:
    return Counter(str(tuple(row)) for row in frame.collect())


def column_of(condition: Condition) -> Column:
    """A condition as a column expression of Spark."""
    column, first = col(condition.column), lit(condition.values[0])
    if condition.operator == Operator.IN:
        return column.isin(list(condition.values))
    return {
        Operator.LESS: column < first,
        Operator.LESS_OR_EQUAL: column <= first,
        Operator.GREATER: column > first,
        Operator.GREATER_OR_EQUAL: column >= first,
    }[condition.operator]
