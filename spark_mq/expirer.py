"""The files that are deleted, in the order in which a broker deletes them.

First segments, the oldest first; then queue files, each queue from its oldest file on; then index files. Whatever the
number of files that are gone already, a broker boots from the rest: units and entries of messages before the log are
usual in a store, because a broker deletes them later, too. Files that a killed run has left are in the next plan.

Nothing except these files changes, as with a broker: it keeps the first offset of the log and of each queue in memory,
and finds them again at its start (`CommitLog.getMinOffset`, `ConsumeQueue.correctMinOffset`@5.3.3). It deletes a file
without renaming it (`MappedFile.destroy`).
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime

from spark_mq.errors import CorruptLogError, OptionError, StorageError, UnsupportedStoreError
from spark_mq.format.amounts import counted, size_text
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import read_config
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, COMMIT_LOG, CONSUME_QUEUE, INDEX
from spark_mq.store.expiry import (
    MILLIS_PER_HOUR,
    OldFile,
    count_before,
    count_expired,
    expirable,
    expire_times,
    live_segments,
    max_offset,
    old_files,
)
from spark_mq.store.log.segment_files import list_segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.retention import UnreadMessages, moment_of, reserved_time, unread_before
from spark_mq.store.store_lock import is_locked, store_lock

_KINDS = {
    COMMIT_LOG: "segments",
    CONSUME_QUEUE: "queue files",
    BATCH_CONSUME_QUEUE: "batch queue files",
    INDEX: "index files",
}
_SHOWN = 10
"""Files of a kind that the text names."""


@dataclass(frozen=True)
class PlannedFile:
    """A file that is deleted, by its path in the store; `tree` is its first folder."""

    tree: str
    path: str
    size: int


Progress = Callable[[PlannedFile, int, int], None]
"""Called with a file that was deleted, the number of files deleted so far, and the number of all."""


@dataclass(frozen=True, kw_only=True)
class ExpirePlan:
    """What is deleted.

    Attributes:
        log_start: The first offset of the log before.
        new_log_start: The first offset of the log after; -1 for an empty log.
        files: The files that are deleted, in this order.
        problems: Why other files are kept, as text for a person.
        unread: The deleted messages that groups have not read; None if that is not known. A group that has no offset in
            a queue is not known.
        unread_problem: Why it is not known who has read the messages.
    """

    log_start: int
    new_log_start: int
    log_end: int
    files: tuple[PlannedFile, ...]
    problems: tuple[str, ...]
    unread: tuple[UnreadMessages, ...] | None = ()
    unread_problem: str = ""


def plan_expiry(store: MessageStore, min_offset: int | None = None, reserved: int = 0, at: int = 0) -> ExpirePlan:
    """The plan for a store: segments that end at or before `min_offset` are deleted.

    Without it, those are that have not changed for `reserved` milliseconds at the time `at`. Each queue file in the
    plan is read whole: it must not have a unit of a message that is kept. A sound store has no such file.
    """
    for stray in store.records.stray:
        raise CorruptLogError(f"{stray.describe()}; move it out of {store.location / COMMIT_LOG}, nothing was deleted")
    log_start, log_end = store.get_min_phy_offset(), store.get_max_phy_offset()
    segments = live_segments(store)
    if min_offset is None:
        times = [segment.modification_timestamp for segment in expirable(segments)]
        count = count_expired(expire_times(times, reserved), at)
    elif min_offset > max(log_end, 0):
        raise OptionError(f"--min-offset {min_offset} is after the end of the log, which is {max(log_end, 0)}")
    else:
        count = count_before([segment.file.end_offset for segment in expirable(segments)], min_offset)
    new_log_start = segments[count].file.base if segments else log_start
    files, problems = old_files(store)
    old = [file for file in files if file.release_offset < new_log_start]
    planned = [PlannedFile(COMMIT_LOG, one.file.path, one.size) for one in segments[:count]]
    planned += [PlannedFile(one.tree, one.path, one.size) for one in _deletable(old, new_log_start, problems)]
    unread, problem = read_config(lambda: tuple(unread_before(store, new_log_start)) if count else ())
    return ExpirePlan(
        log_start=log_start,
        new_log_start=new_log_start,
        log_end=log_end,
        files=tuple(planned),
        problems=tuple(problems),
        unread=unread,
        unread_problem=problem or "",
    )


def _deletable(files: Sequence[OldFile], log_start: int, problems: list[str]) -> Iterator[OldFile]:
    """The files without queue files that have a unit of a message at `log_start` or later, and those after them."""
    kept_queues: set[str] = set()
    for file in files:
        queue = file.path.rpartition("/")[0]
        if file.tree != INDEX and queue not in kept_queues:
            unit_size = BATCH_UNIT_SIZE if file.tree == BATCH_CONSUME_QUEUE else UNIT_SIZE
            largest = max_offset(file.location, unit_size)
            if largest >= log_start:
                problems.append(f"{file.path} has a unit of the message at commit log offset {largest}, out of order")
                kept_queues.add(queue)
        if queue not in kept_queues:
            yield file


@dataclass(frozen=True, kw_only=True)
class ExpireReport(ExpirePlan):
    """What was deleted; if `dry_run` is true, what would be deleted. `files`, `unread` and more are as in the plan.

    Attributes:
        dry_run: Whether nothing was changed.
        is_running: Whether a broker runs on the store now, or another job writes into it; None if that is not known.
    """

    store: str
    dry_run: bool
    is_running: bool | None = None

    @property
    def freed_bytes(self) -> int:
        """The sum of the files' sizes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """The report as one JSON object, with all files."""
        fields = asdict(self) | {"freed_bytes": self.freed_bytes}
        del fields["unread_problem"]
        return json.dumps(fields, ensure_ascii=False)

    def to_text(self) -> str:
        """The report as lines for a terminal; names of files are as the store has them, and not to be trusted."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        would = "would be " if self.dry_run else ""
        if not self.files:
            yield f"{self.store}: no file {would or 'was '}deleted"
        else:
            yield f"{self.store}: {counted(len(self.files), 'file')} {would}deleted, {size_text(self.freed_bytes)}"
        for tree, name in _KINDS.items():
            files = [file for file in self.files if file.tree == tree]
            if files:
                yield f"  {name:<12} {len(files):,}, {size_text(sum(file.size for file in files))}"
            yield from (f"    {file.path}" for file in files[:_SHOWN])
            if len(files) > _SHOWN:
                yield f"    ... and {len(files) - _SHOWN:,} more, the last is {files[-1].path}"
        if self.new_log_start != self.log_start:
            yield f"  log begins   at commit log offset {self.new_log_start:,}, before at {self.log_start:,}"
        elif self.log_start >= 0:
            yield f"  log begins   at commit log offset {self.log_start:,}, as before"
        for line in unread_lines(self.unread, self.unread_problem):
            yield f"  unread       {line}"
        for problem in self.problems:
            yield f"  kept         {problem}"
        if self.dry_run and self.is_running:
            yield "  lock         a broker runs on the store, or a job writes into it: --apply needs it to be stopped"
        if self.dry_run:
            yield "dry run: nothing was changed; --apply makes the changes"


def unread_lines(unread: Sequence[UnreadMessages] | None, problem: str) -> Iterator[str]:
    """Which groups lose unread messages, a line each; no line if no group does."""
    if unread is None:
        yield f"it is not known which groups lose unread messages: {problem}"
        return
    groups: Counter[str] = Counter()
    for one in unread:
        groups[one.consumer_group] += one.count
    for group, count in list(groups.items())[:_SHOWN]:
        yield f"consumer group {group} loses {counted(count, 'unread message')}"
    if len(groups) > _SHOWN:
        yield f"{len(groups) - _SHOWN:,} more groups lose {sum(list(groups.values())[_SHOWN:]):,} unread messages"


def expire(
    path: str,
    *,
    min_offset: int | None = None,
    reserved_hours: float | None = None,
    at: int | datetime | None = None,
    apply: bool = False,
    even_if_unread: bool = False,
    progress: Progress | None = None,
) -> ExpireReport:
    """Delete the oldest segments of a store, and the queue files and index files that go with them.

    The rules and the order are those of a broker: whole files only, oldest first, never the newest file of the log, of
    a queue or of the index. A run that was killed at any moment leaves a store from which a broker boots, and the same
    call deletes the rest.

    Args:
        path: The store directory. It must be local, and with `apply` its broker must be stopped.
        min_offset: Delete the segments that end at or before this commit log offset.
        reserved_hours: Delete the segments that have not changed for so many hours, as a broker does with
            `fileReservedTime`. Exactly one of the two is needed.
        at: The time that counts as now for `reserved_hours`: epoch milliseconds or a datetime with a time zone.
        apply: Delete the files. Otherwise nothing is changed, and the report says what would be deleted.
        even_if_unread: Delete messages that a consumer group has not read, too, or of which that is not known.
        progress: Is called after each deletion.

    Raises:
        OptionError: An argument is not valid, or contradicts another one; or a group loses unread messages, and
            `even_if_unread` is not given.
        StoreNotFoundError: The path is not a message store.
        UnsupportedStoreError: The store is not local, or of a kind that is not supported.
        CorruptLogError: A file in `commitlog/` is not a segment.
        StoreLockedError: A broker runs on the store, or another job writes into it.
        StorageError: A file cannot be deleted. What was deleted before stays deleted.

    Examples:
        >>> print(spark_mq.expire("/data/store", reserved_hours=72).to_text())
        >>> spark_mq.expire("/data/store", reserved_hours=72, apply=True)
    """
    reserved, moment = _checked_rule(min_offset, reserved_hours, at, apply)
    store = Location.resolve(path)
    if not store.is_local:
        raise UnsupportedStoreError(f"{store} is not local: files are deleted only where a broker could lock the store")
    list_segment_files(store)  # a path that is not a store gets no lock file
    if apply:
        check_form(store, Door.CHANGE)
    with nullcontext() if not apply else store_lock(store, or_else=None):
        for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
            list(queue_folders(store / tree))  # nobody knows who has read a queue that cannot be listed
        with MessageStore(path) as opened:
            plan = plan_expiry(opened, min_offset, reserved, moment)
        for file in plan.files:
            if os.path.islink((store / file.path).path):
                raise UnsupportedStoreError(
                    f"{store / file.path} is a link: its deletion would keep the file that it leads to. Give a store "
                    "that has the files themselves, or let its broker delete them"
                )
        lines = list(unread_lines(plan.unread, plan.unread_problem))
        if apply and lines and not even_if_unread:
            raise OptionError(f"nothing was deleted: {'; '.join(lines)}. --even-if-unread deletes the messages")
        if apply:
            _delete(store, plan, progress)
    is_running = None if apply else is_locked(store)
    return ExpireReport(**vars(plan), store=str(store), dry_run=not apply, is_running=is_running)


def _checked_rule(
    min_offset: int | None, reserved_hours: float | None, at: int | datetime | None, apply: bool
) -> tuple[int, int]:
    """How long segments stay after their last change, and the time that counts as now, in milliseconds."""
    if (min_offset is None) == (reserved_hours is None):
        raise OptionError("give --min-offset or --reserved-hours, which say what is deleted: exactly one of them")
    if min_offset is not None:
        if at is not None:
            raise OptionError("--at has no effect with --min-offset")
        if not 0 <= min_offset < 1 << 63:
            raise OptionError(f"--min-offset {min_offset} is not a commit log offset: give 0 or more")
        return 0, 0
    moment = moment_of(at)
    if apply and moment > moment_of(None):
        raise OptionError("--at is in the future: with --apply, segments would be deleted before their time")
    return round(reserved_time(reserved_hours, BrokerConf.of(None)).value * MILLIS_PER_HOUR), moment


def _delete(store: Location, plan: ExpirePlan, progress: Progress | None) -> None:
    """Delete the files one by one; each deletion is on the disk before the next one begins."""
    for number, file in enumerate(plan.files, 1):
        location = store / file.path
        try:
            os.unlink(location.path)
            flush_to_disk(os.path.dirname(location.path))
        except OSError as error:
            raise StorageError(
                f"{location} cannot be deleted: {error.strerror or error}; {number - 1:,} of {len(plan.files):,} "
                "files are deleted, and a broker can start on the store. The same command deletes the rest"
            ) from error
        if progress is not None:
            progress(file, number, len(plan.files))
