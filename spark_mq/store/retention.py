"""How long a store keeps its messages: what expires when, who loses messages by that, and how full the disk is.

Nothing is changed.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import pyarrow as pa

from spark_mq.errors import OptionError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.timestamp import NANOS_PER_MILLI, micros, millis_of
from spark_mq.store.config.broker_conf import BrokerConf, Sourced
from spark_mq.store.config.config_file import ConsumerOffset, load_consumer_offsets, read_config
from spark_mq.store.disk_use import DiskPressure, TopicBytes, disk_pressure, topic_bytes
from spark_mq.store.expiry import (
    MILLIS_PER_HOUR,
    DeleteWhen,
    OldFile,
    SegmentRetention,
    old_files,
    retention_table,
    segment_retentions,
)
from spark_mq.store.index.file_names import zone_of_names
from spark_mq.store.index.folder import index_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue

DEFAULT_RESERVED_HOURS = 72.0
MAX_RESERVED_HOURS = 8_760_000.0
AGES = (1, 6, 24, 72, 168, 720)
"""Hours: the limits between the ages of `ages`."""


@dataclass(frozen=True)
class UnreadLoss:
    """The unread messages that a group loses in one queue.

    Attributes:
        lost: The number of messages from there on that are deleted already.
        loses: The number of unread messages that are deleted together with the first one: those in expired segments if
            its segment has expired, else those in all segments that are deleted at the same time.
    """

    consumer_group: str
    topic: str
    queue_id: int
    consumer_offset: int
    unread: int
    lost: int
    file: str | None = None
    loses: int = 0
    expired: int = 0
    expire_timestamp: int | None = None
    delete_timestamp: int | None = None


def unread_losses(store: MessageStore, segments: Sequence[SegmentRetention]) -> list[UnreadLoss]:
    """What consumer groups lose, the first loss first (`config/consumerOffset.json`).

    Groups that have read all messages except those of the newest segment are left out. A group without an offset in a
    queue is not known.
    """
    found = (_loss(store, queue, committed, segments) for queue, committed in _committed(store) if segments)
    never = max((segment.delete_timestamp or 0 for segment in segments), default=0) + 1
    return sorted(filter(None, found), key=lambda loss: (loss.delete_timestamp or never, -loss.loses, -loss.lost))


def _committed(store: MessageStore) -> Iterator[tuple[ConsumeQueue, ConsumerOffset]]:
    """The offsets of groups in queues that the store has."""
    for committed in load_consumer_offsets(store.location):
        queue = store.queues.get((committed.topic, committed.queue_id))
        if queue is not None:
            yield queue, committed


def _loss(
    store: MessageStore, queue: ConsumeQueue, committed: ConsumerOffset, segments: Sequence[SegmentRetention]
) -> UnreadLoss | None:
    first, stop = _unread(store, committed)
    lost = max(first - committed.offset, 0)
    name = committed.topic, committed.queue_id
    loss = UnreadLoss(committed.consumer_group, *name, committed.offset, stop - first, lost)
    segment = _segment_of(queue, first, segments) if first < stop else None
    if segment is None or segment.expire_timestamp is None:
        return loss if lost else None
    following = kept = next(one for one in segments if not one.is_expired)
    if not segment.is_expired:
        later = [one for one in segments if one.commit_log_offset > segment.commit_log_offset]
        at = segment.delete_timestamp
        following = next((one for one in later if one.delete_timestamp != at), segments[-1])
    return replace(
        loss,
        file=segment.file,
        loses=_count_before(queue, first, stop, following.commit_log_offset),
        expired=_count_before(queue, first, stop, kept.commit_log_offset),
        expire_timestamp=segment.expire_timestamp,
        delete_timestamp=segment.delete_timestamp,
    )


@dataclass(frozen=True)
class UnreadMessages:
    """The number of unread messages of a group in a part of one queue."""

    consumer_group: str
    topic: str
    queue_id: int
    count: int


def unread_before(store: MessageStore, commit_log_offset: int) -> list[UnreadMessages]:
    """The messages before a commit log offset that groups have not read, most first; the errors of `unread_losses`."""
    found = []
    for queue, committed in _committed(store):
        count = _count_before(queue, *_unread(store, committed), commit_log_offset)
        if count:
            found.append(UnreadMessages(committed.consumer_group, committed.topic, committed.queue_id, count))
    return sorted(found, key=lambda one: -one.count)


def _unread(store: MessageStore, committed: ConsumerOffset) -> tuple[int, int]:
    """The queue offset of the first message that a group has not read, and the offset after the queue's last one."""
    name = committed.topic, committed.queue_id
    start, stop = store.get_min_offset_in_queue(*name), store.get_max_offset_in_queue(*name)
    return min(max(committed.offset, start), stop), stop


def _count_before(queue: ConsumeQueue, first: int, stop: int, commit_log_offset: int) -> int:
    return bisect_left(range(first, stop), commit_log_offset, key=lambda queue_offset: queue.unit(queue_offset)[0])


def _segment_of(
    queue: ConsumeQueue, queue_offset: int, segments: Sequence[SegmentRetention]
) -> SegmentRetention | None:
    """The segment of a unit's message; None if the unit does not point to one of them."""
    commit_log_offset, store_size, _ = queue.unit(queue_offset)
    index = bisect_right([segment.commit_log_offset for segment in segments], commit_log_offset) - 1
    if index < 0 or store_size <= 0 or store_size == PRE_BLANK_SIZE:
        return None
    return segments[index] if commit_log_offset < segments[index].end_offset else None


@dataclass(frozen=True)
class AgeBytes:
    """The bytes of the log that are of one age."""

    from_hours: int
    to_hours: int | None
    segments: int
    log_bytes: int


@dataclass(frozen=True)
class Retention:
    """How long a store keeps its messages.

    Attributes:
        reserved_hours: For how many hours a segment is kept after its last change, and where that is from.
        left_over: Queue files and index files that only have messages before the log. A broker deletes them, too.
        ages: The bytes of the log by age, the youngest first.
        unread: What consumer groups lose because they did not read it in time, the first loss first.
        problems: Why files are kept although they may be old, as text for a person.
    """

    store: str
    at: int
    reserved_hours: Sourced[float]
    delete_when: DeleteWhen
    delete_when_source: str
    zone_source: str
    segments: tuple[SegmentRetention, ...]
    left_over: tuple[OldFile, ...]
    ages: tuple[AgeBytes, ...]
    unread: tuple[UnreadLoss, ...]
    topics: tuple[TopicBytes, ...] | None
    disk: DiskPressure | None
    problems: tuple[str, ...]

    @property
    def expired(self) -> tuple[SegmentRetention, ...]:
        """The segments that have expired."""
        return tuple(segment for segment in self.segments if segment.is_expired)


def retention(
    path: str,
    reserved_hours: float | None = None,
    at: int | datetime | None = None,
    broker_conf: str | None = None,
    by_topic: bool = False,
) -> Retention:
    """When each segment of a store expires, what is deleted with it, and which groups lose unread messages.

    A few KiB of each segment are read, the last unit of each queue file except the newest of a queue, and the headers
    of index files.

    Args:
        path: The store directory, a path or a URI.
        reserved_hours: For how many hours a segment is kept after its last change; by default `fileReservedTime` of the
            broker's settings, or else 72.
        at: The time for which the question is answered, epoch milliseconds or a datetime with a time zone; by default
            now.
        broker_conf: The file of the broker's settings.
        by_topic: Whether the bytes of the log are counted by topic: then all units of the queues are read, 20 bytes for
            each message.

    Raises:
        StoreNotFoundError: The path is not a message store.
        UnsupportedStoreError: The store is of a kind that is not read.
        OptionError: An argument, or a setting of the broker, is not valid.

    Examples:
        >>> for segment in spark_mq.retention("/data/store").expired:
        ...     print(segment.file, segment.freed_bytes)
    """
    with MessageStore(path, broker_conf=broker_conf) as store:
        moment, conf = moment_of(at), store.broker_conf
        hours = reserved_time(reserved_hours, conf, store.records.has_entries)
        when, when_source, zone_source = delete_when(store, conf)
        segments, left_over, problems = expiring_segments(store, hours.value, moment, when)
        unread, problem = read_config(lambda: unread_losses(store, segments))
        start = next((one.commit_log_offset for one in segments if not one.is_expired), -1)
        return Retention(
            str(store.location),
            moment,
            hours,
            when,
            when_source,
            zone_source,
            segments,
            left_over,
            tuple(ages(segments, moment)),
            tuple(unread or ()),
            tuple(topic_bytes(store, start)) if by_topic else None,
            disk_pressure(store.location, conf),
            problems if problem is None else (*problems, problem),
        )


def expiring_segments(
    store: MessageStore, hours: float, at: int, when: DeleteWhen
) -> tuple[tuple[SegmentRetention, ...], tuple[OldFile, ...], tuple[str, ...]]:
    """The segments, the files that only have messages before the log, and problems, as in `Retention`."""
    files, kept = old_files(store)
    problems = (*(stray.describe() for stray in store.records.stray), *kept)
    left_over = tuple(file for file in files if file.release_offset < store.get_min_phy_offset())
    return tuple(segment_retentions(store, hours, at, when, files)), left_over, problems


def retention_rows(store: MessageStore, reserved_hours: float | None = None, at: int | None = None) -> pa.Table:
    """The rows of table `retention`. Arguments and errors are those of `retention`."""
    when, _, _ = delete_when(store, store.broker_conf)
    hours = reserved_time(reserved_hours, store.broker_conf, store.records.has_entries).value
    segments, _, _ = expiring_segments(store, hours, moment_of(at), when)
    return retention_table(segments)


def moment_of(at: int | datetime | None) -> int:
    """Milliseconds since the epoch of a time; now for None. Raises `OptionError` for a number or time without sense."""
    if at is None:
        return time.time_ns() // NANOS_PER_MILLI
    if isinstance(at, int) and micros(at) is None:
        raise OptionError(f"at={at} is not a time of the years 1 to 9999")
    return millis_of("at", at)


def reserved_time(given: float | None, conf: BrokerConf, has_entries: bool = False) -> Sourced[float]:
    """The hours for which a segment is kept: as given, as the broker's settings say, or 72.

    A segment of a DLedger log is kept for an hour more than the settings say (`DLedgerCommitLog.refreshConfig`@5.3.3).
    """
    if given is not None:
        return Sourced(_hours(given, f"reserved hours {given}"), "--reserved-hours")
    text = conf.settings.get("fileReservedTime")
    if text is None:
        return Sourced(DEFAULT_RESERVED_HOURS + has_entries, conf.source_of_defaults)
    what = f"{conf.source}: fileReservedTime={text!r}"
    if not re.fullmatch(r"[+-]?[0-9]{1,10}", text):
        raise OptionError(f"{what} is not a number of hours: a broker ignores it")
    return Sourced(_hours(float(text), what) + has_entries, conf.source)


def _hours(value: float, what: str) -> float:
    if not 0 <= value <= MAX_RESERVED_HOURS:
        raise OptionError(f"{what}: give hours from 0 to {MAX_RESERVED_HOURS:,.0f}")
    return value


def delete_when(store: MessageStore, conf: BrokerConf) -> tuple[DeleteWhen, str, str]:
    """The hours in which the broker deletes files, their source, and the source of their time zone."""
    text = conf.text("deleteWhen", "")
    zone = zone_of_names((info.name, info.stored_header().begin_timestamp) for info in index_files(store.location))
    zone_source = "the zone of this machine" if zone is None else "as the names of index files show"
    return DeleteWhen.of(text or "04", conf.source, zone), conf.source_of("deleteWhen"), zone_source


def ages(segments: Sequence[SegmentRetention], at: int) -> list[AgeBytes]:
    """The bytes of the log by the age of the newest message of each segment, the youngest first."""
    limits = (0, *AGES)
    sums = [[0, 0] for _ in limits]
    for segment in segments:
        newest = segment.last_store_timestamp
        age = at - (segment.modification_timestamp if newest is None else newest)
        entry = sums[max(bisect_right(limits, age / MILLIS_PER_HOUR) - 1, 0)]
        entry[0] += 1
        entry[1] += segment.end_offset - segment.commit_log_offset
    return [
        AgeBytes(low, high, count, size)
        for low, high, (count, size) in zip(limits, (*AGES, None), sums, strict=True)
        if count
    ]
