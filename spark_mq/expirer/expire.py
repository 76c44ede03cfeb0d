"""Old files of a stopped store deleted, in the broker's order and by its rules, and a report.

Nothing except these files changes, as with a broker: it keeps the first offset of the log and of each queue in memory,
and finds them again at its start (`CommitLog.getMinOffset`, `ConsumeQueue.correctMinOffset`@5.3.3). It deletes a file
without renaming it (`MappedFile.destroy`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.expirer.plan import ByOffset, ByTime, ExpirePlan, PlannedFile, plan_expiry
from spark_mq.io.local import sync_folder
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE, INDEX
from spark_mq.store.disk_use import size_text
from spark_mq.store.expiry import MILLIS_PER_HOUR
from spark_mq.store.log.segment_files import list_segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import UnreadMessages, moment_of, reserved_time
from spark_mq.store.store_lock import is_locked, store_lock

_KINDS = {COMMIT_LOG: "segments", CONSUME_QUEUE: "queue files", INDEX: "index files"}
_SHOWN = 10
"""Files of a kind that the text names."""
Progress = Callable[[PlannedFile, int, int], None]
"""Called with a file that was deleted, the number of files deleted so far, and the number of all."""


@dataclass(frozen=True)
class ExpireReport:
    """What was deleted; if `dry_run` is true, what would be deleted.

    Attributes:
        dry_run: Whether nothing was changed.
        log_start: The first offset of the log before.
        new_log_start: The first offset of the log after; -1 for an empty log.
        problems: Why other files were kept, as text for a person.
        unread: The deleted messages that groups have not read; None if that is not known. A group that has no offset in
            a queue is not known.
        unread_problem: Why it is not known who has read the messages.
        is_running: Whether a broker runs on the store now, or another job writes into it; None if that is not known.
    """

    store: str
    dry_run: bool
    log_start: int
    new_log_start: int
    log_end: int
    files: tuple[PlannedFile, ...]
    problems: tuple[str, ...]
    is_running: bool | None = None
    unread: tuple[UnreadMessages, ...] | None = ()
    unread_problem: str = ""

    @property
    def freed_bytes(self) -> int:
        """The sum of the files' sizes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> str:
        """The report as one JSON object, with all files."""
        fields = {
            "store": self.store,
            "dry_run": self.dry_run,
            "log_start": self.log_start,
            "new_log_start": self.new_log_start,
            "log_end": self.log_end,
            "freed_bytes": self.freed_bytes,
            "files": [{"tree": file.tree, "path": file.path, "size": file.size} for file in self.files],
            "problems": list(self.problems),
            "unread": None if self.unread is None else [asdict(one) for one in self.unread],
            "is_running": self.is_running,
        }
        return json.dumps(fields, ensure_ascii=False)

    def to_text(self) -> str:
        """The report as lines for a terminal; names of files are as the store has them, and not to be trusted."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        would = "would be " if self.dry_run else ""
        if not self.files:
            yield f"{self.store}: no file {'would be' if self.dry_run else 'was'} deleted"
        else:
            count = f"{len(self.files):,} file{'' if len(self.files) == 1 else 's'}"
            yield f"{self.store}: {count} {would}deleted, {size_text(self.freed_bytes)}"
        for tree, kind in _KINDS.items():
            yield from _kind(f"{kind}", [file for file in self.files if file.tree == tree])
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
    groups: dict[str, int] = {}
    for one in unread:
        groups[one.consumer_group] = groups.get(one.consumer_group, 0) + one.count
    for group, count in list(groups.items())[:_SHOWN]:
        yield f"consumer group {group} loses {count:,} unread message{'' if count == 1 else 's'}"
    if len(groups) > _SHOWN:
        yield f"{len(groups) - _SHOWN:,} more groups lose {sum(list(groups.values())[_SHOWN:]):,} unread messages"


def _kind(name: str, files: Sequence[PlannedFile]) -> Iterator[str]:
    if files:
        yield f"  {name:<12} {len(files):,}, {size_text(sum(file.size for file in files))}"
    for file in files[:_SHOWN]:
        yield f"    {file.path}"
    if len(files) > _SHOWN:
        yield f"    ... and {len(files) - _SHOWN:,} more, the last is {files[-1].path}"


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

    Example:
        >>> print(spark_mq.expire("/data/store", reserved_hours=72).to_text())
        >>> spark_mq.expire("/data/store", reserved_hours=72, apply=True)
    """
    rule = _rule(min_offset, reserved_hours, at, apply)
    store = Location.resolve(path)
    if not store.is_local:
        raise UnsupportedStoreError(f"{store} is not local: files are deleted only where a broker could lock the store")
    list_segment_files(store)  # a path that is not a store gets no lock file
    if not apply:
        return _report(store, _plan(path, rule), is_dry_run=True)
    with store_lock(store, or_else=None):
        plan = _plan(path, rule)
        lines = list(unread_lines(plan.unread, plan.unread_problem))
        if lines and not even_if_unread:
            raise OptionError(f"nothing was deleted: {'; '.join(lines)}. --even-if-unread deletes the messages")
        _delete(plan, progress)
    return _report(store, plan, is_dry_run=False)


def _rule(
    min_offset: int | None, reserved_hours: float | None, at: int | datetime | None, apply: bool
) -> ByOffset | ByTime:
    if (min_offset is None) == (reserved_hours is None):
        raise OptionError("give --min-offset or --reserved-hours, which say what is deleted: exactly one of them")
    if min_offset is not None:
        if at is not None:
            raise OptionError("--at has no effect with --min-offset")
        if not 0 <= min_offset < 1 << 63:
            raise OptionError(f"--min-offset {min_offset} is not a commit log offset: give 0 or more")
        return ByOffset(min_offset)
    moment = moment_of(at)
    if apply and moment > moment_of(None):
        raise OptionError("--at is in the future: with --apply, segments would be deleted before their time")
    return ByTime(round(reserved_time(reserved_hours, BrokerConf.of(None)).value * MILLIS_PER_HOUR), moment)


def _plan(path: str, rule: ByOffset | ByTime) -> ExpirePlan:
    with MessageStore(path) as store:
        return plan_expiry(store, rule)


def _report(store: Location, plan: ExpirePlan, *, is_dry_run: bool) -> ExpireReport:
    return ExpireReport(
        str(store),
        is_dry_run,
        plan.log_start,
        plan.new_log_start,
        plan.log_end,
        plan.files,
        plan.problems,
        is_locked(store) if is_dry_run else None,
        plan.unread,
        plan.unread_problem,
    )


def _delete(plan: ExpirePlan, progress: Progress | None) -> None:
    """Delete the files one by one; each deletion is on the disk before the next one begins."""
    for number, file in enumerate(plan.files, 1):
        try:
            os.unlink(file.location.path)
            sync_folder(os.path.dirname(file.location.path))
        except OSError as error:
            raise StorageError(
                f"{file.location} cannot be deleted: {error.strerror or error}; {number - 1:,} of {len(plan.files):,} "
                "files are deleted, and a broker can start on the store. The same command deletes the rest"
            ) from error
        if progress is not None:
            progress(file, number, len(plan.files))
