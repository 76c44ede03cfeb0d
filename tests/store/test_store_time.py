from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.format.record import LOOK_BACK, Record
from spark_mq.store import store_time
from spark_mq.store.commit_log import CommitLog
from spark_mq.store.filesystem import Location
from spark_mq.store.splits import Split, plan_splits
from spark_mq.store.store_time import CLOCK_TOLERANCE_MILLIS, within_time
from tests.hostile import LogWriter, split_sizes
from tests.real_stores import RealStore, all_stores

NOW = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture
def short_look_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are small here, and their records smaller than this: they are judged as large logs are."""
    monkeypatch.setattr(store_time, "LOOK_BACK", 8 << 10)


def missed(kept: list[Split], times: dict[int, int], start: int | None, end: int | None) -> list[int]:
    """Offsets of messages stored in the range that no kept split owns."""
    ranges = [range(split.segment.base + split.start, split.segment.base + split.stop) for split in kept]
    wanted = [
        offset for offset, time in times.items() if (start is None or time >= start) and (end is None or time <= end)
    ]
    return [offset for offset in wanted if not any(offset in owned for owned in ranges)]


def windows(times: list[int], count: int, seed: int = 1) -> list[tuple[int | None, int | None]]:
    generator = random.Random(seed)
    low, high = min(times) - 2 * MINUTE, max(times) + 2 * MINUTE
    pairs = [sorted((generator.randint(low, high), generator.randint(low, high))) for _ in range(count)]
    exact = [(time, time) for time in generator.sample(times, min(count // 4, len(times)))]
    return [*((pair[0], pair[1]) for pair in pairs), *exact, (None, low), (high, None), (None, high), (low, None)]


@pytest.mark.parametrize("look_back", [16 << 10, LOOK_BACK])
@pytest.mark.parametrize("store", all_stores(), ids=str)
def test_no_split_that_owns_a_message_in_range_is_left_out(
    store: RealStore, look_back: int, unpacked: Callable[[RealStore], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_time, "LOOK_BACK", look_back)
    log = CommitLog.open(Location.resolve(str(unpacked(store))))
    times = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    for size in split_sizes(log, 4 << 10):
        splits = plan_splits(log, size)
        for start, end in windows(list(times.values()), 6 if size < 64 << 10 else 12):
            assert missed(within_time(splits, start, end), times, start, end) == [], (size, start, end)


def timed_log(folder: Path, times: list[int], segment_size: int = 8 << 10) -> tuple[CommitLog, dict[int, int]]:
    """A log with one message of about 1 KiB at each time."""
    writer = LogWriter(segment_size)
    for number, time in enumerate(times):
        writer.append(time, bytes(800 + number % 200))
    return CommitLog.open(writer.write(folder)), dict(zip(writer.offsets, times, strict=True))


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize("size", [1000, 3000, 8 << 10])
def test_random_windows_of_a_long_log_miss_nothing(size: int, tmp_path: Path) -> None:
    log, times = timed_log(tmp_path, [NOW + number * MINUTE // 3 for number in range(200)])
    splits = plan_splits(log, size)
    for start, end in windows(list(times.values()), 60):
        assert missed(within_time(splits, start, end), times, start, end) == []


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize("size", [1000, 8 << 10])
def test_most_of_a_long_log_is_left_out(size: int, tmp_path: Path) -> None:
    log, times = timed_log(tmp_path, [NOW + number * MINUTE for number in range(300)])
    splits = plan_splits(log, size)
    kept = within_time(splits, NOW + 150 * MINUTE, NOW + 160 * MINUTE)
    assert len(kept) < len(splits) / 5
    assert missed(kept, times, NOW + 150 * MINUTE, NOW + 160 * MINUTE) == []


def test_most_of_a_log_of_long_records_is_left_out(tmp_path: Path) -> None:
    writer = LogWriter(8 << 20)
    for number in range(60):
        writer.append(NOW + number * 10 * MINUTE, bytes(1 << 20))
    times = {offset: NOW + number * 10 * MINUTE for number, offset in enumerate(writer.offsets)}
    splits = plan_splits(CommitLog.open(writer.write(tmp_path)), 2 << 20)
    window = NOW + 300 * MINUTE, NOW + 310 * MINUTE
    kept = within_time(splits, *window)
    assert missed(kept, times, *window) == []
    assert len(kept) < len(splits) / 2


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize(("start", "end"), [(NOW + 10_000 * MINUTE, None), (None, NOW - 10_000 * MINUTE)])
def test_far_outside_of_the_log_almost_nothing_is_kept(start: int | None, end: int | None, tmp_path: Path) -> None:
    log, _ = timed_log(tmp_path, [NOW + number * MINUTE for number in range(100)])
    splits = plan_splits(log, 2000)
    assert len(within_time(splits, start, end)) < len(splits) / 3


def test_without_a_range_everything_is_kept(tmp_path: Path) -> None:
    log, _ = timed_log(tmp_path, [NOW] * 30)
    splits = plan_splits(log, 1000)
    assert within_time(splits, None, None) == splits


def test_no_splits_stay_no_splits() -> None:
    assert within_time([], 0, 1) == []


@pytest.mark.usefixtures("short_look_back")
def test_the_order_of_splits_is_kept(tmp_path: Path) -> None:
    log, _ = timed_log(tmp_path, [NOW + number * MINUTE for number in range(100)])
    splits = plan_splits(log, 1000)
    kept = within_time(splits, NOW + 10 * MINUTE, NOW + 80 * MINUTE)
    assert kept == [split for split in splits if split in kept]


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize("back", [1000, CLOCK_TOLERANCE_MILLIS])
def test_a_clock_set_back_within_the_tolerance_misses_nothing(back: int, tmp_path: Path) -> None:
    times = [NOW + number * 1000 - (back if number % 7 == 3 else 0) for number in range(200)]
    log, by_offset = timed_log(tmp_path, times)
    for size in (1000, 3000):
        splits = plan_splits(log, size)
        for start, end in windows(times, 60):
            assert missed(within_time(splits, start, end), by_offset, start, end) == []


@pytest.mark.usefixtures("short_look_back")
def test_a_clock_set_back_for_good_misses_nothing(tmp_path: Path) -> None:
    hours = 60 * MINUTE
    times = [NOW + number * 1000 for number in range(100)] + [NOW - 5 * hours + number * 1000 for number in range(100)]
    log, by_offset = timed_log(tmp_path, times)
    for size in (1000, 8 << 10):
        splits = plan_splits(log, size)
        for start, end in windows(times, 60):
            assert missed(within_time(splits, start, end), by_offset, start, end) == []


@pytest.mark.usefixtures("short_look_back")
def test_damaged_places_miss_nothing(tmp_path: Path) -> None:
    writer = LogWriter(8 << 10)
    for number in range(100):
        writer.append(NOW + number * MINUTE, bytes(900))
    for offset in writer.offsets[::3]:
        base = offset // (8 << 10) * (8 << 10)
        writer.segments[base][offset - base + 4] ^= 0xFF
    log = CommitLog.open(writer.write(tmp_path))
    sound = {o: NOW + n * MINUTE for n, o in enumerate(writer.offsets) if n % 3}
    splits = plan_splits(log, 1000)
    for start, end in windows(list(sound.values()), 60):
        assert missed(within_time(splits, start, end), sound, start, end) == []


def fake(offset: int, time: int) -> bytes:
    return Record(b"Fake", commit_log_offset=offset, store_timestamp=time).encode()


WINDOWS = [
    pytest.param(1 << 60, (None, NOW + 200 * MINUTE), id="late, in the last split"),
    pytest.param(0, (NOW + 150 * MINUTE, None), id="early, behind the split"),
]


def log_with_fakes(folder: Path, hostile: set[int], time: int) -> tuple[CommitLog, dict[int, int]]:
    """Pairs of a long and a short message; the long ones in `hostile` hold whole records of another time."""
    writer = LogWriter(64 << 10)
    times: dict[int, int] = {}
    for number in range(6):
        stored = NOW + number * 40 * MINUTE
        body, start = b"", writer.next_offset + 88
        while number in hostile and len(body) < 7000:
            body += fake(start + len(body), time)
        times[writer.append(stored, body.ljust(7000, b"-"))] = stored
        times[writer.append(stored + 39 * MINUTE, b"")] = stored + 39 * MINUTE
    return CommitLog.open(writer.write(folder)), times


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize("hostile", range(6))
@pytest.mark.parametrize(("time", "window"), WINDOWS)
def test_records_in_a_body_say_nothing_of_the_time(
    time: int, window: tuple[int | None, int | None], hostile: int, tmp_path: Path
) -> None:
    log, times = log_with_fakes(tmp_path, {hostile}, time)
    for size in (1000, 5000):
        assert missed(within_time(plan_splits(log, size), *window), times, *window) == [], size


@pytest.mark.usefixtures("short_look_back")
@pytest.mark.parametrize(("time", "window"), WINDOWS)
@pytest.mark.xfail(
    strict=True, reason="fakes in several bodies, further apart than the look-back, agree with each other"
)
def test_records_in_many_bodies_say_nothing_of_the_time(
    time: int, window: tuple[int | None, int | None], tmp_path: Path
) -> None:
    log, times = log_with_fakes(tmp_path, set(range(6)), time)
    assert missed(within_time(plan_splits(log, 5000), *window), times, *window) == []


@pytest.mark.usefixtures("short_look_back")
def test_one_damaged_time_does_not_leave_out_the_last_split(tmp_path: Path) -> None:
    """The module says that nothing is left out on the word of one record."""
    writer = LogWriter(64 << 10)
    for number in range(45):
        writer.append(NOW + number * 1000, bytes(909))
    size = 10_000
    victim = next(offset for offset in writer.offsets if offset >= writer.next_offset // size * size)
    writer.segments[0][victim + 56] ^= 0x40
    times = {o: NOW + n * 1000 for n, o in enumerate(writer.offsets) if o != victim}
    splits = plan_splits(CommitLog.open(writer.write(tmp_path)), size)
    assert missed(within_time(splits, NOW, NOW + 100_000), times, NOW, NOW + 100_000) == []
