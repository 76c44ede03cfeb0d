"""How much was stored when: table `rates`, a row for each topic, tag and minute."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.lifecycle.messages.merged_groups import MergedGroups
from spark_mq.lifecycle.messages.selected_messages import Selection, batches_of, rule_of
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import RATES

_BY = ("topic", "tags", "minute")


def rates_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages and bytes of the log, by stored topic, tag and minute, in that order.

    Args:
        topic: Only this topic; None for all.

    Returns:
        The rows of table `rates`; `RATES` says what its columns are.
    """
    groups = MergedGroups(_BY, ["store_size"])
    for batch in batches_of(store, Selection(rule_of(topic), ("topic", "tags", "store_timestamp", "store_size"))):
        groups.add(_by_minute(batch))
    return rates(groups.result())


def rates(groups: pa.Table | None) -> pa.Table:
    """The rows of table `rates`; `groups` are the sums of `store_size` by topic, tags and minute."""
    if groups is None:
        return RATES.schema.empty_table()
    groups = groups.sort_by([(name, "ascending") for name in _BY])
    return pa.table([*(groups[name] for name in _BY), groups["count"], groups["store_size"]], schema=RATES.schema)


def _by_minute(batch: pa.RecordBatch) -> pa.Table:
    """The messages of a batch with the minute of their store time."""
    minutes = pc.floor_temporal(batch["store_timestamp"], unit="minute")
    return pa.table(
        [batch["topic"], batch["tags"], minutes, batch["store_size"]], names=["topic", "tags", "minute", "store_size"]
    )
