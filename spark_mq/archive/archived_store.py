"""One store of an archive, and its tables of what messages mean; and such tables of all stores as views of Spark."""

from __future__ import annotations

from datetime import datetime
from typing import Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_mq.archive.archive_source import ArchiveSource
from spark_mq.archive.archive_tables import IDENTITY, ArchiveTables
from spark_mq.archive.archived_life import ArchivedLife, StoreAndArchive
from spark_mq.archive.archived_log import archived_stores, choose_store
from spark_mq.errors import OptionError, similar
from spark_mq.format.system_topic import TRACE_TOPIC
from spark_mq.lifecycle.life.life import DEFAULT_LIMIT, Lives, life
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.all_tables import TABLES

TABLE_NAMES = tuple(table.name for table in TABLES.values() if table.archived_rows)
"""The names of the tables of what messages mean."""


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
            spark: A session with Delta tables.
            archive: The archive's table of messages: a path or URI, or a name in the catalog.
            cluster: The cluster of the store; None for any.
            broker: Its broker; None for any.
            store_name: Its name in the archive; None for any.
        """
        conf = BrokerConf.of(broker_conf)
        tables = ArchiveTables.of(archive, checkpoint="").connected(spark)
        return cls(ArchiveSource(spark, tables, choose_store(spark, tables, cluster, broker, store_name), conf))

    def life(
        self,
        key_or_id: str,
        store: MessageStore | None = None,
        *,
        topic: str | None = None,
        limit: int = DEFAULT_LIMIT,
        at: int | datetime | None = None,
        any_host: bool = False,
        trace_topic: str = TRACE_TOPIC,
    ) -> Lives:
        """The lives of the messages that have a key or an id; see `lifecycle.life.life.life`.

        The keys table names the messages. Sizes of other rows are added up only if a state depends on messages that can
        be missing, such as PENDING or OVERDUE.

        Args:
            key_or_id: A unique key, one key of KEYS, or an offset message id.
            store: The store directory whose log was archived, if messages that have not expired come from it.
            topic: Only messages that belong to this topic; None for all.
            limit: The largest number of messages to tell of.
            at: The time of the question; by default now with a store, else that of the newest snapshot.
            any_host: Whether the host of an offset message id is ignored.
        """
        looked_up = self.looked_up(store)
        return life(looked_up, key_or_id, topic, limit, at, any_host=any_host, trace_topic=trace_topic)

    def looked_up(self, store: MessageStore | None = None) -> LifeStore:
        """The look-ups of a message's life in the archive, and in `store`, whose log was archived."""
        archived = ArchivedLife(self.source)
        return archived if store is None else StoreAndArchive(LifeStore(store), archived)

    def dataframe(
        self,
        table: str,
        *,
        topic: str | None = None,
        consumer_group: str | None = None,
        at: int | datetime | None = None,
    ) -> DataFrame:
        """The same rows as `table`, as a DataFrame of Spark."""
        rows = self.table(table, topic=topic, consumer_group=consumer_group, at=at)
        return self.source.spark.createDataFrame(rows)

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
        if table not in TABLE_NAMES:
            known = ", ".join(TABLE_NAMES)
            raise OptionError(f"{table!r} is not a table of what messages mean: {known}{similar(table, TABLE_NAMES)}")
        given = {"topic": topic, "consumer_group": consumer_group, "at": at, "most_keys": most_keys}
        arguments = [option.argument for option in TABLES[table].row_options]
        for name, value in given.items():
            if value is not None and name not in arguments:
                raise OptionError(f"option {name} has no effect on table {table}")
        return TABLES[table].read_archived(self.source, given)


def create_view(spark: SparkSession, archive: str, table: str, view: str, broker_conf: str | None = None) -> None:
    """Create a temporary view of a table of what messages mean, or create it again.

    The columns are `IDENTITY`, and then those of the table. The rows are those of all stores of the archive, as they
    are now: the driver gets them.

    Args:
        spark: A session with Delta tables.
        archive: The archive's table of messages: a path or URI, or a name in the catalog.
        table: The name of the table, such as `transactions`.
    """
    tables, conf = ArchiveTables.of(archive, checkpoint="").connected(spark), BrokerConf.of(broker_conf)
    parts = []
    for identity in archived_stores(spark, tables):
        rows = ArchivedStore(ArchiveSource(spark, tables, identity, conf)).table(table)
        for place, name in enumerate(IDENTITY):
            value = pa.scalar(getattr(identity, name), pa.string())
            rows = rows.add_column(place, name, pa.repeat(value, rows.num_rows))
        parts.append(rows)
    if not parts:
        raise OptionError(f"{tables.name} has no messages of a store")
    spark.createDataFrame(pa.concat_tables(parts)).createOrReplaceTempView(view)
