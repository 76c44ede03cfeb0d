"""What a job has staged, noted beside it, so that a job after it can go on from there.

The manifest lies in the job's folder as `manifest.json`, and is written anew after each round of dispatch. A round is
one folder of staged rows, and covers some segments. What is staged of a segment counts as long as its file has the
same size and the same time of its last change, and was not the last one, to which a broker appends, or in which it
writes over a stale tail, then or now. Segments that expired since stay staged.

A manifest is not believed on its word: it names every staged file with its size and its rows, and counts only while all
of them are there as it says.
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
"""How the names of the folders of rounds begin."""


@dataclass(frozen=True)
class StagedSegment:
    """A segment as it was when it was staged; `mtime_ns` is None where that can change without a word."""

    base: int
    size: int
    mtime_ns: int | None


@dataclass(frozen=True)
class Round:
    """Staged rows in the folder `name`, and the segments of which they count, by offset."""

    name: str
    segments: tuple[StagedSegment, ...]
    left_out: tuple[int, ...] = ()
    """Segments of which rows are there that do not count."""
    files: tuple[StagedFile, ...] = ()
    """Every file that was staged in the round."""

    def without(self, bases: Iterable[int]) -> Round:
        """The round in which these segments do not count."""
        out = set(bases)
        kept = tuple(segment for segment in self.segments if segment.base not in out)
        gone = (segment.base for segment in self.segments if segment.base in out)
        return replace(self, segments=kept, left_out=(*self.left_out, *gone))


@dataclass(frozen=True)
class Manifest:
    """What a job has staged so far. No two rounds count for one segment."""

    settings: StagingSettings
    rounds: tuple[Round, ...] = ()

    @classmethod
    def load(cls, folder: Location) -> Self | None:
        """The manifest in a job's folder; None if there is none that can be read, or a staged file is not as it says.

        Reads the footers of the staged Parquet files.
        """
        file = folder / MANIFEST
        if not file.is_file:
            return None
        try:
            values = json.loads(file.read_bytes())
            settings = StagingSettings(**{**values["settings"], "trees": tuple(values["settings"]["trees"])})
            rounds = [
                Round(
                    one["name"],
                    tuple(StagedSegment(**segment) for segment in one["segments"]),
                    tuple(one["left_out"]),
                    tuple(StagedFile(**file) for file in one["files"]),
                )
                for one in values["rounds"]
            ]
        except (ValueError, KeyError, TypeError):
            return None
        is_staged = all(are_there(folder, one.name, one.files) for one in rounds)
        return cls(settings, tuple(rounds)) if is_staged else None

    def save(self, folder: Location) -> None:
        """Write it, whole."""
        content = json.dumps(asdict(self)).encode()
        publish(folder / MANIFEST, content, len(content))

    def with_round(self, name: str, segments: Sequence[StagedSegment], files: Iterable[StagedFile] = ()) -> Manifest:
        """The manifest with one round more, which counts for its segments instead of those before."""
        bases = [segment.base for segment in segments]
        rounds = (*(one.without(bases) for one in self.rounds), Round(name, tuple(segments), files=tuple(files)))
        return replace(self, rounds=tuple(one for one in rounds if one.segments))

    def fitting(self, log: Sequence[StagedSegment]) -> Manifest:
        """What of it still counts for a log that has these segments now.

        Of expired segments those count that lie without a gap before the log's first one.
        """
        staged = {segment.base: segment for one in self.rounds for segment in one.segments}
        kept = {now.base for now in log if now.mtime_ns is not None and staged.get(now.base) == now}
        first = log[0].base
        ends = {segment.base + segment.size: segment for segment in staged.values() if segment.mtime_ns is not None}
        while (before := ends.get(first)) is not None and before.size > 0:
            kept.add(before.base)
            first = before.base
        rounds = [one.without(staged.keys() - kept) for one in self.rounds]
        return replace(self, rounds=tuple(one for one in rounds if one.segments))

    def unlisted(self, folder: Location) -> list[str]:
        """The staged files and folders of rounds in a job's folder that the manifest does not name, as paths in it."""
        rounds = {one.name for one in self.rounds}
        names = [entry.base_name for entry in folder.entries()]
        listed = {file.path for one in self.rounds for file in one.files}
        entry_files = [f"{INDEX_ENTRIES}/{entry.base_name}" for entry in (folder / INDEX_ENTRIES).entries()]
        return [
            *(name for name in names if name.startswith(ROUND) and name not in rounds),
            *(path for path in entry_files if path not in listed),
        ]

    @property
    def bases(self) -> set[int]:
        """The segments that are staged."""
        return {segment.base for one in self.rounds for segment in one.segments}


def segments_now(store: Location, log: CommitLog) -> list[StagedSegment]:
    """The segments of a log as a manifest notes them; to be asked before the log is read."""
    times = {int(info.base_name): info.mtime_ns for info in segment_files(store)}
    return [
        StagedSegment(segment.base, segment.size, None if segment.is_last else times.get(segment.base))
        for segment in log.segments
    ]
