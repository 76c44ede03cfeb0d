"""How much was stored when: table `rates`, a row for each topic, tag and minute."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.lifecycle.messages.merged_groups import MergedGroups
from spark_mq.lifecycle.messages.selected_messages import Selection, batches_of, rule_of
from spark_mq.store.message_store import MessageStore

RATES_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("tags", pa.string()),
        ("minute", TIMESTAMP),
        ("message_count", pa.int64()),
        ("log_bytes", pa.int64()),
    ]
)
_BY = ("topic", "tags", "minute")


def rates_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages and bytes of the log, by stored topic, tag and minute, in that order.

    `tags` is NULL for messages without a tag, and `minute` the beginning of the minute of the store time, in UTC. It is
    NULL for a store time outside years 1 to 9999. `log_bytes` are bytes of records. Every message of the log counts, so
    a delayed message counts in SCHEDULE_TOPIC_XXXX and, when it was delivered, in its topic.

    Args:
        store: The store.
        topic: Only this topic; None for all.

    Returns:
        A table with `RATES_SCHEMA`.

    Raises:
        CorruptLogError: A segment was removed or became shorter while it was read.

    Example:
        >>> rates_rows(MessageStore("/data/store"), "orders")["message_count"].to_pylist()
        [112, 98]
    """
    groups = MergedGroups(_BY, ["store_size"])
    for batch in batches_of(store, Selection(rule_of(topic), ("topic", "tags", "store_timestamp", "store_size"))):
        groups.add(_by_minute(batch))
    return rates(groups.result())


def rates(groups: pa.Table | None) -> pa.Table:
    """The rows of table `rates`; `groups` are the sums of `store_size` by topic, tags and minute."""
    if groups is None:
        return RATES_SCHEMA.empty_table()
    groups = groups.sort_by([(name, "ascending") for name in _BY])
    return pa.table([*(groups[name] for name in _BY), groups["count"], groups["store_size"]], schema=RATES_SCHEMA)


def _by_minute(batch: pa.RecordBatch) -> pa.Table:
    """The messages of a batch with the minute of their store time."""
    minutes = pc.floor_temporal(batch["store_timestamp"], unit="minute")
    return pa.table(
        [batch["topic"], batch["tags"], minutes, batch["store_size"]], names=["topic", "tags", "minute", "store_size"]
    )
