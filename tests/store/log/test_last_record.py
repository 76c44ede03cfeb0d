"""A log that is read while a broker appends to it: its last record counts when it is whole, and not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.format.array_types import Bytes
from spark_mq.format.record import MAGIC_V2, Record, decode_record, encode_blank
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog, SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_lookup import is_finished
from spark_mq.testing import LogWriter, write_store
from tests.support.kernels import WITHOUT_JIT, array
from tests.support.readers import by_hopping, by_splits, offsets_of, parts_of, split_sizes
from tests.support.stores import OWN_STORES, RealStore, Unpack, segment_files, stores_in

NOW = 1_700_000_000_000
SEGMENT_SIZE = 64 << 10
STORES = [store for store in stores_in(OWN_STORES) if not store.name.startswith("stale-")]


def last_segment(store: RealStore, unpacked: Unpack) -> tuple[int, bytes, list[int], int]:
    """Of a broker's last segment: base, bytes, the indices of its messages, the size of the last one."""
    facts = sorted(store.facts("msg"), key=lambda fact: int(fact["offset"]))
    file = max(file for file in segment_files(unpacked(store)) if int(file.name) <= facts[-1]["offset"])
    base = int(file.name)
    starts = [fact["offset"] - base for fact in facts if fact["offset"] >= base]
    return base, file.read_bytes(), starts, facts[-1]["size"]


def only_records(log: CommitLog) -> list[int]:
    """The offsets of the records; there must be nothing else."""
    parts = by_hopping(log)
    assert {part[0] for part in parts} <= {"RECORD"}
    return offsets_of(parts)


@pytest.mark.parametrize("store", STORES, ids=str)
def test_every_beginning_of_a_broker_s_last_record_is_no_record(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    base, data, starts, size = last_segment(store, unpacked)
    location = write_store(tmp_path, {base: data})
    (file,) = segment_files(tmp_path)
    for written in range(0, size, 7 if WITHOUT_JIT else 1):
        partly = data[: starts[-1] + written].ljust(len(data), b"\0")
        assert partly != data
        file.write_bytes(partly)
        log = CommitLog.open(location)
        assert only_records(log) == [base + start for start in starts[:-1]], f"{written} of {size} bytes"
        if written % 40 == 0:
            for split_size in split_sizes(log, 16 << 10):
                assert by_splits(log, split_size) == by_hopping(log)


@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_hole_in_a_broker_s_last_record_makes_it_no_record(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    """Whoever copies in another order; a hole in the head can be seen only where there is a property CRC."""
    base, data, starts, _ = last_segment(store, unpacked)
    location = write_store(tmp_path, {base: data})
    (file,) = segment_files(tmp_path)
    body = next(fact for fact in store.facts("msg") if fact["offset"] == base + starts[-1])["bodyLenRaw"]
    for place in range(0, body, 10):
        holed = bytearray(data)
        length = min(10, body - place)
        holed[starts[-1] + 88 + place : starts[-1] + 88 + place + length] = bytes(length)
        assert holed != data
        file.write_bytes(holed)
        assert only_records(CommitLog.open(location)) == [base + start for start in starts[:-1]]


def test_records_that_are_not_the_last_are_judged_by_framing_alone(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(40):
        writer.append(NOW + number, b"body", properties=b"TAGS\1a\0" if number % 3 else b"TAGS\1a\2")
    for offset in writer.offsets[:-1]:
        writer.segments[0][offset + 8] ^= 1  # the body's CRC
    writer.append(NOW + 40, b"body")
    log = CommitLog.open(writer.write(tmp_path))
    assert only_records(log) == writer.offsets


def test_a_last_record_before_a_filler_is_whole(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(10):
        writer.append(NOW + number, b"body", properties=b"TAGS\1a\0")
    data = bytes(writer.segments[0])
    log = CommitLog.open(write_store(tmp_path, {0: data + encode_blank(SEGMENT_SIZE - len(data))}))
    assert log.segments[-1].is_last
    assert only_records(log) == writer.offsets


def test_a_segment_that_is_not_the_last_has_no_unfinished_record(tmp_path: Path) -> None:
    """Not even where a record takes the place of the blank."""
    writer = LogWriter(SEGMENT_SIZE)
    writer.append(NOW)
    offset = writer.append(NOW, b"body", properties=b"TAGS\1a\0")
    first = bytes(writer.segments[0])
    following = Record(b"T", commit_log_offset=len(first), store_timestamp=NOW).encode()
    log = CommitLog.open(write_store(tmp_path, {0: first, len(first): following}))
    assert only_records(log) == [0, offset, len(first)]


@pytest.mark.parametrize(
    ("record", "is_whole"),
    [
        (Record(b"T", body=b"body", properties=b"a\1b\2"), True),
        (Record(b"T", body=b"body", properties=b"a\1b"), True),
        (Record(b"T", body=b"body", properties=b"a\1b\0"), False),
        (Record(b"T", body=b"body", properties=b"a\1b\2", body_crc=1), False),
        (Record(b"T", properties=b"a\1b\2", body_crc=1), True),
        (Record(b"T", body=bytes(9), properties=b""), True),
        (Record(b"T\0", properties=b""), False),
        (Record(b"T\0", properties=b"a\1b\2"), True),
        (Record(b"T" * 300, magic=MAGIC_V2, properties=b""), True),
        (Record(b"", properties=b""), True),
        (Record(b"T", properties=b"__CRC32#\x010000000000\2"), False),
    ],
)
def test_what_a_whole_record_ends_with(record: Record, is_whole: bool) -> None:
    data = record.encode()
    assert is_finished(decode_record(data), lambda: data) == is_whole


def changing_reads(before: dict[int, bytes]) -> mock._patch[Callable[..., Bytes]]:
    """The first read that covers a place of `before` finds those bytes there; the later ones, what is in the file."""
    read = SegmentSource.read

    def read_once(self: SegmentSource, position: int, length: int) -> Bytes:
        data = read(self, position, length).copy()
        for place in [place for place in before if position <= place < position + data.size]:
            content = before.pop(place)
            data[place - position : place - position + len(content)] = array(content)[: position + data.size - place]
        return data

    return mock.patch.object(SegmentSource, "read", read_once)


def read_live(log: CommitLog) -> list[tuple[str, int, int, str]]:
    segment = log.segments[-1]
    with SegmentSource(segment) as source:
        return list(parts_of(LiveReader(source).read(segment.data_end)))


def test_the_last_record_is_taken_from_the_second_look(tmp_path: Path) -> None:
    """The copy for the reader can be overtaken by the broker's: then there is a hole of zeros before written bytes."""
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(10):
        writer.append(NOW + number, bytes(range(1, 200)))
    log = CommitLog.open(writer.write(tmp_path))
    expected = read_live(log)
    assert offsets_of(expected) == writer.offsets
    with changing_reads({writer.offsets[-1] + 100: bytes(50)}):
        assert read_live(log) == expected


def test_a_stale_tail_that_is_being_overwritten_is_no_damage(tmp_path: Path) -> None:
    """The reader is at record 10 before the broker is, and at record 11 behind it."""
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(20):
        writer.append(NOW + number, bytes(range(100)))
    live = list(writer.offsets)
    for number in range(20):
        writer.append(NOW - 100 + number, bytes(120), queue_offset=1000 + number)
    log = CommitLog.open(writer.write(tmp_path))
    expected = read_live(log)
    assert [part[:2] for part in expected] == [("RECORD", offset) for offset in live]
    garbage = b"\x55" * (live[11] - live[10])
    with changing_reads({live[10]: garbage}):
        assert read_live(log) == expected
    segment = bytearray(segment_files(tmp_path)[0].read_bytes())
    segment[live[10] : live[11]] = garbage
    segment_files(tmp_path)[0].write_bytes(segment)
    assert [part[:2] for part in read_live(CommitLog.open(Location.resolve(str(tmp_path))))] == [
        *(("RECORD", offset) for offset in live[:10]),
        ("BAD_MAGIC", live[10]),
        *(("RECORD", offset) for offset in live[11:]),
    ]


def test_records_behind_the_end_at_listing_are_not_read(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(10):
        writer.append(NOW + number)
    log = CommitLog.open(writer.write(tmp_path))
    listed = list(writer.offsets)
    for number in range(10, 20):
        writer.append(NOW + number)
    segment_files(tmp_path)[0].write_bytes(bytes(writer.segments[0]).ljust(SEGMENT_SIZE, b"\0"))
    segment = log.segments[-1]
    with SegmentSource(segment) as source:
        assert offsets_of(parts_of(LiveReader(source).read(segment.size))) == listed
    for size in split_sizes(log):
        assert offsets_of(by_splits(log, size)) == listed
