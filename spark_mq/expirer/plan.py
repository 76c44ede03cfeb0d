"""The files that are deleted, in the order in which a broker deletes them.

First segments, the oldest first; then queue files, each queue from its oldest file on; then index files. Whatever the
number of files that are gone already, a broker boots from the rest: units and entries of messages before the log are
usual in a store, because a broker deletes them later, too. Files that a killed run has left are in the next plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import ConfigError, CorruptLogError, OptionError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG, CONSUME_QUEUE
from spark_mq.store.expiry import (
    LiveSegment,
    OldFile,
    count_before,
    count_expired,
    expire_times,
    live_segments,
    max_offset,
    old_files,
)
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import UnreadMessages, unread_before


@dataclass(frozen=True)
class ByOffset:
    """Delete the segments that end at or before `min_offset`."""

    min_offset: int

    def count(self, segments: Sequence[LiveSegment]) -> int:
        """The number of these segments that are deleted."""
        return count_before([segment.file.end_offset for segment in segments], self.min_offset)


@dataclass(frozen=True)
class ByTime:
    """Delete the segments that have not changed for `reserved` milliseconds at the time `at`."""

    reserved: int
    at: int

    def count(self, segments: Sequence[LiveSegment]) -> int:
        """The number of these segments that are deleted."""
        times = [segment.modification_timestamp for segment in segments]
        return count_expired(expire_times(times, self.reserved), self.at)


@dataclass(frozen=True)
class PlannedFile:
    """A file that is deleted.

    Attributes:
        tree: `commitlog`, `consumequeue` or `index`.
        size: Its bytes.
    """

    tree: str
    path: str
    location: Location
    size: int


@dataclass(frozen=True)
class ExpirePlan:
    """What is deleted.

    Attributes:
        new_log_start: The first offset of the log without the segments that are deleted; -1 for an empty log.
        files: The files that are deleted, in this order.
        problems: Why other files are kept, as text for a person.
        unread: The deleted messages that groups have not read; None if that is not known.
        unread_problem: Why it is not known who has read the messages.
    """

    log_start: int
    new_log_start: int
    log_end: int
    files: tuple[PlannedFile, ...]
    problems: tuple[str, ...]
    unread: tuple[UnreadMessages, ...] | None = ()
    unread_problem: str = ""


def plan_expiry(store: MessageStore, rule: ByOffset | ByTime) -> ExpirePlan:
    """The plan for a store.

    Each queue file in the plan is read whole: it must not have a unit of a message that is kept. A sound store has no
    such file.

    Args:
        rule: Which segments are deleted. The newest segment with a message, and files after it, never are.
    """
    for stray in store.records.stray:
        raise CorruptLogError(f"{stray.describe()}; move it out of {store.location / COMMIT_LOG}, nothing was deleted")
    log_start, log_end = store.get_min_phy_offset(), store.get_max_phy_offset()
    if isinstance(rule, ByOffset) and rule.min_offset > max(log_end, 0):
        raise OptionError(f"--min-offset {rule.min_offset} is after the end of the log, which is {max(log_end, 0)}")
    segments = live_segments(store)
    count = rule.count(segments[:-1])
    new_log_start = segments[count].file.base if segments else log_start
    found = old_files(store)
    problems = list(found.problems)
    old = [file for file in found.files if file.release_offset < new_log_start]
    planned = [
        PlannedFile(COMMIT_LOG, f"{COMMIT_LOG}/{one.file.location.name}", one.file.location, one.size)
        for one in segments[:count]
    ]
    planned += [
        PlannedFile(file.tree, file.path, file.location, file.size)
        for file in _without_live_units(old, new_log_start, problems)
    ]
    unread: tuple[UnreadMessages, ...] | None = ()
    unread_problem = ""
    try:
        unread = tuple(unread_before(store, new_log_start)) if count else ()
    except (ConfigError, UnsupportedStoreError) as error:
        unread, unread_problem = None, str(error)
    return ExpirePlan(log_start, new_log_start, log_end, tuple(planned), tuple(problems), unread, unread_problem)


def _without_live_units(files: Sequence[OldFile], log_start: int, problems: list[str]) -> list[OldFile]:
    """The files without queue files that have a unit of a message at `log_start` or later, and those after them."""
    kept_queues: set[str] = set()
    usable = []
    for file in files:
        queue = file.path.rpartition("/")[0]
        if file.tree == CONSUME_QUEUE and queue not in kept_queues:
            largest = max_offset(file.location)
            if largest >= log_start:
                problems.append(f"{file.path} has a unit of the message at commit log offset {largest}, out of order")
                kept_queues.add(queue)
        if file.tree != CONSUME_QUEUE or queue not in kept_queues:
            usable.append(file)
    return usable
