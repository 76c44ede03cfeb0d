"""The last segment: what is live there, and where it ends."""

from __future__ import annotations

import os
import shutil
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest import mock

import pytest

from spark_mq.format.array_types import Bytes
from spark_mq.format.record import FLAG_AT, Record
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog, SegmentSource, Split, plan_splits
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.testing import LogWriter, write_store
from tests.support.readers import (
    Part,
    by_hopping,
    by_splits,
    limited_reads,
    offsets_of,
    one_split,
    split_sizes,
    with_known_end,
)
from tests.support.stores import OWN_STORES, RealStore, Unpack, segment_files, stores_in, usual_stores

NOW = 1_700_000_000_000
SEGMENT_SIZE = 64 << 10
STORES = usual_stores()


def assert_exact(log: CommitLog) -> list[Part]:
    with limited_reads(5000):
        hopped = by_hopping(log)
        for size in split_sizes(log):
            assert by_splits(log, size) == hopped, f"splits of {size}"
            assert by_splits(with_known_end(log), size) == hopped, f"splits of {size}, the end is known"
    return hopped


def live_log(count: int = 40, queues: int = 3) -> LogWriter:
    """Live messages, round robin over some queues."""
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(count):
        writer.append(NOW + number, bytes(number % 7), queue_id=number % queues)
    return writer


@pytest.mark.parametrize("store", STORES, ids=str)
def test_the_hop_ends_where_the_broker_s_log_ends(store: RealStore, unpacked: Unpack) -> None:
    segment = CommitLog.open(Location.resolve(str(unpacked(store)))).segments[-1]
    with SegmentSource(segment) as source:
        reader = LiveReader(source)
        reader.skip(segment.data_end)
    (fact,) = store.facts("store")
    assert segment.base + reader.position == fact["maxPhyOffset"]


CLEAN = [
    store for store in stores_in(OWN_STORES) if store.name in ("workload-533", "workload-49x", "crc-533", "stale-533")
]


def copy_of(path: Path, folder: Path, empty_segments: int) -> Location:
    """A copy of a store with segments that the broker made beforehand."""
    shutil.copytree(path, folder / "store")
    file = segment_files(folder / "store")[-1]
    size = file.stat().st_size
    for number in range(1, empty_segments + 1):
        (file.parent / f"{int(file.name) + number * size:020d}").write_bytes(bytes(size))
    return Location.resolve(str(folder / "store"))


@pytest.mark.parametrize("shows_it", ["index", "queues"])
@pytest.mark.parametrize("empty_segments", [0, 1, 2])
@pytest.mark.parametrize("store", CLEAN, ids=str)
def test_index_or_queues_tell_the_end_without_a_hop_over_the_segment(
    store: RealStore, empty_segments: int, shows_it: str, unpacked: Unpack, tmp_path: Path
) -> None:
    location = copy_of(unpacked(store), tmp_path, empty_segments)
    shutil.rmtree(tmp_path / "store" / ("consumequeue" if shows_it == "index" else "index"))
    (fact,) = store.facts("store")
    with mock.patch.object(LiveEndFinder, "_read_last_segment", side_effect=AssertionError("hopped")):
        assert LiveEndFinder(location).find_now() == fact["maxPhyOffset"]


@pytest.mark.parametrize("store", [store for store in CLEAN if store.name == "crc-533"], ids=str)
def test_a_last_record_with_a_wrong_property_crc_does_not_count_however_the_end_is_found(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    location = copy_of(unpacked(store), tmp_path, 0)
    last = max(store.facts("msg"), key=lambda fact: int(fact["offset"]))
    file = max(file for file in segment_files(tmp_path / "store") if int(file.name) <= last["offset"])
    data = bytearray(file.read_bytes())
    data[last["offset"] - int(file.name) + FLAG_AT] ^= 1
    file.write_bytes(data)
    with mock.patch.object(LiveEndFinder, "_read_last_segment", side_effect=AssertionError("hopped")):
        found = LiveEndFinder(location).find_now()
    shutil.rmtree(tmp_path / "store" / "consumequeue")
    assert found == LiveEndFinder(location).find_now() == last["offset"]


@pytest.mark.parametrize("early", [1, 1_700_000_000_000])
@pytest.mark.parametrize("store", [store for store in STORES if store.name.startswith("stale")], ids=str)
def test_a_wrong_checkpoint_makes_no_stale_record_live(store: RealStore, early: int, tmp_path: Path) -> None:
    """By it all records are newer than the last clean stop, and the queues know stale records that are the newest."""
    folder = store.unpack(tmp_path)
    with (folder / "checkpoint").open("r+b") as file:
        file.write(early.to_bytes(8, "big") * 2)
    assert LiveEndFinder(Location.resolve(str(folder))).find_now() == store.facts("store")[0]["maxPhyOffset"]


@pytest.mark.parametrize("store", [store for store in STORES if store.name.startswith("stale")], ids=str)
def test_an_older_checkpoint_makes_no_stale_record_live(store: RealStore, tmp_path: Path) -> None:
    """As one that is restored from a backup: its time is that of a live message, but not of the last one."""
    folder = store.unpack(tmp_path)
    times = sorted({fact["storeTimestamp"] for fact in store.facts("msg")})
    for time in times[:: 1 + len(times) // 40]:
        with (folder / "checkpoint").open("r+b") as file:
            file.write(time.to_bytes(8, "big") * 2)
        assert LiveEndFinder(Location.resolve(str(folder))).find_now() == store.facts("store")[0]["maxPhyOffset"], time


@pytest.mark.parametrize("queues", [1, 2])
@pytest.mark.parametrize("written_since", [1, 3])
@pytest.mark.parametrize("evidence", ["nothing", "abort", "checkpoint"])
def test_a_stale_tail_of_the_same_sizes_and_queues_is_live_unless_the_checkpoint_proves_it_stale(
    evidence: str, written_since: int, queues: int, tmp_path: Path
) -> None:
    """The old records have the next queue offsets, as if the clock was set back. A broker takes them for live ones."""
    lost, writer = LogWriter(SEGMENT_SIZE), LogWriter(SEGMENT_SIZE)
    for number in range(20):
        lost.append(NOW + 1000 * number, b"order %04d" % number, queue_id=number % queues)
    for number in range(10 + written_since):
        late = 3_600_000 if number >= 10 else 0
        writer.append(NOW + 1000 * number + late, b"order %04d" % number, queue_id=number % queues)
    written = len(writer.segments[0])
    writer.segments[0] += lost.segments[0][written:]
    location = writer.write(tmp_path)
    if evidence == "abort":
        (tmp_path / "abort").write_text("4711")
        os.utime(tmp_path / "abort", (NOW / 1e3 + 1800,) * 2)
    elif evidence == "checkpoint":
        newest = NOW + 1000 * (9 + written_since) + 3_600_000
        (tmp_path / "checkpoint").write_bytes(Checkpoint(newest - 1000, newest).encode())
    expected = writer.offsets if evidence == "checkpoint" else lost.offsets
    assert [part[1] for part in assert_exact(CommitLog.open(location))] == expected
    assert LiveEndFinder(location).find_now() == (written if evidence == "checkpoint" else lost.next_offset)


@pytest.mark.parametrize("evidence", ["started before", "started between", "last flushed before", "checkpoint"])
def test_a_clock_that_steps_back_during_a_run_loses_no_message(evidence: str, tmp_path: Path) -> None:
    """A broker sets `physicMsgTimestamp` up to ten seconds before it stops, and `logicsMsgTimestamp` with each unit."""
    writer = live_log()
    for number in range(40):
        writer.append(NOW + number - 3_600_000, b"later", queue_id=number % 3)
    location, last = writer.write(tmp_path), NOW - 3_600_000 + 39
    if evidence.startswith("started"):
        (tmp_path / "abort").write_text("4711")
        os.utime(tmp_path / "abort", (NOW / 1e3 - (7200 if evidence == "started before" else 60),) * 2)
    else:
        flushed = NOW + 39 if evidence == "last flushed before" else last
        (tmp_path / "checkpoint").write_bytes(Checkpoint(flushed, last).encode())
    assert [part[1] for part in assert_exact(CommitLog.open(location))] == writer.offsets
    assert LiveEndFinder(location).find_now() == writer.next_offset


@pytest.mark.parametrize("checkpoint", ["lost", "of the last run"])
def test_a_clock_that_steps_back_after_a_topic_was_created_again_loses_no_message(
    checkpoint: str, tmp_path: Path
) -> None:
    """Its queue offsets begin at 0 again: they are not those that follow the earlier ones."""
    writer = live_log()
    for number in range(40):
        writer.append(NOW + 40 - number, b"again", queue_id=number % 3, queue_offset=number // 3)
    location = writer.write(tmp_path)
    if checkpoint != "lost":
        (tmp_path / "checkpoint").write_bytes(Checkpoint(NOW + 39, NOW + 1).encode())
    assert [part[1] for part in assert_exact(CommitLog.open(location))] == writer.offsets
    assert LiveEndFinder(location).find_now() == writer.next_offset


@pytest.mark.parametrize("evidence", ["dispatched", "confirmed"])
def test_a_clock_that_steps_back_around_damage_loses_no_message(evidence: str, tmp_path: Path) -> None:
    writer = live_log()
    for number in range(40):
        writer.append(NOW - 1000 + number, b"later", queue_id=number % 3)
    writer.segments[0][writer.offsets[40] + 4] ^= 0xFF
    location = writer.write(tmp_path)
    last = NOW - 1000 + 39 if evidence == "dispatched" else 0
    confirmed = 0 if last else writer.next_offset
    (tmp_path / "checkpoint").write_bytes(Checkpoint(last, last, confirm_phy_offset=confirmed).encode())
    parts = assert_exact(CommitLog.open(location))
    assert offsets_of(parts) == writer.offsets[:40] + writer.offsets[41:]


@pytest.mark.parametrize("seed", range(20))
def test_records_before_the_confirmed_offset_are_live_whatever_their_times_and_queue_offsets(
    seed: int, tmp_path: Path
) -> None:
    """A job of ours confirms what it writes; then a broker writes more, and is killed."""
    random = Random(seed)
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(60):
        time = NOW + random.randrange(-(10**12), 10**12)
        writer.append(time, b"ours", queue_offset=10 * number + random.randrange(10))
    confirmed = writer.next_offset
    for number in range(20):
        writer.append(NOW + number, b"a broker's")
    location = writer.write(tmp_path)
    (tmp_path / "checkpoint").write_bytes(Checkpoint(confirm_phy_offset=confirmed).encode())
    (tmp_path / "abort").write_text("4711")
    os.utime(tmp_path / "abort", (NOW / 1e3,) * 2)
    assert [part[1] for part in assert_exact(CommitLog.open(location))] == writer.offsets
    assert LiveEndFinder(location).find_now() == writer.next_offset


def test_a_finder_that_is_asked_again_reads_only_what_is_new(tmp_path: Path) -> None:
    writer = live_log(300)
    location = writer.write(tmp_path)
    finder = LiveEndFinder(location)
    assert finder.find_now() == writer.next_offset
    live = writer.next_offset
    for number in range(20):
        writer.append(NOW + 1000 + number, b"new", queue_id=number % 3)
    (file,) = segment_files(tmp_path)
    file.write_bytes(bytes(writer.segments[0]).ljust(SEGMENT_SIZE, b"\0"))
    lowest = SEGMENT_SIZE
    read = SegmentSource.read

    def noted(self: SegmentSource, position: int, length: int) -> Bytes:
        nonlocal lowest
        lowest = min(lowest, position)
        return read(self, position, length)

    with mock.patch.object(SegmentSource, "read", noted):
        assert finder.find_now() == writer.next_offset
    assert live - (4 << 10) <= lowest <= live


def test_a_finder_that_is_asked_again_sees_that_the_log_was_cut(tmp_path: Path) -> None:
    """By a replica that was not started anew: there is no file `abort` that tells."""
    finder = LiveEndFinder(live_log(300).write(tmp_path))
    assert finder.find_now() == live_log(300).next_offset
    shorter = live_log(200)
    (file,) = segment_files(tmp_path)
    file.write_bytes(bytes(shorter.segments[0]).ljust(SEGMENT_SIZE, b"\0"))
    assert finder.find_now() == shorter.next_offset


def test_a_finder_that_is_asked_again_tells_stale_records(tmp_path: Path) -> None:
    writer = live_log()
    location = writer.write(tmp_path)
    finder = LiveEndFinder(location)
    live = finder.find_now()
    stale_tail(writer, KNOWN)
    (file,) = segment_files(tmp_path)
    file.write_bytes(bytes(writer.segments[0]).ljust(SEGMENT_SIZE, b"\0"))
    assert finder.find_now() == live


def test_a_last_record_that_ends_with_zeros_is_read(tmp_path: Path) -> None:
    writer = live_log()
    writer.append(NOW + 100, properties=b"")
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


@pytest.mark.parametrize("length", [1, 5, 50, 100])
def test_a_record_that_is_being_written_ends_the_log(length: int, tmp_path: Path) -> None:
    writer = live_log()
    record = Record(b"T", body=bytes(100), properties=b"a\1b\2", commit_log_offset=writer.next_offset).encode()
    writer.append_bytes(b"\xee" * length if length < 8 else record[:length] + b"\xee")
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


def test_a_last_segment_cut_in_a_record_ends_before_it(tmp_path: Path) -> None:
    writer = live_log()
    data = bytes(writer.segments[0])[:-10]
    log = CommitLog.open(write_store(tmp_path, {0: data}))
    assert [part[1] for part in assert_exact(log)] == writer.offsets[:-1]


def stale_tail(writer: LogWriter, records: list[tuple[int, bytes, int, int]], gap: int = 0) -> None:
    """Old records behind the live end: (store time, topic, queue id, queue offset) each."""
    if gap:
        writer.append_bytes(b"\x55" * gap)
    live = list(writer.offsets)
    for timestamp, topic, queue_id, queue_offset in records:
        writer.append(timestamp, b"old", topic, queue_id, queue_offset)
    writer.offsets = live


KNOWN = [(NOW - 100 + number, b"T", number % 3, 100 + number) for number in range(20)]
UNKNOWN = [(NOW - 100 + number, b"Old", 0, number) for number in range(20)]


@pytest.mark.parametrize(
    ("old", "gap"),
    [*((KNOWN, gap) for gap in (0, 1, 30, 500)), (UNKNOWN, 30), (UNKNOWN, 500), (UNKNOWN[:8] + KNOWN[8:], 0)],
)
def test_old_records_are_not_live(old: list[tuple[int, bytes, int, int]], gap: int, tmp_path: Path) -> None:
    writer = live_log()
    stale_tail(writer, old, gap)
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


@pytest.mark.parametrize(
    ("back", "topic", "queues"), [(1, b"T", 3), (500, b"T", 3), (3_600_000, b"T", 3), (500, b"New", 40)]
)
def test_a_clock_that_steps_back_loses_no_message(back: int, topic: bytes, queues: int, tmp_path: Path) -> None:
    writer = live_log()
    for number in range(40):
        writer.append(NOW + number - back, b"later", topic, number % queues)
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


def test_a_clock_that_steps_back_again_and_again_loses_no_message(tmp_path: Path) -> None:
    writer = live_log(0)
    for number in range(120):
        writer.append(NOW + number % 10, b"x" * (number % 5), queue_id=number % 4)
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


def test_a_clock_that_steps_back_at_prepared_messages_loses_no_message(tmp_path: Path) -> None:
    """They have no queue offset; the next message that has one decides."""
    writer = live_log()
    for number in range(6):
        writer.append(NOW - 500 + number, b"half", queue_offset=0, sys_flag=0x4 if number % 2 else 0xC)
    writer._queue_offsets[b"T", 0] = 14
    for number in range(6):
        writer.append(NOW - 400 + number, b"later", queue_id=0)
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


def test_a_clock_that_steps_back_behind_an_inner_batch_loses_no_message(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    for number in range(10):
        time, properties = NOW + (number if number < 5 else -500), b"INNER_NUM\x014\2"
        writer.append(time, b"batch", queue_offset=4 * number, properties=properties, sys_flag=0x80)
    assert [part[1] for part in assert_exact(CommitLog.open(writer.write(tmp_path)))] == writer.offsets


@pytest.mark.parametrize("victims", [(5,), (5, 6, 7), (5, 12, 30), (0,)])
def test_live_records_behind_damage_are_read(victims: tuple[int, ...], tmp_path: Path) -> None:
    writer = live_log()
    for victim in victims:
        writer.segments[0][writer.offsets[victim] + 4] ^= 0xFF
    parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert offsets_of(parts) == [offset for index, offset in enumerate(writer.offsets) if index not in victims]
    assert {part[0] for part in parts} == {"RECORD", "BAD_MAGIC"}
    assert sum(part[2] for part in parts) == len(writer.segments[0])


@pytest.mark.parametrize(("earlier", "is_live"), [(0, True), (1, False), (1000, False)])
@pytest.mark.parametrize("queue", [b"T", b"New"])
def test_behind_damage_a_record_is_live_if_it_is_not_earlier(
    earlier: int, is_live: bool, queue: bytes, tmp_path: Path
) -> None:
    writer = live_log()
    writer.append_bytes(b"\x55" * 30)
    behind = writer.append(NOW + 39 - earlier, b"behind", queue, queue_offset=100)
    parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert (behind in offsets_of(parts)) == is_live


@pytest.mark.parametrize(("queue_offset", "is_live"), [(13, False), (14, True), (15, True)])
def test_behind_damage_a_record_is_live_if_its_queue_goes_on(queue_offset: int, is_live: bool, tmp_path: Path) -> None:
    writer = live_log()
    assert writer._queue_offsets[b"T", 0] == 14
    writer.append_bytes(b"\x55" * 30)
    behind = writer.append(NOW + 50, b"behind", queue_offset=queue_offset)
    parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert (behind in offsets_of(parts)) == is_live


def test_zeroed_records_in_the_middle_are_a_corrupt_range(tmp_path: Path) -> None:
    writer = live_log()
    start, stop = writer.offsets[10], writer.offsets[20]
    writer.segments[0][start:stop] = bytes(stop - start)
    parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert [part[:3] for part in parts if part[0] != "RECORD"] == [("ZEROS", start, stop - start)]
    assert offsets_of(parts) == writer.offsets[:10] + writer.offsets[20:]


def test_damage_and_then_old_records_end_the_log(tmp_path: Path) -> None:
    writer = live_log()
    writer.segments[0][writer.offsets[5] + 4] ^= 0xFF
    stale_tail(writer, KNOWN, 40)
    parts = assert_exact(CommitLog.open(writer.write(tmp_path)))
    assert offsets_of(parts) == writer.offsets[:5] + writer.offsets[6:]


def test_each_split_of_a_log_with_a_known_end_has_its_records(tmp_path: Path) -> None:
    """The clock was set back twice."""
    writer, starts = LogWriter(SEGMENT_SIZE), []
    parts = ([100], 1), ([101, 50], 0), (range(200, 209), 1), (range(300, 305), 0), (range(250, 255), 1)
    for times, queue_id in parts:
        starts.append(writer.next_offset)
        for time in times:
            writer.append(NOW + time, queue_id=queue_id)
    (segment,) = with_known_end(CommitLog.open(writer.write(tmp_path))).segments
    splits = [Split(segment, start, stop) for start, stop in pairwise([*starts, SEGMENT_SIZE])]
    assert [offset for split in splits for offset in offsets_of(one_split(split))] == writer.offsets


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="counts open files in /proc")
def test_reading_many_listings_leaves_no_files_open(tmp_path: Path) -> None:
    log = CommitLog.open(live_log().write(tmp_path))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        for split in plan_splits(log, 1 << 20):
            one_split(split)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
