"""The batch readers of the tables other than messages.

One task reads a whole table; of `consume_queue` parts of queues of about the same size, of `index_entries` one file.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.format.index_file import IndexLayout
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.source.options import ReadOptions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.file_tables import QueueSplit, entry_batches, index_record_batches, plan_queue_splits, unit_batches
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.index.index_database import index_database
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.all_tables import TABLES

_LOG = logging.getLogger(__name__)


class _ColumnsReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns


class TableReader(_ColumnsReader):
    """The reader of a table that one task reads."""

    def partitions(self) -> Sequence[InputPartition]:
        """One partition. Raises `StoreNotFoundError` if the path is not a store."""
        segment_files(Location.resolve(self._options.path))
        return [InputPartition(self._options.table)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """All rows. Raises `ConfigError` if a file of `config/` cannot be read."""
        options, table = self._options, TABLES[self._options.table]
        chosen = {option.argument: getattr(options, option.argument) for option in table.row_options}
        with MessageStore(options.path, options.broker_version, broker_conf=options.broker_conf) as store:
            yield from table.read(store, chosen).select(self._columns).to_batches()


@dataclass
class QueueSplitPartition(InputPartition):
    """The splits of a task, and the commit log offset of the live end."""

    splits: list[QueueSplit]
    log_end: int


class ConsumeQueueReader(_ColumnsReader):
    """The reader of units."""

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each split of the queues. Raises `StoreNotFoundError` if the path is not a store."""
        options = self._options
        with MessageStore(options.path) as store:
            reason = None if options.topic is None else store.why_no_topic(options.topic)
            if reason is not None:
                _LOG.warning("%s: %s", shown(options.path), reason)
            queues = [queue for queue in store.queues.values() if options.topic in (None, queue.topic)]
            folders = [queue.folder for queue in queues if options.queue_id in (None, queue.queue_id)]
            splits = plan_queue_splits(folders)
            log_end = store.get_max_phy_offset() if splits else -1
        return [QueueSplitPartition(task_splits, log_end) for task_splits in splits]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition."""
        if not isinstance(partition, QueueSplitPartition):
            return
        with closing(FileReaders()) as files:
            records = RecordLookup(Location.resolve(self._options.path), files)
            for split in partition.splits:
                yield from unit_batches(split, records, partition.log_end, self._columns)


@dataclass
class IndexFilePartition(InputPartition):
    """The index file of a task."""

    file: IndexFileInfo
    layout: IndexLayout


@dataclass
class IndexDatabasePartition(InputPartition):
    """The database of a task that can have index records."""

    folder: Location


class IndexEntriesReader(_ColumnsReader):
    """The reader of index entries."""

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each index file, and one for the index in RocksDB."""
        store = Location.resolve(self._options.path)
        segment_files(store)
        layout, database = index_layout(store, BrokerConf.of(self._options.broker_conf)), index_database(store)
        files: list[InputPartition] = [IndexFilePartition(file, layout) for file in index_files(store)]
        return files if database is None else [*files, IndexDatabasePartition(database)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one file or database. Spark calls this method with None if there is no partition."""
        if isinstance(partition, IndexFilePartition):
            yield from entry_batches(partition.file, partition.layout, self._columns)
        elif isinstance(partition, IndexDatabasePartition):
            yield from index_record_batches(partition.folder, self._columns)
