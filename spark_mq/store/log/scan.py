"""Finding messages where no index and no queue knows them: by reading a part of the log.

A short range is hopped over in plain Python; a longer one is worth the import of the kernels, which narrow the messages
down. Either way each message that is left is looked at itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_mq.errors import CorruptLogError
from spark_mq.format.dispatch import offset_in_queue
from spark_mq.format.index_file import index_key_hash
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_keys import record_keys
from spark_mq.format.properties import INNER_MULTI_DISPATCH
from spark_mq.format.record import Record, decode_record
from spark_mq.io.location import Location
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange, iterate_records
from spark_mq.store.log.offset_range import list_offset_range
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE, Split
from spark_mq.store.log.time_pruning import within_time

if TYPE_CHECKING:
    from spark_mq.format.array_types import Int64s
    from spark_mq.store.log.record_reader import RecordChunk

SHORT_RANGE = 256 << 10
"""Bytes that are read faster in plain Python than the kernels are imported."""

FIRST, FOREVER = -(1 << 63), 1 << 62
"""Queue offsets: none is before the one, and no message has the other or one after it."""


class RecordFilter(Protocol):
    """Which messages are looked for."""

    def matches(self, record: Record) -> bool:
        """Whether it is one."""

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """Indexes of frames of the chunk, all that can match among them."""


@dataclass(frozen=True)
class WithKey:
    """Messages of a topic that have a key: a piece of KEYS, or the unique key."""

    topic: str
    key: str

    @property
    def key_hash(self) -> int:
        """The hash that index files have of it."""
        return index_key_hash(self.topic.encode("utf-8", "replace"), self.key.encode("utf-8", "replace"))

    def matches(self, record: Record) -> bool:
        """Whether a message is of the topic and has the key."""
        return self.key in record_keys(record) and decode_utf8(record.topic) == self.topic

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """Those that have the key's hash."""
        import numpy as np

        from spark_mq.format.kernels.index_keys import index_keys

        keys = index_keys(chunk.buffer, chunk.frames)
        owners = np.repeat(np.arange(chunk.frames.size), keys.entry_count)
        return np.unique(owners[keys.key_hash == self.key_hash])


@dataclass(frozen=True)
class InQueue:
    """Messages of a topic that are in its queues: in one of them or in all, at some queue offsets or at any.

    `queue_id` None stands for all queues. `start` and `stop` (not included) are queue offsets.
    """

    topic: str
    queue_id: int | None = None
    start: int = FIRST
    stop: int = FOREVER

    def matches(self, record: Record) -> bool:
        """Whether a message is in the queue, at one of the offsets."""
        queue_ids = {record.queue_id, 0} if self.queue_id is None else {self.queue_id}
        places = (offset_in_queue(record, self.topic, queue_id) for queue_id in queue_ids)
        return any(place is not None and self.start <= place < self.stop for place in places)

    def candidates(self, chunk: RecordChunk) -> Int64s:
        """Those of the topic with one of the offsets, and those that name light message queues."""
        import numpy as np

        from spark_mq.format.kernels.big_endian import int64s_at
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.record import QUEUE_OFFSET_AT

        messages = MessageColumns(chunk.buffer, chunk.base, chunk.frames)
        offsets = int64s_at(chunk.buffer, chunk.frames.position + QUEUE_OFFSET_AT)
        found = (offsets >= self.start) & (offsets < self.stop)
        if "\ufffd" not in self.topic:
            found &= messages.topic_is(self.topic.encode("utf-8", "replace"))
        return np.flatnonzero(found | messages.has_property(INNER_MULTI_DISPATCH))


def scan(
    store: Location,
    records: RecordLookup,
    log_range: LogRange,
    wanted: RecordFilter,
    begin: int | None = None,
    end: int | None = None,
    short_range: int = SHORT_RANGE,
) -> Iterator[Record | CorruptRange]:
    """The wanted messages of a range of the live log, in its order, and what of the range is damaged or missing.

    The range begins with a record. Parts of the log that were stored outside `begin` ... `end` (milliseconds) may be
    left out. The first `short_range` bytes are read in plain Python: who stops there needs no kernels.
    """
    reached = log_range.start
    try:
        for record in iterate_records(records, LogRange(reached, min(reached + short_range, log_range.stop))):
            reached = record.commit_log_offset + record.size
            if wanted.matches(record):
                yield record
    except CorruptLogError:
        pass  # the reader of splits knows what to do with damage
    else:
        if log_range.size <= short_range:
            return
    listed = list_offset_range(store, reached, log_range.stop)
    yield from listed.missing
    for split in within_time(listed.splits(DEFAULT_SPLIT_SIZE, is_end_known=False), begin, end):
        yield from _scan_split(split, wanted)


def splits_of(store: Location, log_range: LogRange, split_size: int = DEFAULT_SPLIT_SIZE) -> list[Split]:
    """The splits of a range of the live log that begins with a record. Its end may be in what is damaged."""
    return list_offset_range(store, log_range.start, log_range.stop).splits(split_size, is_end_known=False)


def _scan_split(split: Split, wanted: RecordFilter) -> Iterator[Record | CorruptRange]:
    from spark_mq.store.log.split_reader import read_split

    for part in read_split(split, ""):
        if isinstance(part, CorruptRange):
            yield part
            continue
        for index in wanted.candidates(part).tolist():
            position = int(part.frames[index].position)
            record = decode_record(part.buffer.data, position, part.base + position)
            if wanted.matches(record):
                yield record
