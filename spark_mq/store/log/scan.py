"""Messages that match a filter, found by reading a part of the log: for ranges that no index and no queue covers.

A short range is read in plain Python. A longer range is worth the import of the kernels, which select candidates. In
both cases the filter decides about each message itself.

Records do not know the record before them. So a part of the log is read forwards, and its matching messages are
returned backwards. A caller that stops after some messages reads only the last parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Int64s
from spark_mq.format.dispatch import KeyType, offset_in_queue, record_keys
from spark_mq.format.index_file import index_key_hash
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import INNER_MULTI_DISPATCH
from spark_mq.format.record import Record, decode_record
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, Split, list_offset_range, within_time
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.segment_files import CorruptRange

if TYPE_CHECKING:
    from spark_mq.store.log.record_reader import RecordChunk

_SPLIT_SIZE = 64 << 20
"""Bytes of a part. To find where its first record starts, a reader needs the 16 MiB before it, too."""
SHORT_RANGE = 256 << 10
"""Bytes that plain Python reads in less time than the import of the kernels takes."""

FIRST, FOREVER = -(1 << 63), 1 << 62
"""Queue offsets: no offset is before `FIRST`, and no message is at or after `FOREVER`."""


def scan_backwards(
    records: RecordLookup,
    log_range: LogRange,
    row_filter: RecordFilter,
    begin: int | None = None,
    end: int | None = None,
    tail_starts: Sequence[int] = (),
) -> Iterator[Record | CorruptRange]:
    """The matching messages of a range of the live log, newest first, and its damaged or missing ranges.

    Args:
        begin: The earliest store time in milliseconds; None for any. Parts of the log that were stored outside `begin`
            to `end` can be left out; messages outside can be returned.
        tail_starts: Offsets of records near the end of the range, descending. The records from each of them on are read
            in plain Python. A caller that stops there never imports the kernels.
    """
    stop = log_range.stop
    for start in tail_starts:
        if not log_range.start <= start < stop:
            continue
        try:
            tail = [record for record in records.iterate(LogRange(start, stop)) if row_filter.matches(record)]
        except CorruptLogError:
            break  # the reader of splits handles damage
        yield from reversed(tail)
        stop = start
    if stop <= log_range.start:
        return
    listed = list_offset_range(records.store, log_range.start, stop)
    splits = within_time(listed.splits(_SPLIT_SIZE, is_end_known=False), begin, end)
    for split in reversed(splits):
        yield from reversed(list(scan_split(split, row_filter)))
    yield from listed.missing


class RecordFilter(Protocol):
    """A rule that selects messages."""

    def matches(self, record: Record) -> bool:
        """Whether the message matches."""

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """Indexes of frames of the chunk. Every message that matches is among them; others can be."""


@dataclass(frozen=True)
class WithKey:
    """Messages of a topic that have a key: one key of KEYS, or the unique key."""

    topic: str
    key: str

    @property
    def key_hash(self) -> int:
        """The key's hash in index files."""
        return index_key_hash(self.topic.encode("utf-8", "replace"), self.key.encode("utf-8", "replace"))

    def matches(self, record: Record) -> bool:
        """Whether a message is of the topic and has the key."""
        return self.key in record_keys(record) and decode_utf8(record.topic) == self.topic

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """The messages that have the key's hash."""
        import numpy as np

        from spark_mq.format.kernels.index_keys import index_keys

        keys = index_keys(chunk.buffer, chunk.frames)
        owners = np.repeat(np.arange(chunk.frames.size), keys.entry_count)
        return np.unique(owners[keys.key_hash == self.key_hash])


@dataclass(frozen=True)
class WithKeyOfAnyTopic:
    """Messages of any topic that have a key: one key of KEYS, or the unique key; or only as their unique key."""

    key: str
    is_unique: bool = False

    def matches(self, record: Record) -> bool:
        """Whether a message has the key."""
        kind = record_keys(record).get(self.key)
        return kind is not None and (kind == KeyType.UNIQ_KEY or not self.is_unique)

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """The messages that contain the bytes of the key, wherever in the record."""
        import numpy as np

        if "\ufffd" in self.key:  # stands for bytes that are not UTF-8
            return np.arange(chunk.frames.size)
        key, data = self.key.encode("utf-8", "replace"), chunk.buffer.tobytes()
        found, at = [], data.find(key)
        while at >= 0:
            found.append(at)
            at = data.find(key, at + 1)
        owners = np.searchsorted(chunk.frames.position, np.array(found, np.int64), side="right") - 1
        return np.unique(owners[owners >= 0])


@dataclass(frozen=True)
class InQueue:
    """Messages in one queue of a topic, or in all its queues, at the queue offsets from `start` to `stop`."""

    topic: str
    queue_id: int | None = None
    start: int = FIRST
    stop: int = FOREVER

    def matches(self, record: Record) -> bool:
        """Whether a message is in the queue, at one of the offsets."""
        queue_ids = {record.queue_id, 0} if self.queue_id is None else {self.queue_id}
        offsets = (offset_in_queue(record, self.topic, queue_id) for queue_id in queue_ids)
        return any(offset is not None and self.start <= offset < self.stop for offset in offsets)

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """The messages of the topic with one of the offsets, and all messages that name light message queues."""
        import numpy as np

        from spark_mq.format.kernels.big_endian import int64s_at
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.record import QUEUE_OFFSET_AT

        messages = MessageColumns(chunk.buffer, chunk.frames)
        offsets = int64s_at(chunk.buffer, chunk.frames.position + QUEUE_OFFSET_AT)
        matches = (offsets >= self.start) & (offsets < self.stop)
        if "\ufffd" not in self.topic:
            matches &= messages.topic_is(self.topic.encode("utf-8", "replace"))
        return np.flatnonzero(matches | messages.has_property(INNER_MULTI_DISPATCH))


def scan(
    records: RecordLookup,
    log_range: LogRange,
    row_filter: RecordFilter,
    begin: int | None = None,
    end: int | None = None,
    short_range: int = SHORT_RANGE,
) -> Iterator[Record | CorruptRange]:
    """The matching messages of a range of the live log, in its order, and its damaged or missing ranges.

    Args:
        begin: The earliest store time in milliseconds; None for any. Parts of the log that were stored outside `begin`
            to `end` can be left out; messages outside can be returned.
        short_range: Bytes at the start of the range that are read in plain Python. A caller that stops there never
            imports the kernels.
    """
    reached = log_range.start
    try:
        for record in records.iterate(LogRange(reached, min(reached + short_range, log_range.stop))):
            reached = record.commit_log_offset + record.size
            if row_filter.matches(record):
                yield record
    except CorruptLogError:
        pass  # the reader of splits handles damage
    else:
        if log_range.size <= short_range:
            return
    listed = list_offset_range(records.store, reached, log_range.stop)
    yield from listed.missing
    for split in within_time(listed.splits(DEFAULT_SPLIT_SIZE, is_end_known=False), begin, end):
        yield from scan_split(split, row_filter)


def splits_of(store: Location, log_range: LogRange, split_size: int = DEFAULT_SPLIT_SIZE) -> list[Split]:
    """The splits of a range of the live log that starts with a record. Its end can be in a damaged range."""
    return list_offset_range(store, log_range.start, log_range.stop).splits(split_size, is_end_known=False)


def scan_split(split: Split, row_filter: RecordFilter) -> Iterator[Record | CorruptRange]:
    """The matching messages of one split, in the order of the log, and its damaged ranges (`read_split`)."""
    from spark_mq.store.log.split_reader import read_split

    for part in read_split(split):
        if isinstance(part, CorruptRange):
            yield part
            continue
        for index in row_filter.candidates(part).tolist():
            position = int(part.frames[index].position)
            record = decode_record(part.buffer.data, position, part.base + position)
            if row_filter.matches(record):
                yield record
