"""Which files a broker deletes when messages are old, when, and what is in them.

- A segment expires `fileReservedTime` hours after the last change of its file. The broker deletes expired segments
  oldest first, stops at the first one that has not expired, and never deletes the newest one
  (`MappedFileQueue.deleteExpiredFileByTime`@5.3.3, as in 4.9).
- It does so in the hours of `deleteWhen` (`CleanCommitLogService.isTimeToDelete`, `UtilAll.isItTimeToDo`@5.3.3).
- When the log begins later than before, it deletes queue files: in each queue from the oldest on, as long as the last
  unit of a file points before the log, and never the newest file (`MappedFileQueue.deleteExpiredFileByOffset`@5.3.3).
- Then it deletes index files by the same rule: the header has the offset of a file's last message
  (`IndexService.deleteExpiredFile`@5.3.3).

In each function a list has the files that can be deleted at all, the oldest first; the newest is not in it.

Few bytes are read: the last unit of each queue file except the newest, and the headers of index files. A queue with one
file, as most queues have, is not read at all.

`expiry` has the rules, `old_files` the files to which they apply.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta, tzinfo
from itertools import accumulate, pairwise
from typing import Self

import numpy as np
import pyarrow as pa

from spark_mq.errors import OptionError, StoreChangedError
from spark_mq.format.arrow_array import table_of
from spark_mq.format.consume_queue import (
    BATCH_UNIT_DTYPE,
    BATCH_UNIT_SIZE,
    PRE_BLANK_SIZE,
    UNIT,
    UNIT_DTYPE,
    UNIT_SIZE,
    is_live,
)
from spark_mq.format.dledger import HEAD_SIZE as ENTRY_HEAD_SIZE
from spark_mq.format.record import HEAD_SIZE, read_store_timestamp
from spark_mq.format.timestamp import EPOCH, NANOS_PER_MILLI, epoch_millis, micros
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.index.folder import index_files
from spark_mq.store.log.segment_files import SegmentFile
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFileInfo, queue_path
from spark_mq.store.queue.queue_database import in_files
from spark_mq.tables.store_files import RETENTION

_READ = 4 << 20
MILLIS_PER_HOUR = 3_600_000

_HOURS = re.compile(r"\+?[0-9]{1,9}(;\+?[0-9]{1,9})*;*")


@dataclass(frozen=True)
class LiveSegment:
    """A segment with a live record."""

    file: SegmentFile
    size: int
    modification_timestamp: int


@dataclass(frozen=True)
class OldFile:
    """A queue file or an index file that is not the newest of its queue or of the index.

    Attributes:
        release_offset: The largest commit log offset that its last unit or entry, and those of the files before it,
            point to. A broker deletes the file when the log begins after this offset.
    """

    tree: str
    path: str
    location: Location
    size: int
    release_offset: int


def live_segments(store: MessageStore) -> list[LiveSegment]:
    """The segments with a live record, by offset. The last one is the newest segment, which is never deleted."""
    folders = {file.location.parent for file in store.records.segments}
    infos = {info.base_name: info for folder in folders for info in folder.entries()}
    return [
        LiveSegment(file, info.size, (info.mtime_ns or 0) // NANOS_PER_MILLI)
        for file in store.records.segments
        if file.base < store.get_max_phy_offset()
        and (info := infos.get(file.location.name)) is not None  # else it was deleted in the meantime
    ]


def expirable(segments: Sequence[LiveSegment]) -> Sequence[LiveSegment]:
    """The segments that a broker deletes some time, of those with a live record: all except the newest one.

    A broker deletes no segment of a DLedger log while there is one of an older plain log
    (`DLedgerCommitLog.deleteExpiredFile`@5.3.3).
    """
    return [segment for segment in segments[:-1] if not segment.file.has_entries] or segments[:-1]


def old_files(store: MessageStore) -> tuple[list[OldFile], list[str]]:
    """The queue files, by queue, and after them the index files, each from the oldest on; and why others are kept.

    A file is left out, with all files after it, if its last unit or its header is damaged: it cannot be known which
    messages it has.
    """
    problems: list[str] = []
    files: list[OldFile] = []
    if has_rocksdb_queues(store.location):
        problems.append("the queues are in a RocksDB database, from which a broker that runs removes old units itself")
    else:
        for queue in store.queues.values():
            if not in_files([queue.folder]):
                continue
            try:
                files += _of_queue(queue, store.get_max_phy_offset(), problems)
            except StoreChangedError:  # a broker is deleting files of this queue
                continue
    return [*files, *_of_index(store, problems)], problems


def _of_queue(queue: ConsumeQueue, log_end: int, problems: list[str]) -> list[OldFile]:
    files = _without_stale(queue, log_end) if len(queue.folder.files) > 1 else ()
    found: list[OldFile] = []
    for info, following in pairwise(files):
        path = queue_path(queue.topic, queue.queue_id, info.base_name, queue.folder.tree)
        if info.size % queue.folder.unit_size or int(info.base_name) + info.size != int(following.base_name):
            problems.append(f"{path} does not end at {following.base_name}, where the next file begins")
            break
        location = queue.folder.location / info.base_name
        last = _last_offset(location, info.size, queue.folder.unit_size)
        if last is None:
            problems.append(f"{path} does not end with a unit of a message, although a file follows it")
            break
        found.append(OldFile(queue.folder.tree, path, location, info.size, last))
    offsets = release_offsets([file.release_offset for file in found])
    return [replace(file, release_offset=offset) for file, offset in zip(found, offsets, strict=True)]


def _without_stale(queue: ConsumeQueue, log_end: int) -> Sequence[QueueFileInfo]:
    """The files without those at the end whose first unit is stale: the next boot deletes these.

    (`ConsumeQueue.truncateDirtyLogicFiles`@5.3.3.)
    """
    files = queue.folder.files
    while len(files) > 1:
        offset, size, _ = _unit(queue.folder.location / files[-1].base_name, 0)
        if size <= 0 or size == PRE_BLANK_SIZE or offset < log_end:
            break
        files = files[:-1]
    return files


def _last_offset(file: Location, size: int, unit_size: int) -> int | None:
    """The commit log offset of a file's last unit; None if that is not a unit of a message.

    `spark-mq rebuild --mode permissive` leaves pre-blank units for messages that are lost, so the last unit can be one.
    """
    offset, store_size, _ = _unit(file, size - unit_size)
    if store_size == PRE_BLANK_SIZE and offset == 0:
        return max_offset(file, unit_size)
    return offset if offset >= 0 and store_size > 0 else None


def _unit(file: Location, position: int) -> tuple[int, int, int]:
    """The fields with which a unit begins, also one of a batch consume queue."""
    with FileReader(file) as reader:
        data = reader.read(position, UNIT_SIZE)
    offset, size, tags_code = UNIT.unpack(data.ljust(UNIT_SIZE, b"\0"))
    return offset, size, tags_code


def max_offset(file: Location, unit_size: int) -> int:
    """The largest commit log offset that a unit of a queue file points to; -1 if it has no unit of a message."""
    largest, position = -1, 0
    dtype = BATCH_UNIT_DTYPE if unit_size == BATCH_UNIT_SIZE else UNIT_DTYPE
    with FileReader(file) as reader:
        while data := reader.read(position, _READ // unit_size * unit_size):
            units = np.frombuffer(data[: len(data) // unit_size * unit_size], dtype)
            offsets = units["commit_log_offset"][is_live(units)]
            largest = max(largest, int(offsets.max()) if offsets.size else -1)
            position += len(data)
    return largest


def _of_index(store: MessageStore, problems: list[str]) -> Iterator[OldFile]:
    infos = index_files(store.location)
    release_offset = -1
    for info in infos[:-1]:
        header = info.stored_header()
        is_in_order = 0 <= header.begin_commit_log_offset <= header.end_commit_log_offset
        if not is_in_order or header.next_entry == 1:
            problems.append(f"{INDEX}/{info.name} has a damaged header, although a file follows it")
            return
        if header.end_commit_log_offset < release_offset:
            why = "the names are not in the order of the entries (a clock was set back), or a header is damaged"
            problems.append(f"{INDEX}/{info.name} ends before the file before it: {why}")
            return
        release_offset = header.end_commit_log_offset
        yield OldFile(INDEX, f"{INDEX}/{info.name}", info.location, info.size, release_offset)


@dataclass(frozen=True)
class SegmentRetention:
    """How long a segment is kept. All times are milliseconds since the epoch.

    Attributes:
        expire_timestamp: When it has expired, and all segments before it; None for the newest, which never does.
        delete_timestamp: The first time from then on in an hour in which the broker deletes files, and not before the
            time of the question: what is still there was not deleted earlier. None for the newest.
        expire_by_store_timestamp: `last_store_timestamp` plus the reserved time.
        files: The queue files and index files that the broker deletes because the segment is gone.
    """

    file: str
    commit_log_offset: int
    end_offset: int
    file_size: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    modification_timestamp: int
    expire_timestamp: int | None
    delete_timestamp: int | None
    expire_by_store_timestamp: int | None
    is_expired: bool
    files: tuple[OldFile, ...]

    @property
    def queue_files(self) -> int:
        """The number of queue files that go with it."""
        return sum(file.tree != INDEX for file in self.files)

    @property
    def index_files(self) -> int:
        """The number of index files that go with it."""
        return len(self.files) - self.queue_files

    @property
    def freed_bytes(self) -> int | None:
        """Bytes of the segment, and of the files that go with it; None for the newest segment."""
        return None if self.expire_timestamp is None else self.file_size + sum(file.size for file in self.files)


def segment_retentions(
    store: MessageStore, hours: float, at: int, when: DeleteWhen, files: Sequence[OldFile]
) -> list[SegmentRetention]:
    """When each segment with live records expires, by offset."""
    live = live_segments(store)
    reserved = round(hours * MILLIS_PER_HOUR)
    times = expire_times([segment.modification_timestamp for segment in expirable(live)], reserved)
    expired = count_expired(times, at)
    bases = [segment.file.base for segment in live]
    by_segment: dict[int, list[OldFile]] = {}
    for old in files:
        by_segment.setdefault(bisect_right(bases, old.release_offset) - 1, []).append(old)
    rows = []
    for index, segment in enumerate(live):
        file, expire = segment.file, times[index] if index < len(times) else None
        first = file.base + (ENTRY_HEAD_SIZE if file.has_entries else 0)
        last = store.records.newest_in(file, store.get_max_phy_offset())
        newest = None if last is None else last.store_timestamp
        rows.append(
            SegmentRetention(
                file=file.location.name,
                commit_log_offset=file.base,
                end_offset=min(file.end_offset, store.get_max_phy_offset()),
                file_size=segment.size,
                first_store_timestamp=read_store_timestamp(store.records.read(first, HEAD_SIZE), first),
                last_store_timestamp=newest,
                modification_timestamp=segment.modification_timestamp,
                expire_timestamp=expire,
                delete_timestamp=None if expire is None else when.next_time(max(expire, at)),
                expire_by_store_timestamp=None if newest is None or expire is None else newest + reserved,
                is_expired=index < expired,
                files=() if expire is None else tuple(by_segment.get(index, ())),
            )
        )
    return rows


def retention_table(segments: Sequence[SegmentRetention]) -> pa.Table:
    """The segments as a table with table `retention`."""
    rows = [{name: getattr(segment, name) for name in RETENTION.schema.names} for segment in segments]
    for row in rows:
        times = [name for name in row if name.endswith("timestamp") and row[name] is not None]
        row |= {name: micros(row[name]) for name in times}
    return table_of(rows, RETENTION.schema)


def expire_times(modification_times: Sequence[int], reserved: int) -> list[int]:
    """When each segment can be deleted: when it has expired, and all segments before it."""
    return list(accumulate((time + reserved for time in modification_times), max))


def count_expired(times: Sequence[int], at: int) -> int:
    """The number of segments that are deleted at the time `at`; `times` are those of `expire_times`."""
    return sum(time <= at for time in times)


def count_before(ends: Sequence[int], min_offset: int) -> int:
    """The number of segments that end at or before a commit log offset; `ends` are ascending."""
    return sum(end <= min_offset for end in ends)


def release_offsets(last_offsets: Sequence[int]) -> list[int]:
    """For each file of a queue or of the index, the offset after which the log must begin before it is deleted."""
    return list(accumulate(last_offsets, max))


@dataclass(frozen=True)
class DeleteWhen:
    """The hours of a day in which a broker deletes expired files.

    Attributes:
        hours: The hours, 0 to 23; with other numbers nothing is ever deleted, as in a broker.
    """

    hours: frozenset[int]
    zone: tzinfo | None = None

    @classmethod
    def of(cls, text: str, source: str, zone: tzinfo | None = None) -> Self:
        """The hours in a value of `deleteWhen`, such as `04` or `04;16`."""
        if not _HOURS.fullmatch(text):
            raise OptionError(f"{source}: deleteWhen={text!r} is not an hour such as 04, or several such as 04;16")
        return cls(frozenset(int(part) for part in text.strip(";").split(";") if part), zone)

    def next_time(self, millis: int) -> int | None:
        """The first time (milliseconds) at or after `millis` in one of the hours; None if there is none."""
        if micros(millis) is None or not any(hour < 24 for hour in self.hours):
            return None
        moment = EPOCH + timedelta(milliseconds=millis)
        try:
            if moment.astimezone(self.zone).hour in self.hours:
                return millis
            # Zones differ from UTC by parts of an hour, so the next local hour may begin between two hours of UTC.
            moment = moment.replace(minute=moment.minute // 15 * 15, second=0, microsecond=0)
            quarters = (moment + timedelta(minutes=15 * number) for number in range(1, 4 * 49))
            return next((epoch_millis(one) for one in quarters if one.astimezone(self.zone).hour in self.hours), None)
        except OverflowError:
            return None
