"""Stores that are restored in this process, without Spark: the same stages, with the rows that Spark would give.

Also as a program, for kill tests.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.datasource import RocketMQDataSource
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, RECORD_COLUMNS
from spark_mq.io.location import Location
from spark_mq.job.tasks import LocalTasks
from spark_mq.restorer.appended_messages import append_messages
from spark_mq.restorer.chunk import Chunk, StageTask
from spark_mq.restorer.new_store import make_store
from spark_mq.restorer.placement import WAITING_TOPICS
from spark_mq.restorer.restore import restore_with
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.restorer.source_facts import facts_of_store, tags_of_files
from spark_mq.restorer.store_job import RestoreReport, StoreJob
from spark_mq.store.derived_facts import index_facts

Batches = Iterator[pa.RecordBatch]


def message_batches(store: Path | str, columns: Sequence[str] = RECORD_COLUMNS) -> Batches:
    """The messages of a store, with the columns that a restore of a store reads."""
    source = RocketMQDataSource({"path": str(store), "mode": "FAILFAST"})
    reader = source.reader(from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in columns])))
    for partition in reader.partitions():
        yield from (batch for batch in reader.read(partition) if isinstance(batch, pa.RecordBatch))


def delivered(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The messages that do not wait in a broker's own topics."""
    return batch.filter(pc.invert(pc.is_in(batch["topic"], pa.array(WAITING_TOPICS))))


def restored_plain(source: Path, store: Path, conf: Path, **options: Any) -> RestoreReport:
    """The report of a restore of a whole store, as the command runs it in one process."""
    return restore_with(LocalTasks(1), str(source), RestoreRequest.of(str(store), broker_conf=str(conf), **options))


def restore_here(
    source: Path | str,
    store: Path | str,
    conf: Path,
    keep: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda batch: batch,
    chunk_size: int = 1 << 16,
    archived: bool = False,
    **options: Any,
) -> RestoreReport:
    """The report of a restore of a store that runs in this process.

    Args:
        source: The store whose messages are restored.
        store: The store that is made.
        conf: The settings of the broker.
        keep: Gives the rows of a batch that are restored.
        chunk_size: Bytes of records in a chunk.
        archived: Whether the store is not there any more, only what an archive keeps of it.
        options: The other arguments of a request.

    """
    request = RestoreRequest.of(str(store), broker_conf=str(conf), **options)
    location = Location.resolve(str(source))
    origin = facts_of_store(location)
    if archived:
        tagged = tags_of_files((index_facts(location) or {"files": []})["files"])
        origin = replace(origin, tagged=tagged, location=None)

    def stage(folder: Location, task: StageTask) -> Sequence[Chunk]:
        smaller = StageTask(task.rules, folder, task.segment_size, chunk_size)
        return list(smaller.stage(map(keep, message_batches(source)), 0))

    job = StoreJob(LocalTasks(), origin, request.with_settings(origin.settings))
    return append_messages(job, stage) if request.append else make_store(job, stage)


if __name__ == "__main__":
    told = json.loads(sys.argv[4])
    chosen = delivered if told.get("only_delivered") else lambda batch: batch
    restore_here(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), chosen, **told)
