"""Which records a broker's recovery accepts, as kernels (`CommitLog.checkMessageAndReturnSize`@4.9.7 to 5.3.3).

A recovery takes more for records than the readers of this package do (`frames`): a record's own commit log offset can
be any number, and a size is limited only by the segment. It also checks more: bodies by their CRCs, and some properties
that the broker parses. The first position that it does not accept is the end of the log. Versions differ, so `rules`,
the sum of some constants `ACCEPTS_` and `CHECKS_`, says what is checked.

In this module, `buffer` contains bytes of one segment, and `end` is the index at which the broker's buffer ends.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Flags, Int32s, Int64s, OutFlags, OutInt32s, OutInt64s
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE, UNIT_SIZE
from spark_mq.format.dledger import BLANK_MAGIC as ENTRY_BLANK_MAGIC
from spark_mq.format.dledger import HEAD_SIZE as ENTRY_HEAD_SIZE
from spark_mq.format.kernels.big_endian import byte_at, read_i16, read_i32, read_i64
from spark_mq.format.kernels.crc import crc32, stored_property_crc
from spark_mq.format.kernels.frames import Frame, Frames, host_size
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.kernels.properties import find_value, parse_decimal, same_bytes
from spark_mq.format.properties import DELAY_TIME_LEVEL, PROPERTY_CRC_SIZE
from spark_mq.format.record import CRC_MASK
from spark_mq.format.system_topic import SCHEDULE_TOPIC

ACCEPTS_V2 = 1
"""Records with the magic number V2 are accepted (5.1.0)."""
CHECKS_SIZE_FIRST = 2
"""A size that is larger than the rest of the segment ends the log, also that of a blank (5.3.2)."""
CHECKS_BODY_CRC = 4
"""The CRC of the body must be right (`checkCRCOnRecover`)."""
CHECKS_PROPERTY_CRC = 8
"""The CRC of the whole record must be there and be right, instead (`forceVerifyPropCRC`, 5.2.0)."""
CHECKS_BATCH = 16
"""The properties of an inner batch must be numbers (5.0.0)."""
SKIPS_BODY = 32
"""The body is not read, as when a broker dispatches messages (`ReputMessageService.doReput`)."""
HAS_HEADS = 64
"""The head of a DLedger entry is before each record (`DLedgerCommitLog.checkMessageAndReturnSize`@5.3.3)."""
RULES_OF_VERSIONS = ACCEPTS_V2 | CHECKS_SIZE_FIRST | CHECKS_BATCH
"""The rules that the version decides, whatever the settings are; the newest one has all of them."""


class RecordCheck(IntEnum):
    """What a recovery finds at a position."""

    RECORD = 0
    BLANK = 1
    """The blank that ends a segment: the check goes on with the next file."""
    ZEROS = 2
    """Size and magic number are zero: nothing was ever written here."""
    MORE = 3
    """Not decided: the buffer ends before the record does, but the segment does not."""
    SHORT = 4
    """The segment ends before the record does."""
    BAD_SIZE = 5
    BAD_MAGIC = 6
    BAD_CRC = 7
    BAD_LENGTH = 8
    """A length of body, topic or properties is impossible."""
    BAD_SUM = 9
    """The lengths do not add up to the size."""
    BAD_PROPERTY = 10
    """A property is not the number that the broker parses."""
    TOO_NEW = 11
    """A record of V2, which the version does not accept."""
    FULL = 12
    """The frame array is full."""
    BAD_OFFSET = 13
    """The record states an offset of another segment (`checkCommitLogOffsetOnRecover`, 5.5.0; not found here)."""


RECORD, BLANK, ZEROS, MORE, SHORT, BAD_SIZE, BAD_MAGIC, BAD_CRC, BAD_LENGTH, BAD_SUM, *_OTHERS = map(int, RecordCheck)
BAD_PROPERTY, TOO_NEW, FULL, _ = _OTHERS

_LEAST_SIZE = -(1 << 31) + 4
"""A size below it minus 4 overflows to a large number in Java."""
_MOST_DIGITS = 18
_MINUS, _PLUS, _ZERO, _NINE = ord("-"), ord("+"), ord("0"), ord("9")
_SCHEDULE_TOPIC = np.frombuffer(SCHEDULE_TOPIC.encode(), np.uint8)
_DELAY = np.frombuffer(DELAY_TIME_LEVEL, np.uint8)
_INNER_NUM = np.frombuffer(b"INNER_NUM", np.uint8)
_INNER_BASE = np.frombuffer(b"INNER_BASE", np.uint8)


@kernel
def check_record(buffer: Bytes, position: int, end: int, rules: int, frame: Frame) -> int:
    """What a broker finds at `position`, as a `RecordCheck` number. The positions of a record's parts go to `frame`.

    They do so for BAD_SUM, too; the fields of `frame` are undefined for any other result.
    """
    left, available = end - position, buffer.size - position
    if left < record.BLANK_SIZE:
        return SHORT
    if available < record.BLANK_SIZE:
        return MORE
    size = read_i32(buffer, position)
    magic = read_i32(buffer, position + record.MAGIC_AT)
    if rules & CHECKS_SIZE_FIRST and (left < size or size < _LEAST_SIZE):
        return BAD_SIZE
    if magic == record.MAGIC_BLANK:
        return BLANK
    if magic == record.MAGIC_V2 and not rules & ACCEPTS_V2:
        return TOO_NEW
    if magic != record.MAGIC_V1 and magic != record.MAGIC_V2:
        return ZEROS if size == 0 and magic == 0 else BAD_MAGIC
    if size < record.HOST_V4_SIZE:  # Java reads the hosts into an array of this size
        return BAD_SIZE
    if left < record.BORN_HOST_AT:
        return SHORT
    if available < record.BORN_HOST_AT:
        return MORE
    sys_flag = read_i32(buffer, position + record.SYS_FLAG_AT)
    born_host_size = host_size(sys_flag, record.BORN_HOST_V6_FLAG)
    store_host_size = host_size(sys_flag, record.STORE_HOST_V6_FLAG)
    if size < born_host_size or size < store_host_size:
        return BAD_SIZE
    store_timestamp_at = record.BORN_HOST_AT + born_host_size
    store_host_at = store_timestamp_at + record.TIMESTAMP_SIZE
    after_hosts_at = store_host_at + store_host_size
    body_start = after_hosts_at + 16
    if left < body_start:
        return SHORT
    if available < body_start:
        return MORE
    body_length = read_i32(buffer, position + after_hosts_at + 12)
    if body_length < 0:
        body_length = 0
    if body_length > size and not rules & SKIPS_BODY:
        return BAD_LENGTH
    topic_width = 2 if magic == record.MAGIC_V2 else 1
    topic_start = body_start + body_length + topic_width
    if left < body_start + body_length:
        return SHORT
    if available < topic_start and available < left:
        return MORE
    if body_length > 0 and rules & CHECKS_BODY_CRC and not rules & CHECKS_PROPERTY_CRC:
        crc = crc32(buffer, position + body_start, body_length) & CRC_MASK
        if crc != read_i32(buffer, position + record.BODY_CRC_AT):
            return BAD_CRC
    if left < topic_start:
        return SHORT
    if topic_width == 2:
        topic_length = read_i16(buffer, position + topic_start - 2)
    else:
        topic_length = byte_at(buffer, position + topic_start - 1)
        topic_length = topic_length - 256 if topic_length >= 128 else topic_length
    if topic_length < 0 or topic_length > size:
        return BAD_LENGTH
    properties_start = topic_start + topic_length + 2
    if left < properties_start:
        return SHORT
    if available < properties_start:
        return MORE
    properties_length = read_i16(buffer, position + properties_start - 2)
    if properties_length < 0:
        properties_length = 0
    if properties_length > size:
        return BAD_LENGTH
    length = properties_start + properties_length
    if left < length:
        return SHORT
    if available < length:
        return MORE
    frame.position = position
    frame.store_size = size
    frame.sys_flag = sys_flag
    frame.store_timestamp_at = position + store_timestamp_at
    frame.store_host_at = position + store_host_at
    frame.after_hosts_at = position + after_hosts_at
    frame.body_start = position + body_start
    frame.body_length = body_length
    frame.topic_start = position + topic_start
    frame.topic_length = topic_length
    frame.properties_start = position + properties_start
    frame.properties_length = properties_length
    if not _are_numbers(buffer, frame, rules):
        return BAD_PROPERTY
    if length != size:
        return BAD_SUM
    if rules & CHECKS_BODY_CRC and rules & CHECKS_PROPERTY_CRC:
        stored = stored_property_crc(buffer, position + size, properties_length)
        if stored < 0 or crc32(buffer, position, size - PROPERTY_CRC_SIZE) & CRC_MASK != stored:
            return BAD_CRC
    return RECORD


@kernel
def _are_numbers(buffer: Bytes, frame: Frame, rules: int) -> bool:
    """Whether the properties that a broker parses are numbers: DELAY in the schedule topic, and those of a batch."""
    start, length = frame.properties_start, int(frame.properties_length)
    if frame.topic_length == _SCHEDULE_TOPIC.size and same_bytes(
        buffer, frame.topic_start, _SCHEDULE_TOPIC, 0, _SCHEDULE_TOPIC.size
    ):
        value_start, value_length = find_value(buffer, start, length, _DELAY)
        if value_length >= 0 and not parse_decimal(buffer, value_start, value_length)[0]:
            return False
    if rules & CHECKS_BATCH:
        number_start, number_length = find_value(buffer, start, length, _INNER_NUM)
        if number_length >= 0:
            value_start, value_length = find_value(buffer, start, length, _INNER_BASE)
            if value_length >= 0:
                is_number, number = parse_decimal(buffer, number_start, number_length)
                if not is_number or number > 0x7FFF or number < -0x8000:
                    return False
                return _is_long(buffer, value_start, value_length)
    return True


@kernel
def _is_long(buffer: Bytes, start: int, length: int) -> bool:
    """Whether the text is an integer of at most 18 digits; `Long.parseLong` also takes some of 19."""
    position, end = start, start + length
    if length > 1 and (buffer[position] == _MINUS or buffer[position] == _PLUS):
        position += 1
    if end - position > _MOST_DIGITS:
        return False
    while position < end:
        if buffer[position] < _ZERO or buffer[position] > _NINE:
            return False
        position += 1
    return True


@kernel
def check_records(buffer: Bytes, end: int, rules: int, frames: Frames) -> tuple[int, int, int]:
    """Check the records from the start of the buffer on, and write their frames to `frames`.

    Returns the number of frames written, the position at which the check ended, and why (a `RecordCheck` number other
    than RECORD).
    """
    count = position = 0
    while True:
        if count == frames.size:
            return count, position, FULL
        start = position
        if rules & HAS_HEADS and buffer.size - position >= record.BLANK_SIZE:
            if read_i32(buffer, position) == ENTRY_BLANK_MAGIC:
                return count, position, BLANK
            magic = read_i32(buffer, position + record.MAGIC_AT)  # of an entry it is the size
            if magic != record.MAGIC_BLANK and magic != record.MAGIC_V1 and magic != record.MAGIC_V2:
                start += ENTRY_HEAD_SIZE
        found = check_record(buffer, start, end, rules, frames[count])
        if found != RECORD:
            return count, position, found
        position = start + int(frames[count].store_size)
        count += 1


@kernel
def are_all_accepted(buffer: Bytes, frames: Frames, has_inner: Flags) -> bool:
    """Whether a recovery of each version accepts these records, whose lengths add up and whose body CRCs are right.

    `has_inner` are those with properties `INNER_...`. The setting `forceVerifyPropCRC` is not considered.
    """
    for index in range(frames.size):
        frame = frames[index]
        is_v2 = frame.topic_start - frame.body_start - frame.body_length > 1
        if is_v2 or not _are_numbers(buffer, frame, CHECKS_BATCH if has_inner[index] else 0):
            return False
    return True


class PutResult(IntEnum):
    """What a queue does with a message that is dispatched (`ConsumeQueue.putMessagePositionInfo`@5.3.3, as in 4.9)."""

    NOT_DISPATCHED = -1
    IGNORED = 0
    """The queue leads to this message or a later one already, or the message's queue offset is before its end."""
    APPENDED = 1
    """The message gets a unit at its queue offset."""
    SHIFTED = 2
    """The message gets a unit at the end of the queue, which is not its queue offset."""


NOT_DISPATCHED, IGNORED, APPENDED, SHIFTED = map(int, PutResult)


@kernel
def put_units(
    queue: Int32s,
    queue_offset: Int64s,
    message_count: Int64s,
    commit_log_offset: Int64s,
    store_size: Int32s,
    is_dispatched: Flags,
    file_size: int,
    is_batch: Flags,
    exists: OutFlags,
    end: OutInt64s,
    next_offset: OutInt64s,
    max_physic_offset: OutInt64s,
    results: OutInt32s,
) -> None:
    """Dispatch messages to their queues, in order, and write what happened to `results`, as `PutResult` numbers.

    `exists`, `end` and `max_physic_offset` are the state of the queues, by number: whether the broker has the queue,
    the byte after the last unit (-1 if the queue has no file), the queue offset after it, and the commit log offset
    after the last message. All are updated. A batch consume queue (`is_batch`) has the commit log offset of its last
    record instead, and appends each later one (`BatchConsumeQueue.putBatchMessagePositionInfo`@5.3.3).
    """
    for index in range(queue.size):
        results[index] = NOT_DISPATCHED
        if not is_dispatched[index]:
            continue
        number = queue[index]
        exists[number] = True
        after = commit_log_offset[index] + store_size[index]
        results[index] = IGNORED
        if is_batch[number]:
            is_possible = queue_offset[index] >= 0 and message_count[index] >= 0
            if is_possible and commit_log_offset[index] > max_physic_offset[number]:
                results[index] = APPENDED
                end[number] = max(end[number], 0) + BATCH_UNIT_SIZE
                next_offset[number] = queue_offset[index] + message_count[index]
                max_physic_offset[number] = commit_log_offset[index]
            continue
        if after <= max_physic_offset[number]:
            continue
        place = queue_offset[index] * UNIT_SIZE
        if end[number] < 0:  # the first file of the queue is created, and filled up to the unit
            end[number] = place if place >= 0 else place + -place % file_size
        if queue_offset[index] != 0 and place < end[number]:
            continue
        results[index] = APPENDED if place == end[number] else SHIFTED
        end[number] += UNIT_SIZE
        next_offset[number] = end[number] // UNIT_SIZE
        max_physic_offset[number] = after


@kernel
def put_keys_again(
    commit_log_offset: Int64s, key_count: Int32s, end: int, known: Int64s, entries: Int64s
) -> tuple[int, int]:
    """Count the entries that an index gets a second time (`IndexService.buildIndex`@5.3.3, as in 4.9).

    The index ignores messages before the end of its last file, commit log offset `end`, and puts the keys of all
    others. It has the messages at the offsets `known`, in order, each with a number of `entries`. Those after `end` are
    in other files: the last one lost its header. Returns the number, and the commit log offset of the first such
    message, or -1.
    """
    doubled, first, newest = 0, -1, -1
    for index in range(key_count.size):
        count, offset = int(key_count[index]), commit_log_offset[index]
        if count == 0 or offset < end:
            continue
        put = count if offset == newest else 0
        place = np.searchsorted(known, offset)
        if offset != newest and place < known.size and known[place] == offset:
            put = min(int(entries[place]), count)
        if put > 0 and first < 0:
            first = offset
        doubled += put
        end = newest = offset
    return doubled, first


@kernel
def find_units(
    units: Bytes,
    pieces: Int64s,
    first: Int64s,
    position: Int64s,
    queue: Int32s,
    queue_offset: Int64s,
    commit_log_offset: Int64s,
    store_size: Int32s,
    found: OutFlags,
) -> None:
    """Write to `found` which messages have a unit at their queue offset that leads to them.

    `units` has pieces of queue files, those of a queue from `pieces[number]` to `pieces[number + 1]`. Piece k has the
    units from queue offset `first[k]` on, at `position[k]` to `position[k + 1]`.
    """
    for index in range(queue.size):
        found[index] = False
        number, offset = queue[index], queue_offset[index]
        for piece in range(pieces[number], pieces[number + 1]):
            count = (position[piece + 1] - position[piece]) // UNIT_SIZE
            if offset >= first[piece] and offset - first[piece] < count:
                at = position[piece] + (offset - first[piece]) * UNIT_SIZE
                found[index] = (
                    read_i64(units, at) == commit_log_offset[index] and read_i32(units, at + 8) == store_size[index]
                )
