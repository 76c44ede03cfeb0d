"""Reads of the data source without Spark: what its planning and task processes do, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.datasource import RocketMQDataSource
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS

Row = dict[str, Any]


def identity(row: Row) -> tuple[int, str]:
    """What tells a row of messages from all others, to sort by."""
    return row["commit_log_offset"], repr(row)


def row_offsets(rows: list[Row]) -> list[int]:
    """The commit log offsets of rows of messages, from the least on."""
    return sorted(row["commit_log_offset"] for row in rows)


def read_rows(**options: str) -> list[Row]:
    """All rows of a read with these options, in the order of its partitions."""
    return [row for rows in read_partitions(**options) for row in rows]


def read_table(**options: str) -> pa.Table:
    """The same as a table; without columns if there are no rows."""
    batches = [batch for batches in _partitions(**options) for batch in batches if batch.num_rows]
    return pa.Table.from_batches(batches) if batches else pa.table({})


def read_partitions(**options: str) -> list[list[Row]]:
    """The rows of each partition of a read with these options."""
    return [[row for batch in batches for row in batch.to_pylist()] for batches in _partitions(**options)]


def _partitions(**options: str) -> Iterator[list[pa.RecordBatch]]:
    source = RocketMQDataSource(options)
    schema = source.schema()
    reader = source.reader(schema)
    for partition in reader.partitions():
        batches = list(reader.read(partition))
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        assert all(from_arrow_schema(batch.schema) == schema for batch in batches)
        yield batches


def message_batches(names: Sequence[str], **options: str) -> Iterator[pa.RecordBatch]:
    """These columns of the messages of a read with these options."""
    source = RocketMQDataSource(options)
    reader = source.reader(from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])))
    for partition in reader.partitions():
        for batch in reader.read(partition):
            assert isinstance(batch, pa.RecordBatch)
            yield batch
