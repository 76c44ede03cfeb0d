"""Reads of a live cluster for the data source `rocketmq`: columns, and a reader for each table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.live.cluster import live_brokers
from spark_mq.live.options import LiveOptions, parse_live_options, parse_live_stream_options, parse_live_table
from spark_mq.remoting.client import RemotingClient
from spark_mq.source.schema import names_of_schema
from spark_mq.store.config.named_stores import STORE_COLUMNS_SCHEMA
from spark_mq.tables.live import LIVE_TABLES
from spark_mq.tables.messages import MESSAGES


def schema(options: Mapping[str, str]) -> StructType:
    """The default columns: cluster, broker, store (the broker's address), and the columns of the table."""
    return from_arrow_schema(pa.schema([*STORE_COLUMNS_SCHEMA, *LIVE_TABLES[parse_live_table(options)].schema]))


def reader(options: Mapping[str, str], columns: StructType) -> DataSourceReader:
    """The batch reader of a table. Raises `OptionError` for unknown columns."""
    parsed = parse_live_options(options)
    names = _names(parsed.table, columns)
    if parsed.table == MESSAGES.name:
        from spark_mq.live.messages import LiveMessagesReader

        return LiveMessagesReader(parsed, names)
    return _TableReader(parsed, names)


def stream_reader(options: Mapping[str, str], columns: StructType) -> DataSourceStreamReader:
    """The stream reader of messages. Raises `OptionError` for unknown columns."""
    from spark_mq.live.message_stream import LiveMessagesStreamReader

    return LiveMessagesStreamReader(parse_live_stream_options(options), _names(MESSAGES.name, columns))


class _TableReader(DataSourceReader):
    """The reader of a table other than messages: one task reads the whole of it."""

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
        from spark_mq.live.tables import live_rows

        for rows in live_rows(self._options):
            yield from rows.select(self._columns).to_batches()


def _names(table: str, columns: StructType) -> list[str]:
    declared = LIVE_TABLES[table]
    known = pa.schema([*STORE_COLUMNS_SCHEMA, *declared.schema, *declared.extra_schema])
    return names_of_schema(table, columns, from_arrow_schema(known))
