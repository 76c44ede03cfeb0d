"""The batch reader of table `index_entries`: one task reads one index file."""

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
    """The index file of a task."""

    file: IndexFileInfo
    layout: IndexLayout


class IndexEntriesReader(DataSourceReader):
    """The reader of index entries; `columns` are the columns that the query reads."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each index file.

        Raises:
            StoreNotFoundError: The path is not a store.
            OptionError: The layout of the files is not known without the broker's settings.

        """
        store = Location.resolve(self._options.path)
        segment_files(store)
        layout = index_layout(store, BrokerConf.of(self._options.broker_conf))
        return [IndexFilePartition(file, layout) for file in index_files(store)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one file. Spark calls this method with None if there is no partition."""
        if isinstance(partition, IndexFilePartition):
            yield from entry_batches(partition.file, partition.layout, self._columns)
