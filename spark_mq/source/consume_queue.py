"""The batch reader of table `consume_queue`: queues' files, in shares of about the same size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.source.options import ReadOptions
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.batches import QueueSplit, plan_queue_splits, unit_batches


@dataclass
class QueueSplitPartition(InputPartition):
    """A task's files, and where the live log ends."""

    shares: list[QueueSplit]
    log_end: int


class ConsumeQueueReader(DataSourceReader):
    """Reads the columns `names` of the units."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each share. Raises `StoreNotFoundError` where the path is no store."""
        options = self._options
        with MessageStore(options.path) as store:
            queues = [queue for queue in store.queues.values() if options.topic in (None, queue.topic)]
            wanted = [queue.folder for queue in queues if options.queue_id in (None, queue.queue_id)]
            shares = plan_queue_splits(wanted)
            log_end = store.get_max_phy_offset() if shares else -1
        return [QueueSplitPartition(share, log_end) for share in shares]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this with None where there is no partition at all."""
        if not isinstance(partition, QueueSplitPartition):
            return
        with closing(FileReaders()) as files:
            records = RecordLookup(Location.resolve(self._options.path), files)
            for share in partition.shares:
                yield from unit_batches(share, records, partition.log_end, self._names)
