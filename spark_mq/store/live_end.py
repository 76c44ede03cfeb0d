"""Where the live records of a log end, found quickly: from the newest message that a consume queue knows.

`live_reader` says where the live end is, but hops over the whole last segment for it. Here the hop begins at the newest
record of all queues, if that one is certainly live. Stale records are older than what the broker wrote since it cut
them off. So a record is live, and all before it, if it is not older than the last start of the broker (while it runs,
or after a crash: the time of the file `abort`), or than the last message flushed before a clean stop (`checkpoint`).
Where this decides nothing, or anything odd follows, the last segment is read from its start.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import FRAME, Record
from spark_mq.store.checkpoint import Checkpoint
from spark_mq.store.commit_log import CommitLog
from spark_mq.store.consume_queue import ConsumeQueue
from spark_mq.store.filesystem import Location
from spark_mq.store.record_lookup import RecordLookup

_MAX_HOPS = 1000


def find_live_end(store: Location, records: RecordLookup, queues: Iterable[ConsumeQueue]) -> int:
    """The commit log offset behind the last live record (`CommitLog.getMaxOffset`@5.3.3); -1 for an empty log."""
    newest = _newest_message(records, queues)
    if newest is not None:
        offset, store_timestamp = newest
        if store_timestamp >= _certain_from(store):
            end = _hop(records, offset)
            if end is not None:
                return end
    return _read_last_segment(store)


def _newest_message(records: RecordLookup, queues: Iterable[ConsumeQueue]) -> tuple[int, int] | None:
    """Commit log offset and store time of the newest record that a queue's last unit points to."""
    newest = None
    for queue in queues:
        commit_log_offset, store_size, _ = queue.unit(queue.written_end - 1)
        if store_size in (0, PRE_BLANK_SIZE) or not records.is_at(commit_log_offset, store_size):
            continue
        store_timestamp = records.store_timestamp(commit_log_offset)
        if newest is None or (store_timestamp, commit_log_offset) > (newest[1], newest[0]):
            newest = commit_log_offset, store_timestamp
    return newest


def _certain_from(store: Location) -> float:
    """The store time, in milliseconds, from which on a record is certainly live; infinite where nothing tells."""
    abort = (store / "abort").info()
    if abort.is_file:
        return (abort.mtime_ns or 0) / 1e6 or float("inf")
    return Checkpoint.load(store).physic_msg_timestamp or float("inf")


def _hop(records: RecordLookup, offset: int) -> int | None:
    """The offset behind the records that follow; None where they end in anything but zeros."""
    last: Record | None = None
    for _ in range(_MAX_HOPS):
        segment = records.segment_of(offset)
        if segment is None or segment.base != records.segments[-1].base:
            return None
        if records.read(offset, FRAME.size) == bytes(FRAME.size):
            # As `last_record`: what is still being written does not count.
            return offset if last is None or _is_finished(last) else last.commit_log_offset
        try:
            record = records.record(offset)
        except CorruptLogError:
            return None
        if last is not None and record.store_timestamp < last.store_timestamp:
            return None
        last = record
        offset += record.size
    return None


def _is_finished(record: Record) -> bool:
    text = record.properties or record.topic
    has_crc = not record.body or zlib.crc32(record.body) & 0x7FFFFFFF == record.body_crc
    return has_crc and not text.endswith(b"\0")


def _read_last_segment(store: Location) -> int:
    from spark_mq.store.live_reader import LiveReader
    from spark_mq.store.segment_source import SegmentSource

    log = CommitLog.open(store)
    if not log.segments:
        return -1
    last = log.segments[-1]
    with SegmentSource(last) as source:
        reader = LiveReader(source)
        reader.skip(last.data_end)
        return last.base + reader.position
