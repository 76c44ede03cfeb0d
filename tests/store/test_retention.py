"""How long a store keeps its messages, against the facts of the Java message store and its files."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.source.options import parse_options
from spark_mq.source.table_readers import TableReader
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.disk_use import Deletion, DiskPressure, disk_pressure, used_percent
from spark_mq.store.retention import retention
from spark_mq.tables.store_files import RETENTION
from spark_mq.testing import LogWriter
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, Unpack, stores_in

STORES = [store for store in stores_in(OWN_STORES) if not store.name.startswith("killed")]
HOUR = 3_600_000


@pytest.mark.parametrize("packed", STORES, ids=str)
def test_times_of_segments_are_those_of_their_messages(packed: RealStore, unpacked: Unpack) -> None:
    found = retention(str(unpacked(packed)), reserved_hours=2)
    facts = sorted((fact["offset"], fact["storeTimestamp"]) for fact in packed.facts("msg"))
    for segment in found.segments:
        times = [time for offset, time in facts if segment.commit_log_offset <= offset < segment.end_offset]
        assert (segment.first_store_timestamp, segment.last_store_timestamp) == (times[0], times[-1])
    *old, newest = found.segments
    assert [one.expire_by_store_timestamp for one in old] == [(one.last_store_timestamp or 0) + 2 * HOUR for one in old]
    assert (newest.expire_timestamp, newest.delete_timestamp, newest.freed_bytes) == (None, None, None)
    assert sum(age.log_bytes for age in found.ages) == sum(
        one.end_offset - one.commit_log_offset for one in found.segments
    )


def test_what_goes_with_a_segment(unpacked: Unpack) -> None:
    """Judged by all units of the queue files and all entries of the index files, which the facts know."""
    store = unpacked(WORKLOAD)
    found = retention(str(store))
    offsets: dict[tuple[str, int, int], int] = {
        (fact["topic"], fact["queueId"], fact["queueOffset"]): fact["offset"]
        for fact in WORKLOAD.facts("msg")
        if fact["sysFlag"] & 0xC in (0, 8)
    }
    units = 100
    expected: dict[str, set[str]] = {segment.file: set() for segment in found.segments}
    for queue in (store / "consumequeue").glob("*/*"):
        for file in sorted(queue.iterdir())[:-1]:
            last = offsets[queue.parent.name, int(queue.name), int(file.name) // 20 + units - 1]
            segment = max(one.file for one in found.segments if one.commit_log_offset <= last)
            expected[segment].add(str(file.relative_to(store)))
    for segment_row in found.segments[:-1]:
        paths = {file.path for file in segment_row.files if file.tree == "consumequeue"}
        assert paths == expected[segment_row.file]
        sizes = [(store / file.path).stat().st_size for file in segment_row.files]
        assert segment_row.freed_bytes == segment_row.file_size + sum(sizes)
    assert sum(one.index_files for one in found.segments) <= len(list((store / "index").iterdir())) - 1
    assert any(one.index_files for one in found.segments)


def write_offsets(store: Path, offsets: dict[str, dict[str, int]]) -> None:
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))


def test_groups_that_lose_unread_messages(tmp_path: Path, unpacked: Unpack) -> None:
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    write_offsets(
        store,
        {"OrderEvents@behind": {"0": 0, "1": 5}, "OrderEvents@done": {"0": 62}, "SequenceDemo@slow": {"0": 100}}
        | {"Nothing@other": {"0": 3}},
    )
    found = retention(str(store), at=datetime(2026, 11, 24, 11, 1, 16, 400_000, tzinfo=UTC))
    assert [segment.is_expired for segment in found.segments] == [True, True, True, False, False]
    by_queue: dict[tuple[str, int], list[int]] = {}
    for fact in sorted(WORKLOAD.facts("msg"), key=lambda fact: fact["queueOffset"]):
        by_queue.setdefault((fact["topic"], fact["queueId"]), []).append(fact["offset"])
    assert {(one.consumer_group, one.topic, one.queue_id) for one in found.unread} == {
        ("behind", "OrderEvents", 0),
        ("behind", "OrderEvents", 1),
        ("slow", "SequenceDemo", 0),
    }
    for loss in found.unread:
        offsets = by_queue[loss.topic, loss.queue_id][loss.consumer_offset :]
        segment = next(one for one in found.segments if one.commit_log_offset <= offsets[0] < one.end_offset)
        assert (loss.file, loss.delete_timestamp) == (segment.file, segment.delete_timestamp)
        assert segment.is_expired
        assert loss.loses == loss.expired
        assert (loss.unread, loss.lost) == (len(offsets), 0)
        assert loss.expired == sum(offset < 393_216 for offset in offsets)
    times = [loss.delete_timestamp or 0 for loss in found.unread]
    assert times == sorted(times)
    assert min(times) >= found.at
    early = retention(str(store), at=datetime(2026, 11, 21, 12, tzinfo=UTC))
    assert not early.expired
    for loss in early.unread:
        offsets = by_queue[loss.topic, loss.queue_id][loss.consumer_offset :]
        together = [one for one in early.segments if one.delete_timestamp == loss.delete_timestamp]
        assert loss.loses == sum(offset < together[-1].end_offset for offset in offsets)


def test_what_a_stopped_broker_has_not_deleted_is_not_deleted_in_the_past(unpacked: Unpack) -> None:
    moment = datetime(2027, 3, 1, 12, tzinfo=UTC)
    found = retention(str(unpacked(WORKLOAD)), at=moment)
    assert found.expired
    assert all(one.delete_timestamp is not None and one.delete_timestamp >= found.at for one in found.expired)


def test_messages_that_a_group_has_lost_already(tmp_path: Path, unpacked: Unpack) -> None:
    (packed,) = (store for store in STORES if store.name == "deleted-533")
    store = Path(shutil.copytree(unpacked(packed), tmp_path / "store"))
    (queue,) = (fact for fact in packed.facts("queue") if (fact["topic"], fact["queueId"]) == ("SequenceDemo", 0))
    write_offsets(store, {"SequenceDemo@slow": {"0": 7}})
    (loss,) = retention(str(store)).unread
    assert (loss.lost, loss.unread, loss.file) == (queue["min"] - 7, queue["max"] - queue["min"], None)


def test_bytes_by_topic_are_those_of_the_messages(unpacked: Unpack) -> None:
    found = retention(str(unpacked(WORKLOAD)), reserved_hours=0, by_topic=True)
    start = found.segments[-1].commit_log_offset
    expected: dict[str, list[int]] = {}
    for fact in WORKLOAD.facts("msg"):
        if fact["sysFlag"] & 0xC in (0, 8):
            entry = expected.setdefault(fact["topic"], [0, 0, 0, 0])
            for at in (0, 2) if fact["offset"] < start else (0,):
                entry[at] += 1
                entry[at + 1] += fact["size"]
    assert found.topics is not None
    by_name = {
        one.topic: [one.messages, one.log_bytes, one.expired_messages, one.expired_bytes] for one in found.topics
    }
    assert by_name == expected


def test_files_that_a_stopped_deletion_left(unpacked: Unpack) -> None:
    """`deleted-533` lost its first two segments, and its broker stopped before it looked for queue files."""
    (packed,) = (store for store in STORES if store.name == "deleted-533")
    found = retention(str(unpacked(packed)))
    assert {file.path.rpartition("/")[0] for file in found.left_over} == {
        "consumequeue/SequenceDemo/0",
        "consumequeue/SequenceDemo/1",
        "consumequeue/SequenceDemo/2",
        "index",
    }


def test_the_table_has_the_same_rows_and_takes_options(unpacked: Unpack, tmp_path: Path) -> None:
    store = str(unpacked(WORKLOAD))
    conf = tmp_path / "broker.conf"
    conf.write_text("fileReservedTime=5\ndeleteWhen=04;23\n")
    at = datetime(2026, 11, 21, 16, 1, 10, tzinfo=UTC)
    given = {"path": store, "table": "retention", "at": "2026-11-21T16:01:10Z", "brokerConf": str(conf)}
    reader = TableReader(parse_options(given), RETENTION.schema.names)
    rows = [row for batch in reader.read(reader.partitions()[0]) for row in batch.to_pylist()]
    found = retention(store, at=at, broker_conf=str(conf))
    assert [row["file"] for row in rows] == [segment.file for segment in found.segments]
    assert [row["is_expired"] for row in rows] == [True, False, False, False, False]
    assert rows[0]["delete_timestamp"] == datetime(2026, 11, 21, 23, tzinfo=UTC)
    with pytest.raises(OptionError, match="reservedHours"):
        parse_options({**given, "reservedHours": "-1"})


def test_the_newest_record_after_bodies_that_look_like_records(tmp_path: Path) -> None:
    """A magic number, and whole records with other offsets, are in the last body."""
    log = LogWriter(segment_size=1 << 20)
    for number in range(3):
        log.append(1000 + number, body=bytes(100_000))
    first = bytes(log.segments[0][:100])
    log.append(2000, body=(b"\xda\xa3\x20\xa7" * 5000) + bytes(300_000) + first + b"\xda\xa3\x20\xa7" * 3)
    log.roll()
    log.append(3000)
    with MessageStore(str(log.write(tmp_path / "store"))) as store:
        end = store.get_max_phy_offset()
        found = [store.records.newest_in(file, end) for file in store.records.segments]
    assert [record and record.store_timestamp for record in found] == [2000, 3000]


def test_the_newest_record_wherever_its_header_is(tmp_path: Path) -> None:
    """The last 16 KiB are searched first, and a header can be cut by their border."""
    size, count = 40_000, 64
    border = size - (16 << 10)
    log = LogWriter(segment_size=size)
    log.append(1000)
    least = log.next_offset
    log = LogWriter(segment_size=size)
    for number in range(count):
        log.append(1000, body=bytes(border - least - number))
        log.append(2000 + number)
        log.roll()
    log.append(5000)
    assert log.offsets[1] == border
    with MessageStore(str(log.write(tmp_path / "store"))) as store:
        end = store.get_max_phy_offset()
        found = [store.records.newest_in(file, end) for file in store.records.segments]
    assert [record and record.store_timestamp for record in found] == [*range(2000, 2000 + count), 5000]


def test_a_segment_whose_end_is_damaged_has_no_newest_record(tmp_path: Path) -> None:
    log = LogWriter(segment_size=1 << 12)
    for number in range(60):
        log.append(1000 + number, body=bytes(100))
    log.segments[0][log.offsets[10] :] = b"\xff" * (len(log.segments[0]) - log.offsets[10])
    found = retention(str(log.write(tmp_path / "store")))
    assert found.segments[0].last_store_timestamp is None
    assert found.segments[1].last_store_timestamp is not None


@pytest.mark.parametrize(
    ("used", "is_forcible", "deletion"),
    [
        (75, True, Deletion.NONE),
        (76, True, Deletion.EXPIRED),
        (85, True, Deletion.EXPIRED),
        (86, True, Deletion.ANY),
        (86, False, Deletion.EXPIRED),
    ],
)
def test_what_a_full_disk_does(used: int, is_forcible: bool, deletion: Deletion) -> None:
    assert DiskPressure(used, 75, 85, is_forcible).deletion == deletion
    assert DiskPressure(used, 95, 85, False).deletion == (Deletion.EXPIRED if used > 85 else Deletion.NONE)


def test_the_fuller_disk_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real 5.3.3 broker, whose log was on another disk, deleted all segments for that of its queues, 93 % full."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "consumequeue").mkdir()
    free = {"commitlog": 800, "consumequeue": 70}

    def disk(path: str) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, 1000, free[Path(path).name], free[Path(path).name], 0, 0, 0, 0, 255))

    monkeypatch.setattr(os, "statvfs", disk)
    pressure = disk_pressure(Location.resolve(str(tmp_path)), BrokerConf.of(None))
    assert pressure == DiskPressure(93, 75, 85, True, "consumequeue")
    assert pressure.deletion == Deletion.ANY
    free["consumequeue"] = 900
    assert disk_pressure(Location.resolve(str(tmp_path)), BrokerConf.of(None)) == DiskPressure(20, 75, 85, True)


def test_the_use_of_a_disk_is_rounded_up() -> None:
    def disk(blocks: int, free: int, available: int) -> os.statvfs_result:
        return os.statvfs_result((4096, 4096, blocks, free, available, 0, 0, 0, 0, 255))

    assert used_percent(disk(1000, 250, 250)) == 75
    assert used_percent(disk(1000, 249, 249)) == 76
    assert used_percent(disk(1000, 250, 200)) == 79  # a part is reserved: 750 of 950
    assert used_percent(disk(0, 0, 0)) == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("fileReservedTime=long", "fileReservedTime='long' is not a number"),
        ("fileReservedTime=48 ", "fileReservedTime='48 ' is not a number of hours: a broker ignores it"),
        ("fileReservedTime=-1", "give hours from 0"),
        ("diskMaxUsedSpaceRatio=60 ", "diskMaxUsedSpaceRatio='60 ' is not a number of percent: a broker ignores it"),
        ("deleteWhen=noon", "deleteWhen='noon'"),
        ("diskMaxUsedSpaceRatio=much", "diskMaxUsedSpaceRatio='much'"),
    ],
)
def test_settings_without_sense(settings: str, said: str, unpacked: Unpack, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text(settings)
    with pytest.raises(OptionError, match=said):
        retention(str(unpacked(WORKLOAD)), broker_conf=str(tmp_path / "broker.conf"))


@pytest.mark.parametrize("arguments", [{"at": 1 << 70}, {"at": datetime(2026, 1, 1)}, {"reserved_hours": float("nan")}])
def test_arguments_without_sense(arguments: dict[str, Any], unpacked: Unpack) -> None:
    with pytest.raises(OptionError):
        retention(str(unpacked(WORKLOAD)), **arguments)
