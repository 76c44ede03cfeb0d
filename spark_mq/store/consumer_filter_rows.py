"""Table `consumer_filters`: the SQL92 filters of consumer groups, and the bits that their messages must have."""

from __future__ import annotations

import pyarrow as pa

from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.timestamp import micros
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.message_store import MessageStore

CONSUMER_FILTERS_SCHEMA = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("topic", pa.string()),
        ("expression", pa.string()),
        ("expression_type", pa.string()),
        ("is_dead", pa.bool_()),
        ("born_timestamp", TIMESTAMP),
        ("dead_timestamp", TIMESTAMP),
        ("client_version", pa.int64()),
        ("bit_count", pa.int32()),
        ("bit_positions", pa.list_(pa.field("element", pa.int32()))),
        ("problem", pa.string()),
    ]
)


def consumer_filters(store: MessageStore, topic: str | None = None, consumer_group: str | None = None) -> pa.Table:
    """The SQL92 filters of consumer groups, by group and topic (`config/consumerFilter.json`).

    `born_timestamp` is when the broker got the expression, and `dead_timestamp` when the group's last consumer left:
    NULL if none has left. `is_dead` is whether the group has no consumer. `client_version` is the time in milliseconds
    at which the client subscribed. A message that was stored after `born_timestamp` must have the bits `bit_positions`
    in its bit map of `bit_count` bits (`filter_bit_map` of table `consume_queue`): else the broker skips it. `problem`
    is the reason why a filter does not work, and NULL if nothing was found.

    Subscriptions to tags are in no file of a store.

    Args:
        store: The store.
        topic: Only the filters for this topic; None for all.
        consumer_group: Only the filters of this group; None for all.

    Returns:
        A table with `CONSUMER_FILTERS_SCHEMA`.

    Raises:
        ConfigError: `config/consumerFilter.json` and its `.bak` cannot be read.

    Example:
        >>> consumer_filters(MessageStore("/data/store"), "orders")["expression"].to_pylist()
        ["price > 5 AND region = 'eu'"]
    """
    rows = [
        _row(one)
        for one in load_consumer_filters(store.location)
        if topic in (None, one.topic) and consumer_group in (None, one.consumer_group)
    ]
    return table_of(rows, CONSUMER_FILTERS_SCHEMA)


def _row(one: ConsumerFilter) -> Row:
    return {
        "consumer_group": one.consumer_group,
        "topic": one.topic,
        "expression": one.expression,
        "expression_type": one.expression_type,
        "is_dead": one.is_dead,
        "born_timestamp": micros(one.born_time),
        "dead_timestamp": micros(one.dead_time) if one.dead_time else None,
        "client_version": one.client_version,
        "bit_count": one.bit_count,
        "bit_positions": one.bit_positions,
        "problem": one.problem,
    }
