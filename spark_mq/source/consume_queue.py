"""The batch reader of table `consume_queue`: the files of queues, in splits of about the same size."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.source.options import ReadOptions
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.batches import QueueSplit, plan_queue_splits, unit_batches

_LOG = logging.getLogger(__name__)


@dataclass
class QueueSplitPartition(InputPartition):
    """The splits of a task, and the commit log offset of the live end."""

    splits: list[QueueSplit]
    log_end: int


class ConsumeQueueReader(DataSourceReader):
    """The reader of units; `columns` are the columns that the query reads."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

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
