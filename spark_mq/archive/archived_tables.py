"""The tables that count, out of an archive: Spark counts, and the driver gets the counts.

The ends of queues are those in the newest snapshot, and so are consumers' offsets. Single messages come from the table
of messages: one query finds the first archived message of each queue, another the messages at consumers' offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_source import ArchiveSource
from spark_mq.format.consume_queue import Queue
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.system_topic import is_system_topic
from spark_mq.lifecycle.consumer_progress import QueueMessage, QueueSource, consumer_progress_rows
from spark_mq.lifecycle.statistics import (
    ALL_KEYS,
    DUPLICATES_COLUMNS,
    DUPLICATES_PROPERTIES,
    MOST_KEYS,
    duplicates,
    hot_keys,
    rates,
    skew,
)
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.store.config.store_paths import CONSUME_QUEUE

_MINUTE_MILLIS = 60_000
_POSITIONS = "topic STRING, queue_id INT, queue_offset BIGINT"
_NO_UNIT = ("PREPARED", "ROLLBACK")
"""Transaction types of messages that are in no queue (`CommitLogDispatcherBuildConsumeQueue`@5.3.3)."""


def rates_of(source: ArchiveSource, topic: str | None = None) -> pa.Table:
    """The rows of table `rates`; see `lifecycle.statistics.rates_rows`."""
    return rates(_by_minute(source, topic, "tags"))


def skew_of(source: ArchiveSource, topic: str | None = None) -> pa.Table:
    """The rows of table `skew`; see `lifecycle.statistics.skew_rows`."""
    return skew(_by_minute(source, topic, "queue_id", host_without_port()))


def hot_keys_of(source: ArchiveSource, topic: str | None = None, most_keys: int | None = None) -> pa.Table:
    """The rows of table `hot_keys`; see `lifecycle.statistics.hot_keys_rows`."""
    rows = _messages(source, topic)
    if topic is None:
        topics = [row.topic for row in rows.select("topic").distinct().collect()]
        rows = rows.where(F.col("topic").isin([name for name in topics if not is_system_topic(name)]))
    keys = rows.select("topic", "store_size", "store_timestamp", F.explode(F.array_distinct("keys")).alias("key"))
    times = (
        F.min("store_timestamp").alias("store_timestamp_min"),
        F.max("store_timestamp").alias("store_timestamp_max"),
    )
    groups = keys.groupBy("topic", "key").agg(*counts(), *times)
    most_keys = MOST_KEYS if most_keys is None else most_keys
    if most_keys == 0:
        return hot_keys(arrow_groups(groups), most_keys)
    most = [
        groups.orderBy(*(F.desc(name) for name in order), "topic", "key").limit(most_keys)
        for order in (("count", "store_size"), ("store_size", "count"))
    ]
    table = hot_keys(arrow_groups(most[0].union(most[1]).distinct()), most_keys)
    return table.replace_schema_metadata({ALL_KEYS: str(groups.count())})


def duplicates_of(source: ArchiveSource) -> pa.Table:
    """The rows of table `duplicates`; see `lifecycle.statistics.duplicates_rows`.

    Spark finds the unique keys that several messages have, and the driver gets only these messages.
    """
    rows = _messages(source, None).where(F.col("unique_key").isNotNull())
    repeated = rows.groupBy("unique_key").count().where(F.col("count") > 1).select("unique_key")
    columns = [F.col(name) for name in DUPLICATES_COLUMNS]
    columns += [F.col("properties")[name].alias(name) for name in DUPLICATES_PROPERTIES]
    found = rows.join(repeated, "unique_key", "left_semi").select(*columns).toArrow()
    return duplicates(found.sort_by("commit_log_offset"))


def _messages(source: ArchiveSource, topic: str | None) -> DataFrame:
    """The messages of one topic, or of all; corrupt ranges have no topic."""
    return source.messages.where(F.col("topic").isNotNull() if topic is None else F.col("topic") == topic)


def host_without_port() -> Column:
    """The machine of the producer."""
    return F.regexp_replace("born_host", ":[0-9]+$", "").alias("born_host")


def counts() -> tuple[Column, Column]:
    """Bytes and number of messages."""
    return F.sum("store_size").alias("store_size"), F.count("*").alias("count")


def _by_minute(source: ArchiveSource, topic: str | None, *by: Column | str) -> pa.Table | None:
    """Bytes and number of messages by topic, other columns, and the minute of the store time, in UTC."""
    millis = F.unix_millis("store_timestamp")
    minute = F.timestamp_millis(millis - F.pmod(millis, F.lit(_MINUTE_MILLIS))).alias("minute")
    return arrow_groups(_messages(source, topic).groupBy("topic", *by, minute).agg(*counts()))


def arrow_groups(groups: DataFrame) -> pa.Table | None:
    """The groups on the driver, with times of the package's type; None if there is none."""
    found = groups.toArrow()
    for number, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(number, field.name, found[field.name].cast(TIMESTAMP))
    return found if found.num_rows else None


class ArchivedQueues(QueueSource):
    """The queues of one store of an archive, as they were when the newest snapshot was made."""

    behind: str | None = None

    def __init__(self, source: ArchiveSource) -> None:
        self._source = source
        self.location = source.location

    @property
    def problem(self) -> str | None:
        if CONSUME_QUEUE not in self._source.snapshot.files:
            return "the archive has no snapshot of the store with the ends of its consume queues"
        return self._source.lost_end(self._source.cover.newest_timestamp)

    def moment(self, at: int | None) -> int:
        """The time `at`; for None that of the newest snapshot, if all messages before it are archived."""
        source = self._source
        known = source.known_until
        return source.moment(at) if at is not None else min(known, source.snapshot.timestamp or known)

    @cached_property
    def problems(self) -> dict[Queue, str | None]:
        """Each queue of the snapshot, with the reason if the archive contradicts the snapshot, or lacks messages."""
        return {queue: self._problem(queue) for queue in sorted({*self._snapshot_ends, *self._archived_ends})}

    def _problem(self, queue: Queue) -> str | None:
        archived, ends = self._archived_ends.get(queue), self._snapshot_ends.get(queue)
        if ends is None:
            return "LOST: the newest snapshot does not have its ends"
        first, stop = ends
        if archived is not None and archived[1] > stop:
            return f"BEHIND: it ends at queue offset {stop} in the newest snapshot, and at {archived[1]} in the log"
        if first < stop and (archived is None or archived[0] > first or archived[1] < stop):
            return f"not whole in the archive, which lacks some of its messages from queue offset {first} to {stop - 1}"
        return None

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The offset of the first archived message, and the one after the last at the time of the snapshot."""
        first, stop = self._snapshot_ends.get(queue, (0, 0))
        archived = self._archived_ends.get(queue)
        return (first if archived is None else min(first, archived[0])), stop

    def first_message(self, queue: Queue, start: int, stop: int) -> QueueMessage | int:
        """The message at an offset of a queue; the offset itself if the archive does not have it."""
        return self._messages.get((*queue, start), start)

    def stored(self, queue: Queue, queue_offset: int) -> int:
        message = self._messages.get((*queue, queue_offset))
        return -1 if message is None else message.stored

    @cached_property
    def _snapshot_ends(self) -> dict[Queue, tuple[int, int]]:
        """The first and the next offset of each queue, in the newest snapshot."""
        content = self._source.snapshot.files.get(CONSUME_QUEUE)
        facts: dict[str, Any] = {"queues": []} if content is None else json.loads(content)
        return {(one["topic"], one["queue_id"]): (one["min_offset"], one["max_offset"]) for one in facts["queues"]}

    @cached_property
    def _archived_ends(self) -> dict[Queue, tuple[int, int]]:
        """The first offset of each queue of which a message is archived; the one after the last before the snapshot."""
        before = F.col("commit_log_offset") < self._source.config_end
        rows = self._source.messages.where(
            F.col("topic").isNotNull() & before & ~F.col("transaction_type").isin(*_NO_UNIT)
        )
        ends = (F.min("queue_offset").alias("first"), (F.max("queue_offset") + 1).alias("stop"))
        found = rows.groupBy("topic", "queue_id").agg(*ends).toArrow().to_pylist()
        return {(row["topic"], row["queue_id"]): (row["first"], row["stop"]) for row in found}

    @cached_property
    def _messages(self) -> dict[tuple[str, int, int], QueueMessage]:
        """The messages before and at consumers' offsets, and the first ones of queues, by their places."""
        wanted = set(self._wanted())
        if not wanted:
            return {}
        spark = self._source.archive.spark
        positions = spark.createDataFrame(sorted(wanted), _POSITIONS)
        rows = self._source.messages.where(F.col("topic").isin(sorted({topic for topic, _, _ in wanted})))
        found = rows.join(F.broadcast(positions), ["topic", "queue_id", "queue_offset"])
        columns = ("topic", "queue_id", "queue_offset", "commit_log_offset")
        stored = self._source.column("store_timestamp_millis")
        return {
            (row["topic"], row["queue_id"], row["queue_offset"]): QueueMessage(
                row["queue_offset"], row["store_timestamp_millis"], row["commit_log_offset"]
            )
            for row in found.select(*columns, stored).toArrow().to_pylist()
        }

    def _wanted(self) -> Iterable[tuple[str, int, int]]:
        for queue in self._snapshot_ends:
            first, _ = self.ends(queue)
            yield (*queue, first)
        for one in load_consumer_offsets(self.location):
            yield one.topic, one.queue_id, one.offset
            yield one.topic, one.queue_id, one.offset - 1


def archived_progress(
    source: ArchiveSource, topic: str | None = None, consumer_group: str | None = None, at: int | None = None
) -> pa.Table:
    """The rows of table `consumer_progress`; see `lifecycle.consumer_progress.consumer_progress_rows`."""
    return consumer_progress_rows(ArchivedQueues(source), topic, consumer_group, at)
