"""Reads are planned without Spark, if the constants of a query need none."""

from __future__ import annotations

import json
from datetime import datetime
from functools import partial
from zoneinfo import ZoneInfo

import pytest

from spark_mq.query import local_constants
from spark_mq.query.catalog import StoreRead, plan_reads, table_columns
from spark_mq.query.plan import plan_references

STORES = {"prod": "/data/store"}
EVALUATE = partial(local_constants.evaluate, zone=ZoneInfo("America/New_York"))


def read(condition: str, table: str = "messages") -> StoreRead:
    plan = plan_references(f"SELECT 1 FROM {table} WHERE {condition}", STORES, table_columns)
    (only,) = plan_reads(plan, STORES, EVALUATE)
    return only


NOT_ROLLED_BACK = ["transaction_type", "in", ["NONE", "PREPARED", "COMMIT"]]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        # Messages of type ROLLBACK are in no index. They have keys, so a look-up of a key would lose them.
        ("topic = 'a' AND array_contains(keys, 'k')", [["topic", "in", ["a"]]]),
        ("array_contains(keys, 'k') AND transaction_type <> 'COMMIT'", [["transaction_type", "in", None]]),
        ("array_contains(keys, 'k') AND transaction_type <> 'ROLLBACK'", [["key", "in", ["k"]], NOT_ROLLED_BACK]),
        ("array_contains(keys, 'k') OR array_contains(keys, 'l') AND transaction_type <> 'ROLLBACK'", []),
        (
            "(array_contains(keys, 'k') OR array_contains(keys, 'l')) AND transaction_type IN ('NONE', 'COMMIT')",
            [["key", "in", ["k", "l"]], ["transaction_type", "in", ["NONE", "COMMIT"]]],
        ),
        ("array_contains(keys, 5) AND transaction_type <> 'ROLLBACK'", [NOT_ROLLED_BACK]),
    ],
)
def test_a_key_is_looked_up_only_if_no_row_can_be_missed(condition: str, expected: list[list[object]]) -> None:
    found = json.loads(read(condition).options.get("conditions", "[]"))
    for item in expected:
        if item[2] is None:
            item[2] = ["NONE", "PREPARED", "ROLLBACK"]
    assert found == expected


def test_a_row_of_messages_by_key_is_not_selected_by_another_key() -> None:
    found = read("array_contains(keys, 'k') AND transaction_type <> 'ROLLBACK'", "messages_by_key")
    assert [condition.column for condition in found.conditions] == ["transaction_type"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("topic = 'a'", "in ('a')"),
        ("queue_id = 3L OR queue_id = 1 + 1", "in (3, 2)"),
        ("queue_offset < 9223372036854775807", "< (9223372036854775807)"),
        ("store_timestamp < '2026-03-08 02:30:00'", "< (2026-03-08T07:30:00+00:00)"),  # a time that the clock skipped
        ("store_timestamp >= TIMESTAMP '2026-03-09' - INTERVAL 1 DAY", ">= (2026-03-08T05:00:00+00:00)"),
        ("store_timestamp > '2026-11-20T10:00:00.5+08:00'", "> (2026-11-20T02:00:00.500000+00:00)"),
    ],
)
def test_constants_that_need_no_spark(condition: str, expected: str) -> None:
    assert str(read(condition)).endswith(expected)


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai", "UTC"])
@pytest.mark.parametrize("text", ["DATE '2026-11-20'", "CAST('2026-11-20 22:00:00' AS DATE)"])
def test_a_date_is_midnight_of_its_day_in_the_zone_of_the_session(text: str, zone: str) -> None:
    (read,) = plan_reads(
        plan_references(f"SELECT 1 FROM messages WHERE store_timestamp > {text}", STORES, table_columns),
        STORES,
        partial(local_constants.evaluate, zone=ZoneInfo(zone)),
    )
    assert [one.values for one in read.conditions] == [(datetime(2026, 11, 20, tzinfo=ZoneInfo(zone)),)]


def test_constants_that_need_spark_are_reported() -> None:
    for condition in (r"topic = 'a\'b'", "queue_id = 'a'", "queue_id = 2147483647 * 2", "store_timestamp > :now"):
        found = read(condition)
        assert (found.conditions, len(found.unused)) == ((), 1)
