"""Writing a DataFrame as a store: what `df.write.format("rocketmq").save(store)` does.

Spark makes the writer on the driver (`store_writer`), and sends a copy to each task. A task encodes rows, and writes
chunks of records into a folder beside the store (`StoreWriter.write`). Then the driver makes the store of the chunks
(`commit`), in a Python process that has no session: so all other stages of the restore run in that process.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark_mq._compat import arrow_schema
from spark_mq.errors import OptionError, StorageError
from spark_mq.io.publish import discard_folder
from spark_mq.job.task_errors import reason_of
from spark_mq.job.tasks import LocalTasks, SharedStorageCheck, package_errors
from spark_mq.restorer.appended_messages import append_messages, check_append
from spark_mq.restorer.chunk import Chunk, StageTask
from spark_mq.restorer.new_store import make_store
from spark_mq.restorer.restore_request import RestoreRequest, is_store
from spark_mq.restorer.source_columns import check_columns
from spark_mq.restorer.source_facts import OFFSET_COLUMNS, Source
from spark_mq.restorer.store_job import StoreJob

WRITING = ".writing-"
"""In the name of the folder beside the store that gets the chunks of a write."""


@dataclass(frozen=True)
class StagedChunks(WriterCommitMessage):
    """What one task wrote."""

    chunks: tuple[Chunk, ...]


@dataclass(frozen=True)
class StoreWriter(DataSourceArrowWriter):
    """Writes the rows of one DataFrame."""

    job: StoreJob
    task: StageTask
    check: SharedStorageCheck

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedChunks:
        """Write the chunks of one partition; returns them for `commit`."""
        context = TaskContext.get()
        with package_errors():
            self.check.check()
            return StagedChunks(tuple(self.task.stage(iterator, 0 if context is None else context.partitionId())))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the store of all chunks, and put it in place."""
        chunks = [chunk for message in messages if isinstance(message, StagedChunks) for chunk in message.chunks]
        try:
            if chunks or not self.job.request.append:
                self.job.request.check_target()
                with package_errors():
                    run = append_messages if self.job.request.append else make_store
                    run(self.job, lambda folder, task: chunks)
        finally:
            discard_folder(self.task.folder)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what the tasks wrote; the store is as it was."""
        discard_folder(self.task.folder)


def store_writer(options: Mapping[str, Any], schema: StructType, overwrite: bool) -> StoreWriter:
    """The writer of a DataFrame, with options of `parse_write_options`; makes the folder for its chunks.

    A store that exists is appended to, or set aside under another name if `overwrite` is true.
    """
    columns = arrow_schema(schema)
    appends = not overwrite and is_store(options["path"])
    has_offsets = set(columns.names) >= OFFSET_COLUMNS and not (options["renumber"] or appends)
    for name, option in (("topic_map", "topicMap"), ("queue_selector", "queueSelector")):
        if options.get(name) and has_offsets:
            raise OptionError(f"option {option} changes messages, so they need new offsets: add option renumber=true")
    given = {**options, "renumber": not has_offsets, "append": appends, "replace": overwrite}
    if not appends:
        given.pop("append_id", None)
    request = replace(RestoreRequest.of(given.pop("path"), **given), append_id=options.get("append_id"))
    check_columns(columns, has_offsets)
    job = StoreJob(LocalTasks(), Source.of_rows(has_offsets), request)
    if appends:
        check_append(job)
    folder = request.store.parent / f"{request.store.name}{WRITING}{uuid.uuid4().hex}"
    try:
        folder.make_folder()
    except OSError as error:
        raise StorageError(f"{folder}: the folder of the write cannot be created: {reason_of(error)}") from error
    return StoreWriter(job, job.stage_task(folder), SharedStorageCheck.of_folder(folder))
