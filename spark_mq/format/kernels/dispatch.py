"""The consume queue units that a broker writes when it dispatches records, as kernels.

Rules (`CommitLog.checkMessageAndReturnSize`, `CommitLogDispatcherBuildConsumeQueue`@5.3.3; the same in 4.9):

- A record of transaction type NONE or COMMIT becomes a unit in its queue (topic, queue id). Other types have no unit.
- The tags code is `String.hashCode` of property TAGS, 0 without tags.
- In topic SCHEDULE_TOPIC_XXXX, the tags code of a record with a DELAY level above 0 is the delivery time in
  milliseconds: the store timestamp plus the delay of that level. A level above the highest one counts as the highest.
  If DELAY is not an integer, the broker cannot dispatch the record at all; here the tags code stays that of its tags.
- With enableMultiDispatch and enableLmq, a record that has a unit gets the same one in each light message queue that
  its property INNER_MULTI_DISPATCH names: queue 0 of that name, at the queue offset that INNER_MULTI_QUEUE_OFFSET has
  at the same place (`ConsumeQueue.multiDispatchLmqQueue`, `MultiDispatchUtils.checkMultiDispatchQueue`@5.3.3; the same
  in 4.9.7 and 5.5.0, whose lite topics are such queues).
- A record of a topic with batch consume queues gets a unit there instead, at the queue offset INNER_BASE and with
  INNER_NUM messages; without both properties at its own queue offset, with one message
  (`CommitLog.setBatchSizeIfNeeded`, `BatchConsumeQueue.putMessagePositionInfoWrapper`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from spark_mq.format import record
from spark_mq.format.array_types import (
    ArrayRows,
    Bytes,
    Flags,
    Int32s,
    Int64s,
    OutBytes,
    OutFlags,
    OutInt32s,
    OutInt64s,
)
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, MAX_MESSAGE_COUNT, UNIT_DTYPE, UNIT_SIZE, BatchUnits, Units
from spark_mq.format.dispatch import LIGHT_PREFIX, MAX_OFFSET_DIGITS
from spark_mq.format.kernels.big_endian import byte_at, int64s_at, read_i32, read_i64, write_i32, write_i64
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.java_string import hash_code
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import equal_pieces, find_value, parse_decimal, same_bytes, skip_to
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.format.properties import (
    DELAY_TIME_LEVEL,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    TAGS,
)
from spark_mq.format.system_topic import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX, delay_level_millis

_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8)
_TAGS = np.frombuffer(TAGS, np.uint8)
_DELAY = np.frombuffer(DELAY_TIME_LEVEL, np.uint8)
_INNER_BASE, _INNER_NUM = np.frombuffer(INNER_BASE, np.uint8), np.frombuffer(INNER_NUM, np.uint8)
_MULTI_DISPATCH = np.frombuffer(INNER_MULTI_DISPATCH, np.uint8)
_MULTI_QUEUE_OFFSET = np.frombuffer(INNER_MULTI_QUEUE_OFFSET, np.uint8)
_LIGHT = np.frombuffer(LIGHT_PREFIX.encode(), np.uint8)
_RETRY, _SYSTEM = np.frombuffer(RETRY_PREFIX.encode(), np.uint8), np.frombuffer(SYSTEM_PREFIX.encode(), np.uint8)
_COMMA, _SLASH, _ZERO, _NINE = ord(","), ord("/"), ord("0"), ord("9")


def parse_delay_levels(text: str) -> Int64s:
    """The delays of `delay_level_millis`, which has the same argument and errors, as an array."""
    return np.array(delay_level_millis(text), np.int64)


@dataclass(frozen=True)
class DispatchedUnits(ArrayRows):
    """Consume queue units in log order; each attribute has one value for each unit."""

    queue_number: Int32s
    queue_offset: Int64s
    commit_log_offset: Int64s
    store_size: Int32s
    tags_code: Int64s
    store_timestamp: Int64s


@dataclass(frozen=True)
class GroupedUnits:
    """Consume queue units by queue number, and those of a queue in log order; `units` are their 20 bytes."""

    queue_number: Int32s
    queue_offset: Int64s
    store_timestamp: Int64s
    units: Units


def grouped(parts: Sequence[DispatchedUnits], queues: int) -> GroupedUnits:
    """The units of all parts, which are in log order; `queues` is the number of queues."""
    counts = np.zeros(queues, np.int64)
    for part in parts:
        counts += np.bincount(part.queue_number, minlength=queues)
    places, count = counts.cumsum() - counts, int(counts.sum())
    queue_offset, store_timestamp = np.empty(count, np.int64), np.empty(count, np.int64)
    units = np.empty(count * UNIT_SIZE, np.uint8)
    for part in parts:
        columns: list[Any] = [*vars(part).values(), places, queue_offset, store_timestamp, units]
        _place_units(*columns)
    queue_number = np.repeat(np.arange(queues, dtype=np.int32), counts)
    return GroupedUnits(queue_number, queue_offset, store_timestamp, units.view(UNIT_DTYPE))


@kernel
def _place_units(
    queue_number: Int32s,
    queue_offset: Int64s,
    commit_log_offset: Int64s,
    store_size: Int32s,
    tags_code: Int64s,
    store_timestamp: Int64s,
    places: OutInt64s,
    placed_queue_offset: OutInt64s,
    placed_store_timestamp: OutInt64s,
    units: OutBytes,
) -> None:
    for index in range(queue_number.size):
        place = places[queue_number[index]]
        places[queue_number[index]] = place + 1
        placed_queue_offset[place] = queue_offset[index]
        placed_store_timestamp[place] = store_timestamp[index]
        write_i64(units, place * UNIT_SIZE, commit_log_offset[index])
        write_i32(units, place * UNIT_SIZE + 8, int(store_size[index]))
        write_i64(units, place * UNIT_SIZE + 12, tags_code[index])


def lead_to(units: Units, buffer: Bytes, frames: Frames) -> Flags:
    """Which of the units, one for each record, lead to their record: they have its offset and its size."""
    found = np.empty(frames.size, np.bool_)
    _lead_to(units.view(np.uint8), buffer, frames, found)
    return found


@kernel
def _lead_to(units: Bytes, buffer: Bytes, frames: Frames, found: OutFlags) -> None:
    for index in range(frames.size):
        frame, unit = frames[index], index * UNIT_SIZE
        offset = read_i64(buffer, frame.position + record.COMMIT_LOG_OFFSET_AT)
        found[index] = read_i64(units, unit) == offset and read_i32(units, unit + 8) == frame.store_size


def has_unit(frames: Frames) -> Flags:
    """Which messages become a unit of an ordinary consume queue.

    An inner batch has no such unit, because its topic has a batch consume queue (`BatchConsumeQueue`@5.3.3).
    """
    return is_final(frames) & ~is_inner_batch(frames)


def is_final(frames: Frames) -> Flags:
    """Which messages become a unit of a queue: those of transaction type NONE or COMMIT."""
    kind = frames.sys_flag & record.TRANSACTION_TYPE_MASK
    result: Flags = (kind != record.TRANSACTION_PREPARED_TYPE) & (kind != record.TRANSACTION_ROLLBACK_TYPE)
    return result


def is_inner_batch(frames: Frames) -> Flags:
    """Which records are inner batches of a batch consume queue."""
    result: Flags = frames.sys_flag & record.INNER_BATCH_FLAG != 0
    return result


@kernel
def _tags_codes(buffer: Bytes, frames: Frames, codes: OutInt64s) -> None:
    for index in range(frames.size):
        frame = frames[index]
        start, length = find_value(buffer, frame.properties_start, int(frame.properties_length), _TAGS)
        codes[index] = hash_code(buffer, start, length) if length > 0 else 0


@kernel
def _deliver_times(buffer: Bytes, frames: Frames, delay_millis: Int64s, codes: OutInt64s) -> None:
    """Overwrite the codes of messages with a delay level above 0 by their delivery times."""
    for index in range(frames.size):
        frame = frames[index]
        start, length = find_value(buffer, frame.properties_start, int(frame.properties_length), _DELAY)
        is_number, level = parse_decimal(buffer, start, length)
        if is_number and level > 0:
            delay = delay_millis[(level if level < delay_millis.size else delay_millis.size) - 1]
            codes[index] = read_i64(buffer, frame.store_timestamp_at) + delay


def _unit_tags_codes(buffer: Bytes, frames: Frames, delay_millis: Int64s, known: Int64s | None) -> Int64s:
    codes = np.empty(frames.size, np.int64) if known is None else known
    if known is None:
        _tags_codes(buffer, frames, codes)
    is_scheduled = np.empty(frames.size, np.bool_)
    equal_pieces(buffer, frames.topic_start, frames.topic_length, _SCHEDULE_TOPIC, is_scheduled)
    if is_scheduled.any():
        scheduled = codes[is_scheduled]
        _deliver_times(buffer, frames[is_scheduled], delay_millis, scheduled)
        codes[is_scheduled] = scheduled
    return codes


def dispatch_units(
    buffer: Bytes, frames: Frames, queues: QueueTable, delay_millis: Int64s, tags_codes: Int64s | None = None
) -> DispatchedUnits:
    """The consume queue units of messages, one for each.

    Args:
        tags_codes: `String.hashCode` of the tags of each message, if it is known: `index_keys` finds it on its way. The
            array becomes that of the units.
    """
    return DispatchedUnits(
        queue_number=queues.numbers(buffer, frames),
        queue_offset=int64s_at(buffer, frames.position + record.QUEUE_OFFSET_AT),
        commit_log_offset=int64s_at(buffer, frames.position + record.COMMIT_LOG_OFFSET_AT),
        store_size=frames.store_size.copy(),  # the memory of frames is used again for the next chunk
        tags_code=_unit_tags_codes(buffer, frames, delay_millis, tags_codes),
        store_timestamp=int64s_at(buffer, frames.store_timestamp_at),
    )


@kernel
def _starts_with(buffer: Bytes, start: int, length: int, prefix: Bytes) -> bool:
    return length >= prefix.size and same_bytes(buffer, start, prefix, 0, prefix.size)


@kernel
def _without_last_commas(buffer: Bytes, start: int, length: int) -> int:
    """The end of a list: Java's `split` drops empty pieces at the end."""
    end = start + length
    while end > start and buffer[end - 1] == _COMMA:
        end -= 1
    return end


@kernel
def _count_pieces(buffer: Bytes, start: int, end: int) -> int:
    count, position = 1, skip_to(buffer, start, end, _COMMA)
    while position < end:
        count += 1
        position = skip_to(buffer, position + 1, end, _COMMA)
    return count


@kernel
def _parse_offset(buffer: Bytes, start: int, end: int) -> int:
    """A queue offset in decimal digits; -1 if the text is not one."""
    if end == start or end - start > MAX_OFFSET_DIGITS:
        return -1
    value = 0
    for position in range(start, end):
        digit = byte_at(buffer, position)
        if digit < _ZERO or digit > _NINE:
            return -1
        value = value * 10 + digit - _ZERO
    return value


@kernel
def _find_light_queues(
    buffer: Bytes,
    frames: Frames,
    messages: OutInt64s,
    name_starts: OutInt64s,
    name_lengths: OutInt32s,
    queue_offsets: OutInt64s,
    fails: OutFlags,
) -> int:
    """Write the light message queues that messages name, in their order; returns how many there are.

    A text that is not a number ends the dispatch of the message, which `fails`.
    """
    count = 0
    for index in range(frames.size):
        fails[index] = False
        frame = frames[index]
        topic, topic_length = frame.topic_start, int(frame.topic_length)
        if _starts_with(buffer, topic, topic_length, _RETRY) or _starts_with(buffer, topic, topic_length, _SYSTEM):
            continue
        if topic_length == _SCHEDULE_TOPIC.size and _starts_with(buffer, topic, topic_length, _SCHEDULE_TOPIC):
            continue
        start, length = frame.properties_start, int(frame.properties_length)
        name, names_length = find_value(buffer, start, length, _MULTI_DISPATCH)
        offset, offsets_length = find_value(buffer, start, length, _MULTI_QUEUE_OFFSET)
        names_end = _without_last_commas(buffer, name, names_length)
        offsets_end = _without_last_commas(buffer, offset, offsets_length)
        if name >= names_end or offset >= offsets_end:
            continue
        if _count_pieces(buffer, name, names_end) != _count_pieces(buffer, offset, offsets_end):
            continue
        while name < names_end:
            name_end = skip_to(buffer, name, names_end, _COMMA)
            offset_end = skip_to(buffer, offset, offsets_end, _COMMA)
            if skip_to(buffer, name, name_end, _SLASH) == name_end:
                queue_offset = _parse_offset(buffer, offset, offset_end)
                if queue_offset < 0:
                    fails[index] = True
                    break
                if _starts_with(buffer, name, name_end - name, _LIGHT):
                    messages[count], queue_offsets[count] = index, queue_offset
                    name_starts[count], name_lengths[count] = name, name_end - name
                    count += 1
            name, offset = name_end + 1, offset_end + 1
    return count


def light_queues(buffer: Bytes, frames: Frames, queues: QueueTable) -> tuple[Int64s, Int32s, Int64s, Flags]:
    """The light message queues of messages, in their order: the number of the message, of the queue, and its offset.

    A queue that a message names twice has it once (`ConsumeQueue.putMessagePositionInfo` by the commit log offset). The
    flags say of which messages the dispatch fails: an offset is not a number (`ConsumeQueue.multiDispatchLmqQueue`).
    A broker since 5.0.0 stores such a message that names a light message queue and a plain topic
    (`LmqDispatch.wrapLmqDispatch`@5.3.3).
    """
    most = int(frames.properties_length.sum(dtype=np.int64)) // _LIGHT.size
    messages, starts, offsets = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    lengths, fails = np.empty(most, np.int32), np.empty(frames.size, np.bool_)
    count = _find_light_queues(buffer, frames, messages, starts, lengths, offsets, fails)
    numbers = queues.numbers_of(buffer, starts[:count], lengths[:count], np.zeros(count, np.int32))
    _, first = np.unique(messages[:count] << 32 | numbers, return_index=True)
    first.sort()
    return messages[first], numbers[first], offsets[first], fails


def light_units(buffer: Bytes, frames: Frames, units: DispatchedUnits, queues: QueueTable) -> DispatchedUnits:
    """The units of light message queues; `units` are those of the messages `frames` in their own queues."""
    messages, numbers, offsets, _ = light_queues(buffer, frames, queues)
    return replace(units.take(messages), queue_number=numbers, queue_offset=offsets)


@kernel
def _find_batches(buffer: Bytes, frames: Frames, queue_offsets: OutInt64s, message_counts: OutInt64s) -> None:
    """Write the queue offset and the number of messages of each record; -1 for a text that is not a number."""
    for index in range(frames.size):
        frame = frames[index]
        properties, length = frame.properties_start, int(frame.properties_length)
        base, base_length = find_value(buffer, properties, length, _INNER_BASE)
        count, count_length = 0, -1
        if base_length > 0:
            count, count_length = find_value(buffer, properties, length, _INNER_NUM)
        if count_length > 0:
            queue_offsets[index] = _parse_offset(buffer, base, base + base_length)
            message_counts[index] = _parse_offset(buffer, count, count + count_length)
        else:
            queue_offsets[index], message_counts[index] = read_i64(buffer, frame.position + record.QUEUE_OFFSET_AT), 1


def batch_units(buffer: Bytes, frames: Frames, tags_codes: Int64s | None = None) -> BatchUnits:
    """The units of records in batch consume queues; `tags_codes` as in `dispatch_units`.

    A unit whose queue offset or number of messages no broker writes has the number -1.
    """
    queue_offsets, message_counts = np.empty(frames.size, np.int64), np.empty(frames.size, np.int64)
    _find_batches(buffer, frames, queue_offsets, message_counts)
    is_possible = (queue_offsets >= 0) & (message_counts <= MAX_MESSAGE_COUNT)
    units = np.zeros(frames.size, BATCH_UNIT_DTYPE)
    units["commit_log_offset"] = int64s_at(buffer, frames.position + record.COMMIT_LOG_OFFSET_AT)
    units["store_size"] = frames.store_size
    units["tags_code"] = _unit_tags_codes(buffer, frames, np.zeros(1, np.int64), tags_codes)
    units["store_timestamp"] = int64s_at(buffer, frames.store_timestamp_at)
    units["queue_offset"], units["message_count"] = queue_offsets, np.where(is_possible, message_counts, -1)
    units["compacted_offset"] = -1
    return units
