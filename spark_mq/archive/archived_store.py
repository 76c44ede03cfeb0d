"""One store of an archive, and its tables of what messages mean; and such tables of all stores as views of Spark.

The keys table names the messages of a key. Of the table of messages, Delta reads the files whose statistics cover
their topics, times and offsets. Only if a state depends on messages that can be missing, such as PENDING, sizes of all
later rows are added up (`archive_source`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, Self

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_source import ArchiveSource
from spark_mq.archive.archive_tables import IDENTITY, POSITION, ArchivedRows, ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import archived_stores, choose_store
from spark_mq.archive.archived_messages import ARCHIVED_COLUMNS, record_of
from spark_mq.errors import OptionError, similar
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.lifecycle.life.life import Lives, life
from spark_mq.lifecycle.life.life_store import MAX_FOLLOWING, MAX_MESSAGES, Cut, FoundMessages, LifeStore, MessageExpiry
from spark_mq.lifecycle.popped_messages import NOTE_TAGS
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import configured_topics
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of
from spark_mq.tables.all_tables import ARCHIVED_TABLES, TABLES

_PAGE = 1_000
"""Messages of a queue that one query reads."""


class ArchivedLife(LifeStore):
    """The look-ups of one store of an archive."""

    def __init__(self, source: ArchiveSource) -> None:
        self.source = source
        self.location = source.location
        self.broker_conf = source.conf
        self.config_end = source.config_end

    def moment(self, at: int | datetime | None) -> int:
        """The time `at`; for None, that of the newest snapshot."""
        snapshot = self.source.snapshot.timestamp
        if snapshot is not None and (at is None or moment_of(at) <= snapshot):
            return snapshot if at is None else moment_of(at)
        return self.source.moment(at)

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        found = self._records(F.col("commit_log_offset") == commit_log_offset, 1)
        if found:
            return found[0]
        return NoRecord(f"the archive has no message at commit log offset {commit_log_offset}")

    def find_key(self, key: str, also: Iterable[str] = (), stop: int | None = None) -> FoundMessages:
        condition = (F.col("key") == key) & _is_before(stop)
        keys = self.source.archive.rows(self.source.archive.tables.keys).where(condition)
        columns = ("commit_log_offset", "topic", "store_timestamp")
        newest = keys.select(*columns).distinct().orderBy(F.desc("commit_log_offset"))
        rows = newest.limit(MAX_MESSAGES).collect()
        if not rows:
            return FoundMessages(())
        offsets, topics = [row.commit_log_offset for row in rows], sorted({row.topic for row in rows})
        is_one = F.col("topic").isin(topics) & F.col("commit_log_offset").isin(offsets)
        times = [row.store_timestamp for row in rows if row.store_timestamp is not None]
        if len(times) == len(rows):
            is_one &= F.col("store_timestamp").between(F.lit(min(times)), F.lit(max(times)))
        return FoundMessages(tuple(self._records(is_one, MAX_MESSAGES)), (), len(rows) == MAX_MESSAGES)

    def known_topics(self) -> Iterable[str]:
        """The topics that had a setting when the newest snapshot was made."""
        return configured_topics(self.location) or ()

    def due(self, record: Record) -> int | None:
        return None  # consume queues are not archived, so only the settings tell it

    def messages_after(
        self, topic: str, queue_id: int, commit_log_offset: int, stop: int | None = None
    ) -> Iterator[Record | Cut]:
        of_queue = (F.col("topic") == topic) & (F.col("queue_id") == queue_id)
        return self._after(of_queue, f"{topic}/{queue_id}", commit_log_offset, stop)

    def revive_messages(self, commit_log_offset: int, stop: int | None = None) -> Iterator[Record | Cut]:
        topics = configured_topics(self.location)
        if topics is not None and not any(name.startswith(REVIVE_PREFIX) for name in topics):
            return iter(())
        is_note = (F.col("topic") == TIMER_TOPIC) | F.col("topic").startswith(REVIVE_PREFIX)
        is_note &= F.coalesce(F.col("tags").isin(sorted(NOTE_TAGS)), F.lit(False)) | F.contains(
            self.source.column("properties_bytes"), F.lit(b"\0")
        )
        return self._after(is_note, f"{REVIVE_PREFIX}*", commit_log_offset, stop)

    def _after(self, of_queue: Column, name: str, commit_log_offset: int, stop: int | None) -> Iterator[Record | Cut]:
        of_queue &= _is_before(stop)
        for _ in range(0, MAX_FOLLOWING, _PAGE):
            page = self._records(of_queue & (F.col("commit_log_offset") > commit_log_offset), _PAGE)
            yield from page
            if len(page) < _PAGE:
                return
            commit_log_offset = page[-1].commit_log_offset
        yield Cut(f"more than {MAX_FOLLOWING:,} messages of {name} follow")

    def missing(self) -> str | None:
        damage = self.source.cover.damage
        if damage:
            return damage[0].describe()
        return self.source.lost_end(self.source.cover.newest_timestamp)

    def expiries(self, offsets: Iterable[int], conf: BrokerConf, name: str, at: int) -> list[MessageExpiry]:
        return []  # an archive has no segments that expire

    def _records(self, condition: Column, limit: int) -> Sequence[Record]:
        rows = self.source.messages.where(F.col("topic").isNotNull() & condition)
        columns = [self.source.column(name).alias(name) for name in ARCHIVED_COLUMNS]
        found = rows.select(*columns).orderBy("commit_log_offset").limit(limit).toArrow()
        return [record_of(row) for row in found.to_pylist()]


def _is_before(stop: int | None) -> Column:
    return F.lit(True) if stop is None else F.col("commit_log_offset") < stop


class StoreAndArchive(LifeStore):
    """The look-ups of a store directory and of its archive: what expired comes from the archive, all else from the log.

    Both have one log, so the store of the archive must be that of the directory.
    """

    def __init__(self, store: MessageStore, archived: ArchivedLife) -> None:
        super().__init__(store)
        self._archived, self._start = archived, store.get_min_phy_offset()

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        if commit_log_offset < self._start:
            return self._archived.find_record(commit_log_offset)
        return super().find_record(commit_log_offset)

    def find_key(self, key: str, also: Iterable[str] = ()) -> FoundMessages:
        live, archived = super().find_key(key, also), self._archived.find_key(key, also, self._start)
        records = (*archived.records, *live.records)
        return FoundMessages(records, (*archived.damage, *live.damage), archived.has_more or live.has_more)

    def known_topics(self) -> Iterable[str]:
        return {*super().known_topics(), *self._archived.known_topics()}

    def due(self, record: Record) -> int | None:
        return None if record.commit_log_offset < self._start else super().due(record)

    def messages_after(self, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
        if commit_log_offset < self._start - 1:
            yield from self._archived.messages_after(topic, queue_id, commit_log_offset, self._start)
        yield from super().messages_after(topic, queue_id, max(commit_log_offset, self._start - 1))

    def revive_messages(self, commit_log_offset: int) -> Iterator[Record | Cut]:
        if commit_log_offset < self._start:
            yield from self._archived.revive_messages(commit_log_offset, self._start)
        yield from super().revive_messages(max(commit_log_offset, self._start - 1))

    def missing(self) -> str | None:
        """Why messages can be missing: in the archive before the start of the log, between both, or in the log."""
        cover = self._archived.source.cover
        damage = [one for one in cover.damage if one.commit_log_offset < self._start]
        if damage:
            return damage[0].describe()
        if cover.log.stop < self._start:
            return (
                f"the archive ends at commit log offset {cover.log.stop}, and the log begins at {self._start}: "
                "messages between them expired before they were archived"
            )
        return super().missing()


class ArchivedStore:
    """One store of an archive, whose tables of what messages mean are those of a store directory.

    The columns are the same. The rows are, too, as long as the store has all messages; the archive also has messages
    that the broker deleted since. Three things are not archived:

    - Consume queues. So `due_timestamp` of a delay level is the store time and the delay in the broker's settings.
    - The timer log of 5.x. So `slot_timestamp` of table `delayed` is NULL.
    - What happened after the last run. A state is that of the newest snapshot or the newest archived message, whichever
      is later (`known_until`). Consumers' offsets are those of the newest snapshot, which `spark-mq archive` makes at
      the start of each run, and after each hour of it.

    The driver gets the messages from which a table is made, and no others: for `transactions` half messages, op
    messages and commits; for `delayed` the waiting and the delivered messages; for `retries` and `dead_letters` those
    of SCHEDULE_TOPIC_XXXX, retry topics and dead letter topics. Spark counts `hot_keys`, `rates` and
    `skew`, and finds the messages of `duplicates`. The archive is read again for each table.
    """

    def __init__(self, source: ArchiveSource) -> None:
        """The tables of a source."""
        self.source = source

    @classmethod
    def open(
        cls,
        spark: SparkSession,
        archive: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        store_name: str | None = None,
        broker_conf: str | None = None,
    ) -> Self:
        """The one store of an archive that has these names.

        Args:
            archive: The archive's table of messages: a path or URI, or a name in the catalog.
            cluster, broker, store_name: The names of the store there; None for any.
        """
        conf = BrokerConf.of(broker_conf)
        tables = ArchiveTables.of(archive, checkpoint="").connected(spark)
        return cls(ArchiveSource(choose_store(spark, tables, cluster, broker, store_name), conf))

    def life(self, key_or_id: str, store: MessageStore | None = None, **options: Any) -> Lives:
        """The lives of the messages that have a key or an id; the options are those of `spark_mq.life`.

        The keys table names the messages. Sizes of other rows are added up only if a state depends on messages that can
        be missing, such as PENDING or OVERDUE.

        Args:
            key_or_id: A unique key, one key of KEYS, or an offset message id.
            store: The store directory whose log was archived, if messages that have not expired come from it.
            options: `at`, the time of the question, is by default now with a store, else that of the newest snapshot.
        """
        return life(self.looked_up(store), key_or_id, **options)

    def looked_up(self, store: MessageStore | None = None) -> LifeStore:
        """The look-ups of a message's life in the archive, and in `store`, whose log was archived."""
        archived = ArchivedLife(self.source)
        return archived if store is None else StoreAndArchive(store, archived)

    def dataframe(self, table: str, **options: Any) -> DataFrame:
        """The same rows as `table`, which has the same options, as a DataFrame of Spark."""
        return self.source.archive.spark.createDataFrame(self.table(table, **options))

    def table(
        self,
        table: str,
        *,
        topic: str | None = None,
        consumer_group: str | None = None,
        at: int | datetime | None = None,
        most_keys: int | None = None,
    ) -> pa.Table:
        """The rows of a table of what messages mean.

        Args:
            table: The name of the table, such as `transactions`.
            topic: Only this topic; for `traces` the trace topic.
            at: The time for which states are told; by default the newest one of which the archive knows the store.
            most_keys: For `hot_keys`: how many keys of most messages, and of most bytes; 0 for all; by default 1,000.

        Returns:
            A table with the columns of the store's table.
        """
        if table not in ARCHIVED_TABLES:
            known = ", ".join(ARCHIVED_TABLES)
            raise OptionError(
                f"{table!r} is not a table of what messages mean: {known}{similar(table, ARCHIVED_TABLES)}"
            )
        given = {"topic": topic, "consumer_group": consumer_group, "at": at, "most_keys": most_keys}
        arguments = [option.argument for option in TABLES[table].row_options]
        for name, value in given.items():
            if value is not None and name not in arguments:
                raise OptionError(f"option {name} has no effect on table {table}")
        return TABLES[table].read_archived(self.source, given)


def query_message(spark: SparkSession, table: str, topic: str, key: str, max_num: int = 1000) -> DataFrame:
    """The messages of a topic that have a key, in KEYS or as unique key.

    The keys table gives their offsets and times. Of the messages table, Delta then reads only the files whose
    statistics cover the topic, a time and an offset.

    Args:
        table: The table of messages, as in `archive`: a path or URI, or a name in the catalog.
        max_num: The largest number of messages; the newest ones are returned, in no order.

    Examples:
        >>> query_message(spark, "/lake/messages", "orders", "order-42").show()
    """
    tables = ArchiveTables.of(table, checkpoint="").connected(spark)
    key_rows = tables.keys.read(spark).where((F.col("topic") == topic) & (F.col("key") == key))
    # A message has a key at most twice: in KEYS, and as its unique key.
    newest = key_rows.orderBy(F.col("store_timestamp").desc()).select(*POSITION, "store_timestamp").limit(2 * max_num)
    rows = list(dict.fromkeys(newest.collect()))[:max_num]
    messages = tables.messages.read(spark)
    if not rows:
        return messages.limit(0)
    times = [row.store_timestamp for row in rows if row.store_timestamp is not None]
    condition = F.col("topic") == topic
    if len(times) == len(rows):
        condition &= F.col("store_timestamp").between(F.lit(min(times)), F.lit(max(times)))
    offsets: dict[StoreIdentity, list[int]] = {}
    for row in rows:
        offsets.setdefault(StoreIdentity.of(row), []).append(row.commit_log_offset)
    positions = [
        store.condition() & F.col("commit_log_offset").isin(store_offsets) for store, store_offsets in offsets.items()
    ]
    return messages.where(condition & reduce(Column.__or__, positions))


def create_view(spark: SparkSession, archive: str, table: str, view: str, broker_conf: str | None = None) -> None:
    """Create a temporary view of a table of what messages mean, such as `transactions`, or create it again.

    The columns are `IDENTITY`, and then those of the table. The rows are those of all stores of the archive, as they
    are now: the driver gets them.
    """
    tables, conf = ArchiveTables.of(archive, checkpoint="").connected(spark), BrokerConf.of(broker_conf)
    parts = []
    for identity in archived_stores(spark, tables):
        rows = ArchivedStore(ArchiveSource(ArchivedRows(spark, tables, identity), conf)).table(table)
        for place, name in enumerate(IDENTITY):
            value = pa.scalar(getattr(identity, name), pa.string())
            rows = rows.add_column(place, name, pa.repeat(value, rows.num_rows))
        parts.append(rows)
    if not parts:
        raise OptionError(f"{tables.name} has no messages of a store")
    spark.createDataFrame(pa.concat_tables(parts)).createOrReplaceTempView(view)
