"""The places of records in a new log: which segment, and where in it. Pure functions over counts and sizes.

A record is appended if eight bytes are left after it in the segment; else a blank ends the segment, and the record is
the first of the next one (`CommitLog.DefaultAppendMessageCallback`@5.3.3). So the place of a record depends on all
records before it. Whole chunks are placed by their sizes alone. Only of a chunk that crosses the end of a segment, the
sizes of its records are read.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from spark_mq.errors import InvalidMessageError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.record import BLANK_SIZE
from spark_mq.format.system_topic import (
    HALF_TOPIC,
    OP_TOPIC,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from spark_mq.restorer.chunk import KEPT, Chunk

TRANSACTION_TOPICS = (HALF_TOPIC, OP_TOPIC, ROCKSDB_HALF_TOPIC, ROCKSDB_OP_TOPIC)
"""The topics of half messages and of op messages, which name each other by their offsets."""

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, *TRANSACTION_TOPICS)
"""The topics from which a broker delivers messages to their own topics."""

_WAITING = {
    SCHEDULE_TOPIC: "delayed messages: a broker delivers those that are due as soon as it starts",
    TIMER_TOPIC: "timer messages: a broker of 5.x delivers those that are due as soon as it starts",
    HALF_TOPIC: "half messages: a broker asks the producers of those that are not settled",
}


@dataclass(frozen=True)
class Piece:
    """Consecutive records of one chunk that are in one segment."""

    chunk: Chunk
    first_row: int
    stop_row: int
    offset: int | None = None


@dataclass(frozen=True)
class SegmentPlan:
    """What a segment contains: before `start`, the content of an older file.

    Without a message, left-out records get `store_timestamp`, in milliseconds.
    """

    base: int
    size: int
    pieces: tuple[Piece, ...]
    start: int
    has_blank: bool
    store_timestamp: int = 0


@dataclass(frozen=True)
class NumberedQueues:
    """The queues of a log; those in `lacking` have offsets without a message between others."""

    messages: Mapping[Queue, int]
    next_queue_offsets: Mapping[Queue, int]
    lacking: tuple[Queue, ...]


@dataclass(frozen=True)
class LogPlan(NumberedQueues):
    """The new log, or its new part."""

    segments: tuple[SegmentPlan, ...]

    @property
    def topics(self) -> set[str]:
        """The topics that get messages."""
        return {topic for topic, _ in self.messages}

    @property
    def waiting_notes(self) -> list[str]:
        """A sentence for each kind of messages that a broker may deliver when it starts."""
        counts: Counter[str] = Counter()
        for (topic, _), count in self.messages.items():
            counts[topic] += count
        texts = (f"{counts[topic]:,} {text}" for topic, text in _WAITING.items() if counts[topic])
        return [f"{text} (--only-delivered leaves them out)" for text in texts]


@dataclass(frozen=True)
class WrittenSegment:
    """A segment that was written.

    Attributes:
        end: The commit log offset after its last record, or after its blank.
        gaps: Ranges that were filled with left-out records.
        last_store_timestamp: The store time of its last record in the log, in milliseconds.
        raised: Messages whose store time was raised.
    """

    messages: int
    end: int
    gaps: int
    gap_bytes: int
    last_store_timestamp: int
    raised: int


@dataclass(frozen=True)
class NewLog:
    """The new log: its plan, and its segments, in order."""

    plan: LogPlan
    segments: Sequence[WrittenSegment]

    @property
    def start(self) -> int:
        """The commit log offset of the first segment."""
        return self.plan.segments[0].base

    @property
    def end(self) -> int:
        """The commit log offset after the last record."""
        return self.segments[-1].end

    @property
    def last_store_timestamp(self) -> int:
        """The store time of the last message in the log, in milliseconds."""
        return self.segments[-1].last_store_timestamp

    @property
    def queue_counts(self) -> dict[str, int]:
        """The largest queue id and 1, for each topic."""
        return queue_counts(self.plan.next_queue_offsets)

    @property
    def appended_counts(self) -> dict[str, int]:
        """The same, of the queues that get messages."""
        return queue_counts(self.plan.messages)


def queue_counts(queues: Iterable[Queue]) -> dict[str, int]:
    """The largest queue id and 1, for each topic of these queues."""
    counts: dict[str, int] = {}
    for topic, queue_id in queues:
        counts[topic] = max(counts.get(topic, 0), queue_id + 1)
    return counts


LEADING = 2
"""Segments without a message of which brokers can serve queues with left-out messages."""


def with_leading_segments(plan: LogPlan) -> LogPlan:
    """The same log after two more segments, which have no message.

    Brokers serve queues in which messages are left out only if the first two segments have no message of a queue
    (`indexer.queue_files.missing_offset`). A log that starts in one of the first three segments stays as it is, because
    one that starts at 0 has no expired offset.
    """
    first = plan.segments[0]
    if first.base <= LEADING * first.size:
        return plan
    bases = range(first.base - LEADING * first.size, first.base, first.size)
    leading = [SegmentPlan(base, first.size, (), base, True, first.store_timestamp) for base in bases]
    return replace(plan, segments=(*leading, *plan.segments))


def place_as_before(chunks: Iterable[Chunk], segment_size: int, log_end: int | None = None) -> LogPlan:
    """The log in which every record has the offset that it had; with a blank at its end if `log_end` shows one."""
    pieces: dict[int, list[Piece]] = defaultdict(list)
    times: dict[int, int] = {}
    firsts: dict[Queue, int] = {}
    queues: dict[Queue, int] = {}
    messages: Counter[Queue] = Counter()
    for chunk in chunks:
        stops = [row for _, row, _ in chunk.segments[1:]] + [chunk.messages]
        for (base, first_row, time), stop_row in zip(chunk.segments, stops, strict=True):
            pieces[base].append(Piece(chunk, first_row, stop_row))
            times[base] = min(times.get(base, time), time)
        for queue in chunk.queues():
            name = queue.queue
            messages[name] += queue.messages
            queues[name] = max(queues.get(name, 0), queue.last_queue_offset + 1)
            if queue.messages:
                firsts[name] = min(firsts.get(name, queue.first_queue_offset), queue.first_queue_offset)
    last = max(pieces)
    plans: list[SegmentPlan] = []
    for base in range(last, min(pieces) - segment_size, -segment_size):
        # A segment without a message gets the time of the next one.
        time = times[base] if base in times else plans[-1].store_timestamp
        has_blank = base != last or log_end == last + segment_size
        plans.append(SegmentPlan(base, segment_size, tuple(pieces.get(base, ())), base, has_blank, time))
    lacking = tuple(name for name, first in firsts.items() if queues[name] - first > messages[name])
    return LogPlan(messages, queues, lacking, tuple(reversed(plans)))


def number_queues(
    chunks: Sequence[Chunk], next_queue_offsets: Mapping[Queue, int] | None = None, *, keeps_queue_offsets: bool = False
) -> NumberedQueues:
    """Give the messages of all chunks queue offsets: dense ones, or those that they had."""
    earliest: dict[Queue, int] = {}
    next_offsets = dict(next_queue_offsets or {})
    messages: Counter[Queue] = Counter()
    for chunk in chunks:
        firsts = []
        for queue in chunk.queues():
            name = queue.queue
            messages[name] += queue.messages
            if (keeps_queue_offsets or queue.topic == HALF_TOPIC) and queue.last_queue_offset >= 0:
                firsts.append(KEPT)
                first = queue.first_queue_offset
                earliest[name] = min(earliest.get(name, first), first)
                next_offsets[name] = max(next_offsets.get(name, 0), queue.last_queue_offset + 1)
            else:
                firsts.append(next_offsets.get(name, 0))
                next_offsets[name] = firsts[-1] + queue.messages
        chunk.put_queue_starts(firsts)
    lacking = (name for name, first in earliest.items() if next_offsets[name] - first > messages[name])
    return NumberedQueues(messages, next_offsets, tuple(lacking) if keeps_queue_offsets else ())


def place_after(chunks: Sequence[Chunk], queues: NumberedQueues, segment_size: int, start: int = 0) -> LogPlan:
    """The log in which the records of all chunks follow each other."""
    pieces: dict[int, list[Piece]] = {}
    offset = start
    for chunk in chunks:
        for first_row, stop_row, at, end in _appended(chunk, offset, segment_size):
            pieces.setdefault(at // segment_size * segment_size, []).append(Piece(chunk, first_row, stop_row, at))
            offset = end
    last = max(pieces)
    first = start // segment_size * segment_size
    segments = (
        SegmentPlan(base, segment_size, tuple(pieces.get(base, ())), max(base, start), base != last)
        for base in range(first, last + 1, segment_size)
    )
    return LogPlan(**vars(queues), segments=tuple(segments))


def _appended(chunk: Chunk, offset: int, segment_size: int) -> Iterator[tuple[int, int, int, int]]:
    """The pieces of a chunk that is appended: first record, record after the last, first and last offset."""
    end = offset // segment_size * segment_size + segment_size
    if offset + chunk.size + BLANK_SIZE <= end:
        yield 0, chunk.messages, offset, offset + chunk.size
        return
    ends = chunk.store_sizes().cumsum(dtype=np.int64)
    row, before = 0, 0
    while row < chunk.messages:
        stop = int(np.searchsorted(ends, before + end - offset - BLANK_SIZE, side="right"))
        if stop > row:
            yield row, stop, offset, offset + int(ends[stop - 1]) - before
            row, before = stop, int(ends[stop - 1])
        elif end - offset == segment_size:
            raise InvalidMessageError(
                f"a message takes {int(ends[row]) - before} bytes of the log, and a segment has {segment_size}: give a "
                "larger mappedFileSizeCommitLog (--broker-conf)"
            )
        offset, end = end, end + segment_size
