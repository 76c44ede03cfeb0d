"""How unevenly messages are spread: table `skew`, a row for each queue and minute."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.lifecycle.messages.merged_groups import MergedGroups
from spark_mq.lifecycle.messages.selected_messages import Selection, batches_of, rule_of
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import SKEW

_QUEUE = ("topic", "queue_id", "minute")
_READ = ("topic", "queue_id", "store_timestamp", "born_host", "store_size")


def skew_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages, bytes and born hosts by stored topic, queue and minute, in that order.

    Args:
        topic: Only this topic; None for all.

    Returns:
        The rows of table `skew`; `SKEW` says what its columns are.
    """
    groups = MergedGroups([*_QUEUE, "born_host"], ["store_size"])
    for batch in batches_of(store, Selection(rule_of(topic), _READ)):
        groups.add(_by_minute_and_host(batch))
    return skew(groups.result())


def skew(groups: pa.Table | None) -> pa.Table:
    """The rows of table `skew`; `groups` are the sums of `store_size` by topic, queue, minute and born host."""
    if groups is None:
        return SKEW.schema.empty_table()
    order = [*((name, "ascending") for name in _QUEUE), ("count", "descending"), ("born_host", "ascending")]
    groups = groups.sort_by(order)
    sums = [("count", "sum"), ("store_size", "sum"), ("born_host", "count"), ("born_host", "first"), ("count", "first")]
    # Without threads, `first` is the first row of a group in the order of the rows.
    rows = groups.group_by(list(_QUEUE), use_threads=False).aggregate(sums)
    rows = rows.sort_by([(name, "ascending") for name in _QUEUE])
    names = [*_QUEUE, "count_sum", "store_size_sum", "born_host_count", "born_host_first", "count_first"]
    return pa.table([rows[name] for name in names], schema=SKEW.schema)


def _by_minute_and_host(batch: pa.RecordBatch) -> pa.Table:
    """The messages of a batch with the minute of their store time, and their born host without its port."""
    minutes = pc.floor_temporal(batch["store_timestamp"], unit="minute")
    hosts = pc.replace_substring_regex(batch["born_host"], pattern=r":[0-9]+$", replacement="")
    columns = [batch["topic"], batch["queue_id"], minutes, hosts, batch["store_size"]]
    return pa.table(columns, names=[*_QUEUE, "born_host", "store_size"])
