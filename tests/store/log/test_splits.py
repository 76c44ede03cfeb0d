"""Splits are exact: whatever their size, together they give what one hop from the start gives."""

from __future__ import annotations

import hashlib
import random
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from spark_mq.format.record import MAX_RECORD_SIZE, Record, encode_blank
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog, SegmentSource, Split, plan_splits
from spark_mq.store.log.record_reader import RecordReader
from spark_mq.store.log.split_reader import boundary_after, find_start, last_record, place_of_newer
from spark_mq.testing import LogWriter, write_store
from spark_mq.testing.plain_log import plausible_frames
from spark_mq.testing.strategies import hostile_segments
from tests.support.kernels import WITHOUT_JIT, examples
from tests.support.readers import Part, by_hopping, by_splits, limited_reads, offsets_of, small_windows, split_sizes
from tests.support.stores import WORKLOAD, RealStore, Unpack, usual_stores

STORES = usual_stores()
LARGEST_IN_STORES = 12 << 10
"""More than any record or blank in the stores here has."""


def looking_back(is_looking_back: bool, most: int) -> AbstractContextManager[None]:
    return small_windows(most) if is_looking_back else nullcontext()


def assert_exact(log: CommitLog, smallest: int = 0) -> list[Part]:
    """All splits sizes give what hopping gives; returns it."""
    with limited_reads():
        hopped = by_hopping(log)
        for size in split_sizes(log, smallest):
            assert by_splits(log, size) == hopped, f"splits of {size}"
    return hopped


@pytest.mark.parametrize("is_looking_back", [False, True], ids=["hopping", "looking back"])
@pytest.mark.parametrize("store", STORES, ids=str)
def test_splits_of_any_size_give_every_live_message_once(
    store: RealStore, is_looking_back: bool, unpacked: Unpack
) -> None:
    log = CommitLog.open(Location.resolve(str(unpacked(store))))
    expected = [(fact["offset"], fact["size"], fact["recordMd5"]) for fact in store.facts("msg")]
    is_large = log.segments[0].size > 1 << 18
    with looking_back(is_looking_back, LARGEST_IN_STORES):
        for size in split_sizes(log, 4 << 10 if WITHOUT_JIT or (is_large and not is_looking_back) else 0):
            parts = by_splits(log, size)
            read = [(offset, length, hashlib.md5(bytes.fromhex(data)).hexdigest()) for _, offset, length, data in parts]
            assert read == expected, f"splits of {size}"


@cache
def sound_segments() -> dict[int, bytes]:
    """Three segments of 16 KiB with messages of several sizes."""
    writer, generator = LogWriter(16 << 10, first_segment=1 << 20), random.Random(4)
    while len(writer.segments) < 3 or len(writer.segments[writer._base]) < 8 << 10:
        topic = b"Topic-%d" % generator.randrange(4)
        body = generator.randbytes(generator.choice((0, 3, 50, 200, 1500)))
        writer.append(1_700_000_000_000 + len(writer.offsets), body, topic, generator.randrange(2))
    return {base: bytes(data).ljust(writer.segment_size, b"\0") for base, data in writer.segments.items()}


def test_the_last_record_between_two_boundaries(store: str) -> None:
    offsets, location = [fact["offset"] for fact in WORKLOAD.facts("msg")], Location.resolve(store)
    boundaries = [*offsets, WORKLOAD.facts("store")[0]["maxPhyOffset"]]
    count = len(offsets)
    for first, stop in ((0, count), (0, 1), (5, 9), (count - 1, count), *((10, end) for end in range(11, count, 60))):
        assert last_record(location, boundaries[first], boundaries[stop]) == offsets[stop - 1]
    assert last_record(location, boundaries[7], boundaries[7]) is None


@pytest.mark.parametrize("first", [0, 20])
def test_the_places_of_counts_and_times_are_in_any_segment(first: int, tmp_path: Path) -> None:
    store = write_store(tmp_path / "store", sound_segments())
    records = [(offset, size) for _, offset, size, _ in by_hopping(CommitLog.open(store))]
    start, end = records[first][0], sum(records[-1])
    assert len({offset >> 14 for offset, _ in records}) == 3
    for number in range(first, len(records), 5):
        assert boundary_after(store, start, end, number - first + 1) == sum(records[number])
        assert place_of_newer(store, start, end, 1_700_000_000_000 + number) == records[number][0]
    assert boundary_after(store, start, end, len(records)) == end
    assert place_of_newer(store, start, end, 1_700_000_000_000 + len(records)) == end


damages = st.lists(
    st.one_of(
        st.tuples(st.just("flip"), st.integers(0, (16 << 10) - 1), st.integers(1, 255)),
        st.tuples(st.just("zero"), st.integers(0, (16 << 10) - 1), st.integers(1, 3000)),
        st.tuples(st.just("copy"), st.integers(0, (16 << 10) - 1), st.integers(1, 3000)),
    ),
    min_size=1,
    max_size=3,
)


def damaged(data: bytes, damage: list[tuple[str, int, int]], end: int) -> bytes:
    """The data with bits flipped, ranges zeroed, or ranges overwritten by the segment's start, all before `end`."""
    result = bytearray(data)
    for kind, place, how in damage:
        place %= end
        if kind == "flip":
            result[place] ^= how
        else:
            length = min(how, end - place)
            result[place : place + length] = bytes(length) if kind == "zero" else data[:length]
    return bytes(result)


@settings(max_examples=examples(220))
@given(st.sampled_from([0, 1, 2]), damages, st.booleans())
def test_splits_of_a_damaged_segment_are_exact(
    index: int, damage: list[tuple[str, int, int]], is_looking_back: bool
) -> None:
    """Of the last of the three segments, the live part is damaged."""
    segments = dict(sound_segments())
    base = sorted(segments)[index]
    segments[base] = damaged(segments[base], damage, (16 if index < 2 else 6) << 10)
    with tempfile.TemporaryDirectory() as folder, looking_back(is_looking_back, 3 << 10):
        parts = assert_exact(CommitLog.open(write_store(Path(folder) / "store", segments)))
    assert index == 2 or offsets_of(parts)[-1] == last_live_offset()


@settings(max_examples=examples(200))
@given(hostile_segments(6000, 500, 1000), st.integers(40, 7000))
def test_splits_of_anything_are_exact(segment: bytes, size: int) -> None:
    """Records, bodies with fakes that reach anywhere, damage to any field, and splits of any size."""
    frames = plausible_frames(segment, 1 << 20)
    assume(all(end - frame <= (1000 if end == len(segment) else 500) for frame, end in frames.items()))
    following = Record(b"last", commit_log_offset=(1 << 20) + len(segment)).encode()
    with tempfile.TemporaryDirectory() as folder, small_windows(500, 1000), limited_reads():
        store = write_store(Path(folder) / "store", {1 << 20: segment, (1 << 20) + len(segment): following})
        log = CommitLog.open(store)
        hopped = by_hopping(log)
        for split_size in (size, 100, 1000):
            assert by_splits(log, split_size) == hopped, f"splits of {split_size}"


@cache
def last_live_offset() -> int:
    with tempfile.TemporaryDirectory() as folder:
        return offsets_of(by_hopping(CommitLog.open(write_store(Path(folder) / "store", sound_segments()))))[-1]


def test_damage_is_one_range_up_to_the_next_record(tmp_path: Path) -> None:
    segments = dict(sound_segments())
    base = min(segments)
    sound = by_hopping(CommitLog.open(write_store(tmp_path / "sound", segments)))
    at = next(index for index, part in enumerate(sound) if part[1] - base >= 6 << 10)
    victim, following = sound[at : at + 2]
    data = bytearray(segments[base])
    data[victim[1] - base + 4] ^= 0xFF
    segments[base] = bytes(data)
    log = CommitLog.open(write_store(tmp_path / "damaged", segments))
    parts = assert_exact(log)
    with small_windows(3 << 10):  # the damaged record is the first of the second split, which looks back
        assert by_splits(log, 6 << 10) == parts
    reason = "the magic number is not a record's"
    assert parts == [*sound[:at], ("BAD_MAGIC", victim[1], following[1] - victim[1], reason), *sound[at + 1 :]]


BODY_AT, PROPERTIES_AT = 88, 88 + 1 + 1 + 2


def fake_records(offset: int, count: int = 3, body: bytes = b"fake") -> bytes:
    """Whole records that would be right at `offset`."""
    data = b""
    for _ in range(count):
        data += Record(b"Fake", body=body, commit_log_offset=offset + len(data), store_timestamp=1).encode()
    return data


def blank_to(end: int, offset: int) -> bytes:
    """The head of a blank from `offset` to `end`, if a blank can be so long."""
    return encode_blank(end - offset)[:8] if end - offset <= 4 << 10 else b""


CONTENTS: dict[str, Callable[[int, int], bytes]] = {
    "records": lambda offset, end: fake_records(offset),
    "records and more": lambda offset, end: fake_records(offset) + b"more",
    "a large record's head": lambda offset, end: fake_records(offset, 1, bytes(3000))[:200],
    "a blank": lambda offset, end: blank_to(end, offset),
    "a record and a blank": lambda offset, end: (
        fake_records(offset, 1) + blank_to(end, offset + len(fake_records(offset, 1)))
    ),
    "a record that ends later": lambda offset, end: fake_records(offset, 1, bytes(400))[:-300],
}
"""Content that begins at an offset of a segment, by the offset and the segment's end."""


def hostile_log(name: str, place: str, segment_size: int = 16 << 10) -> LogWriter:
    """Ordinary messages, and between them ones with hostile content."""
    writer = LogWriter(segment_size)
    for number in range(60):
        writer.append(1000 + number, bytes(number))
        end = writer._base + segment_size
        if place == "body":
            writer.append(1000 + number, CONTENTS[name](writer.next_offset + BODY_AT, end))
        else:
            content = CONTENTS[name](writer.next_offset + PROPERTIES_AT, end)
            writer.append(1000 + number, properties=content)
    writer.append(1060)  # the last record: one whose text ends with a zero would be unfinished
    return writer


@pytest.mark.parametrize("is_looking_back", [False, True], ids=["hopping", "looking back"])
@pytest.mark.parametrize("place", ["body", "properties"])
@pytest.mark.parametrize("name", CONTENTS)
def test_content_that_looks_like_records_is_no_record(
    name: str, place: str, is_looking_back: bool, tmp_path: Path
) -> None:
    writer = hostile_log(name, place)
    with looking_back(is_looking_back, 4 << 10):
        parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert [part[1] for part in parts] == writer.offsets


@settings(max_examples=examples(60))
@given(st.sampled_from(list(CONTENTS)), st.sampled_from(["body", "properties"]), damages, st.booleans())
def test_splits_of_damaged_hostile_content_are_exact(
    name: str, place: str, damage: list[tuple[str, int, int]], is_looking_back: bool
) -> None:
    writer = hostile_log(name, place, 16 << 10)
    segments = {base: bytes(data).ljust(writer.segment_size, b"\0") for base, data in writer.segments.items()}
    segments[0] = damaged(segments[0], damage, 16 << 10)
    with tempfile.TemporaryDirectory() as folder, looking_back(is_looking_back, 4 << 10):
        assert_exact(CommitLog.open(write_store(Path(folder) / "store", segments)), 1000)


@pytest.mark.skipif(WITHOUT_JIT, reason="looks at every byte of many MiB")
def test_the_largest_record_hides_no_fakes(tmp_path: Path) -> None:
    """All that is looked at before a split lies in one body, full of fakes that agree with each other."""
    writer = LogWriter(96 << 20)
    for number in range(20):
        writer.append(1000 + number, bytes(1 << 20))
    at = writer.next_offset + BODY_AT
    fake = len(fake_records(at, 1, bytes(1 << 20)))
    count = MAX_RECORD_SIZE // fake
    writer.append(1020, b"".join(fake_records(at + number * fake, 1, bytes(1 << 20)) for number in range(count)))
    writer.append(1021, b"behind")
    writer.append(1022, bytes(15 << 20))
    writer.roll()
    writer.append(1023, b"last")
    log = CommitLog.open(writer.write(tmp_path))
    for start in range(17 << 20, 50 << 20, 1 << 20):
        with SegmentSource(log.segments[0]) as source:
            first = find_start(source, Split(log.segments[0], start, start + (1 << 20)))
        following = next(offset for offset in writer.offsets if offset >= start)
        assert min(first, start + (1 << 20)) == min(following, start + (1 << 20)), start


@pytest.mark.skipif(WITHOUT_JIT, reason="looks at every byte of many MiB")
def test_a_larger_record_is_damage_that_says_why(tmp_path: Path) -> None:
    writer = LogWriter(64 << 20)
    around_body = Record(b"T", properties=b"TAGS\1a\2").size
    writer.append(1000, bytes(MAX_RECORD_SIZE - around_body))
    writer.append(1000, bytes(MAX_RECORD_SIZE - around_body + 1))
    writer.append(1000, b"behind")
    writer.roll()
    writer.append(1000, b"last")
    log = CommitLog.open(writer.write(tmp_path))
    first, larger, *others = by_hopping(log)
    assert first[:3] == ("RECORD", 0, MAX_RECORD_SIZE)
    assert larger[:3] == ("BAD_SIZE", writer.offsets[1], MAX_RECORD_SIZE + 1)
    assert "com.rocketmq.remoting.frameMaxLength" in larger[3]
    assert offsets_of(others) == writer.offsets[2:]


@pytest.mark.skipif(WITHOUT_JIT, reason="looks at every byte of many MiB")
@pytest.mark.parametrize("claim", [200, 70_000, (64 << 10) - 87, (4 << 20) - 87, (4 << 20) + 10, MAX_RECORD_SIZE])
def test_heads_of_records_in_a_body_cost_few_reads(claim: int, tmp_path: Path) -> None:
    """Each head claims a record that reaches beyond what is read from the one before; a search passes them all."""
    writer = LogWriter(48 << 20)
    writer.append(1000, b"first")
    at = writer.next_offset + BODY_AT
    heads = b"".join(
        Record(b"T", body=bytes(claim - 92), commit_log_offset=at + place).encode()[:BODY_AT]
        for place in range(0, BODY_AT * 300, BODY_AT)
    )
    holder = writer.append(1001, heads.ljust(6 << 20, b"\xff"))
    following = writer.append(1002, b"behind")
    writer.append(1003, bytes(14 << 20))
    writer.append(1003, bytes(14 << 20))
    writer.roll()
    writer.append(1004, b"last")
    writer.segments[0][holder + 4] ^= 0xFF
    log = CommitLog.open(writer.write(tmp_path))
    with SegmentSource(log.segments[0]) as source:
        assert RecordReader(source, 0).find_next(holder + 1) == following
        assert source.bytes_read < 10 * MAX_RECORD_SIZE
    start = at + len(heads)
    with SegmentSource(log.segments[0]) as source, small_windows(20_000):
        split = Split(log.segments[0], start, start + (1 << 20))
        assert find_start(source, split) >= split.stop
        assert source.bytes_read < 10 * MAX_RECORD_SIZE


@pytest.mark.skipif(WITHOUT_JIT, reason="looks at every byte of many MiB")
def test_damaged_places_close_to_each_other_cost_little(tmp_path: Path) -> None:
    """A damaged record, in whose body the hop takes whole records with bytes between."""
    writer = LogWriter(12 << 20)
    body = b""
    at = writer.next_offset + BODY_AT
    while len(body) < 500 * 100:
        body += fake_records(at + len(body), 1) + b"-"
    victim = writer.append(1000, body.ljust(8 << 20, b"-"))
    writer.append(1001, b"behind")
    writer.roll()
    writer.append(1002, b"last")
    writer.segments[0][victim + 4] ^= 0xFF
    log = CommitLog.open(writer.write(tmp_path))
    with SegmentSource(log.segments[0]) as source:
        parts = list(RecordReader(source, 0).read(log.segments[0].size))
        assert len(parts) > 900
        assert source.bytes_read < 150 << 20


def test_a_fake_behind_which_there_is_damage_skips_nothing(tmp_path: Path) -> None:
    """Only a fake lies in the window: it claims bytes behind the split, where true records are.

    Its record begins before the window; behind that record the log is damaged up to the split.
    """
    most, window, start = 8 << 10, 10 << 10, 20 << 10
    writer = LogWriter(64 << 10)
    while writer.next_offset < start - window - 2000:
        writer.append(1000, bytes(1000))
    writer.append(1000, bytes(start - window - 300 - writer.next_offset))
    holder = writer.next_offset
    assert holder < start - window < holder + BODY_AT + 200
    fake_at = start - window + 100
    claim = most - 91 - len(b"F")
    fake = Record(b"F", body=bytes(claim), commit_log_offset=fake_at).encode()
    writer.append(1001, bytes(fake_at - holder - BODY_AT) + fake[:BODY_AT])
    writer.append_bytes(b"\xff" * (fake_at + most - 2000 - writer.next_offset))
    start = writer.next_offset - 50
    true = writer.append(1002, b"true")
    # the fake's topic and properties lie in a later body
    holder = writer.next_offset
    body = bytearray(3000)
    end_of_body = fake_at + len(fake) - len(fake[BODY_AT + claim :]) - (holder + BODY_AT)
    body[end_of_body : end_of_body + 4] = fake[BODY_AT + claim :]
    writer.append(1003, bytes(body))
    writer.append(1004, b"last")
    writer.roll()
    writer.append(1005, b"live")
    log = CommitLog.open(writer.write(tmp_path))
    with small_windows(most):
        assert true in offsets_of(by_hopping(log))
        assert by_splits(log, start) == by_hopping(log)


LARGEST = (4 << 20) + 1000
"""More than the largest record of `large_log` has."""


def test_where_a_filler_ends_the_segment_no_split_behind_it_owns_anything(tmp_path: Path) -> None:
    """The blank lies in a body, and counts because the record is damaged."""
    writer = LogWriter(32 << 10)
    while writer.next_offset < 20 << 10:
        writer.append(1000, bytes(500))
    victim = writer.next_offset
    blank = encode_blank(writer.segment_size - victim - BODY_AT)[:8]
    writer.append(1001, blank.ljust(500, b"-"))
    writer.segments[0][victim + 4] ^= 0xFF
    while len(writer.segments) == 1:
        writer.append(1002, bytes(500))
    log = CommitLog.open(writer.write(tmp_path))
    with small_windows(1 << 10, 16 << 10):
        hopped = assert_exact(log)
    assert [offset for offset in offsets_of(hopped) if victim <= offset < writer.segment_size] == []


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[CommitLog, list[int]]:
    """A segment of 12 MiB with small and large records, and a second one; the offsets of the records."""
    writer, generator = LogWriter(12 << 20), random.Random(9)
    plan = [400, *[20] * 500, 1 << 20, *[3000] * 200, 4 << 20, *[100] * 2000, 3 << 20, *[50] * 500, 1 << 20]
    for size in [*plan, *[900] * 5000]:
        if len(writer.segments) > 1:
            break
        topic = b"T%d" % generator.randrange(3)
        writer.append(1_700_000_000_000 + len(writer.offsets), generator.randbytes(size), topic)
    for _ in range(20):
        writer.append(1_700_000_100_000, b"last")
    return CommitLog.open(writer.write(tmp_path_factory.mktemp("large") / "store")), writer.offsets


@pytest.mark.parametrize("size", [64 << 10, 1_000_003, 4 << 20, 13 << 20])
def test_splits_of_a_large_segment_are_exact(size: int, large_log: tuple[CommitLog, list[int]]) -> None:
    log, offsets = large_log
    with small_windows(LARGEST):
        parts = by_splits(log, max(size, 3_000_017) if WITHOUT_JIT else size)
    assert [part[1] for part in parts] == offsets


@pytest.mark.skipif(WITHOUT_JIT, reason="reads 8 MiB byte by byte")
def test_the_start_of_a_split_far_into_a_segment_is_found_by_looking_back(
    large_log: tuple[CommitLog, list[int]],
) -> None:
    """The bytes read are the look-back's, not the whole way from the segment's start."""
    log, offsets = large_log
    split = next(split for split in plan_splits(log, 11 << 20) if split.start > 0)
    with SegmentSource(log.segments[0]) as source, small_windows(LARGEST):
        assert find_start(source, split) == next(offset for offset in offsets if offset >= split.start)
        assert source.bytes_read < 1.5 * LARGEST


def test_splits_cover_the_log_without_overlap(tmp_path: Path) -> None:
    log = CommitLog.open(write_store(tmp_path, sound_segments()))
    for size in (1, 100, 1000, 16 << 10, DEFAULT_SPLIT_SIZE):
        covered = 0
        for split in plan_splits(log, size):
            offset = split.segment.base + split.start
            assert offset == (covered or split.segment.base) or split.start == 0
            assert 0 < split.stop - split.start <= size
            covered = split.segment.base + split.stop
        assert covered == log.segments[-1].base + log.segments[-1].data_end
