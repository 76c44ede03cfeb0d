"""A log repaired from a replica: damaged records, and lost or cut segments, are taken from another log.

`comparison` says what is damaged here, and that the replica has only sound records there, which begin and end where
records here do. Before they are taken, the units of this store are asked: one that leads elsewhere contradicts them. If
both logs have a sound record, and the two differ, nothing shows which one is right: it stays as it is. If the logs
part, nothing is taken from there on.

Of a DLedger node, entries are taken only if they are those of the group: the replica knows them as committed, or an
entry after them is the same in both logs, so all entries before it are, too (Raft's log matching property).

A segment is written whole under another name, and then takes the place of the old one, which stays in the backup.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from spark_mq.errors import NoRoomError, OptionError, StorageError
from spark_mq.format.amounts import counted
from spark_mq.format.consume_queue import Queue, is_live
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.dispatch import has_unit
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.format.record import QUEUE_OFFSET_AT
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import copy_bytes, discard_folder, published
from spark_mq.job import Report
from spark_mq.job.output_committer import WORK_FOLDER
from spark_mq.job.task_errors import is_full
from spark_mq.repairer.changes import Backup, Change, ChangeKind, check_links
from spark_mq.repairer.comparison import Comparison, Part, PartState, compare_logs
from spark_mq.repairer.repair import NEW_FILES
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.dledger_log import read_entries
from spark_mq.store.log.segment_files import MAX_OFFSET, find_data_end, list_segment_files
from spark_mq.store.log.split_reader import read_chunks
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.store_lock import store_lock

_HAVE_PARTED = "the logs part here: from here on, each has other messages, and nothing is taken"
_NOT_COMMITTED = "REPLICA does not know these entries as committed, and no later entry is the same in both logs"
_REASONS = {
    PartState.DIFFERENT: "both logs have sound records here, and they differ: nothing shows which one is right",
    PartState.BOTH_DAMAGED: "the replica is damaged here, too, or has no such segment",
}


@dataclass(frozen=True)
class TakenPart:
    """A part of the log, and why it can be taken from the replica, or why not."""

    part: Part
    reason: str


@dataclass(frozen=True)
class ReplicaRepair(Report):
    """What a repair from a replica did, or would do.

    Attributes:
        before: The comparison of the two logs.
        taken: The parts of the log that are taken from the replica, and why they can be trusted.
        left: The parts that are not taken, and why.
        changes: The segments that are replaced or created.
        room_needed: Bytes of the new segments; the old ones move into the backup.
        backup: The folder with what was replaced; None if nothing was.
        after: The comparison after the repair; None if nothing was changed.
    """

    shown = ("verdict", "is_complete")

    before: Comparison
    taken: tuple[TakenPart, ...]
    left: tuple[TakenPart, ...]
    changes: tuple[Change, ...]
    room_needed: int
    backup: str | None = None
    after: Comparison | None = None

    @property
    def is_complete(self) -> bool:
        """Whether nothing is damaged that the replica has, or all of it is, or would be, repaired."""
        if self.left:
            return False
        return self.after is None or not [part for part in self.after.parts if part.state != PartState.REPLICA_DAMAGED]

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        rest = f"; {counted(len(self.left), 'part')} cannot be repaired" if self.left else ""
        segments, parts = counted(len(self.changes), "segment"), counted(len(self.taken), "part")
        if not self.changes:
            return f"nothing to take from the replica{rest}"
        if self.after is None:
            return f"a plan for {parts} of {segments}; nothing was changed{rest}"
        return f"{parts} of {segments} taken from the replica{rest}; the logs now: {self.after.verdict}"


def repair_from(store: str, replica: str, *, apply: bool = False) -> ReplicaRepair:
    """Take what is damaged in the log of a store from a replica: damaged records, and lost or cut segments; no Spark.

    Queues and index are not changed: `repair` mends them afterwards. What is replaced is kept in a folder
    `.spark_mq/backup-TIME` of the store, which `spark-mq repair --undo` puts back.

    Args:
        store: The store directory, on a local filesystem. No broker runs on it, if it is changed.
        replica: The store directory of another replica, a path or a URI, on which a broker can run. It is only read.
        apply: Whether segments are written. Without it, the result is a plan.

    Returns:
        What is taken, and why it can be trusted; what is not, and why not.

    Raises:
        OptionError: The store is not local, or the two logs are not replicas of one log.
        StoreNotFoundError: A path is not a message store.
        UnsupportedStoreError: A store is of a kind that is not read or not changed.
        StoreLockedError: A broker runs on the store, or another job writes into it.
        NoRoomError: The disk is full; no file of the store has been changed.
        StorageError: A file cannot be read or written. What was changed before has its backup.

    >>> from spark_mq import repair_from
    >>> print(repair_from("/data/slave", "/data/master").verdict)
    a plan for 3 parts of 2 segments; nothing was changed
    """
    location, other = Location.resolve(store), Location.resolve(replica)
    if not location.is_local:
        raise OptionError(f"{location} is not on a local filesystem, where no log can be changed")
    with store_lock(location) if apply else nullcontext():
        found = _plan(location, other, has_lock=apply)
        check_links(location, found.changes)
        if not apply or not found.changes:
            return found
        backup = _apply(location, other, found)
        return replace(found, backup=backup, after=compare_logs(location, other, has_lock=True))


def _plan(store: Location, replica: Location, *, has_lock: bool) -> ReplicaRepair:
    compared = compare_logs(store, replica, has_lock=has_lock)
    damaged = compared.of(PartState.STORE_DAMAGED)
    left = [TakenPart(part, reason) for state, reason in _REASONS.items() for part in compared.of(state)]
    parted_in = compared.parts[-1].file if compared.has_parted else None
    if parted_in is not None:
        left = [replace(one, reason=_HAVE_PARTED) if one.part == compared.parts[-1] else one for one in left]
    unknown = _of_no_group(store, compared, damaged)
    left += [TakenPart(part, _NOT_COMMITTED) for part in unknown]
    damaged = [part for part in damaged if part not in unknown]
    with MessageStore(str(store)) as opened:
        checks = [(part, *_check_units(opened.queues, replica, part)) for part in damaged]
    left += [
        TakenPart(part, f"{wrong} of its messages have units here that lead elsewhere: they are not those of this log")
        for part, wrong, _ in checks
        if wrong
    ]
    files = list_segment_files(store).files
    whole = {file.path for file in files if file.size == compared.segment_size}
    lacking = {
        one.part.file for one in left if one.part.state != PartState.DIFFERENT or one.part.file == parted_in
    } - whole
    taken = []
    for part, _, leading in (check for check in checks if not check[1]):
        if part.file in lacking:
            left.append(TakenPart(part, "the segment is only made again if all that it lacks can be taken"))
        else:
            why = "its records are sound, and fit between those of this log"
            taken.append(TakenPart(part, f"{why}; units of this store lead to {leading} of {part.records}"))
    # A broker does not start with a segment that was cut, even if no record is lost.
    there = {file.base for file in list_segment_files(replica).files if file.size == compared.segment_size}
    parted_at = int(parted_in.rpartition("/")[2]) if parted_in is not None else MAX_OFFSET  # nothing later was compared
    cut = {file.path for file in files if file.path not in whole and file.base in there and file.base < parted_at}
    changed = {one.part.file for one in taken} | cut - lacking
    changes = tuple(
        Change(ChangeKind.REPLACE if (store / file).is_file else ChangeKind.CREATE, file) for file in sorted(changed)
    )
    room = len(changes) * compared.segment_size
    return ReplicaRepair(compared, tuple(taken), tuple(sorted(left, key=lambda one: one.part.start)), changes, room)


def _of_no_group(store: Location, compared: Comparison, parts: Sequence[Part]) -> list[Part]:
    """The parts of a DLedger log whose entries are not known as committed; a plain log has no entries."""
    files, committed = list_segment_files(store), compared.replica.committed
    unknown = [part for part in parts if files.at(int(part.file.rpartition("/")[2]), 0).has_entries]
    unknown = [part for part in unknown if committed is None or part.stop > committed]
    if not unknown:
        return []
    end = min(compared.store.end, compared.replica.end)
    for later in reversed(compared.parts):  # from the last bytes on that both logs have alike
        end = min(end, later.start) if later.stop >= end or later.state == PartState.DIFFERENT else end
    segments = [segment for segment in CommitLog.open(store).segments if segment.base < end]

    def is_followed(part: Part) -> bool:
        """Whether an entry after the part is the same in both logs."""
        return any(
            int(entries.offset[0] + entries.size[0]) <= end
            for segment in segments
            if segment.end_offset > part.stop
            for entries in read_entries(segment, end - segment.base, max(part.stop - segment.base, 0))
        )

    return [part for part in unknown if not is_followed(part)]


def _check_units(queues: Mapping[Queue, ConsumeQueue], replica: Location, part: Part) -> tuple[int, int]:
    """Of the replica's messages in a part: how many have a unit here that leads elsewhere, or one that leads there."""
    table, wrong, leading = QueueTable(), 0, 0
    for chunk in read_chunks(replica, part.start, part.stop):
        frames = chunk.frames[has_unit(chunk.frames)]
        numbers = table.numbers(chunk.buffer, frames)
        places = chunk.base + frames.position
        queue_offsets = int64s_at(chunk.buffer, frames.position + QUEUE_OFFSET_AT)
        for number in np.unique(numbers).tolist():
            queue = queues.get((decode_utf8(table.topic(number)), int(table.queue_ids()[number])))
            if queue is not None:
                here = numbers == number
                units = queue.units_at(queue_offsets[here])
                is_same = (units["commit_log_offset"] == places[here]) & (
                    units["store_size"] == frames.store_size[here]
                )
                wrong += int(np.count_nonzero(is_live(units) & ~is_same))
                leading += int(np.count_nonzero(is_same))
    return wrong, leading


def _apply(store: Location, replica: Location, found: ReplicaRepair) -> str:
    """Write the new segments, and put them in place; returns the backup."""
    new_files = store / WORK_FOLDER / NEW_FILES
    discard_folder(new_files)  # what a killed job left
    try:
        for change in found.changes:
            _write(store, replica, new_files / change.file, found)
        backup = Backup.create(store)
        backup.apply(found.changes, new_files)
        return str(backup.folder)
    except OSError as error:
        if is_full(error):
            raise NoRoomError(f"{new_files}: the disk is full; no file of the store has been changed") from error
        raise StorageError(f"{new_files}: a segment cannot be written: {error}") from error
    finally:
        discard_folder(new_files)
        with suppress(OSError):
            Path(store.path, WORK_FOLDER).rmdir()


def _write(store: Location, replica: Location, new: Location, found: ReplicaRepair) -> None:
    """Write a segment: the bytes of this store, and the parts of the replica. Its age stays, by which it expires.

    If all up to the replica's end is taken, what this store has after it is a part of the damage, and is left out.
    """
    size, base = found.before.segment_size, int(new.name)
    own, other = (list_segment_files(one).at(base, size).location for one in (store, replica))
    parts = [one.part for one in found.taken if one.part.file.endswith(f"/{new.name}")]
    info = own.info() if own.is_file else other.info()
    with published(new, size, (info.mtime_ns or 0) // NANOS_PER_MILLI) as target:
        if own.is_file:
            end = find_data_end(own, min(info.size, size))
            last = max((part.stop for part in parts), default=0)
            if last >= found.before.replica.end >= found.before.store.end:
                end = min(end, last - base)
            with FileReader(own) as source:
                copy_bytes(source, target, 0, end)
        with FileReader(other) as source:
            for part in parts:
                copy_bytes(source, target, part.start - base, min(part.stop - base, size))
