"""Records that a recovery accepts, and units that it puts: by the Java rules, and by the twin that `boot` uses."""

from __future__ import annotations

import re
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.array_types import Int32s, Int64s
from spark_mq.format.kernels.frames import new_frames, scan_records
from spark_mq.format.kernels.properties import checked_pieces
from spark_mq.format.kernels.recovery import (
    ACCEPTS_V2,
    CHECKS_BATCH,
    CHECKS_BODY_CRC,
    CHECKS_PROPERTY_CRC,
    CHECKS_SIZE_FIRST,
    RULES_OF_VERSIONS,
    SKIPS_BODY,
    PutResult,
    RecordCheck,
    are_all_accepted,
    check_records,
    find_units,
    put_keys_again,
    put_units,
)
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import (
    BORN_HOST_V6_FLAG,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    STORE_HOST_V6_FLAG,
    Record,
    decode_record,
)
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.store.boot import BootFacts, next_boot
from spark_mq.store.boot_conditions import one_boot_group
from spark_mq.store.lacking_messages import LackingMessage
from tests.support.kernels import array, examples

FILE_SIZE = 100


def put(offsets: list[int], end: int, last: int = -1) -> tuple[list[int], int]:
    """Results of messages of 100 bytes, at 1000, 1100 and so on, and the queue's end after them."""
    count = len(offsets)
    ends, nexts, lasts = np.array([end], np.int64), np.zeros(1, np.int64), np.array([last], np.int64)
    results = np.empty(count, np.int32)
    put_units(
        np.zeros(count, np.int32),
        np.array(offsets, np.int64),
        np.ones(count, np.int64),
        np.arange(1000, 1000 + 100 * count, 100, dtype=np.int64),
        np.full(count, 100, np.int32),
        np.ones(count, np.bool_),
        FILE_SIZE,
        np.zeros(1, np.bool_),
        np.zeros(1, np.bool_),
        ends,
        nexts,
        lasts,
        results,
    )
    assert not count or int(nexts[0]) == int(ends[0]) // 20 or PutResult.IGNORED in results
    return results.tolist(), int(ends[0])


@given(st.lists(st.integers(1, 12), max_size=8), st.one_of(st.none(), st.integers(0, 12)))
def test_units_are_put_as_the_prediction_says(offsets: list[int], end: int | None) -> None:
    lacking = tuple(LackingMessage("T", 0, offset, 1000 + 100 * n) for n, offset in enumerate(offsets))
    facts = BootFacts(False, 0, 9000, (0,), lacking=lacking, next_queue_offsets={} if end is None else {("T", 0): end})
    boot = next_boot(one_boot_group("5.3.3"), facts)
    results, _ = put(offsets, -1 if end is None else 20 * end)
    counts = [results.count(result) for result in (PutResult.APPENDED, PutResult.SHIFTED, PutResult.IGNORED)]
    assert [boot.completed, boot.shifted, boot.lost] == counts


@pytest.mark.parametrize(
    ("offsets", "end", "last", "results", "after"),
    [
        ([5, 6], -1, -1, [1, 1], 140),  # the first file is filled up to the unit
        ([5, 7], 100, -1, [1, 2], 140),
        ([4], 100, -1, [0], 100),
        ([5, 6], 100, 1100, [0, 2], 120),  # the queue has a later message than the first one
        ([0], 100, -1, [2], 120),  # queue offset 0 is not compared with the end
        ([-3], -1, -1, [0], 0),  # a file is created, and gets no unit
    ],
)
def test_what_java_does_with_a_unit(offsets: list[int], end: int, last: int, results: list[int], after: int) -> None:
    """`ConsumeQueue.putMessagePositionInfo`@5.3.3, as in 4.9.7."""
    assert put(offsets, end, last) == (results, after)


def test_a_batch_queue_appends_each_later_record() -> None:
    """`BatchConsumeQueue.putBatchMessagePositionInfo`@5.3.3: whatever the queue offset of the record is."""
    state = np.array([-1], np.int64), np.zeros(1, np.int64), np.array([1000], np.int64)
    results, exists, count = np.empty(5, np.int32), np.zeros(1, np.bool_), 5
    put_units(
        np.zeros(count, np.int32),
        int64s([4, 7, 2, -1, 9]),
        int64s([1, 3, 2, 1, -1]),
        int64s([1000, 1100, 1200, 1300, 1400]),
        np.full(count, 100, np.int32),
        np.ones(count, np.bool_),
        FILE_SIZE,
        np.ones(1, np.bool_),
        exists,
        *state,
        results,
    )
    assert results.tolist() == [0, 1, 1, 0, 0]
    assert [int(values[0]) for values in state] == [2 * 46, 4, 1200]


def found(data: bytes, rules: int, end: int | None = None) -> tuple[int, RecordCheck]:
    count, _, status = check_records(array(data), len(data) if end is None else end, rules, new_frames(9))
    return count, RecordCheck(status)


RECORD = Record(b"T", body=b"order", properties=b"TAGS\1a\2", commit_log_offset=4711).encode()
SHORT_BODY = Record(b"T", body=b"o").encode()
BEFORE_CRC = Record(b"T", body=b"o", properties=b"a\1b\2__CRC32#\x010000000000\2").encode()[:-20]
WITH_CRC = BEFORE_CRC + b"__CRC32#\1%s\2" % str(zlib.crc32(BEFORE_CRC) & 0x7FFFFFFF)[::-1].ljust(10, "0").encode()
"""The digits of the CRC are in the reverse order (`MessageDecoder.createCrc32`@5.3.3)."""


@pytest.mark.parametrize(
    ("data", "rules", "result"),
    [
        (RECORD * 2 + bytes(8), 0, (2, RecordCheck.ZEROS)),  # the own offset is not checked
        (RECORD * 2, 0, (2, RecordCheck.SHORT)),
        (RECORD + RECORD[:-1], 0, (1, RecordCheck.SHORT)),
        (RECORD + RECORD[:-1], CHECKS_SIZE_FIRST, (1, RecordCheck.BAD_SIZE)),
        (RECORD[:8] + bytes(4) + RECORD[12:], CHECKS_BODY_CRC, (0, RecordCheck.BAD_CRC)),
        (RECORD[:8] + bytes(4) + RECORD[12:] + bytes(8), 0, (1, RecordCheck.ZEROS)),
        (SHORT_BODY, CHECKS_BODY_CRC, (1, RecordCheck.SHORT)),
        (SHORT_BODY[:8] + bytes(4) + SHORT_BODY[12:], CHECKS_BODY_CRC, (0, RecordCheck.BAD_CRC)),
        (SHORT_BODY[:-2] + b"\xff\xff", 0, (1, RecordCheck.SHORT)),  # a length below 0 counts as 0
        (WITH_CRC * 2, CHECKS_BODY_CRC | CHECKS_PROPERTY_CRC, (2, RecordCheck.SHORT)),
        (WITH_CRC + RECORD, CHECKS_BODY_CRC | CHECKS_PROPERTY_CRC, (1, RecordCheck.BAD_CRC)),
        (WITH_CRC + WITH_CRC.replace(b"a", b"b"), CHECKS_BODY_CRC | CHECKS_PROPERTY_CRC, (1, RecordCheck.BAD_CRC)),
        (RECORD, CHECKS_BODY_CRC | CHECKS_PROPERTY_CRC, (0, RecordCheck.BAD_CRC)),  # there is no CRC of the record
        (b"\0\1\0\0\xcb\xd4\x31\x94", 0, (0, RecordCheck.BLANK)),
        (b"\0\1\0\0\xcb\xd4\x31\x94", CHECKS_SIZE_FIRST, (0, RecordCheck.BAD_SIZE)),
        (b"\x80\0\0\0\xcb\xd4\x31\x94", CHECKS_SIZE_FIRST, (0, RecordCheck.BAD_SIZE)),  # minus 4 overflows in Java
        (b"\x80\0\0\4\xcb\xd4\x31\x94", CHECKS_SIZE_FIRST, (0, RecordCheck.BLANK)),
        (RECORD.replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"), 0, (0, RecordCheck.TOO_NEW)),
        (RECORD.replace(b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab"), ACCEPTS_V2, (0, RecordCheck.BAD_LENGTH)),
    ],
)
def test_a_record_is_accepted_as_by_java(data: bytes, rules: int, result: tuple[int, RecordCheck]) -> None:
    """`CommitLog.checkMessageAndReturnSize`@4.9.7 and @5.3.3."""
    assert found(data, rules) == result


class JavaBuffer:
    """A `ByteBuffer`, and the array of a record's size into which Java reads its parts."""

    def __init__(self, data: bytes) -> None:
        self.data, self.position, self.array_size = data, 0, len(data)

    def get(self, length: int) -> bytes:
        """Into the array; an error as in Java if it is too small, or the buffer ends."""
        if not 0 <= length <= self.array_size:
            raise IndexError
        return self.take(length)

    def take(self, length: int) -> bytes:
        """The next bytes."""
        if self.position + length > len(self.data):
            raise IndexError
        self.position += length
        return self.data[self.position - length : self.position]

    def number(self, code: str) -> int:
        """The next number."""
        (number,) = struct.unpack(f">{code}", self.take(struct.calcsize(code)))
        return int(number)


def java_number(text: bytes | None, bits: int) -> None:
    """`Integer.parseInt` and the like."""
    if text is None or re.fullmatch(rb"[+-]?[0-9]+", text) is None or not -(1 << bits) <= int(text) < 1 << bits:
        raise ValueError


def java_check(data: bytes, rules: int) -> int:
    """`CommitLog.checkMessageAndReturnSize`@5.3.3, line by line: the size, 0 of a blank, or -1 of what is not valid."""
    buffer = JavaBuffer(data)
    if len(data) <= 4:
        return -1
    try:
        size = buffer.number("i")
        if len(data) - 4 < size - 4:
            return -1
        magic = buffer.number("i")
        if magic == MAGIC_BLANK:
            return 0
        if magic not in (MAGIC_V1, MAGIC_V2) or size < 0:
            return -1
        buffer.array_size = size
        body_crc, _, _ = (buffer.number("i") for _ in range(3))
        buffer.take(16)
        sys_flag = buffer.number("i")
        buffer.take(8)
        hosts = [20 if sys_flag & flag else 8 for flag in (BORN_HOST_V6_FLAG, STORE_HOST_V6_FLAG)]
        buffer.get(hosts[0])
        buffer.take(8)
        buffer.get(hosts[1])
        buffer.take(12)
        body_length = buffer.number("i")
        if body_length > 0:
            body = buffer.take(body_length) if rules & SKIPS_BODY else buffer.get(body_length)
            if rules & CHECKS_BODY_CRC and zlib.crc32(body) & 0x7FFFFFFF != body_crc:
                return -1
        topic = buffer.get(buffer.number("b" if magic == MAGIC_V1 else "h"))
        properties_length = buffer.number("h")
        properties = parse_properties(buffer.get(properties_length) if properties_length > 0 else b"")
        if topic == SCHEDULE_TOPIC.encode() and b"DELAY" in properties:
            java_number(properties[b"DELAY"], 31)
        width = 1 if magic == MAGIC_V1 else 2
        if size != 74 + sum(hosts) + max(body_length, 0) + width + len(topic) + max(properties_length, 0):
            return -1
        if b"INNER_NUM" in properties and b"INNER_BASE" in properties:
            java_number(properties[b"INNER_BASE"], 63)
            java_number(properties[b"INNER_NUM"], 15)
    except (IndexError, ValueError):
        return -1
    return size


V6 = bytes(range(20))
KINDS = [
    Record(b"T", body=b"order", properties=b"TAGS\1a\2"),
    Record(b"T", body=b"order", born_host=V6, sys_flag=BORN_HOST_V6_FLAG),
    Record(b"TT", body=b"o", store_host=V6, sys_flag=STORE_HOST_V6_FLAG, properties=b"a\1b\2", magic=MAGIC_V2),
    Record(SCHEDULE_TOPIC.encode(), body=b"x" * 40, properties=b"DELAY\x013\2"),
    Record(b"T", properties=b"INNER_NUM\x0132767\2INNER_BASE\1-7\2"),
    Record(b"T", properties=b"INNER_NUM\x0132768\2INNER_BASE\1-7\2"),
    Record(b"T", properties=b"INNER_NUM\1-32769\2INNER_BASE\x017\2"),
    Record(b"T", properties=b"INNER_NUM\1-32768\2INNER_BASE\x017\2"),
    Record(b"T", properties=b"INNER_NUM\1\2INNER_BASE\x017\2"),
    Record(b"T", properties=b"INNER_NUM\x017\2INNER_BASE\1" + b"9" * 18 + b"\2"),
]


def lengths_at(data: bytes) -> list[tuple[int, str]]:
    """Where a record has its size, sysFlag, and lengths of body, topic and properties, and their codes."""
    found = decode_record(data)
    body = 68 + len(found.born_host) + len(found.store_host)
    topic, code = body + 4 + len(found.body), "b" if found.magic == MAGIC_V1 else "h"
    properties = topic + struct.calcsize(code) + len(found.topic)
    return [(0, "i"), (36, "i"), (body, "i"), (topic, code), (properties, "h")]


@settings(max_examples=examples(500))
@given(st.data())
def test_any_change_of_a_record_is_judged_as_by_java(data: st.DataObject) -> None:
    """A length is changed by a little, or any byte; other bytes follow, or the file ends early."""
    record = bytearray(data.draw(st.sampled_from(KINDS)).encode())
    lengths = lengths_at(bytes(record))
    rules = RULES_OF_VERSIONS | data.draw(st.sampled_from([0, CHECKS_BODY_CRC, SKIPS_BODY]))
    for _ in range(data.draw(st.integers(0, 2))):
        at, code = data.draw(st.sampled_from([*lengths, (-1, "b")]))
        at = data.draw(st.integers(0, len(record) - 1)) if at < 0 else at
        (number,) = struct.unpack_from(f">{code}", record, at)
        number = data.draw(st.sampled_from([number + 1, number - 1, 0, 1, 7, 8, 19, 20, -1, number ^ 0x10, 127]))
        record[at : at + struct.calcsize(code)] = number.to_bytes(8, signed=True)[-struct.calcsize(code) :]
    whole = bytes(record) + data.draw(st.binary(max_size=30))
    whole = whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole
    count, status = found(whole[: max(len(whole), 1)], rules)
    right = java_check(whole, rules)
    assert (count > 0, status == RecordCheck.BLANK and not count) == (right > 0, right == 0), (right, count, status)


@pytest.mark.parametrize(
    ("record", "is_accepted"),
    [
        (Record(b"T", properties=b"INNER_NUM\x0132767\2INNER_BASE\1-7\2INNER_MULTI_DISPATCH\1a\2"), True),
        (Record(b"T", properties=b"INNER_NUM\x0132768\2INNER_BASE\x010\2"), False),
        (Record(b"T", properties=b"a\1b\2INNER_NUM\x017\2INNER_BASE\1x\2"), False),
        (Record(b"T", properties=b"INNER_NUM\x017\2INNER_BASE\x017x\2"), False),
        (Record(SCHEDULE_TOPIC.encode(), properties=b"DELAY\x013\2"), True),
        (Record(SCHEDULE_TOPIC.encode(), properties=b"DELAY\1x\2"), False),
        (Record(b"T", properties=b"DELAY\1x\2"), True),
        (Record(b"T" * 127), True),
        (Record(b"T" * 128, magic=MAGIC_V2), False),
    ],
)
def test_what_a_version_rejects_is_not_accepted_by_all(record: Record, is_accepted: bool) -> None:
    """The twin is the recovery by the rules of each version: 4.9, 5.0, 5.1 and 5.3.2."""
    data, frames = array(record.encode()), new_frames(1)
    assert scan_records(data, 0, data.size, 0, data.size, frames)[0] == 1
    versions = (0, CHECKS_BATCH, CHECKS_BATCH | ACCEPTS_V2, RULES_OF_VERSIONS)
    counts = [check_records(data, data.size, rules, new_frames(2))[0] for rules in versions]
    assert are_all_accepted(data, frames, checked_pieces(data, frames)[1]) == is_accepted
    assert (min(counts) == 1) == is_accepted


def test_a_buffer_that_ends_before_the_file_decides_nothing() -> None:
    for length in range(len(RECORD)):
        assert found(RECORD[:length], CHECKS_BODY_CRC, len(RECORD)) == (0, RecordCheck.MORE)


def test_more_records_than_there_is_room_for() -> None:
    count, position, status = check_records(array(RECORD * 2), 2 * len(RECORD), 0, new_frames(1))
    assert (count, position, RecordCheck(status)) == (1, len(RECORD), RecordCheck.FULL)


def int64s(numbers: list[int]) -> Int64s:
    return np.array(numbers, np.int64)


def int32s(numbers: list[int]) -> Int32s:
    return np.array(numbers, np.int32)


@given(
    st.lists(st.integers(0, 5), max_size=8), st.tuples(*[st.integers(0, 2)] * 6), st.integers(0, 5), st.integers(0, 2)
)
def test_an_index_puts_the_keys_of_its_last_message_again(
    offsets: list[int], counts: tuple[int, ...], last: int, entries: int
) -> None:
    """Offsets of messages, and how many keys each has: `IndexService.buildIndex`, key by key."""
    in_index, end, again = {(last, key) for key in range(entries)}, last, list[int]()
    for offset in offsets:
        if offset >= end and counts[offset]:
            keys, end = {(offset, key) for key in range(counts[offset])}, offset
            again += [offset] * len(keys & in_index)
            in_index |= keys
    known, counted = int64s([last] * bool(entries)), int64s([entries] * bool(entries))
    found = put_keys_again(int64s(offsets), int32s([counts[offset] for offset in offsets]), last, known, counted)
    assert found == (len(again), again[0] if again else -1)


def test_the_first_message_that_is_put_again_can_be_that_at_offset_0() -> None:
    assert put_keys_again(int64s([0, 5, 5]), int32s([1, 1, 1]), 0, int64s([0]), int64s([1])) == (2, 0)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(-2, 9), st.integers(0, 2), st.integers(1, 2)), max_size=12),
    st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=4), min_size=3, max_size=3),
)
def test_a_message_has_the_unit_at_its_queue_offset(
    messages: list[tuple[int, int, int, int]], files: list[list[tuple[int, int]]]
) -> None:
    """Queue 0 has two files, from queue offset 0 and 4 on, queue 1 one from 2 on, and queue 2 none."""
    firsts, pieces = [0, 4, 2], [0, 2, 3, 3]
    units = {}
    for queue, first, file in zip([0, 0, 1], firsts, files, strict=True):
        units.update({(queue, first + index): unit for index, unit in enumerate(file)})
    data = b"".join(struct.pack(">qiq", *unit, 7) for file in files for unit in file)
    position = np.cumsum([0, *(20 * len(file) for file in files)])
    fields = [[message[field] for message in messages] for field in range(4)]
    columns = int32s(fields[0]), int64s(fields[1]), int64s(fields[2]), int32s(fields[3])
    found = np.empty(len(messages), np.bool_)
    find_units(array(data), int64s(pieces), int64s(firsts), position, *columns, found)
    assert found.tolist() == [units.get(message[:2]) == message[2:] for message in messages]


def test_a_queue_offset_beyond_all_numbers_has_no_unit() -> None:
    offsets = int64s([(1 << 63) - 1, -(1 << 63), (1 << 62) + 1])
    found = np.empty(3, np.bool_)
    units, bounds = array(bytes(40)), (int64s([0, 1]), int64s([1]), int64s([0, 40]))
    find_units(units, *bounds, int32s([0] * 3), offsets, int64s([0] * 3), int32s([0] * 3), found)
    assert not found.any()
