from __future__ import annotations

import random
import struct
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.record import HEAD_SIZE, MAGIC_V2, Record, encode_blank, read_store_timestamp
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS, CommitLog, Split, plan_splits, within_time
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.log.split_reader import read_split
from spark_mq.testing import LogWriter
from spark_mq.testing.strategies import records
from tests.support.kernels import examples
from tests.support.readers import by_hopping, offsets_of, small_windows, split_sizes
from tests.support.stores import RealStore, Unpack, usual_stores

NOW = 1_700_000_000_000
MINUTE = 60_000
MOST = 1200
"""More than any record here has, unless a test says otherwise."""

Window = tuple[int | None, int | None]


def read_offsets(split: Split) -> Iterator[int]:
    """The offsets of the records that one gets of a split."""
    for part in read_split(split):
        if isinstance(part, RecordChunk):
            yield from (part.base + part.frames.position).tolist()


def missed(splits: Sequence[Split], times: dict[int, int], window: Window) -> list[int]:
    """Offsets of messages stored in the window that one does not get."""
    start, end = window
    wanted = sorted(
        offset for offset, time in times.items() if (start is None or time >= start) and (end is None or time <= end)
    )
    read: set[int] = set()
    for split in within_time(splits, start, end):
        if split.skip_before is not None or split.skip_after is not None:
            read.update(read_offsets(split))
        else:  # it is read whole
            first, last = split.segment.base + split.start, split.segment.base + split.stop
            read.update(wanted[bisect_left(wanted, first) : bisect_left(wanted, last)])
    return [offset for offset in wanted if offset not in read]


def windows(times: list[int], count: int, seed: int = 1) -> list[Window]:
    generator = random.Random(seed)
    low, high = min(times) - 2 * MINUTE, max(times) + 2 * MINUTE
    pairs = [sorted((generator.randint(low, high), generator.randint(low, high))) for _ in range(count)]
    exact = [(time, time) for time in generator.sample(times, min(count // 4, len(times)))]
    return [*((pair[0], pair[1]) for pair in pairs), *exact, (None, low), (high, None), (None, high), (low, None)]


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_no_message_of_a_real_store_is_missed(store: RealStore, unpacked: Unpack) -> None:
    log = CommitLog.open(Location.resolve(str(unpacked(store))))
    times = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    with small_windows(12 << 10):
        for size in split_sizes(log, 4 << 10):
            splits = plan_splits(log, size)
            for window in windows(list(times.values()), 4 if size < 64 << 10 else 12):
                assert missed(splits, times, window) == [], (size, window)


def timed_log(folder: Path, times: list[int], segment_size: int = 8 << 10) -> tuple[CommitLog, dict[int, int]]:
    """A log with one message of about 1 KiB at each time."""
    writer = LogWriter(segment_size)
    for number, time in enumerate(times):
        writer.append(time, bytes(800 + number % 200))
    return CommitLog.open(writer.write(folder)), dict(zip(writer.offsets, times, strict=True))


@pytest.mark.parametrize("size", [1000, 8 << 10])
@pytest.mark.parametrize("minutes", [(150, 160), (10_000, None), (None, -10_000)], ids=str)
def test_most_segments_of_a_long_log_are_left_out(minutes: Window, size: int, tmp_path: Path) -> None:
    log, times = timed_log(tmp_path, [NOW + number * MINUTE for number in range(300)])
    splits = plan_splits(log, size)
    start, end = (None if minute is None else NOW + minute * MINUTE for minute in minutes)
    assert len(within_time(splits, start, end)) < len(splits) / 5
    assert missed(splits, times, (start, end)) == []


def test_most_splits_of_a_long_segment_are_skipped(tmp_path: Path) -> None:
    log, times = timed_log(tmp_path, [NOW + number * MINUTE for number in range(400)], 128 << 10)
    kept = within_time(plan_splits(log, 4 << 10), NOW + 190 * MINUTE, NOW + 200 * MINUTE)
    assert {split.segment.base // (128 << 10) for split in kept} == {0, 1, 2}
    with small_windows(MOST):
        read = {offset for split in kept for offset in read_offsets(split)}
    assert {offset for offset, time in times.items() if NOW + 190 * MINUTE <= time <= NOW + 200 * MINUTE} <= read
    assert len(read) < 60


def test_without_a_range_everything_is_kept(tmp_path: Path) -> None:
    log, _ = timed_log(tmp_path, [NOW] * 30)
    splits = plan_splits(log, 1000)
    assert within_time(splits, None, None) == splits


@pytest.mark.parametrize("segment_size", [20 << 10, 30 << 10, 44 << 10])
def test_a_clock_set_back_by_the_tolerance_for_long_misses_nothing(segment_size: int, tmp_path: Path) -> None:
    """What is looked at, a run of records, lies as far outside of the range as is possible beside a record in it."""
    high, low = NOW + CLOCK_TOLERANCE_MILLIS, NOW
    times = [low - 1] * 50 + [high] + [low] * 50 + [high] * 50 + [low] + [high + 1] * 50
    log, by_offset = timed_log(tmp_path, times, segment_size)
    with small_windows(MOST):
        for size in (1000, 3000, 10_000):
            for window in [(high, high), (low, low), (high, None), (None, low)]:
                assert missed(plan_splits(log, size), by_offset, window) == [], (size, window)


def fake(offset: int, time: int) -> bytes:
    return Record(b"Fake", commit_log_offset=offset, store_timestamp=time).encode()


WINDOWS = [
    pytest.param(1 << 60, (None, NOW + 200 * MINUTE), id="late fakes"),
    pytest.param(0, (NOW + 150 * MINUTE, None), id="early fakes"),
]


def log_with_fakes(hostile: set[int], time: int, segment_size: int = 64 << 10) -> tuple[LogWriter, dict[int, int]]:
    """Pairs of a long and a short message; the long ones in `hostile` hold whole records of another time."""
    writer = LogWriter(segment_size)
    times: dict[int, int] = {}
    for number in range(6):
        stored = NOW + number * 40 * MINUTE
        body, start = b"", writer.next_offset + 88
        while number in hostile and len(body) < 7000:
            body += fake(start + len(body), time)
        times[writer.append(stored, body.ljust(7000, b"-"))] = stored
        times[writer.append(stored + 39 * MINUTE, b"")] = stored + 39 * MINUTE
    return writer, times


@pytest.mark.parametrize("segment_size", [9 << 10, 18 << 10, 64 << 10])
@pytest.mark.parametrize("hostile", [*({number} for number in range(6)), set(range(6))], ids=str)
@pytest.mark.parametrize(("time", "window"), WINDOWS)
def test_records_in_bodies_say_nothing_of_the_time(
    time: int, window: Window, hostile: set[int], segment_size: int, tmp_path: Path
) -> None:
    writer, times = log_with_fakes(hostile, time, segment_size)
    log = CommitLog.open(writer.write(tmp_path))
    with small_windows(7300, 8 << 10):
        for size in (1000, 5000):
            assert missed(plan_splits(log, size), times, window) == [], size


@pytest.mark.parametrize(("time", "window"), WINDOWS)
def test_records_in_a_body_that_damage_laid_open_say_nothing_of_the_time(
    time: int, window: Window, tmp_path: Path
) -> None:
    """Where a record is damaged, the hop takes what is in its body; splits begin and end there."""
    writer = LogWriter(64 << 10)
    times: dict[int, int] = {}
    for number in range(160):
        stored = NOW + number * 2 * MINUTE
        body = b""
        while number % 20 == 19 and len(body) < 7000:
            body += fake(writer.next_offset + 88 + len(body), time)
        times[writer.append(stored, body or bytes(900))] = stored
    for victim in list(times)[19::20]:
        base = victim // writer.segment_size * writer.segment_size
        writer.segments[base][victim - base + 4] ^= 0xFF
        del times[victim]
    log = CommitLog.open(writer.write(tmp_path))
    assert set(offsets_of(by_hopping(log))) > set(times)
    with small_windows(8 << 10):
        for size in (1000, 5000, 20_000):
            assert missed(plan_splits(log, size), times, window) == [], size


@pytest.mark.parametrize("behind", ["damage", "blank"])
@pytest.mark.parametrize(
    ("time", "window"), [(1 << 60, (None, NOW + 44 * MINUTE)), (0, (NOW + 36 * MINUTE, None))], ids=["late", "early"]
)
def test_a_run_of_fakes_is_no_longer_for_what_is_behind_it(
    time: int, window: Window, behind: str, tmp_path: Path
) -> None:
    """Of a record that is damaged, the hop takes what its body holds: fakes, and more damage or a blank."""
    writer = LogWriter(16 << 10)
    times = {writer.append(NOW + number * MINUTE - MINUTE // 2, bytes(900)): number for number in range(40)}
    victim = writer.next_offset
    body = b"".join(fake(victim + 88 + place, time) for place in range(0, 5 * len(fake(0, 0)), len(fake(0, 0))))
    end = victim // writer.segment_size * writer.segment_size + writer.segment_size
    if behind == "blank":
        body += encode_blank(end - victim - 88 - len(body))[:8]
    writer.append(NOW + 40 * MINUTE, body)
    writer.segments[end - writer.segment_size][victim % writer.segment_size + 4] ^= 0xFF
    if behind == "damage":
        writer.append_bytes(b"\xff" * 2000)
    times |= {writer.append(NOW + number * MINUTE - MINUTE // 2, bytes(900)): number for number in range(41, 80)}
    log = CommitLog.open(writer.write(tmp_path))
    read = offsets_of(by_hopping(log))
    assert victim + 88 in read
    sound = {offset: NOW + times[offset] * MINUTE - MINUTE // 2 for offset in read if offset in times}
    with small_windows(MOST, 10_000):
        for size in range(1000, 10_000, 100):
            assert missed(plan_splits(log, size), sound, window) == [], size


@pytest.mark.parametrize("bit", [0x40, 0x80])
def test_one_damaged_time_leaves_nothing_else_out(bit: int, tmp_path: Path) -> None:
    """The first record of each segment in turn, and some others, as if stored long after or before all the others."""
    times = [NOW + number * MINUTE for number in range(90)]
    segment_size = 8 << 10
    log, by_offset = timed_log(tmp_path, times, segment_size)
    firsts = [offset for offset in by_offset if offset % segment_size == 0]
    for victim in [*firsts, *list(by_offset)[::13]]:
        file = Path(log.segments[victim // segment_size].location.path)
        data = bytearray(file.read_bytes())
        sound = bytes(data)
        data[victim % segment_size + 56] ^= bit
        file.write_bytes(data)
        others = {offset: time for offset, time in by_offset.items() if offset != victim}
        with small_windows(MOST):
            for size in (1000, 10_000):
                for window in [(NOW, NOW + 100 * MINUTE), *windows(times, 6, victim)]:
                    assert missed(plan_splits(log, size), others, window) == [], (victim, size, window)
        file.write_bytes(sound)


@st.composite
def hostile_logs(draw: st.DrawFn) -> tuple[LogWriter, dict[int, int], set[int]]:
    """A log whose clock was set back now and then, with fakes of any time in bodies; what was stored when; damage."""
    numbers = st.integers(0, 1 << 16)
    writer = LogWriter(draw(st.sampled_from([3000, 6000, 12_000])))
    times: dict[int, int] = {}
    clock = NOW
    for _ in range(draw(st.integers(10, 60))):
        number = draw(numbers)
        clock += number % 1000 * MINUTE // 100
        stored = clock - (CLOCK_TOLERANCE_MILLIS if number % 11 == 0 else 0)
        body = b""
        while number % 3 == 0 and len(body) < number % 900:
            body += fake(writer.next_offset + 88 + len(body), NOW + (number % 2001 - 1000) * 10 * MINUTE)
        times[writer.append(stored, body or bytes(number % 900))] = stored
    offsets = list(times)
    damaged = set()
    for number in draw(st.lists(numbers, max_size=5)):
        victim = offsets[number % len(offsets)]
        segment = writer.segments[victim // writer.segment_size * writer.segment_size]
        segment[victim % writer.segment_size + draw(st.sampled_from([1, 2, 3, 5, 35, 86, 87]))] ^= number % 255 + 1
        damaged.add(victim)
    if draw(st.booleans()):
        victim = offsets[draw(numbers) % len(offsets)]
        segment = writer.segments[victim // writer.segment_size * writer.segment_size]
        segment[victim % writer.segment_size + 56 + draw(st.integers(0, 7))] ^= draw(st.integers(1, 255))
        damaged.add(victim)
    return writer, times, damaged


@settings(max_examples=examples(200))
@given(hostile_logs(), st.integers(100, 20_000), st.data())
def test_time_ranges_of_anything_miss_nothing(
    hostile_log: tuple[LogWriter, dict[int, int], set[int]], size: int, data: st.DataObject
) -> None:
    writer, times, damaged = hostile_log
    with tempfile.TemporaryDirectory() as folder:
        log = CommitLog.open(writer.write(Path(folder) / "store"))
        read = set(offsets_of(by_hopping(log)))
        sound = {offset: time for offset, time in times.items() if offset in read - damaged}
        splits = plan_splits(log, size)
        stored = list(times.values())
        moments = st.one_of(st.none(), st.sampled_from(stored), st.integers(min(stored), max(stored)))
        with small_windows(1100):
            for window in data.draw(st.lists(st.tuples(moments, moments), min_size=1, max_size=6)):
                assert missed(splits, sound, window) == []


@settings(max_examples=examples(100))
@given(records(1 << 40))
def test_the_head_of_a_record_says_when_it_was_stored(record: Record) -> None:
    head = record.encode()[:HEAD_SIZE]
    assert read_store_timestamp(head, 1 << 40) == (record.store_timestamp if len(head) == HEAD_SIZE else None)
    assert read_store_timestamp(head, (1 << 40) + 1) is None


@pytest.mark.parametrize(("at", "value"), [(0, 0), (0, 90), (0, 1 << 30), (0, -1), (4, 0), (4, MAGIC_V2 + 1)])
def test_what_is_no_head_of_a_record_says_nothing(at: int, value: int) -> None:
    head = bytearray(Record(b"Topic", store_timestamp=NOW).encode())
    struct.pack_into(">i", head, at, value)
    assert read_store_timestamp(bytes(head[:HEAD_SIZE]), 0) is None
