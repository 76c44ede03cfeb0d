"""Reads of a live cluster for the data source `rocketmq`: columns, and a reader for each table."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_mq.live.options import parse_live_options, parse_live_stream_options, parse_live_table
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
    from spark_mq.live.table_reader import LiveTableReader

    return LiveTableReader(parsed, names)


def stream_reader(options: Mapping[str, str], columns: StructType) -> DataSourceStreamReader:
    """The stream reader of messages. Raises `OptionError` for unknown columns."""
    from spark_mq.live.message_stream import LiveMessagesStreamReader

    return LiveMessagesStreamReader(parse_live_stream_options(options), _names(MESSAGES.name, columns))


def _names(table: str, columns: StructType) -> list[str]:
    declared = LIVE_TABLES[table]
    known = pa.schema([*STORE_COLUMNS_SCHEMA, *declared.schema, *declared.extra_schema])
    return names_of_schema(table, columns, from_arrow_schema(known))
