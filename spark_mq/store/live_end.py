"""The live end of a log, found quickly: from the newest message that a consume queue knows.

`live_reader` finds the live end, but scans the whole last segment. Here the scan starts at a record that is certainly
live, and is read as long as times do not go back: stale records are older than everything that the broker wrote after
it truncated the log. There are two such records:

- If the broker runs or has crashed: the newest record of all queues, if it is not older than the last start of the
  broker (the time of the file `abort`).
- If the broker stopped cleanly: the last message that was dispatched before (`LastRun.dispatched`). If all queues end
  before that message, it is the last one of the records that follow the newest one of the queues. If old units follow
  the live end of its queue, it is the newest one of them all.
- If the checkpoint says up to where the log is live (`LastRun.confirmed`), as after a job of ours: the last message of
  all queues that is before.

Where times go back, or bytes follow that are not a record, a stale tail can start: `live_reader` decides, which reads
the last segment from its start. A caller that needs the live end repeatedly keeps a `LiveEndFinder`, which then reads
only new bytes.

If the broker stopped cleanly, the newest message of the index is tried first: to read the ends of 20,000 queues takes a
second, and over a network several requests for each queue. If the index does not tell, the store is not on a local disk
and the queues are many, the last segment is read.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from spark_mq.errors import CorruptIndexError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.index_file import IndexFile
from spark_mq.format.record import FRAME, MAGIC_AT, Record, is_blank
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import LastRun
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.index.folder import IndexFileInfo, index_files, newest_layout
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LiveEnd
from spark_mq.store.log.record_lookup import RecordLookup, is_finished
from spark_mq.store.log.segment_files import RECORD_MAGIC
from spark_mq.store.queue.consume_queue import ConsumeQueue, announce_ends
from spark_mq.store.queue.folders import queue_folders

_MAX_RECORDS = 1000
"""Records after the newest message of a queue that are read before the last segment is read from its start."""
_MAX_UNITS = 1000
"""Units at the end of a queue among which the newest message is searched for."""
_STALE_WINDOW = 64 << 10
"""Bytes after the newest record in which the first record of a stale tail is searched for."""
_TAIL = 4 << 10
_BYTES_PER_REQUEST = 2 << 20
"""Bytes that arrive over a network in the time that a short request takes."""
_REQUESTS_PER_QUEUE = 2
_ZEROS = bytes(FRAME.size)
_NO_TIME = -(1 << 63)
"""A time earlier than that of every record."""


@dataclass(frozen=True)
class _Scan:
    """The position that a scan of the last segment reached, and the store time of the record before it."""

    base: int
    position: int
    newest: int
    started: float | None
    """When the broker was started: a start can truncate the log, and then the position is worthless."""
    tail_crc: int
    """The CRC of the bytes before the position: a replica can truncate its log without a start, and then continue."""
    uncertain_from: int | None
    """The position of the first record before it that can be stale, as in `LiveReader`."""


class LiveEndFinder:
    """Finds the live end of one store, which may grow between two calls."""

    def __init__(self, store: Location) -> None:
        self._store = store
        self._last_scan: _Scan | None = None

    def find_now(self) -> int:
        """The commit log offset of the live end, from the files that the store has now; -1 for an empty log."""
        return self.find_end_now().offset

    def find_end_now(self) -> LiveEnd:
        """The live end, from the files that the store has now."""
        store = self._store.now().snapshot()
        with closing(FileReaders()) as files:
            records, folders = RecordLookup(store, files), queue_folders(store / CONSUME_QUEUE, skips_unreadable=True)
            queues = (ConsumeQueue(folder, files) for folder in folders)
            return end_by_index(records) or self.find_without_index(records, queues)

    def find_without_index(self, records: RecordLookup, queues: Iterable[ConsumeQueue]) -> LiveEnd:
        """The live end by the queues, or by the entries of a DLedger log."""
        if records.has_entries:
            segments = CommitLog.open(records.store).segments
            return LiveEnd(segments[-1].base + segments[-1].data_end if segments else -1)
        run = LastRun.of(records.store)
        return replace(self._search(records, queues, run), is_dispatched=run.started is None)

    def _search(self, records: RecordLookup, queues: Iterable[ConsumeQueue], run: LastRun) -> LiveEnd:
        if run.started == math.inf:
            return self._read_last_segment(records.store, run.started)  # no record is certainly live
        queues = list(queues)
        if not records.store.is_local and _is_less_than_queues(records, len(queues)):
            return self._read_last_segment(records.store, run.started)
        announce_ends(queues)
        messages = _last_messages(records, queues)
        newest = max(messages, key=lambda message: (message[1], message[0]), default=None)
        start = max((offset for offset, _ in messages if offset < run.confirmed), default=None)
        if newest is not None and (start is None or start < newest[0]):
            start = _certainly_live(run, records, queues, *newest)
        if start is not None:
            end = _scan_on(records, start, run)
        elif newest is not None and run.started is None and newest[1] < run.dispatched:
            end = _dispatched_end(records, newest[0], run) or _end_before_old_units(records, queues, run)
        else:
            end = None
        return self._read_last_segment(records.store, run.started) if end is None else end

    def _read_last_segment(self, store: Location, started: float | None) -> LiveEnd:
        from spark_mq.store.log.commit_log import SegmentSource
        from spark_mq.store.log.live_reader import NO_TIME, LiveReader

        log = CommitLog.open(store)
        if not log.segments:
            return LiveEnd(-1)
        last, known = log.segments[-1], self._last_scan
        position, newest, uncertain_from = 0, NO_TIME, None
        with SegmentSource(last) as source:

            def tail_crc(position: int) -> int:
                start = max(position - _TAIL, 0)
                return zlib.crc32(source.read(start, position - start).tobytes()) if start < position else 0

            if (
                known is not None
                and (known.base, known.started) == (last.base, started)
                and known.position <= last.size
                and tail_crc(known.position) == known.tail_crc
            ):
                position, newest, uncertain_from = known.position, known.newest, known.uncertain_from
            reader = LiveReader(source, position, newest)
            reader.skip(last.data_end)
            uncertain_from = reader.uncertain_from if uncertain_from is None else uncertain_from
            crc = tail_crc(reader.position)
            self._last_scan = _Scan(last.base, reader.position, reader.newest, started, crc, uncertain_from)
        return LiveEnd(
            last.base + reader.position, uncertain_from=None if uncertain_from is None else last.base + uncertain_from
        )


def _is_less_than_queues(records: RecordLookup, queues: int) -> bool:
    """Whether reading the last segment takes less time than reading the ends of so many queues over a network."""
    last = records.segment_of(records.last_written_base)
    return last is not None and last.size / _BYTES_PER_REQUEST < _REQUESTS_PER_QUEUE * queues


def end_by_index(records: RecordLookup) -> LiveEnd | None:
    """The live end after a clean stop, from the newest messages of the index; None if they do not tell."""
    run = LastRun.of(records.store)
    if records.has_entries or run.started is not None or run.dispatched <= 0:
        return None
    files = index_files(records.store)
    for count in range(len(files), 0, -1):
        header = files[count - 1].stored_header()
        if header.next_entry <= 1:
            continue  # a new file has no entry yet
        offset = header.end_commit_log_offset
        if records.store_timestamp(offset) != header.end_timestamp:
            return None
        if header.end_timestamp < run.dispatched:
            return _dispatched_end(records, offset, run)
        found = (
            offset
            if header.end_timestamp == run.dispatched
            else _indexed_offset(records, files[:count], run.dispatched)
        )
        return None if found is None else _scan_on(records, found, run)
    return None


def _indexed_offset(records: RecordLookup, files: Sequence[IndexFileInfo], store_timestamp: int) -> int | None:
    """The commit log offset of a record stored at exactly this time, if one of the last entries of the files has it."""
    file, layout = files[-1], newest_layout(files)
    if layout is None:
        return None
    try:
        header = file.header(layout)
    except CorruptIndexError:
        return None
    with FileReader(file.location) as reader:
        index = IndexFile(file.name, layout, reader.read)
        for number in range(header.next_entry - 1, max(header.next_entry - 1 - _MAX_UNITS, 0), -1):
            offset = index.entry(number).commit_log_offset
            if records.store_timestamp(offset) == store_timestamp:
                return offset
    return None


def _certainly_live(
    run: LastRun, records: RecordLookup, queues: Sequence[ConsumeQueue], offset: int, store_timestamp: int
) -> int | None:
    """The commit log offset of a record near the log's end that is certainly live; None if none is known."""
    if run.started is not None:
        return offset if store_timestamp >= run.started else None
    if store_timestamp == run.dispatched:
        return offset
    if not 0 < run.dispatched < store_timestamp:
        return None
    found = (_offset_of(records, queue, run.dispatched) for queue in queues)
    return next((offset for offset in found if offset is not None), None)


def _dispatched_end(records: RecordLookup, offset: int, run: LastRun) -> LiveEnd | None:
    """The end of the records from `offset` on, if the last one is the message that was dispatched last."""
    end = _scan_on(records, offset, run)
    if end is None or end.last_record is None or records.store_timestamp(end.last_record) != run.dispatched:
        return None
    return end


def _end_before_old_units(records: RecordLookup, queues: Iterable[ConsumeQueue], run: LastRun) -> LiveEnd | None:
    """The end after the message that was dispatched last before a clean stop, if old units follow its unit.

    A boot that truncates the log leaves old units after the ends of queues. Their messages are older than those that
    came after the boot. So the newest message of such a queue is at the last unit that is newer than the next unit.
    """
    for queue in queues:
        after = None
        for queue_offset in range(
            queue.written_end - 1, max(queue.written_end - _MAX_UNITS, queue.files[0].first) - 1, -1
        ):
            commit_log_offset, store_size, _ = queue.unit(queue_offset)
            if store_size in (0, PRE_BLANK_SIZE):
                break
            time = records.store_timestamp_at(commit_log_offset, store_size)
            if time == run.dispatched:
                return _dispatched_end(records, commit_log_offset, run)
            if time is not None and after is not None and time > after:
                break
            after = after if time is None else time
    return None


def _last_messages(records: RecordLookup, queues: Iterable[ConsumeQueue]) -> list[tuple[int, int]]:
    """Commit log offset and store time of each record that a queue's last unit points to."""
    last_units = [queue.unit(queue.written_end - 1) for queue in queues]
    records.announce([commit_log_offset for commit_log_offset, store_size, _ in last_units if store_size > 0])
    found = []
    for commit_log_offset, store_size, _ in last_units:
        if store_size in (0, PRE_BLANK_SIZE):
            continue
        store_timestamp = records.store_timestamp_at(commit_log_offset, store_size)
        if store_timestamp is not None:
            found.append((commit_log_offset, store_timestamp))
    return found


def _offset_of(records: RecordLookup, queue: ConsumeQueue, store_timestamp: int) -> int | None:
    """The commit log offset of a record stored at exactly this time, if a binary search in the queue finds one."""

    def time(queue_offset: int) -> int:
        commit_log_offset, store_size, _ = queue.unit(queue_offset)
        found = None if store_size == PRE_BLANK_SIZE else records.store_timestamp_at(commit_log_offset, store_size)
        return -1 if found is None else found

    stop = queue.written_end
    place = bisect_left(range(stop), store_timestamp, queue.files[0].first, key=time)
    return queue.unit(place)[0] if place < stop and time(place) == store_timestamp else None


def _scan_on(records: RecordLookup, offset: int, run: LastRun) -> LiveEnd | None:
    """The end of the records from `offset` on; None if it is not certain."""
    last: Record | None = None
    before: int | None = None
    """The offset at which the record before `last` starts."""
    newest = _NO_TIME
    for _ in range(_MAX_RECORDS):
        segment = records.segment_of(offset)
        if segment is None:
            return _end(records, before, last, offset) if offset == records.max_offset else None
        head = records.read(offset, FRAME.size)
        if head == _ZEROS:
            return None if records.is_before_last_written(segment.base) else _end(records, before, last, offset)
        if is_blank(head, segment.end_offset - offset):
            before, last = before if last is None else last.commit_log_offset, None
            offset = segment.end_offset
            continue
        record = records.find(offset)
        if record is None:
            is_end = last is not None and _ends_before(records, offset, newest, run)
            return _end(records, before, last, offset) if is_end else None
        if record.store_timestamp < newest and offset >= run.confirmed:
            return None
        before, last = before if last is None else last.commit_log_offset, record
        newest = record.store_timestamp
        offset += record.size
    return None


def _ends_before(records: RecordLookup, offset: int, newest: int, run: LastRun) -> bool:
    """Whether the log certainly ends before bytes that are not a record: the next record is older than `newest`.

    `live_reader` has the same rule. After a clean stop, the record before must be the last dispatched one, too.
    """
    segment = records.segment_of(offset)
    if segment is None or records.is_before_last_written(segment.base) or offset < run.confirmed:
        return False
    if run.dispatched > 0 and newest != run.dispatched:
        return False
    window = records.read(offset, _STALE_WINDOW)
    for found in RECORD_MAGIC.finditer(window):
        at = offset + found.start() - MAGIC_AT
        if at <= offset:
            return False
        record = records.find(at)
        if record is not None:
            return record.store_timestamp < newest
    return False


def _end(records: RecordLookup, before: int | None, last: Record | None, offset: int) -> LiveEnd:
    """The end after `last`, or before `last` if that record is still being written (`is_finished`)."""
    if last is None:
        return LiveEnd(offset, before)
    if is_finished(last, lambda: records.read(last.commit_log_offset, last.size)):
        return LiveEnd(offset, last.commit_log_offset)
    return LiveEnd(last.commit_log_offset, before)
