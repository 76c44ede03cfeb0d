"""The new files of a repair, made in a folder of their own before any file of the store is changed."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pyarrow import fs

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Queue, Units, pre_blank
from spark_mq.format.dispatch import LITE_PREFIX
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.indexer.queue_lives import staged_runs
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import Run, of_runs
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import PERMISSIVE, ROCKSDB, RebuildRequest
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.local import flush_to_disk, make_folders
from spark_mq.io.location import Location
from spark_mq.io.publish import copy_bytes, publish, published
from spark_mq.job.output_committer import WORK_FOLDER
from spark_mq.job.tasks import TaskRunner, Tasks
from spark_mq.repairer.changes import Change, ChangeKind
from spark_mq.repairer.plan import Action, QueueFileName, RepairPlan
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.config_file import readable_file
from spark_mq.store.config.offset_files import translated_offsets
from spark_mq.store.config.store_paths import CONSUME_QUEUE, CURRENT, INDEX
from spark_mq.store.index.folder import index_files
from spark_mq.store.queue.consume_queue import ConsumeQueueExt
from spark_mq.verifier.check import CheckedStore
from spark_mq.verifier.codes import Treatment
from spark_mq.verifier.log_bounds import LogBounds
from spark_mq.verifier.queue_file import ExpectedFile, UnitPairs
from spark_mq.verifier.queue_task import expected_files, file_range

if TYPE_CHECKING:
    from spark_mq.indexer.index_files import IndexFilePlan, IndexWriter

_BLOCK = 4 << 20


@dataclass(frozen=True)
class NewFiles:
    """What is needed to make the new files in `folder`, under their paths in the store.

    `ends` has the next queue offsets of the queues whose offsets in `config/` are corrected. If `copies_segments` is
    false, a segment with bytes to be cleared is changed later.
    """

    store: Location
    folder: Location
    plan: RepairPlan
    checked: CheckedStore
    conf: BrokerConf
    ends: Mapping[Queue, int]
    copies_segments: bool

    def make(self, runner: TaskRunner) -> Iterator[Action]:
        """Make all files; yields the actions, without those that would change nothing."""

        def up_to_end(topic: str, queue_id: int, offset: int) -> int:
            return min(offset, self.ends.get((topic, queue_id), offset))

        write_queue_files(self.plan.queue_files, self.checked, self.store, self.folder, runner)
        for check in self.checked.batches:
            folder = check.path("")
            names = [file.removeprefix(folder) for file in self.plan.batch_files if file.startswith(folder)]
            if names:
                check.write(self.folder, names)
        written = self._index_files(runner)
        unchanged = {file for file, _, is_same in written if is_same}
        for action in self.plan.actions:
            file = action.change.file
            if action.treatment == Treatment.CHECKPOINT:
                content = self._checkpoint(written)
                if content is None:
                    continue
                publish(self.folder / CHECKPOINT, content, CHECKPOINT_SIZE)
            elif action.treatment == Treatment.DATABASE:
                yield from self._database(action, runner.tasks)
                continue
            elif action.treatment == Treatment.CONFIG:
                kept = self.store / f"{file}.bak"
                # Its time says how old the offsets in it are.
                publish(self.folder / file, kept.read_bytes(), None, (kept.info().mtime_ns or 0) // NANOS_PER_MILLI)
            elif action.treatment == Treatment.OFFSETS:
                existing = readable_file(self.store, file).read_bytes()
                publish(self.folder / file, translated_offsets(file, existing, up_to_end)[0])
            elif action.change.kind == ChangeKind.CLEAR and self.copies_segments:
                with (
                    FileReader(self.store / file) as source,
                    published(self.folder / file, (self.store / file).info().size) as target,
                ):
                    copy_bytes(source, target, 0, action.change.start)  # zeros take the place of the rest
            if file not in unchanged:
                yield action

    def _database(self, action: Action, tasks: Tasks) -> Iterator[Action]:
        """Make the files of a database of queues; yields what happens to each file of the old and of the new one."""
        output = self.folder / WORK_FOLDER / CONSUME_QUEUE
        request = RebuildRequest.of(
            str(self.store),
            str(output),
            only=CONSUME_QUEUE,
            queue_store=ROCKSDB,
            mode=PERMISSIVE,
            broker_conf=self.conf,
        )
        rebuild_with(tasks, request)
        rebuilt, folder = output / self.conf.queue_database, Path(action.change.file).parent
        old = {info.base_name for info in (self.store / str(folder)).entries() if info.type == fs.FileType.File}
        new = os.listdir(rebuilt.path)
        make_folders((self.folder / str(folder)).path)
        for name in new:
            flush_to_disk((rebuilt / name).path)
            os.rename((rebuilt / name).path, (self.folder / str(folder) / name).path)
        # `CURRENT` names the tables: until its turn, a check finds the old database, whole or damaged.
        changed = [(name, ChangeKind.REPLACE if name in old else ChangeKind.CREATE) for name in new]
        removed = [(name, ChangeKind.ASIDE) for name in sorted(old - set(new))]
        for name, kind in [*sorted(changed, key=lambda one: one[0] == CURRENT), *removed]:
            yield replace(action, change=Change(kind, str(folder / name)))

    def _index_files(self, runner: TaskRunner) -> list[tuple[str, int, bool]]:
        layout, plans = self.checked.index.layout, self.plan.index_files
        if not plans or layout is None:
            return []
        from spark_mq.indexer.index_files import IndexWriter

        writer = IndexWriter(self.folder / INDEX, layout, find_broker_versions(self.store))
        return runner.each("make index files", "files", plans, partial(_write_index_file, self.store, writer))

    def _checkpoint(self, written: Sequence[tuple[str, int, bool]]) -> bytes | None:
        """A checkpoint that is not ahead of the repaired store; None if the existing one is not."""
        existing = Checkpoint.load(self.store)
        log, end = self.checked.log.staged, self.checked.bounds.end
        right = _clamped_checkpoint(existing, log, end, self._index_end(written))
        is_whole = (self.store / CHECKPOINT).info().size == CHECKPOINT_SIZE
        return None if right == existing and is_whole else right.encode()

    def _index_end(self, written: Sequence[tuple[str, int, bool]]) -> int:
        """The end timestamp of the last index file of the repaired store; 0 without a file."""
        ends = {file: end_timestamp for file, end_timestamp, _ in written}
        removed = {action.change.file for action in self.plan.actions if action.change.kind == ChangeKind.ASIDE}
        layout = self.checked.index.layout
        for info in index_files(self.store):
            file = f"{INDEX}/{info.name}"
            if file not in ends and file not in removed and layout is not None and info.size == layout.file_size:
                ends[file] = info.header(layout).end_timestamp
        return ends[max(ends)] if ends else 0


def _write_index_file(store: Location, writer: IndexWriter, plan: IndexFilePlan) -> tuple[str, int, bool]:
    """Path and end timestamp (ms) of the new file, and whether the store has the same; then it is removed again."""
    header = writer.write(plan)
    new = writer.folder / plan.name
    is_same = _are_equal(new, store / INDEX / plan.name)
    if is_same:
        new.delete()
    return f"{INDEX}/{plan.name}", header.end_timestamp, is_same


def _are_equal(one: Location, other: Location) -> bool:
    size = one.info().size
    if not other.is_file or other.info().size != size:
        return False
    with FileReader(one) as first, FileReader(other) as second:
        return all(
            bytes(first.read(at, min(_BLOCK, size - at))) == bytes(second.read(at, min(_BLOCK, size - at)))
            for at in range(0, size, _BLOCK)
        )


def _clamped_checkpoint(checkpoint: Checkpoint, log: StagedLog, end: int, index_end: int) -> Checkpoint:
    """A checkpoint without times and offsets that are later than the store; what is not too late stays.

    A recovery starts at a segment that is older than these times. So a time that cannot be right becomes that of the
    last message, or of the last index file (`index_end`).
    """

    def clamped(value: int, limit: int, otherwise: int) -> int:
        return value if 0 <= value <= limit else otherwise

    newest, last = log.newest_store_timestamp, max(log.last_store_timestamp, 0)
    return replace(
        checkpoint,
        physic_msg_timestamp=clamped(checkpoint.physic_msg_timestamp, newest, last),
        logics_msg_timestamp=clamped(checkpoint.logics_msg_timestamp, newest, last),
        index_msg_timestamp=clamped(checkpoint.index_msg_timestamp, newest, min(index_end, newest)),
        confirm_phy_offset=clamped(checkpoint.confirm_phy_offset, end, end),
        logics_physical_offset=clamped(checkpoint.logics_physical_offset, log.last_unit_offset, log.last_unit_offset),
    )


@dataclass(frozen=True)
class _Writer:
    """Writes sound files into the folder `output`, under their paths in the store."""

    store: Location
    output: Location
    file_size: int
    bounds: LogBounds
    has_extensions: bool

    def write(self, expected: ExpectedFile) -> None:
        """Write one file. The time of an existing file stays."""
        file = self.store / expected.path
        existing, time, tags_codes = np.zeros(0, UNIT_DTYPE), expected.last_store_timestamp, None
        if file.is_file:
            info = file.info()
            time = (info.mtime_ns or 0) // NANOS_PER_MILLI
            with FileReader(file) as reader:
                data = reader.read(0, min(info.size, self.file_size) // UNIT_SIZE * UNIT_SIZE)
            existing = np.frombuffer(data, UNIT_DTYPE)
        if self.has_extensions:
            with closing(FileReaders()) as files:
                tags_codes = ConsumeQueueExt(file.parent, files).resolved(existing)["tags_code"].astype(np.int64)
        units = sound_units(expected, existing, self.bounds, tags_codes)
        publish(self.output / expected.path, units.view(np.uint8).data, self.file_size, time)

    def write_runs(self, runs: Iterator[Run], files: Collection[QueueFileName]) -> Iterator[str]:
        """Write some of the files of runs, which are sorted by file; yields their paths."""
        chosen = (run for run in runs if QueueFileName(run.topic, run.queue_id, run.file_number) in files)
        for expected in expected_files(chosen, self.file_size // UNIT_SIZE):
            self.write(expected)
            yield expected.path


def write_queue_files(
    files: Collection[QueueFileName], checked: CheckedStore, store: Location, output: Location, runner: TaskRunner
) -> None:
    """Write sound queue files into the folder `output`, under their paths in the store."""
    if not files:
        return
    writer = _Writer(store, output, checked.queue_file_size, checked.bounds, checked.has_extensions)
    capacity = checked.queue_file_size // UNIT_SIZE
    with_messages, others = set(), []
    for file in files:
        queue = checked.queues.get((file.topic, file.queue_id))
        if file.number in file_range(queue, capacity):
            with_messages.add(file)
        else:
            name = file.topic, file.queue_id
            others.append(ExpectedFile.without_message(name, file.number, capacity, queue))
    if with_messages:
        names = sorted({(file.topic, file.queue_id) for file in with_messages})
        plan = QueuePlan(tuple(checked.queues[name] for name in names), capacity)
        has_lite_topics = any(topic.startswith(LITE_PREFIX) for topic, _ in names)
        shown_by = store / CONSUME_QUEUE
        runs = staged_runs(runner.tasks, checked.log.staged.units, shown_by=shown_by, has_lite_topics=has_lite_topics)
        work = partial(writer.write_runs, files=with_messages)
        of_runs(runner, "make queue files", runs, plan.assignment(), work)
    if others:
        runner.each("make other queue files", "files", others, writer.write)


def sound_units(expected: ExpectedFile, existing: Units, bounds: LogBounds, tags_codes: Int64s | None = None) -> Units:
    """The units of a sound file, all of them: the inverse of the check of a file (`spark_mq.verifier.queue_file`).

    | queue offset | unit |
    | --- | --- |
    | before the first message of the log | that of the file if its message expired and it is in order, else pre-blank |
    | of a message | the unit of the message |
    | between two messages, without one | that of the file if it is one: the log is damaged there; else pre-blank |
    | after the last message | zeros |

    Args:
        tags_codes: The tags codes of the existing units, or those to which their addresses in `consumequeue_ext` lead.
            A unit whose tags code is right stays as it is; one whose address is wrong gets the tags code itself.
    """
    pairs = UnitPairs(expected, existing, expected.capacity)
    result, have = pairs.want.copy(), pairs.have
    if tags_codes is not None:
        codes = np.zeros(have.size, np.int64)
        codes[: tags_codes.size] = tags_codes[: have.size]
        is_same = pairs.is_same_record & (result["tags_code"] == codes)
        result[is_same] = have[is_same]
    is_expired = _in_order(pairs.offsets, pairs.is_live & (pairs.offsets < bounds.start) & ~pairs.has_message)
    before = pairs.before
    if expected.queue_min is None:
        good = np.flatnonzero(is_expired | pairs.is_pre_blank)
        before = np.arange(have.size) < (good[-1] + 1 if good.size else 0)
    result[before | pairs.inner] = pre_blank(1)
    is_kept = is_expired | (pairs.is_live & bounds.is_lost(pairs.offsets))
    kept = (before & is_kept) | (pairs.inner & pairs.is_live)
    result[kept] = have[kept]
    return result


def _in_order(offsets: Int64s, which: Flags) -> Flags:
    """Those of `which` whose offsets ascend: without the ones that are too large, or without those too small."""
    at = np.flatnonzero(which)
    chosen = offsets[at]
    largest_before = np.concatenate(([-1], np.maximum.accumulate(chosen)[:-1]))
    smallest_after = np.concatenate((np.minimum.accumulate(chosen[::-1])[::-1][1:], [np.iinfo(np.int64).max]))
    best = max((chosen > largest_before, chosen < smallest_after), key=np.count_nonzero)
    result: Flags = np.zeros(which.size, np.bool_)
    result[at[best]] = True
    return result
