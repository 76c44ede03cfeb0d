"""Rows of a source that become chunks: of a DataFrame by Spark, of a store without a detour through the JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.io.location import Location
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import SparkTasks, Tasks
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.stage import CHUNK_SCHEMA, StageTask, chunk_of_json, chunk_row
from spark_mq.source.datasource import RocketMQDataSource


@dataclass(frozen=True)
class LeftOut:
    """Topics whose messages are left out: some names, and all that begin with a prefix."""

    topics: tuple[str, ...] = ()
    prefix: str | None = None

    def kept(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The messages of a batch that are not left out."""
        is_left_out = pc.is_in(batch["topic"], pa.array(self.topics, pa.string()))
        if self.prefix is not None:
            is_left_out = pc.or_(is_left_out, pc.starts_with(batch["topic"], self.prefix))
        return batch.filter(pc.invert(is_left_out)) if pc.any(is_left_out).as_py() else batch


@dataclass(frozen=True)
class QueryRows:
    """The rows of a DataFrame, in the order of its partitions."""

    rows: DataFrame

    def stage(self, tasks: SparkTasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder, in the order of the rows."""
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        return _in_order(checked.frame(self.rows, task, CHUNK_SCHEMA).toArrow())


@dataclass(frozen=True)
class StoreRows:
    """All messages of a store, in the order of its log, except those of some topics.

    Attributes:
        left_out: The topics whose messages are left out.
    """

    store: Location
    columns: tuple[str, ...]
    left_out: LeftOut = LeftOut()

    def stage(self, tasks: Tasks, folder: Location, task: StageTask) -> list[Chunk]:
        """The chunks of the rows, which are written into a folder, in the order of the rows."""
        schema = from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in self.columns]))
        reader = RocketMQDataSource({"path": self.store.uri, "mode": "FAILFAST"}).reader(schema)
        partitions = TaskItems.of(enumerate(reader.partitions()))
        checked = tasks.checked(SharedStorageCheck.of_folder(folder))
        reading = _ReadTask(reader, partitions, self.left_out, task)
        return _in_order(checked.rows(reading, len(partitions.pickled), CHUNK_SCHEMA))


@dataclass(frozen=True)
class _ReadTask:
    """For `mapInArrow`: numbers of partitions in, a row for each chunk (`CHUNK_SCHEMA`) out."""

    reader: Any
    partitions: TaskItems[tuple[int, Any]]
    left_out: LeftOut
    task: StageTask

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, partition in self.partitions.each(batches, None):
            messages = map(self.left_out.kept, self.reader.read(partition))
            yield from map(chunk_row, self.task.stage(messages, number))


def _in_order(rows: pa.Table) -> list[Chunk]:
    chunks = [chunk_of_json(text) for text in rows["chunk"].to_pylist()]
    return sorted(chunks, key=lambda chunk: (chunk.partition, chunk.number))
