"""Sums of messages: tables `hot_keys`, `rates` and `skew`; and messages that are stored more than once, `duplicates`.

A sum takes the messages batch by batch, so that one read of the log can serve several (`reporter.figures`).

A producer gives a message its unique key once, and keeps it if it sends the message again. A broker that writes a copy
of a message keeps the key, too: when it delivers a delayed message, commits or checks a transaction, or gets a message
back from a consumer. The properties of the copy say which of these it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.system_topic import (
    DISCARD_TOPIC,
    HALF_TOPIC,
    RETRY_PREFIX,
    ROCKSDB_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    is_system_topic,
)
from spark_mq.lifecycle.message_arrays import MergedGroups, flags, integers, numbered, ranks
from spark_mq.lifecycle.retry_topic import DLQ_PREFIX
from spark_mq.lifecycle.selected_messages import EVERYTHING, LogSource, Selection, rule_of
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import DUPLICATES, HOT_KEYS, RATES, SKEW

_COMPUTED = ("copy_number", "copy_count", "cause")
DUPLICATES_COLUMNS = (*(name for name in DUPLICATES.schema.names if name not in _COMPUTED), "transaction_type")
DUPLICATES_PROPERTIES = (
    *("REAL_TOPIC", "DELAY", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY"),
    *("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"),
)
_Hashes = npt.NDArray[np.uint64]
_FACTORS: _Hashes = np.random.default_rng(20).integers(0, 1 << 63, 256, np.uint64) * np.uint64(2) + np.uint64(1)
"""The factor of each byte of a key in its hash, by the byte's position."""
MOST_KEYS = 1000
ALL_KEYS = "all_keys"
"""The name of the number of all keys in the metadata of the table."""
BY_TAGS, BY_QUEUE = ("topic", "tags", "minute"), ("topic", "queue_id", "minute")
"""The columns by which tables `rates` and `skew` count."""
_NAMES = [("topic", "ascending"), ("key", "ascending")]


def duplicates_rows(store: MessageStore) -> pa.Table:
    """The copies of messages that the log has more than once, by message; see `duplicates`."""
    keys = LogSource(store).batches_of(Selection(EVERYTHING, ("unique_key",)))
    every = [np.empty(0, np.uint64), *(_hashes(batch["unique_key"]) for batch in keys)]
    hashes = np.sort(np.concatenate(every))
    repeated = np.unique(hashes[1:][hashes[1:] == hashes[:-1]])
    selection = Selection(EVERYTHING, DUPLICATES_COLUMNS, DUPLICATES_PROPERTIES)
    copies = []
    if repeated.size:
        for batch in LogSource(store).batches_of(selection):
            found = batch.filter(batch["unique_key"].is_valid())
            is_repeated = np.isin(_hashes(found["unique_key"]), repeated)
            copies.append(found.filter(pa.array(is_repeated)))
    return duplicates(pa.Table.from_batches(copies, selection.schema))


def duplicates(messages: pa.Table) -> pa.Table:
    """The messages whose unique key several of the messages have, by the first of them, then in the order of the log.

    Table `duplicates` says what the columns mean.
    """
    messages = messages.filter(messages["unique_key"].is_valid()).combine_chunks()
    numbers = numbered(messages["unique_key"]) if messages.num_rows else np.empty(0, np.int64)
    counts = np.bincount(numbers, minlength=1)[numbers]
    rows = np.flatnonzero(counts > 1)
    rows = rows[np.argsort(numbers[rows], kind="stable")]  # keys are numbered as they first appear
    copies, numbers = messages.take(pa.array(rows)), numbers[rows]
    columns = {name: copies[name] for name in DUPLICATES.schema.names if name in copies.column_names}
    columns["copy_number"] = pa.array(ranks(numbers).astype(np.int32))
    columns["copy_count"] = pa.array(counts[rows].astype(np.int32))
    columns["cause"] = _causes(copies, numbers)
    return pa.table([columns[name] for name in DUPLICATES.schema.names], schema=DUPLICATES.schema)


def _causes(copies: pa.Table, numbers: Int64s) -> pa.Array:
    """Why each copy was stored, by its properties; `numbers` are those of the messages, which ascend."""
    topics, real = copies["topic"], copies["REAL_TOPIC"]

    def has(name: str) -> Flags:
        return flags(pc.is_valid(copies[name]))

    is_half = flags(pc.is_in(topics, pa.array([HALF_TOPIC, ROCKSDB_HALF_TOPIC])))
    is_timer = flags(pc.equal(topics, TIMER_TOPIC))
    waits = is_timer | flags(pc.equal(topics, SCHEDULE_TOPIC))
    retry = np.where(waits, flags(pc.starts_with(real, RETRY_PREFIX)), flags(pc.starts_with(topics, RETRY_PREFIX)))
    rules: tuple[tuple[str, Flags], ...] = (
        ("DISCARD", flags(pc.equal(topics, DISCARD_TOPIC))),
        ("DEAD_LETTER", flags(pc.starts_with(topics, DLQ_PREFIX))),
        ("CHECK", is_half & (has("TRANSACTION_CHECK_TIMES") | has("TRAN_PREPARED_QUEUE_OFFSET"))),
        ("RECALL", is_timer & has("TIMER_DEL_UNIQKEY")),
        ("TIMER_ROLL", is_timer & has("TIMER_ROLL_TIMES")),
        ("DELAY_DELIVERY", flags(pc.equal(topics, real)) & (has("DELAY") | has("TIMER_OUT_MS"))),
        ("RETRY", retry & (integers(copies["reconsume_times"]) > 0)),
        ("COMMIT", flags(pc.equal(copies["transaction_type"], "COMMIT"))),
    )
    names = [*(name for name, _ in rules), "SENT", "RESENT", "BATCH"]
    causes = np.select([rule for _, rule in rules], list(range(len(rules))), len(rules))
    is_sent = causes == len(rules)
    # Of the copies that a producer sent, all except the first one of a message were sent again, or are of a batch.
    sent = np.flatnonzero(is_sent)
    is_again = ranks(numbers[sent]) > 0
    causes[sent] += is_again
    causes[sent[1:][is_again[1:] & _follow(copies, sent)]] = names.index("BATCH")
    return pa.array(names).take(pa.array(causes))


def _follow(copies: pa.Table, sent: Int64s) -> Flags:
    """For each of `sent` from the second on, whether it follows the one before it in one append to one queue."""
    before, after = copies.take(pa.array(sent[:-1])), copies.take(pa.array(sent[1:]))
    ends = integers(before["commit_log_offset"]) + integers(before["store_size"])
    result = ends == integers(after["commit_log_offset"])
    for name in ("topic", "queue_id", "born_timestamp", "store_timestamp"):
        result &= flags(pc.equal(before[name], after[name]))
    return np.asarray(result, np.bool_)


def _hashes(keys: pa.Array) -> _Hashes:
    """A hash of each key that is not NULL. Different keys can have the same hash."""
    keys = pc.drop_null(keys)
    _, offsets, data = keys.buffers()
    if not len(keys):
        return np.empty(0, np.uint64)
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    text = np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]].astype(np.uint64)
    ends -= ends[0]
    places = np.arange(text.size) - np.repeat(ends[:-1], np.diff(ends))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(text * _FACTORS[places % _FACTORS.size], dtype=np.uint64)])
    hashes: _Hashes = sums[ends[1:]] - sums[ends[:-1]] + np.diff(ends).astype(np.uint64)
    return hashes


def hot_keys_rows(store: MessageStore, topic: str | None = None, most_keys: int = MOST_KEYS) -> pa.Table:
    """The keys of most messages, and those of most bytes: the first 1,000 of each, the most messages first."""
    return hot_keys(_summed(store, topic, key_sums(with_system_topics=topic is not None)), most_keys)


def hot_keys(groups: pa.Table | None, most_keys: int = MOST_KEYS) -> pa.Table:
    """The rows of table `hot_keys`; `groups` are the sums of `store_size` by topic and key."""
    if groups is None:
        return HOT_KEYS.schema.empty_table()
    all_keys, most_keys = groups.num_rows, most_keys or groups.num_rows
    by_count, by_bytes = (_most(groups, *by, most_keys) for by in (("count", "store_size"), ("store_size", "count")))
    groups = groups.take(pa.array(np.union1d(by_count, by_bytes)))
    groups = groups.sort_by([("count", "descending"), ("store_size", "descending"), *_NAMES])
    names = ("topic", "key", "count", "store_size", "store_timestamp_min", "store_timestamp_max")
    table = pa.table([groups[name] for name in names], schema=HOT_KEYS.schema)
    return table.replace_schema_metadata({ALL_KEYS: str(all_keys)})


def _most(groups: pa.Table, first: str, second: str, most: int) -> Int64s:
    """The rows with the largest values of `first`, and of `second` among equal ones; then the first by their names.

    Only rows that can be among them are sorted: a log can have millions of keys.
    """
    certain, ties = np.empty(0, np.int64), np.arange(groups.num_rows)
    for name in (first, second):
        lacking, values = most - certain.size, integers(groups[name])[ties]
        if lacking < ties.size:
            least = np.partition(values, -lacking)[-lacking]
            certain, ties = np.concatenate([certain, ties[values > least]]), ties[values == least]
    found = np.concatenate([certain, ties])
    order = [(first, "descending"), (second, "descending"), *_NAMES]
    result: Int64s = found[integers(pc.sort_indices(groups.take(pa.array(found)), order))[:most]]
    return result


@dataclass(frozen=True)
class MessageSums:
    """Sums of messages: `columns` are those that it needs of each message, and `rows` makes of them what is summed."""

    columns: tuple[str, ...]
    groups: MergedGroups
    rows: Callable[[pa.RecordBatch], pa.Table]

    def add(self, batch: pa.RecordBatch) -> None:
        """Count messages, which have at least the columns."""
        self.groups.add(self.rows(batch))


def _summed(store: MessageStore, topic: str | None, sums: MessageSums) -> pa.Table | None:
    for batch in LogSource(store).batches_of(Selection(rule_of(topic), sums.columns)):
        sums.add(batch)
    return sums.groups.result()


def key_sums(with_system_topics: bool = False) -> MessageSums:
    """Messages, bytes, and the first and last store time of each key of a topic.

    A message counts once for a key that it has twice.
    """

    def rows(batch: pa.RecordBatch) -> pa.Table:
        if not with_system_topics:
            batch = batch.filter(_is_of(batch["topic"], lambda topic: not is_system_topic(topic)))
        owners = integers(pc.list_parent_indices(batch["keys"]))
        keys = pa.table({"owner": owners, "key": pc.list_flatten(batch["keys"])})
        pairs = keys.group_by(["owner", "key"], use_threads=False).aggregate([])
        of_pairs = pa.array(pairs["owner"].to_numpy().astype(np.int64))
        columns = {name: batch[name].take(of_pairs) for name in ("topic", "store_timestamp", "store_size")}
        return pa.table({**columns, "key": pairs["key"]})

    groups = MergedGroups(["topic", "key"], ["store_size"], ["store_timestamp"])
    return MessageSums(("topic", "keys", "store_timestamp", "store_size"), groups, rows)


def _is_of(topics: pa.Array, accepts: Callable[[str], bool]) -> pa.Array:
    encoded = topics.dictionary_encode()
    return pa.array([accepts(topic) for topic in encoded.dictionary.to_pylist()], pa.bool_()).take(encoded.indices)


def minute_sums(by: Sequence[str], *hosts: str) -> MessageSums:
    """Messages and bytes by the columns of a table, `BY_TAGS` or `BY_QUEUE`; with `hosts`, also by these without ports.

    The minute is that of the store time.
    """
    columns = (*(name for name in by if name != "minute"), *hosts, "store_timestamp", "store_size")

    def rows(batch: pa.RecordBatch) -> pa.Table:
        rows = pa.table(batch.select(columns))
        rows = rows.append_column("minute", pc.floor_temporal(batch["store_timestamp"], unit="minute"))
        for name in hosts:
            encoded = batch[name].dictionary_encode()
            without_port = pc.replace_substring_regex(encoded.dictionary, pattern=r":[0-9]+$", replacement="")
            rows = rows.set_column(rows.column_names.index(name), name, without_port.take(encoded.indices))
        return rows

    return MessageSums(columns, MergedGroups([*by, *hosts], ["store_size"]), rows)


NOT_OF_USERS = rf"^({RETRY_PREFIX}|{DLQ_PREFIX}|{SYSTEM_TOPICS})"
"""A regular expression of the topics to which no producer sends: a broker's own, and those of retries."""


def is_of_users(topic: str) -> bool:
    """Whether producers send the messages of a topic."""
    return re.match(NOT_OF_USERS, topic) is None


def value_sums(columns: Sequence[str], value: Callable[[pa.RecordBatch], pa.Array]) -> MessageSums:
    """How many messages of users' topics have which value, which is made of the columns."""

    def rows(batch: pa.RecordBatch) -> pa.Table:
        batch = batch.filter(_is_of(batch["topic"], is_of_users))
        return pa.table({"topic": batch["topic"], "value": value(batch)})

    return MessageSums(("topic", *columns), MergedGroups(["topic", "value"]), rows)


def delay_millis(batch: pa.RecordBatch) -> pa.Array:
    """Milliseconds from a message's birth at its producer to its storing; 0 if the producer's clock was ahead."""
    delays = integers(batch["store_timestamp_millis"]) - integers(batch["born_timestamp_millis"])
    return pa.array(np.maximum(delays, 0))


def value_ranges(groups: pa.Table | None) -> pa.Table:
    """Messages and quantiles of sums of values, by topic; the first row is of all topics, and its topic is NULL.

    A quantile is the least value that this part of the messages does not exceed: `median`, `slow` (99 %), `most`.
    """
    schema = pa.schema(
        [("topic", pa.string()), *((name, pa.int64()) for name in ("messages", "total", "median", "slow", "most"))]
    )
    if groups is None or not groups.num_rows:
        return schema.empty_table()
    rows = [_ranges_of(None, groups)]
    numbers, topics = numbered(groups["topic"]), pc.unique(groups["topic"]).to_pylist()
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(len(topics) + 1))
    rows += [
        _ranges_of(topic, groups.take(pa.array(order[start:stop])))
        for topic, start, stop in zip(topics, starts, starts[1:], strict=False)
    ]
    return pa.Table.from_pylist(rows, schema)


def _ranges_of(topic: str | None, groups: pa.Table) -> dict[str, object]:
    values, counts = integers(groups["value"]), integers(groups["count"])
    order = np.argsort(values, kind="stable")
    ends = np.cumsum(counts[order])
    median, slow, most = (values[order][np.searchsorted(ends, ends[-1] * part)] for part in (0.5, 0.99, 1.0))
    total = int((values * counts).sum())
    return {"topic": topic, "messages": ends[-1], "total": total, "median": median, "slow": slow, "most": most}


def rates_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages and bytes of the log, by stored topic, tag and minute, in that order."""
    return rates(_summed(store, topic, minute_sums(BY_TAGS)))


def rates(groups: pa.Table | None) -> pa.Table:
    """The rows of table `rates`; `groups` are the sums of `store_size` by topic, tags and minute."""
    if groups is None:
        return RATES.schema.empty_table()
    groups = groups.sort_by([(name, "ascending") for name in BY_TAGS])
    return pa.table([*(groups[name] for name in BY_TAGS), groups["count"], groups["store_size"]], schema=RATES.schema)


def skew_rows(store: MessageStore, topic: str | None = None) -> pa.Table:
    """The number of messages, bytes and born hosts by stored topic, queue and minute, in that order."""
    return skew(_summed(store, topic, minute_sums(BY_QUEUE, "born_host")))


def skew(groups: pa.Table | None) -> pa.Table:
    """The rows of table `skew`; `groups` are the sums of `store_size` by topic, queue, minute and born host."""
    if groups is None:
        return SKEW.schema.empty_table()
    order = [*((name, "ascending") for name in BY_QUEUE), ("count", "descending"), ("born_host", "ascending")]
    groups = groups.sort_by(order)
    sums = [("count", "sum"), ("store_size", "sum"), ("born_host", "count"), ("born_host", "first"), ("count", "first")]
    # Without threads, `first` is the first row of a group in the order of the rows.
    rows = groups.group_by(list(BY_QUEUE), use_threads=False).aggregate(sums)
    rows = rows.sort_by([(name, "ascending") for name in BY_QUEUE])
    names = [*BY_QUEUE, "count_sum", "store_size_sum", "born_host_count", "born_host_first", "count_first"]
    return pa.table([rows[name] for name in names], schema=SKEW.schema)
