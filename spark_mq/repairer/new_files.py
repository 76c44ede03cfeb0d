"""The new files of a repair, made in a folder of their own before any file of the store is changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish, published
from spark_mq.repairer.changes import Change, ChangeKind
from spark_mq.repairer.index_task import WrittenIndexFile, write_index_files
from spark_mq.repairer.plan import Action, RepairPlan
from spark_mq.repairer.queue_task import write_queue_files
from spark_mq.repairer.small_files import Queue, clamped_checkpoint, corrected_offsets
from spark_mq.repairer.treatments import Treatment
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import index_files
from spark_mq.verifier.check import Evidence
from spark_mq.verifier.spread import Spread

_BLOCK = 4 << 20


@dataclass(frozen=True)
class NewFiles:
    """What is needed to make the new files.

    Attributes:
        store: The store.
        folder: The folder that gets the files, under their paths in the store.
        plan: The plan of the repair.
        evidence: What the check read.
        ends: The next queue offset of the queues whose offsets in `config/` are corrected.
        copies_segments: Whether a segment with bytes to be cleared is copied; else it is changed later.

    """

    store: Location
    folder: Location
    plan: RepairPlan
    evidence: Evidence
    ends: Mapping[Queue, int]
    copies_segments: bool

    def make(self, spread: Spread) -> Iterator[Action]:
        """Make all files; yields the actions, without those that would change nothing."""
        write_queue_files(self.plan.queue_files, self.evidence, self.store, self.folder, spread)
        layout, plans = self.evidence.index.layout, self.plan.index_files
        written = [] if layout is None else write_index_files(plans, layout, self.store, self.folder, spread)
        unchanged = {file.file for file in written if file.is_same}
        for action in self.plan.actions:
            file = action.change.file
            if action.treatment == Treatment.CHECKPOINT:
                content = self._checkpoint(written)
                if content is None:
                    continue
                publish(self.folder / CHECKPOINT, content, CHECKPOINT_SIZE)
            elif action.treatment == Treatment.CONFIG:
                content = (self.store / f"{file}.bak").read_bytes()
                publish(self.folder / file, content, len(content))
            elif action.treatment == Treatment.OFFSETS:
                content = corrected_offsets(self.store, file, self.ends)
                publish(self.folder / file, content, len(content))
            elif action.change.kind == ChangeKind.CLEAR and self.copies_segments:
                _copy_cleared(self.store / file, self.folder / file, action.change)
            if file not in unchanged:
                yield action

    def _checkpoint(self, written: Sequence[WrittenIndexFile]) -> bytes | None:
        """A checkpoint that is not ahead of the repaired store; None if the existing one is not."""
        existing = Checkpoint.load(self.store)
        right = clamped_checkpoint(existing, self.evidence.staged, self._index_end(written))
        is_whole = (self.store / CHECKPOINT).info().size == CHECKPOINT_SIZE
        return None if right == existing and is_whole else right.encode()

    def _index_end(self, written: Sequence[WrittenIndexFile]) -> int:
        """The end timestamp of the last index file of the repaired store; 0 without a file."""
        ends = {file.file: file.end_timestamp for file in written}
        removed = {action.change.file for action in self.plan.actions if action.change.kind == ChangeKind.ASIDE}
        layout = self.evidence.index.layout
        for info in index_files(self.store):
            file = f"{INDEX}/{info.name}"
            if file not in ends and file not in removed and layout is not None and info.size == layout.file_size:
                ends[file] = info.header(layout).end_timestamp
        return ends[max(ends)] if ends else 0


def _copy_cleared(segment: Location, copy: Location, change: Change) -> None:
    """A copy of a segment without the bytes after the live end."""
    size = segment.info().size
    with published(copy, size) as file, FileReader(segment) as source:
        for start in range(0, change.start, _BLOCK):
            file.write(start, source.read(start, min(_BLOCK, change.start - start)))
