"""The batch reader of the tables that one task reads: metadata of a store, and what its messages mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.io.location import Location
from spark_mq.source.options import ReadOptions
from spark_mq.store.log.segment_files import segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.all_tables import TABLES


class MetadataTableReader(DataSourceReader):
    """The reader of one metadata table; `columns` are the columns that the query reads."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

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
