"""Rows of a DataFrame, written as the writer of the format `rocketmq` writes them, without Spark."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.datasource import RocketMQDataSource
from spark_mq.restorer.writer import StoreWriter

CONF = "mappedFileSizeCommitLog=65536\nmappedFileSizeConsumeQueue=2000\nmaxHashSlotNum=100\nmaxIndexNum=500\n"
BORN = datetime(2026, 11, 21, 11, 0, tzinfo=UTC)
FIELDS = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int64()),
        ("keys", pa.list_(pa.string())),
        ("tags", pa.string()),
        ("body", pa.string()),
        ("born_timestamp", pa.timestamp("us", "UTC")),
    ]
)


def rows(topic: str, count: int) -> pa.RecordBatch:
    """Messages in two queues."""
    columns: list[list[Any]] = [
        [topic] * count,
        [number % 2 for number in range(count)],
        [[f"{topic}-{number}"] for number in range(count)],
        ["paid"] * count,
        [f"{topic} number {number} \u4e2d" for number in range(count)],
        [BORN] * count,
    ]
    arrays = [pa.array(*pair) for pair in zip(columns, FIELDS.types, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=FIELDS)


def writer_of(store: Path, schema: pa.Schema, overwrite: bool = False, **options: str) -> StoreWriter:
    """What Spark gets on the driver, and sends to tasks."""
    source = RocketMQDataSource({"path": str(store), **options})
    writer = pickle.loads(pickle.dumps(source.writer(from_arrow_schema(schema), overwrite)))
    assert isinstance(writer, StoreWriter)
    return writer


def save(store: Path, partitions: Sequence[pa.RecordBatch], overwrite: bool = False, **options: str) -> None:
    """A whole write; the tasks end in another order than that of their partitions."""
    writer = writer_of(store, partitions[0].schema, overwrite, **options)
    messages = []
    for number in reversed(range(len(partitions))):
        with mock.patch("spark_mq.restorer.writer.TaskContext.get") as context:
            context.return_value.partitionId.return_value = number
            messages.append(pickle.loads(pickle.dumps(writer.write(iter([partitions[number]])))))
    writer.commit(messages)
