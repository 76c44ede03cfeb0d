"""The manifest of staged files: which splits are staged, and by which files, so that a killed job can go on.

The manifest is `manifest.json` in the job's folder, and is rewritten after each dispatch. It has the row of each split,
which names the split's staged files. They are reusable if the size and the mtime of their segment are unchanged and it
was not the last segment, then or now: a broker may still append to the last segment, or overwrite its stale tail.
Segments that have expired since stay staged.

A manifest is checked before it is used: it counts only while every staged file exists as it was written.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Self

from pyarrow import fs

from spark_mq.errors import StorageError
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from spark_mq.indexer.rebuild_plan import StagingSettings
from spark_mq.indexer.staged_files import READERS, STAGED_ENTRY_SIZE, SplitRow, StagedUnits
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import segment_files

STAGED = "staged"
"""The folder's name in the job's folder."""
MANIFEST = "manifest.json"


def _are_complete(folder: Location, splits: Sequence[SplitRow]) -> bool:
    """Whether every staged file of these splits exists, with its size, and units with their directory."""
    sizes = {info.base_name: info.size for info in folder.entries() if info.type == fs.FileType.File}
    if any(sizes.get(name) != size for name, size in _sizes(splits).items()):
        return False
    units = [staged for split in splits if (staged := split.staged_units(folder)) is not None]
    if any(sizes.get(staged.location.name) != staged.size for staged in units):
        return False
    try:
        with ThreadPoolExecutor(READERS) as readers:
            for _ in readers.map(StagedUnits.read_runs, units):
                pass
    except StorageError:
        return False
    return True


def _sizes(splits: Iterable[SplitRow]) -> dict[str, int]:
    sizes = {
        split.entries_file: split.index_entries * STAGED_ENTRY_SIZE
        for split in splits
        if split.entries_file is not None and split.index_entries
    }
    batches = ((split.batches_file, sum(run.unit_count for run in split.batch_runs)) for split in splits)
    sizes |= {table.name: table.size for split in splits for table in split.record_tables}
    return sizes | {name: count * BATCH_UNIT_SIZE for name, count in batches if name is not None}


@dataclass(frozen=True)
class StagedSegment:
    """A segment as it was when it was staged; `mtime_ns` is None if a broker can still write to the segment."""

    base: int
    size: int
    mtime_ns: int | None


@dataclass(frozen=True)
class Manifest:
    """Everything that a job has staged so far."""

    settings: StagingSettings
    segments: tuple[StagedSegment, ...] = ()
    splits: tuple[SplitRow, ...] = ()

    @classmethod
    def load(cls, folder: Location) -> Self | None:
        """The manifest in a job's folder; None if it cannot be read, or if a staged file is not as it was written.

        This function reads the directories of staged units.
        """
        file = folder / MANIFEST
        if not file.is_file:
            return None
        try:
            values = json.loads(file.read_bytes())
            lists = {name: tuple(values["settings"][name]) for name in ("trees", "batch_topics")}
            settings = StagingSettings(**{**values["settings"], **lists})
            segments = tuple(StagedSegment(**segment) for segment in values["segments"])
            splits = tuple(SplitRow.of(split) for split in values["splits"])
        except (ValueError, KeyError, TypeError):
            return None
        return cls(settings, segments, splits) if _are_complete(folder / STAGED, splits) else None

    def save(self, folder: Location) -> None:
        """Write the manifest into the job's folder, as a whole file."""
        publish(folder / MANIFEST, json.dumps(vars(self), default=vars).encode())

    def with_staged(self, segments: Sequence[StagedSegment], splits: Iterable[SplitRow]) -> Manifest:
        """The manifest with these segments and the rows of their splits, instead of what it has of these segments."""
        rest = self.without({segment.base for segment in segments})
        return replace(rest, segments=(*rest.segments, *segments), splits=(*rest.splits, *splits))

    def without(self, bases: Collection[int]) -> Manifest:
        """The manifest without the segments with these base offsets."""
        return replace(
            self,
            segments=tuple(segment for segment in self.segments if segment.base not in bases),
            splits=tuple(split for split in self.splits if split.segment not in bases),
        )

    def fitting(self, log: Sequence[StagedSegment]) -> Manifest:
        """The part of the manifest that still counts.

        Expired segments count if they are directly before the log's first segment, without a gap.
        """
        staged = {segment.base: segment for segment in self.segments}
        kept = {now.base for now in log if now.mtime_ns is not None and staged.get(now.base) == now}
        first = log[0].base
        ends = {segment.base + segment.size: segment for segment in staged.values() if segment.mtime_ns is not None}
        while (before := ends.get(first)) is not None and before.size > 0:
            kept.add(before.base)
            first = before.base
        return self.without(staged.keys() - kept)

    def remove_others(self, folder: Location) -> None:
        """Remove the staged files in a job's folder that the manifest does not name."""
        listed = {split.units_file for split in self.splits} | _sizes(self.splits).keys()
        for file in (folder / STAGED).entries():
            if file.base_name not in listed:
                (folder / STAGED / file.base_name).delete()

    @property
    def bases(self) -> set[int]:
        """The base offsets of the staged segments."""
        return {segment.base for segment in self.segments}


def segments_now(store: Location, log: CommitLog) -> list[StagedSegment]:
    """The segments of a log as a manifest names them. Call this function before the log is read."""
    times = {int(info.base_name): info.mtime_ns for info in segment_files(store)}
    return [
        StagedSegment(segment.base, segment.size, None if segment.is_last else times.get(segment.base))
        for segment in log.segments
    ]
