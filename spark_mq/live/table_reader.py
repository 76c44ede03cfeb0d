"""The batch reader of the tables of a live cluster other than messages: one task reads a whole table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.live.cluster import live_brokers
from spark_mq.live.options import LiveOptions
from spark_mq.live.tables import live_rows
from spark_mq.remoting.client import RemotingClient


class LiveTableReader(DataSourceReader):
    """The reader of a table; `columns` are the columns that the query reads."""

    def __init__(self, options: LiveOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One partition. Raises `RemotingError` if no name server answers."""
        with RemotingClient(self._options.client) as client:
            live_brokers(client, self._options.from_slave)
        return [InputPartition(self._options.table)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of all brokers."""
        for rows in live_rows(self._options):
            yield from rows.select(self._columns).to_batches()
