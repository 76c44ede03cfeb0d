"""The batch reader of table `index_entries`: a task for each index file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location
from spark_mq.source.options import ReadOptions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.folder import IndexFileInfo, index_files, index_layout
from spark_mq.store.index.tables import entry_batches
from spark_mq.store.log.segment_files import segment_files


@dataclass
class IndexFilePartition(InputPartition):
    """A task's file."""

    file: IndexFileInfo
    layout: IndexLayout


class IndexEntriesReader(DataSourceReader):
    """Reads the columns `names` of the entries."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each file.

        Raises `StoreNotFoundError` where the path is no store, and `OptionError` where nothing tells the files' layout.
        """
        store = Location.resolve(self._options.path)
        segment_files(store)
        layout = index_layout(store, BrokerConf.of(self._options.broker_conf))
        return [IndexFilePartition(file, layout) for file in index_files(store)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one file. Spark calls this with None where there is no partition at all."""
        if isinstance(partition, IndexFilePartition):
            yield from entry_batches(partition.file, partition.layout, self._names)
