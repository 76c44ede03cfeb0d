"""The manifest of a job: a list of everything that the job has staged, so that a later job can continue from it.

The manifest is `manifest.json` in the job's folder, and is rewritten after each round of dispatch. A round is a folder
of staged rows, and covers some segments. Staged rows of a segment are reusable if its size and mtime are unchanged and
it was not the last segment, then or now: a broker may still append to the last segment, or overwrite its stale tail.
Segments that have expired since stay staged.

A manifest is checked before it is used: it names every staged file with its size and its row count, and counts only
while all these files exist with the same size and rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Self

from spark_mq.indexer.settings import StagingSettings
from spark_mq.indexer.staged_files import INDEX_ENTRIES, StagedFile, are_there
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import segment_files

MANIFEST = "manifest.json"

ROUND = "dispatch-"
"""The beginning of the names of the folders of rounds."""


@dataclass(frozen=True)
class StagedSegment:
    """A segment as it was when it was staged; `mtime_ns` is None if a broker can still write to the segment."""

    base: int
    size: int
    mtime_ns: int | None


@dataclass(frozen=True)
class Round:
    """Staged rows in the folder `name`, and the segments whose rows count, by offset."""

    name: str
    segments: tuple[StagedSegment, ...]
    left_out: tuple[int, ...] = ()
    """Base offsets of segments whose rows are in the folder but do not count."""
    files: tuple[StagedFile, ...] = ()
    """Every staged file of the round."""

    def without(self, bases: Iterable[int]) -> Round:
        """The round without these segments: their rows do not count any more."""
        dropped = set(bases)
        kept = tuple(segment for segment in self.segments if segment.base not in dropped)
        left_out = (segment.base for segment in self.segments if segment.base in dropped)
        return replace(self, segments=kept, left_out=(*self.left_out, *left_out))


@dataclass(frozen=True)
class Manifest:
    """Everything that a job has staged so far. No two rounds count for one segment."""

    settings: StagingSettings
    rounds: tuple[Round, ...] = ()

    @classmethod
    def load(cls, folder: Location) -> Self | None:
        """The manifest in a job's folder; None if it cannot be read, or if a staged file is missing or has changed.

        This function reads the footers of the staged Parquet files.

        Args:
            folder: The job's folder.

        """
        file = folder / MANIFEST
        if not file.is_file:
            return None
        try:
            values = json.loads(file.read_bytes())
            settings = StagingSettings(**{**values["settings"], "trees": tuple(values["settings"]["trees"])})
            rounds = [
                Round(
                    fields["name"],
                    tuple(StagedSegment(**segment) for segment in fields["segments"]),
                    tuple(fields["left_out"]),
                    tuple(StagedFile(**file) for file in fields["files"]),
                )
                for fields in values["rounds"]
            ]
        except (ValueError, KeyError, TypeError):
            return None
        is_staged = all(are_there(folder, staged.name, staged.files) for staged in rounds)
        return cls(settings, tuple(rounds)) if is_staged else None

    def save(self, folder: Location) -> None:
        """Write the manifest into the job's folder, as a whole file."""
        content = json.dumps(asdict(self)).encode()
        publish(folder / MANIFEST, content, len(content))

    def with_round(self, name: str, segments: Sequence[StagedSegment], files: Iterable[StagedFile] = ()) -> Manifest:
        """The manifest with one more round, which counts for its segments instead of earlier rounds.

        Args:
            name: The round's folder in the job's folder.
            segments: The segments that were staged in the round.
            files: Every staged file of the round.

        """
        bases = [segment.base for segment in segments]
        rounds = (
            *(earlier.without(bases) for earlier in self.rounds),
            Round(name, tuple(segments), files=tuple(files)),
        )
        return replace(self, rounds=tuple(staged_round for staged_round in rounds if staged_round.segments))

    def fitting(self, log: Sequence[StagedSegment]) -> Manifest:
        """The part of the manifest that still counts.

        Expired segments count if they are directly before the log's first segment, without a gap.

        Args:
            log: The segments of the log now (`segments_now`).

        """
        staged = {segment.base: segment for staged_round in self.rounds for segment in staged_round.segments}
        kept = {now.base for now in log if now.mtime_ns is not None and staged.get(now.base) == now}
        first = log[0].base
        ends = {segment.base + segment.size: segment for segment in staged.values() if segment.mtime_ns is not None}
        while (before := ends.get(first)) is not None and before.size > 0:
            kept.add(before.base)
            first = before.base
        rounds = [staged_round.without(staged.keys() - kept) for staged_round in self.rounds]
        return replace(self, rounds=tuple(staged_round for staged_round in rounds if staged_round.segments))

    def unlisted(self, folder: Location) -> list[str]:
        """The staged files and folders of rounds in a job's folder that the manifest does not name, as paths in it."""
        rounds = {staged_round.name for staged_round in self.rounds}
        names = [entry.base_name for entry in folder.entries()]
        listed = {file.path for staged_round in self.rounds for file in staged_round.files}
        entry_files = [f"{INDEX_ENTRIES}/{entry.base_name}" for entry in (folder / INDEX_ENTRIES).entries()]
        return [
            *(name for name in names if name.startswith(ROUND) and name not in rounds),
            *(path for path in entry_files if path not in listed),
        ]

    @property
    def bases(self) -> set[int]:
        """The base offsets of the staged segments."""
        return {segment.base for staged_round in self.rounds for segment in staged_round.segments}


def segments_now(store: Location, log: CommitLog) -> list[StagedSegment]:
    """The segments of a log as a manifest names them. Call this function before the log is read.

    Args:
        store: The store of the log.
        log: The log.

    """
    times = {int(info.base_name): info.mtime_ns for info in segment_files(store)}
    return [
        StagedSegment(segment.base, segment.size, None if segment.is_last else times.get(segment.base))
        for segment in log.segments
    ]
