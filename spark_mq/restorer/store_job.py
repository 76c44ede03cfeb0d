"""One run of a restore: what all its stages know, and the steps that a new store and an append share."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from spark_mq.format.amounts import size_text
from spark_mq.format.broker_version import INDEX_TAGS, MESSAGE_VERSION_2, BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.message_id import parse_host
from spark_mq.format.system_topic import delay_level_millis
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.job.progress import Progress
from spark_mq.job.tasks import ENGINES, SharedStorageCheck, TaskRunner, Tasks
from spark_mq.restorer.chunk import Chunk, StageTask
from spark_mq.restorer.config_files import TOPICS, CopyType, topics_json
from spark_mq.restorer.offset_map import OffsetMap, check_map_folder
from spark_mq.restorer.placement import LogPlan, NewLog, NumberedQueues, number_queues
from spark_mq.restorer.queue_choice import StoreQueues
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.restorer.segment_task import SegmentWriter
from spark_mq.restorer.source_columns import EncodingRules
from spark_mq.restorer.source_facts import Source
from spark_mq.store.config.config_file import load_config
from spark_mq.store.config.offset_files import object_of
from spark_mq.store.config.store_kind import BATCH_QUEUES, configured_batch_topics, named_with_attribute
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.metadata_tables import topic_rows
from spark_mq.store.queue.queue_database import has_light_queues

_SHOWN = 5
"""Queues that a note names."""

Stage = Callable[[Location, StageTask], Sequence[Chunk]]
"""Runs a task over all rows of the source; gives the chunks that it wrote into a folder."""


@dataclass(frozen=True)
class RestoreReport(Report):
    """What was restored. It is built once, when the store is in place.

    Attributes:
        store: The store that was made, or continued.
        mode: `faithful`, `compact` or `append`.
        log_start: The commit log offset of the first segment that has new messages.
        gaps: Ranges of the log whose messages were left out, filled with left-out records.
        raised: Messages whose store time was raised to that of the message before them.
        backup: The new name of the store that was replaced; None if none was.
        offset_map: The folder with the old and the new offsets; None if no offset changed.
        settings: The broker's settings that shape the files, a text each.
        notes: What a user has to know, a sentence each.
        stages: The duration of each stage, in seconds.
        engine: Where the tasks ran: a key of `ENGINES`.
    """

    source: str
    store: str
    mode: str
    messages: int = 0
    log_start: int = 0
    log_end: int = 0
    segments: int = 0
    gaps: int = 0
    gap_bytes: int = 0
    queues: int = 0
    queue_files: int = 0
    index_files: int = 0
    index_entries: int = 0
    raised: int = 0
    backup: str | None = None
    offset_map: str | None = None
    settings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    engine: str = "spark"

    def to_text(self) -> str:
        """The report as lines for a terminal; a row that does not apply is left out."""
        verb = "appended to" if self.mode == "append" else "restored to"
        rate = self.messages / self.seconds if self.seconds else 0.0
        lines = [
            f"{self.source} {verb} {self.store} ({self.mode})",
            f"  messages        {self.messages:,}",
            f"  commit log      {self.log_start:,} to {self.log_end:,} in {self.segments:,} segments",
            f"  queues          {self.queues:,} in {self.queue_files:,} files",
            f"  index           {self.index_entries:,} entries in {self.index_files:,} files",
        ]
        if self.gaps:
            lines.append(f"  left out        {self.gaps:,} ranges of the log, {size_text(self.gap_bytes)}")
        if self.raised:
            lines.append(f"  store times     {self.raised:,} raised to that of the message before")
        if self.backup is not None:
            lines.append(f"  replaced store  is in {self.backup}: remove it when it is no longer needed")
        if self.offset_map is not None:
            lines.append(f"  offsets         old and new ones are in {self.offset_map}")
        lines.append(f"  seconds         {self.seconds:.1f} {ENGINES[self.engine]} ({rate:,.0f} messages a second)")
        lines += [f"  assumed         {setting}" for setting in self.settings]
        lines += [f"  note            {note}" for note in self.notes]
        return "\n".join(lines)


@dataclass(frozen=True)
class StoreJob:
    """One run of a request."""

    tasks: Tasks
    source: Source
    request: RestoreRequest

    @property
    def is_faithful(self) -> bool:
        """Whether messages keep their offsets."""
        return self.source.has_offsets and not self.request.is_renumbered

    @property
    def is_whole(self) -> bool:
        """Whether no message of the source is left out."""
        return self.request.where is None and not self.request.only_delivered

    @property
    def copy_type(self) -> CopyType:
        """What the new store is, compared with its source."""
        if not self.is_faithful:
            return CopyType.RENUMBERED
        return CopyType.WHOLE if self.is_whole and self.source.location is not None else CopyType.PARTIAL

    @property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the new broker: as requested, or those that the source shows, or else all of 5."""
        shown, asked = self.source.broker_versions or BrokerVersions.parse("5"), self.request.broker_version
        return shown if asked is None else asked.within(shown)

    @property
    def keeps_tags(self) -> bool:
        """Whether tags have index entries as in the source, so that the version of the new broker does not decide."""
        asked = self.request.broker_version
        return self.is_faithful and (asked is None or asked.decide(INDEX_TAGS) is None)

    @cached_property
    def topics(self) -> bytes:
        """The settings of the topics of a new store, as far as they are those of the source."""
        return topics_json(self.source.files.get(TOPICS), {}, self.request.topic_map, self.broker_versions)

    @cached_property
    def batch_topics(self) -> frozenset[str]:
        """The topics of the store that have batch consume queues."""
        if self.request.append:
            return configured_batch_topics(self.request.store)
        return named_with_attribute(object_of(self.topics, TOPICS), *BATCH_QUEUES)

    @property
    def has_offset_map(self) -> bool:
        """Whether offsets or ids of messages change that have been in a store."""
        return self.source.has_offsets and not (self.is_faithful and self.request.store_host is None)

    def stage_task(self, folder: Location) -> StageTask:
        """The task that stages rows in a folder."""
        request, asked = self.request, self.request.broker_version
        rules = EncodingRules(
            is_faithful=self.is_faithful,
            now=int(time.time() * 1000),
            store_host=request.store_host,
            topics=request.topic_map,
            properties_crc=request.broker_conf.is_enabled("enabledAppendPropCRC"),
            queues=None if self.is_faithful else self._queues(),
            batch_topics=self.batch_topics,
            allows_v2=asked is None or asked.decide(MESSAGE_VERSION_2) is not False,
        )
        segment_size = request.segment_size if self.is_faithful else None
        return StageTask(rules, folder, segment_size, has_digest=request.append and not self.source.is_store)

    def _queues(self) -> StoreQueues:
        """The queues of the store's topics, and its delay levels."""
        request = self.request
        topics = (load_config(request.store, "topics.json", topic_rows) if request.append else None) or {}
        counts = {name: topic["write_queue_nums"] for name, topic in topics.items()}
        levels = delay_level_millis(request.broker_conf.message_delay_level)
        return StoreQueues(request.queue_selector, len(levels), counts)

    def stage(self, stage: Stage, folder: Location, progress: Progress) -> list[Chunk]:
        """The chunks of all rows, in the order of the rows."""
        if self.has_offset_map:
            check_map_folder(self.request.offset_map_folder)  # before the long work, not after it
        with progress.stage("encode messages", 1, "sources"):
            chunks = stage(folder, self.stage_task(folder))
        if not chunks:
            raise self.request.nothing_to_restore(self.source.name)
        return sorted(chunks, key=lambda chunk: (chunk.partition, chunk.number))

    def numbered(
        self,
        chunks: Sequence[Chunk],
        progress: Progress,
        next_queue_offsets: Mapping[Queue, int] | None = None,
        *,
        keeps_queue_offsets: bool = False,
    ) -> tuple[list[Chunk], NumberedQueues]:
        """The chunks, with new queue offsets in inner batches, and the queues with these offsets."""
        numbered = number_queues(chunks, next_queue_offsets, keeps_queue_offsets=keeps_queue_offsets)
        topics, renewed = self.batch_topics, list(chunks)
        rows = [row for row, chunk in enumerate(chunks) if any(queue.topic in topics for queue in chunk.queues())]
        if rows:
            runner = TaskRunner(self.tasks, progress)
            new = runner.each("number batches", "chunks", [chunks[row] for row in rows], Chunk.with_new_bases)
            for row, chunk in zip(rows, new, strict=True):
                renewed[row] = chunk
        return renewed, numbered

    @contextmanager
    def offset_map(self, chunks: Sequence[Chunk], plan: LogPlan) -> Iterator[OffsetMap | None]:
        """A context with the table of old and new offsets, which an error removes; None if nothing changes."""
        if not self.has_offset_map:
            yield None
            return
        request, hosts = self.request, {host for chunk in chunks for host in chunk.store_hosts}
        old_host = parse_host(hosts.pop(), any_port=True) if len(hosts) == 1 else None
        new_host = old_host if request.store_host is None else parse_host(request.store_host)
        folder, topics = request.offset_map_folder, request.topic_map
        table = OffsetMap.create(folder, topics, plan.topics, old_store_host=old_host, store_host=new_host)
        try:
            yield table
        except BaseException:
            table.remove()
            raise

    def notes(self, plan: LogPlan, chunks: Sequence[Chunk]) -> list[str]:
        """What a user has to know of any new log, a sentence each."""
        topics = self.request.topic_map.items()
        missing = [f"--topic-map: no message has topic {old}" for old, new in topics if new not in plan.topics]
        makes_light = has_light_queues(self.request.store, self.request.broker_conf)
        return [*plan.waiting_notes, *missing, *_dispatched_notes(chunks, makes_light)]

    def report(self, log: NewLog, offset_map: OffsetMap | None, **fields: Any) -> RestoreReport:
        """The report of the new log."""
        sums = {
            name: sum(getattr(segment, name) for segment in log.segments)
            for name in ("messages", "gaps", "gap_bytes", "raised")
        }
        return RestoreReport(
            self.source.name,
            str(self.request.store),
            "append" if self.request.append else "faithful" if self.is_faithful else "compact",
            log_start=log.start,
            log_end=log.end,
            segments=len(log.segments),
            offset_map=None if offset_map is None else str(offset_map.folder),
            engine=self.tasks.engine,
            **sums,
            **fields,
        )

    def write_log(
        self,
        plan: LogPlan,
        work: Location,
        folder: Location,
        offset_map: OffsetMap | None,
        progress: Progress,
        previous: Location | None = None,
        earliest: int | None = None,
    ) -> NewLog:
        """Write the segments; see `SegmentWriter` for `previous` and `earliest`.

        `work` is the job's folder, which is removed at the end.
        """
        blanks = self.source.blanks if self.is_faithful else {}
        writer = SegmentWriter(folder / COMMIT_LOG, blanks, previous, earliest, offset_map)
        runner = TaskRunner(self.tasks.checked(SharedStorageCheck.of_folder(work)), progress)
        return NewLog(plan, runner.each("write segments", "segments", plan.segments, writer.write))


def _dispatched_notes(chunks: Sequence[Chunk], makes_light: bool) -> list[str]:
    """A sentence about the units of other queues that messages name and that are not made."""
    units: Counter[Queue] = Counter()
    for chunk in chunks:
        for queue, count in chunk.dispatched().items():
            if not (makes_light and queue[0].startswith(LIGHT_PREFIX)):
                units[queue] += count
    if not units:
        return []
    named = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in sorted(units)[:_SHOWN])
    return [
        f"{units.total():,} units of {len(units):,} queues that messages name in their property "
        f"INNER_MULTI_DISPATCH are not made: {named}{', ...' if len(units) > _SHOWN else ''}. Those of light message "
        "queues (%LMQ%) are made with a --broker-conf that has enableMultiDispatch=true and enableLmq=true"
    ]
