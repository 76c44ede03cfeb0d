"""The batch reader of the metadata tables, and of those that say what messages mean: segments, retention, queues, ...

One task reads the whole table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.io.location import Location
from spark_mq.lifecycle.consumption.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.consumption.dead_letters import dead_letters_rows
from spark_mq.lifecycle.consumption.retries import retries_rows
from spark_mq.lifecycle.delays.delayed import delayed_rows
from spark_mq.lifecycle.statistics.duplicates import duplicates_rows
from spark_mq.lifecycle.statistics.hot_keys import hot_keys_rows
from spark_mq.lifecycle.statistics.rates import rates_rows
from spark_mq.lifecycle.statistics.skew import skew_rows
from spark_mq.lifecycle.traces.traces import traces_rows
from spark_mq.lifecycle.transactions.transactions import transaction_rows
from spark_mq.source.options import ReadOptions, Table
from spark_mq.store import metadata_tables
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.consumer_filter_rows import consumer_filters
from spark_mq.store.index.folder import index_layout
from spark_mq.store.index.tables import index_file_rows
from spark_mq.store.log.segment_files import segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import retention_rows

_ROWS: dict[Table, Callable[[MessageStore, ReadOptions], pa.Table]] = {
    Table.SEGMENTS: lambda store, _: metadata_tables.segments(store),
    Table.RETENTION: lambda store, options: retention_rows(
        store, options.reserved_hours, options.at, BrokerConf.of(options.broker_conf)
    ),
    Table.QUEUES: lambda store, options: metadata_tables.queues(store, options.topic),
    Table.TOPICS: lambda store, _: metadata_tables.topics(store),
    Table.CONSUMER_OFFSETS: lambda store, options: metadata_tables.consumer_offsets(
        store, options.topic, options.consumer_group
    ),
    Table.SUBSCRIPTION_GROUPS: lambda store, options: metadata_tables.subscription_groups(
        store, options.consumer_group
    ),
    Table.CONSUMER_FILTERS: lambda store, options: consumer_filters(store, options.topic, options.consumer_group),
    Table.DELAY_OFFSETS: lambda store, _: metadata_tables.delay_offsets(store),
    Table.CHECKPOINT: lambda store, _: metadata_tables.checkpoint(store),
    Table.TRANSACTIONS: lambda store, options: transaction_rows(store, options.at, BrokerConf.of(options.broker_conf)),
    Table.DELAYED: lambda store, options: delayed_rows(store, options.at, BrokerConf.of(options.broker_conf)),
    Table.INDEX_FILES: lambda store, options: index_file_rows(
        store.location, index_layout(store.location, BrokerConf.of(options.broker_conf))
    ),
    Table.RETRIES: lambda store, options: retries_rows(store, options.consumer_group, options.at),
    Table.DEAD_LETTERS: lambda store, options: dead_letters_rows(store, options.consumer_group),
    Table.TRACES: lambda store, options: traces_rows(store, options.topic),
    Table.CONSUMER_PROGRESS: lambda store, options: consumer_progress_rows(
        store, options.topic, options.consumer_group, options.at
    ),
    Table.DUPLICATES: lambda store, _: duplicates_rows(store),
    Table.HOT_KEYS: lambda store, options: hot_keys_rows(store, options.topic),
    Table.RATES: lambda store, options: rates_rows(store, options.topic),
    Table.SKEW: lambda store, options: skew_rows(store, options.topic),
}


class MetadataTableReader(DataSourceReader):
    """The reader of one metadata table; `columns` are the columns that the query reads."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One partition. Raises `StoreNotFoundError` if the path is not a store."""
        segment_files(Location.resolve(self._options.path))
        return [InputPartition(self._options.table.value)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows. Raises `ConfigError` if a file of `config/` cannot be read."""
        with MessageStore(self._options.path, self._options.broker_version) as store:
            yield from _ROWS[self._options.table](store, self._options).select(self._columns).to_batches()
