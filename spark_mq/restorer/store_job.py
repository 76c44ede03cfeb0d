"""One run of a restore: what all its stages know, and the steps that a new store and an append share.

1. stage (`stage`): tasks encode rows, and write chunks of records. Only a small row for each chunk goes to the driver.
2. place (`placement`): counts and sizes become positions.
3. write (`segment_task`): one task writes one segment.
4. derive: queues and index are made out of the new log, by the functions of the indexer.
5. finish: the files of `config/`, and the checkpoint.

`new_store` and `appended_messages` put these steps together.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.format.broker_version import INDEX_TAGS, MESSAGE_VERSION_2, BrokerVersions
from spark_mq.format.message_id import parse_host
from spark_mq.indexer.tag_entries import TaggedRanges
from spark_mq.io.location import Location
from spark_mq.job.progress import Progress, StageProgress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_items import TaskItems
from spark_mq.job.tasks import Tasks
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.encoding_rules import EncodingRules
from spark_mq.restorer.file_rules import Situation
from spark_mq.restorer.offset_map import OffsetMap, check_map_folder
from spark_mq.restorer.placement import LogPlan
from spark_mq.restorer.restore_request import RestoreRequest
from spark_mq.restorer.segment_task import WRITTEN_SCHEMA, SegmentTask
from spark_mq.restorer.source_facts import Origin
from spark_mq.restorer.stage import StageTask
from spark_mq.store.config.store_paths import COMMIT_LOG

_SHOWN = 5
"""Queues that a note names."""

Stage = Callable[[Location, StageTask], Sequence[Chunk]]
"""Runs a task over all rows of the source; gives the chunks that it wrote into a folder, in the order of the rows."""


@dataclass(frozen=True)
class StoreJob:
    """One run of a request.

    Attributes:
        origin: Where the messages come from.
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

    @property
    def is_whole(self) -> bool:
        """Whether no message of the source is left out."""
        return self.request.where is None and not self.request.only_delivered

    @property
    def mode(self) -> str:
        """The mode, for the report."""
        return "append" if self.request.is_append else "faithful" if self.is_faithful else "compact"

    @property
    def situation(self) -> Situation:
        """How the messages come into a new store."""
        if not self.is_faithful:
            return Situation.RENUMBERED
        return Situation.WHOLE if self.is_whole and self.origin.location is not None else Situation.PARTIAL

    @property
    def broker_versions(self) -> BrokerVersions:
        """The versions of the new broker: as requested, or those that the source shows, or else all of 5."""
        facts = self.origin.facts
        shown = BrokerVersions.parse("5") if facts is None or facts.broker_versions is None else facts.broker_versions
        return shown if self.request.broker_versions is None else self.request.broker_versions.within(shown)

    @property
    def tags_shown_by(self) -> Location | None:
        """The store whose index shows which tags have index entries; None if the version says it."""
        return self.origin.location if self._keeps_tags else None

    @property
    def tagged(self) -> TaggedRanges | None:
        """Where tags have index entries by the snapshots of an archive; None if they do not show it."""
        facts = self.origin.facts
        return facts.tagged if self._keeps_tags and facts is not None else None

    @property
    def _keeps_tags(self) -> bool:
        """Whether tags have entries as in the source, so that the version of the new broker does not decide."""
        asked = self.request.broker_versions
        return self.is_faithful and (asked is None or asked.decide(INDEX_TAGS) is None)

    @property
    def _allows_v2(self) -> bool:
        """Whether the broker that was asked for can read records of version 2."""
        asked = self.request.broker_versions
        return asked is None or asked.decide(MESSAGE_VERSION_2) is not False

    @property
    def has_offset_map(self) -> bool:
        """Whether offsets or ids of messages change that have been in a store."""
        return self.origin.has_offsets and not (self.is_faithful and self.request.store_host is None)

    def stage_task(self, folder: Location) -> StageTask:
        """The task that stages rows in a folder."""
        rules = EncodingRules(
            is_faithful=self.is_faithful,
            now=int(time.time() * 1000),
            store_host=self.request.store_host,
            topics=self.request.topics,
            properties_crc=self.request.broker_conf.is_enabled("enabledAppendPropCRC"),
            allows_v2=self._allows_v2,
        )
        segment_size = self.request.segment_size if self.is_faithful else None
        return StageTask(rules, folder, segment_size, has_digest=self.request.is_append and self.origin.facts is None)

    def stage(self, stage: Stage, folder: Location, progress: Progress) -> Sequence[Chunk]:
        """The chunks of all rows."""
        if self.has_offset_map:
            check_map_folder(self.request.offset_map_folder)  # before the long work, not after it
        with progress.stage("encode messages", 1, "sources"):
            chunks = stage(folder, self.stage_task(folder))
        if not chunks:
            raise self.request.nothing_to_restore(self.origin.name)
        return chunks

    def offset_map(self, chunks: Sequence[Chunk], plan: LogPlan) -> OffsetMap | None:
        """The table of old and new offsets; None if neither offsets nor ids change, or if there are no old ones."""
        if not self.has_offset_map:
            return None
        hosts = {host for chunk in chunks for host in chunk.store_hosts}
        old_host = parse_host(next(iter(hosts)), any_port=True) if len(hosts) == 1 else None
        new_host = old_host if self.request.store_host is None else parse_host(self.request.store_host)
        folder = self.request.offset_map_folder
        return OffsetMap.create(folder, self.request.topics, plan.topics, old_store_host=old_host, store_host=new_host)

    @staticmethod
    def dispatched_notes(chunks: Sequence[Chunk]) -> list[str]:
        """A sentence about the units of other queues that messages name; none of them is made."""
        units: Counter[tuple[str, int]] = Counter()
        for chunk in chunks:
            units.update(chunk.dispatched())
        if not units:
            return []
        named = ", ".join(f"{topic}/{queue_id}" for topic, queue_id in sorted(units)[:_SHOWN])
        return [
            f"{units.total():,} units of {len(units):,} queues that messages name in their property "
            f"INNER_MULTI_DISPATCH are not made: {named}{', ...' if len(units) > _SHOWN else ''}"
        ]

    def unmapped_notes(self, plan: LogPlan) -> list[str]:
        """A sentence for each topic that has a new name, and of which there is certainly no message."""
        missing = [old for old, new in self.request.topics.items() if new not in plan.topics]
        return [f"--topic-map: no message has topic {old}" for old in missing]

    def write_log(
        self,
        plan: LogPlan,
        work: Location,
        folder: Location,
        offset_map: OffsetMap | None,
        progress: Progress,
        previous: Location | None = None,
        earliest: int | None = None,
    ) -> pa.Table:
        """Write the segments; returns their rows (`segment_task.WRITTEN_SCHEMA`), in order.

        Args:
            work: The job's folder, which is removed at the end.
            offset_map: Takes old and new offsets; None if there are none.
            previous: The segment that is continued; None for a new log.
            earliest: Store times before this one are raised to it, in milliseconds; None to keep all.
        """
        blanks = {} if self.origin.facts is None or not self.is_faithful else self.origin.facts.blanks
        with progress.stage("write segments", len(plan.segments), "segments") as done:
            items = TaskItems.of(plan.segments)
            task = SegmentTask(items, folder / COMMIT_LOG, blanks, previous, earliest, offset_map, done)
            tasks = self.tasks.checked(SharedStorageCheck.of_folder(work))
            return tasks.rows(task, len(plan.segments), WRITTEN_SCHEMA).sort_by("base")
