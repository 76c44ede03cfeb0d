"""The queues of many records, numbered as they occur, as kernels over a hash table."""

from __future__ import annotations

import numpy as np

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Int32s, Int64s, OutBytes, OutInt32s, OutInt64s
from spark_mq.format.kernels.big_endian import byte_at, copy_bytes, int32s_at
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import same_bytes


class QueueTable:
    """Numbers of queues from 0, in the order in which queues occur: a hash table from (topic bytes, queue id)."""

    def __init__(self) -> None:
        self.count = 0
        self._slots = np.full(64, -1, np.int32)
        self._queue_ids = np.empty(32, np.int32)
        self._topic_ends = np.zeros(33, np.int64)
        self._topics = np.empty(1024, np.uint8)

    def numbers(self, buffer: Bytes, frames: Frames) -> Int32s:
        """The number of each message's queue. A queue that is new to the table gets the next number."""
        queue_ids = int32s_at(buffer, frames.position + record.QUEUE_ID_AT)
        return self.numbers_of(buffer, frames.topic_start, frames.topic_length, queue_ids)

    def numbers_of(self, buffer: Bytes, topic_starts: Int64s, topic_lengths: Int32s, queue_ids: Int32s) -> Int32s:
        """The number of each queue, as in `numbers`; its topic is a piece of the buffer."""
        self._reserve(queue_ids.size, int(topic_lengths.sum(dtype=np.int64)))
        numbers, known = np.empty(queue_ids.size, np.int32), (self._queue_ids, self._topic_ends, self._topics)
        self.count = _number_queues(
            buffer, topic_starts, topic_lengths, queue_ids, self.count, self._slots, *known, numbers
        )
        return numbers

    def topic(self, number: int) -> bytes:
        """The stored topic of queue `number`."""
        return self._topics[self._topic_ends[number] : self._topic_ends[number + 1]].tobytes()

    def topics(self) -> tuple[Bytes, Int64s]:
        """The stored topics of all queues, by queue number: their bytes, and the `count` + 1 offsets between them."""
        ends = self._topic_ends[: self.count + 1]
        return self._topics[: ends[-1]], ends

    def queue_ids(self) -> Int32s:
        """The queue ids of all queues, by queue number."""
        return self._queue_ids[: self.count]

    def _reserve(self, queues: int, topic_bytes: int) -> None:
        """Make room for `queues` more queues with `topic_bytes` more bytes of topics."""
        needed = self.count + queues
        if needed > self._queue_ids.size:
            capacity = 1 << (needed - 1).bit_length()
            self._queue_ids = np.concatenate((self.queue_ids(), np.empty(capacity - self.count, np.int32)))
            ends = self._topic_ends[: self.count + 1]
            self._topic_ends = np.concatenate((ends, np.zeros(capacity - self.count, np.int64)))
            self._slots = np.full(2 * capacity, -1, np.int32)
            _fill_slots(self.count, self._slots, self._queue_ids, self._topic_ends, self._topics)
        used = int(self._topic_ends[self.count])
        if used + topic_bytes > self._topics.size:
            self._topics = np.concatenate((self._topics[:used], np.empty(2 * (used + topic_bytes), np.uint8)))


@kernel
def _queue_hash(topic: Bytes, start: int, length: int, queue_id: int) -> int:
    """FNV-1a over the topic's bytes and the queue id."""
    mixed = 2166136261 ^ (queue_id & 0xFFFFFFFF)
    for index in range(start, start + length):
        mixed = ((mixed ^ byte_at(topic, index)) * 16777619) & 0xFFFFFFFF
    return mixed ^ (mixed >> 15)


@kernel
def _fill_slots(count: int, slots: OutInt32s, queue_ids: Int32s, topic_ends: Int64s, topics: Bytes) -> None:
    mask = slots.size - 1
    for number in range(count):
        start = topic_ends[number]
        slot = _queue_hash(topics, start, topic_ends[number + 1] - start, int(queue_ids[number])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@kernel
def _number_queues(
    buffer: Bytes,
    topic_starts: Int64s,
    topic_lengths: Int32s,
    queue_ids_of: Int32s,
    count: int,
    slots: OutInt32s,
    queue_ids: OutInt32s,
    topic_ends: OutInt64s,
    topics: OutBytes,
    numbers: OutInt32s,
) -> int:
    mask = slots.size - 1
    for index in range(queue_ids_of.size):
        start, length = topic_starts[index], int(topic_lengths[index])
        queue_id = int(queue_ids_of[index])
        slot = _queue_hash(buffer, start, length, queue_id) & mask
        number = slots[slot]
        while number >= 0:
            topic_start = topic_ends[number]
            if (
                queue_ids[number] == queue_id
                and topic_ends[number + 1] - topic_start == length
                and same_bytes(topics, topic_start, buffer, start, length)
            ):
                break
            slot = (slot + 1) & mask
            number = slots[slot]
        if number < 0:
            number = count
            slots[slot] = number
            queue_ids[number] = queue_id
            end = topic_ends[number]
            copy_bytes(topics, end, buffer, start, length)
            topic_ends[number + 1] = end + length
            count += 1
        numbers[index] = number
    return count


@kernel
def bisect_each(values: Int64s, wanted: Int64s, starts: Int64s, stops: Int64s, found: OutInt64s) -> None:
    """Write, for each number that is wanted, the first index in a part of `values`, which grow, of one not less."""
    for index in range(wanted.size):
        at, stop = starts[index], stops[index]
        while at < stop:
            middle = (at + stop) >> 1
            if values[middle] < wanted[index]:
                at = middle + 1
            else:
                stop = middle
        found[index] = at
