"""Table `consumer_filters`: the SQL92 filters of consumer groups, and the bits that their messages must have."""

from __future__ import annotations

import pyarrow as pa

from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.format.arrow_array import table_of
from spark_mq.format.message_row import Row
from spark_mq.format.timestamp import micros
from spark_mq.store.config.consumer_filters import load_consumer_filters
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.config import CONSUMER_FILTERS


def consumer_filters(store: MessageStore, topic: str | None = None, consumer_group: str | None = None) -> pa.Table:
    """The SQL92 filters of consumer groups, by group and topic (`config/consumerFilter.json`).

    Args:
        store: The store.
        topic: Only the filters for this topic; None for all.
        consumer_group: Only the filters of this group; None for all.

    Returns:
        The rows of table `consumer_filters`; `CONSUMER_FILTERS` says what its columns are.

    Raises:
        ConfigError: `config/consumerFilter.json` and its `.bak` cannot be read.
    """
    rows = [
        _row(one)
        for one in load_consumer_filters(store.location)
        if topic in (None, one.topic) and consumer_group in (None, one.consumer_group)
    ]
    return table_of(rows, CONSUMER_FILTERS.schema)


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
