"""The stages of a restore: rows become records, records get places, and everything else is derived from the log.

1. stage (`stage`): tasks encode rows, and write chunks of records. Only a small row for each chunk goes to the driver.
2. place (`placement`): counts and sizes become positions.
3. write (`segment_task`): one task writes one segment.
4. derive: the rebuild of `indexer` makes queues and index out of the new log.
5. finish: the files of `config/`, the checkpoint, and queues that have no message any more.

A new store is made in a folder beside it, which is renamed when all is complete. A job that is killed leaves that
folder, and the next one removes it.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.errors import EmptyStoreError
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import PERMISSIVE, RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.io.location import Location
from spark_mq.job.output_lock import output_lock
from spark_mq.job.progress import Progress, StageProgress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import Tasks
from spark_mq.restorer.chunk import Chunk, Queue
from spark_mq.restorer.config_files import Situation
from spark_mq.restorer.encoding_rules import EncodingRules
from spark_mq.restorer.finish import NewLog, finish_store
from spark_mq.restorer.host_text import parse_host
from spark_mq.restorer.index_names import restore_index_names
from spark_mq.restorer.offset_map import OffsetMap
from spark_mq.restorer.origin import Origin
from spark_mq.restorer.placement import HALF_TOPIC, LogPlan, place_after, place_as_before, with_leading_segment
from spark_mq.restorer.put_in_place import put_in_place
from spark_mq.restorer.report import RestoreReport
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.restorer.segment_task import WRITTEN_SCHEMA, SegmentTask
from spark_mq.restorer.stage import StageTask
from spark_mq.store.config.store_paths import COMMIT_LOG

_STORE, _CHUNKS = "store", "chunks"

Stage = Callable[[Location, StageTask], Sequence[Chunk]]
"""Runs a task over all rows of the source; gives the chunks that it wrote into a folder, in the order of the rows."""


@dataclass(frozen=True)
class StoreJob:
    """One run of a request.

    Attributes:
        tasks: Where the tasks run.
        origin: Where the messages come from.
        request: What is restored, with all settings.
        on_progress: Is called when a stage begins, when it ends, and about once a second between.

    """

    tasks: Tasks
    origin: Origin
    request: RestoreRequest
    on_progress: Callable[[StageProgress], None] | None = None

    @property
    def is_faithful(self) -> bool:
        """Whether messages keep their offsets."""
        return self.origin.has_offsets and not self.request.is_renumbered

    def stage_task(self, folder: Location) -> StageTask:
        """The task that stages rows in a folder."""
        rules = EncodingRules(
            is_faithful=self.is_faithful,
            now=int(time.time() * 1000),
            store_host=self.request.store_host,
            topics=self.request.topics,
            properties_crc=self.request.broker_conf.is_enabled("enabledAppendPropCRC"),
        )
        return StageTask(rules, folder, self.request.segment_size if self.is_faithful else None)

    def run(self, stage: Stage) -> RestoreReport:
        """Make the store, put it in place, and report.

        Args:
            stage: Stages the rows.

        Raises:
            EmptyStoreError: There is no row.
            InvalidMessageError: Messages do not fit together.
            OutputInUseError: Another job makes the same store.
            StorageError: The store cannot be written.

        """
        started = time.monotonic()
        work = self.request.work_folder
        with output_lock(work):
            try:
                report = self._make(work, stage)
                backup = put_in_place(work / _STORE, self.request.store, self.request.replaces)
            finally:
                shutil.rmtree(work.path, ignore_errors=True)
        return dataclasses.replace(report, backup=backup, seconds=round(time.monotonic() - started, 3))

    def _make(self, work: Location, stage: Stage) -> RestoreReport:
        """Make the whole store in the work folder."""
        store, chunk_folder = work / _STORE, work / _CHUNKS
        for folder in (store, chunk_folder):
            shutil.rmtree(folder.path, ignore_errors=True)  # what a killed job left
            os.makedirs(folder.path)
        progress = Progress(work / "progress" / uuid.uuid4().hex, self.on_progress)
        with progress.stage("encode messages", 1, "sources"):
            chunks = stage(chunk_folder, self.stage_task(chunk_folder))
        if not chunks:
            raise EmptyStoreError(f"{self.origin.name} has no such message: there is nothing to restore")
        plan = self._place(chunks)
        offset_map = self._offset_map(chunks)
        written = self._write(plan, store, offset_map, progress)
        rebuilt = self._derive(store)
        log = _new_log(chunks, plan, written)
        notes = finish_store(store, self.origin, self.request, log, self._situation, offset_map)
        return _report(
            self.origin, self.request, self._mode, written, rebuilt, [*notes, *self._notes], offset_map, progress
        )

    def _offset_map(self, chunks: Sequence[Chunk]) -> OffsetMap | None:
        """The table of old and new offsets; None if neither offsets nor ids change, or if there are no old ones."""
        if not self.origin.has_offsets or (self.is_faithful and self.request.store_host is None):
            return None
        hosts = {host for chunk in chunks for host in chunk.store_hosts}
        old_host = parse_host(next(iter(hosts)), any_port=True) if len(hosts) == 1 else None
        new_host = old_host if self.request.store_host is None else parse_host(self.request.store_host)
        topics = {queue.topic for chunk in chunks for queue in chunk.queues()}
        return OffsetMap.create(
            self.request.offset_map_folder,
            self.request.topics,
            topics,
            old_store_host=old_host,
            store_host=new_host,
        )

    @property
    def _situation(self) -> Situation:
        if not self.is_faithful:
            return Situation.RENUMBERED
        return Situation.WHOLE if self._is_whole and self.origin.location is not None else Situation.PARTIAL

    @property
    def _notes(self) -> list[str]:
        notes = [
            "segments are as new as this job: a broker deletes them when fileReservedTime (72 h) has passed from now"
        ]
        if self.request.store_host is not None:
            notes.append("offset message ids have another broker's address in them than before")
        return notes

    @property
    def _mode(self) -> str:
        return "append" if self.request.is_append else "faithful" if self.is_faithful else "compact"

    def _place(self, chunks: Sequence[Chunk]) -> LogPlan:
        """The places of all records."""
        size, facts = self.request.segment_size, self.origin.facts
        if self.is_faithful:
            if facts is not None and self._is_whole:
                return place_as_before(chunks, size, facts.log_end)
            return with_leading_segment(place_as_before(chunks, size))
        # Half messages keep their queue offsets, of which some can be left out.
        has_kept = any(queue.topic == HALF_TOPIC for chunk in chunks for queue in chunk.queues())
        return with_leading_segment(place_after(chunks, size, 2 * size)) if has_kept else place_after(chunks, size)

    @property
    def _is_whole(self) -> bool:
        """Whether no message of the source is left out."""
        return self.request.where is None and not self.request.only_delivered

    def _write(self, plan: LogPlan, store: Location, offset_map: OffsetMap | None, progress: Progress) -> pa.Table:
        """Write the segments; returns their rows (`WRITTEN_SCHEMA`), in order."""
        segments = plan.segments
        blanks = {} if self.origin.facts is None else self.origin.facts.blanks
        with progress.stage("write segments", len(segments), "segments") as done:
            task = SegmentTask(TaskItems.of(segments), store / COMMIT_LOG, blanks, None, None, offset_map, done)
            check = SharedStorageCheck.of_folder(store.parent)
            return self.tasks.checked(check).rows(task, len(segments), WRITTEN_SCHEMA).sort_by("base")

    def _derive(self, store: Location) -> RebuildReport:
        """Make queues and index out of the new log."""
        request = RebuildRequest.of(store.path, mode=PERMISSIVE)
        facts = self.origin.facts
        zone = self.request.time_zone or (None if facts is None else facts.time_zone)
        version = self.request.broker_version or (None if facts is None else facts.broker_version)
        request = dataclasses.replace(
            request, broker_conf=self.request.broker_conf, time_zone=zone, broker_version=version
        )
        report = rebuild_with(self.tasks, request, self.on_progress)
        if self.is_faithful and facts is not None:
            restore_index_names(store, facts.index_names)
        return report


def _new_log(chunks: Sequence[Chunk], plan: LogPlan, written: pa.Table) -> NewLog:
    messages: dict[Queue, int] = {}
    for chunk in chunks:
        for queue in chunk.queues():
            name = (queue.topic, queue.queue_id)
            messages[name] = messages.get(name, 0) + queue.messages
    return NewLog(
        plan.segments[0].base,
        written["end"][-1].as_py(),
        messages,
        plan.next_queue_offsets,
        max(written["last_store_timestamp"].to_pylist()),
    )


def _report(
    origin: Origin,
    request: RestoreRequest,
    mode: str,
    written: pa.Table,
    rebuilt: RebuildReport,
    notes: Sequence[str],
    offset_map: OffsetMap | None,
    progress: Progress,
) -> RestoreReport:
    sums = {name: sum(written[name].to_pylist()) for name in ("messages", "gaps", "gap_bytes", "raised")}
    return RestoreReport(
        source=origin.name,
        store=str(request.store),
        mode=mode,
        **sums,
        log_start=written["base"][0].as_py(),
        log_end=written["end"][-1].as_py(),
        segments=written.num_rows,
        queues=rebuilt.queues,
        queue_files=rebuilt.files,
        index_files=rebuilt.index_files,
        index_entries=rebuilt.index_entries,
        settings=list(rebuilt.settings),
        notes=list(notes),
        offset_map=None if offset_map is None else str(offset_map.folder),
        stages={**progress.seconds, **rebuilt.stages},
    )
