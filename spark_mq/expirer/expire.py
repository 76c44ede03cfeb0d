"""Old files of a stopped store deleted, in the broker's order and by its rules.

Nothing except these files changes, as with a broker: it keeps the first offset of the log and of each queue in memory,
and finds them again at its start (`CommitLog.getMinOffset`, `ConsumeQueue.correctMinOffset`@5.3.3). It deletes a file
without renaming it (`MappedFile.destroy`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime

from spark_mq.errors import OptionError, StorageError, UnsupportedStoreError
from spark_mq.expirer.plan import ByOffset, ByTime, ExpirePlan, PlannedFile, plan_expiry
from spark_mq.expirer.report import ExpireReport, unread_lines
from spark_mq.io.local import sync_folder
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.expiry import MILLIS_PER_HOUR
from spark_mq.store.log.segment_files import list_segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of, reserved_time
from spark_mq.store.store_lock import is_locked, store_lock

Progress = Callable[[PlannedFile, int, int], None]
"""Called with a file that was deleted, the number of files deleted so far, and the number of all."""


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
