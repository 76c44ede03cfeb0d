"""Sums of messages: tables `hot_keys`, `rates` and `skew`."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.system_topic import is_system_topic
from spark_mq.lifecycle.message_arrays import MergedGroups, integers
from spark_mq.lifecycle.selected_messages import LogSource, Selection, rule_of
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import HOT_KEYS, RATES, SKEW

MOST_KEYS = 1000
ALL_KEYS = "all_keys"
"""The name of the number of all keys in the metadata of the table."""
_COLUMNS = ("commit_log_offset", "topic", "keys", "store_timestamp", "store_size")
_BY = ("topic", "tags", "minute")
_QUEUE = ("topic", "queue_id", "minute")
_RATED = ("topic", "tags", "store_timestamp", "store_size")
_READ = ("topic", "queue_id", "store_timestamp", "born_host", "store_size")


def hot_keys_rows(store: MessageStore, topic: str | None = None, most_keys: int = MOST_KEYS) -> pa.Table:
    """The keys of most messages, and those of most bytes: the first 1,000 of each, the most messages first."""
    groups = MergedGroups(["topic", "key"], ["store_size"], ["store_timestamp"])
    for batch in LogSource(store).batches_of(Selection(rule_of(topic), _COLUMNS)):
        groups.add(_by_key(batch, with_system_topics=topic is not None))
    return hot_keys(groups.result(), most_keys)


def hot_keys(groups: pa.Table | None, most_keys: int = MOST_KEYS) -> pa.Table:
    """The rows of table `hot_keys`; `groups` are the sums of `store_size` by topic and key."""
    if groups is None:
        return HOT_KEYS.schema.empty_table()
    all_keys, most_keys = groups.num_rows, most_keys or groups.num_rows
    by_count = pc.sort_indices(groups, [("count", "descending"), ("store_size", "descending"), *_NAMES])[:most_keys]
    by_bytes = pc.sort_indices(groups, [("store_size", "descending"), ("count", "descending"), *_NAMES])[:most_keys]
    groups = groups.take(pc.unique(pa.concat_arrays([by_count, by_bytes])))
    groups = groups.sort_by([("count", "descending"), ("store_size", "descending"), *_NAMES])
    names = ("topic", "key", "count", "store_size", "store_timestamp_min", "store_timestamp_max")
    table = pa.table([groups[name] for name in names], schema=HOT_KEYS.schema)
    return table.replace_schema_metadata({ALL_KEYS: str(all_keys)})


_NAMES = [("topic", "ascending"), ("key", "ascending")]


def _by_key(batch: pa.RecordBatch, with_system_topics: bool) -> pa.Table:
    """A row for each different key of each message."""
    if not with_system_topics:
        topics = batch["topic"].dictionary_encode()
        own = [not is_system_topic(topic) for topic in topics.dictionary.to_pylist()]
        batch = batch.filter(pa.array(own, pa.bool_()).take(topics.indices))
    owners = integers(pc.list_parent_indices(batch["keys"]))
    keys = pa.table({"owner": owners, "key": pc.list_flatten(batch["keys"])})
    pairs = keys.group_by(["owner", "key"], use_threads=False).aggregate([])
    of_pairs = pa.array(pairs["owner"].to_numpy().astype(np.int64))
    columns = {name: batch[name].take(of_pairs) for name in ("topic", "store_timestamp", "store_size")}
    return pa.table({**columns, "key": pairs["key"]})


def rates_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages and bytes of the log, by stored topic, tag and minute, in that order."""
    groups = MergedGroups(_BY, ["store_size"])
    for batch in LogSource(store).batches_of(
        Selection(rule_of(topic), ("topic", "tags", "store_timestamp", "store_size"))
    ):
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


def skew_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages, bytes and born hosts by stored topic, queue and minute, in that order."""
    groups = MergedGroups([*_QUEUE, "born_host"], ["store_size"])
    for batch in LogSource(store).batches_of(Selection(rule_of(topic), _READ)):
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
