"""What a rebuild would do: its files, its settings, and the room that it needs; nothing is changed."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from spark_mq.indexer.disk_space import free_bytes, room_needed
from spark_mq.indexer.file_settings import file_settings
from spark_mq.indexer.rebuild_request import RebuildRequest
from spark_mq.indexer.staging.manifest import Manifest, segments_now
from spark_mq.io.size_text import size_text
from spark_mq.store.log.commit_log import CommitLog


@dataclass(frozen=True)
class Forecast:
    """What a rebuild would do.

    Attributes:
        store: The store whose log would be read.
        output: The folder in which the trees would be written.
        replaced: Existing trees that would be replaced.
        continued: Existing trees that would be continued.
        segments_staged_before: Segments that a killed job has staged, and that would not be read again.
        settings: The broker's settings that shape the files, with their sources.
        room_needed: The approximate number of bytes that the job needs in the output; None if unknown.
        room_free: The free bytes of the output's disk; None if unknown.
        damage: Damage that the names and sizes of the log's files show, and that would be skipped.
    """

    store: str
    output: str
    trees: list[str]
    segments: int
    log_bytes: int
    replaced: list[str]
    continued: list[str]
    segments_staged_before: int
    settings: list[str]
    room_needed: int | None
    room_free: int | None
    damage: list[str]

    @property
    def lacks_room(self) -> bool:
        """Whether the disk of the output has less room than the job needs."""
        return self.room_needed is not None and self.room_free is not None and self.room_free < self.room_needed

    def to_json(self) -> str:
        """One JSON object with the fields of this class."""
        return json.dumps(dataclasses.asdict(self))

    def to_text(self) -> str:
        """Lines for a terminal; a row that does not apply is left out."""
        rows = [
            ("reads", self.log_text()),
            ("writes", ", ".join(f"{self.output}/{tree}" for tree in self.trees)),
            *(("replaces", f"{self.output}/{tree}") for tree in self.replaced),
            *(("continues", f"{self.output}/{tree}") for tree in self.continued),
            *_row_if(self.segments_staged_before, "continues", "a killed job, which has staged {:,} segments"),
            *(("skips", text) for text in self.damage),
            *(("assumes", setting) for setting in self.settings),
            ("needs", self.room_text()),
        ]
        return "\n".join([f"rebuild of {self.store}: a dry run, nothing is changed", *map(_line, rows)])

    def log_text(self) -> str:
        """The part of the log that is read."""
        return f"{self.segments:,} segment{'s' * (self.segments != 1)}, {size_text(self.log_bytes)}"

    def room_text(self) -> str:
        """The room that the job needs, and the room that there is."""
        needed = "an unknown number of bytes" if self.room_needed is None else f"about {size_text(self.room_needed)}"
        free = "" if self.room_free is None else f"; {size_text(self.room_free)} are free"
        return f"{needed} in {self.output}{free}{', WHICH IS NOT ENOUGH' if self.lacks_room else ''}"


def forecast(request: RebuildRequest) -> Forecast:
    """What a rebuild would do with the store and the output as they are now."""
    log, damage = request.check()
    committer = request.committer
    existing = committer.existing()
    return Forecast(
        store=str(request.store),
        output=str(committer.output),
        trees=list(committer.names),
        segments=len(log.segments),
        log_bytes=sum(segment.data_end for segment in log.segments),
        replaced=list(existing) if request.replace else [],
        continued=list(existing) if request.resume else [],
        segments_staged_before=_segments_staged(request, log) if request.resume else 0,
        settings=[str(setting) for setting in file_settings(request)],
        room_needed=room_needed(request, log),
        room_free=free_bytes(committer.output.path) if committer.output.is_local else None,
        damage=[corrupt.describe() for corrupt in damage],
    )


def _segments_staged(request: RebuildRequest, log: CommitLog) -> int:
    """The number of segments that a killed job with the same store and trees has staged."""
    left = Manifest.load(request.committer.folder)
    if left is None or (left.settings.store, left.settings.trees) != (str(request.store), request.committer.names):
        return 0
    return len(left.fitting(segments_now(request.store, log)).bases)


def _row_if(number: int, name: str, text: str) -> list[tuple[str, str]]:
    return [(name, text.format(number))] if number else []


def _line(row: tuple[str, str]) -> str:
    return f"  {row[0]:<10} {row[1]}"
