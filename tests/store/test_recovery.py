"""What `recover` says of a store, against what brokers did, and against the rules of the Java classes.

Facts were taken after a boot of the version that wrote the store; the trees `.recovered` are those of a real boot.
Expectations about damaged copies follow from facts (offsets and queues of messages) and from the Java rule that is
named.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from spark_mq.errors import OptionError, SparkMqError
from spark_mq.format.broker_version import ALL_VERSIONS, BrokerVersions
from spark_mq.format.record import BODY_CRC_AT, COMMIT_LOG_OFFSET_AT, MAGIC_AT, MAGIC_V2
from spark_mq.store.boot import RECOVERY_SCHEMA, Boot
from spark_mq.store.boot_conditions import BootConditions, boot_groups
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.dispatch_requests import CheckedLog
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.log.recovery_walk import FileCheck
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recoveries, next_recovery
from spark_mq.store.store_state import store_state
from spark_mq.testing import LogWriter
from tests.support.boots import CLEAN, RECOVERED, body_at, entries_of, flip, rows, some_message, store_with_old_records
from tests.support.index_stores import layout_of
from tests.support.random_damages import QUEUE_AND_LOG_ENDS
from tests.support.soak import SOAKS
from tests.support.stores import STORES, RealStore, Unpack, usual_stores, version_stores

VERSIONS = ("4.9.7", "5.3.1", "5.3.3")
NOW = 1_700_000_000_000
UNIT = struct.Struct(">qiq")


def recover(folder: Path, version: str, store: RealStore | None = None) -> Boot:
    return next_recovery(str(folder), version, None if store is None else str(store.broker_conf))


@pytest.mark.parametrize("store", [store for store in usual_stores() if store.name != "lagging-533"], ids=str)
def test_the_log_and_the_queues_end_as_in_the_facts_after_a_boot(store: RealStore, unpacked: Unpack) -> None:
    recovery = recover(unpacked(store), "4.9.7" if store.broker_version == "4.9" else "5.3.3", store)
    assert recovery.log_end == store.facts("store")[0]["maxPhyOffset"]
    maxima = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
    assert {queue: end for queue, end in recovery.max_offsets.items() if end} == {
        queue: end for queue, end in maxima.items() if end
    }
    assert recovery.is_harmless
    assert recovery.rows.schema == RECOVERY_SCHEMA


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("store", [*RECOVERED, *CLEAN, STORES["lagging-533"]], ids=str)
def test_the_exact_form_agrees_with_the_prediction(store: RealStore, version: str, unpacked: Unpack) -> None:
    """`tests/store/test_boot.py` compares the prediction with what brokers did."""
    folder = unpacked(store)
    boot = recover(folder, version, store)
    assert boot is not None
    assert [boot] == list(store_state(str(folder), version, str(store.broker_conf), full=True).boots)
    (predicted,) = store_state(str(folder), version, str(store.broker_conf), full=False).boots
    if boot.cut_messages:  # records of V2; the prediction reads no records, and says so
        assert (version, predicted.is_full) == ("4.9.7", False)
        assert any(fact["magic"] == MAGIC_V2 for fact in store.facts("msg"))
    else:
        assert replace(boot, is_full=False) == predicted


@pytest.mark.parametrize("version", VERSIONS)
def test_a_clean_boot_cuts_the_log_at_a_wrong_crc(version: str, tmp_path: Path) -> None:
    """`checkMessageAndReturnSize` fails, `truncateDirtyFiles` and `truncateDirtyLogicFiles` cut there."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    offset = some_message(store, 530_000)
    file, position = body_at(store, folder, offset)
    flip(file, position)
    recovery = recover(folder, version, store)
    end = store.facts("store")[0]["maxPhyOffset"]
    assert recovery.is_full
    assert (recovery.log_end, recovery.cut_bytes) == (offset, end - offset)
    assert recovery.cut_messages == sum(fact["offset"] >= offset for fact in store.facts("msg"))
    assert recovery.end_reason == "the CRC of a record is wrong"
    gone = [fact for fact in store.facts("msg") if fact["offset"] >= offset and fact["sysFlag"] & 0xC in (0, 8)]
    assert len(gone) == sum(row["count"] for row in rows(recovery, "truncate", "queue"))
    counts = Counter((fact["topic"], fact["queueId"]) for fact in gone)
    for fact in store.facts("queue"):
        queue = fact["topic"], fact["queueId"]
        assert recovery.max_offsets.get(queue, 0) in (fact["max"] - counts[queue], 0)
    (cut,) = rows(recovery, "truncate", "segment")
    assert (cut["file"], cut["commit_log_offset"]) == (f"commitlog/{file.name}", offset)
    # The index still leads to what was cut off, and ignores messages before its last one (`IndexService.buildIndex`).
    assert [row["commit_log_offset"] > offset for row in rows(recovery, "skip")] == [True]
    assert not recovery.is_harmless


@pytest.mark.parametrize(("version", "is_noticed"), [("4.9.7", True), ("5.3.1", True), ("5.3.3", False)])
def test_damage_before_the_last_segment_is_noticed_by_some(version: str, is_noticed: bool, tmp_path: Path) -> None:
    """A clean boot begins with the third-last file; that of 5.3.2 with the one at the end of the queues."""
    store = STORES["workload-49x"]
    folder = store.unpack(tmp_path)
    offset = some_message(store, 300_000)
    flip(*body_at(store, folder, offset))
    recovery = recover(folder, version, store)
    assert recovery.log_end == (offset if is_noticed else store.facts("store")[0]["maxPhyOffset"])
    deleted = [row["commit_log_offset"] for row in rows(recovery, "delete", "segment")]
    assert deleted == ([393216] if is_noticed else [])
    (folder / "abort").touch()
    (folder / "checkpoint").unlink()  # so the recovery begins with the first segment
    forced = recover(folder, version, store)
    assert forced.log_end == offset
    assert rows(forced, "start")[0]["commit_log_offset"] == 0
    (dispatched,) = rows(forced, "dispatch")
    assert dispatched["count"] == sum(fact["offset"] < offset for fact in store.facts("msg")) == forced.checked


def test_without_the_check_of_crcs_a_wrong_body_is_accepted(tmp_path: Path) -> None:
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    flip(*body_at(store, folder, some_message(store, 530_000)))
    conf = tmp_path / "broker.conf"
    conf.write_text(f"{store.broker_conf.read_text()}\ncheckCRCOnRecover=false\n")
    assert next_recovery(str(folder), "5.3.3", str(conf)).log_end == store.facts("store")[0]["maxPhyOffset"]


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_recovery_begins_where_the_checkpoint_says(has_checkpoint: bool, tmp_path: Path) -> None:
    """`CommitLog.isMappedFileMatchedRecover`: three seconds before the older one of two times."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    (folder / "abort").touch()
    if not has_checkpoint:
        (folder / "checkpoint").unlink()
    recovery = recover(folder, "5.3.3", store)
    (state,) = store_state(str(folder), "5.3.3", str(store.broker_conf), full=False).boots
    assert recovery == replace(state, is_full=True)
    (start,) = rows(recovery, "start")
    assert (start["commit_log_offset"] > 0) is has_checkpoint
    dispatched = [fact for fact in store.facts("msg") if fact["offset"] >= start["commit_log_offset"]]
    assert rows(recovery, "dispatch")[0]["count"] == len(dispatched)


def small_log(count: int = 10) -> LogWriter:
    writer = LogWriter(4096)
    for number in range(count):
        writer.append(NOW + number, b"order %04d" % number, queue_id=number % 2)
    return writer


def change(writer: LogWriter, number: int, at: int, data: bytes) -> int:
    """Overwrite bytes of a record in the first segment; returns the record's offset."""
    offset = writer.offsets[number]
    writer.segments[0][offset + at : offset + at + len(data)] = data
    return offset


@pytest.mark.parametrize(
    ("at", "data", "ending"),
    [
        (BODY_CRC_AT, b"\x11\x11\x11\x11", ("CRC", "CRC", "CRC")),
        (MAGIC_AT, b"\x12\x34\x56\x78", ("magic number is not", "magic number is not", "magic number is not")),
        (MAGIC_AT, b"\0\0\0\0", ("magic number is not", "magic number is not", "magic number is not")),
        (0, b"\x7f\xff\xff\xff", ("CRC|length|size|sum|add up", "CRC|length|size|add up", "points past the end")),
        (0, b"\xff\xff\xff\xff", ("size", "size", "size")),
        (0, b"\0\0\0\x20", ("add up", "add up", "add up")),
        # The own offset is not checked (`checkMessageAndReturnSize`), so nothing ends the log.
        (COMMIT_LOG_OFFSET_AT, b"\0\0\0\0\0\0\0\x07", (None, None, None)),
        # 5.1.0 and later read a longer length of the topic, which then is wrong.
        (MAGIC_AT, MAGIC_V2.to_bytes(4, "big", signed=True), ("V2", "length|ends|add up", "length|ends|add up")),
    ],
)
def test_the_log_ends_at_the_first_record_that_is_not_accepted(
    at: int, data: bytes, ending: tuple[str | None, str | None, str | None], tmp_path: Path
) -> None:
    writer = small_log()
    offset = change(writer, 6, at, data)
    writer.write(tmp_path)
    for version, reason in zip(VERSIONS, ending, strict=True):
        recovery = recover(tmp_path, version)
        if reason is None:
            assert recovery.checked == 10
            continue
        assert recovery.log_end == offset
        assert any(part in (recovery.end_reason or "") for part in reason.split("|")), recovery.end_reason


def test_a_blank_with_a_wrong_size_ends_the_log_of_new_versions_only(tmp_path: Path) -> None:
    """5.3.2 compares the size with the rest of the file before the magic number."""
    writer = small_log()
    writer.roll()
    writer.append(NOW + 99, b"in the second segment")
    blank = writer.offsets[9] + (writer.offsets[9] - writer.offsets[8])
    writer.segments[0][blank : blank + 4] = b"\0\1\0\0"
    writer.write(tmp_path)
    assert [recover(tmp_path, version).checked for version in VERSIONS] == [11, 11, 10]
    assert recover(tmp_path, "5.3.3").log_end == blank
    assert [row["commit_log_offset"] for row in rows(recover(tmp_path, "5.3.3"), "delete", "segment")] == [4096]


def test_garbage_after_the_end_is_cut_off_and_harms_nothing(tmp_path: Path) -> None:
    writer = small_log()
    end = writer.append_bytes(b"\x55" * 100)
    writer.write(tmp_path)
    for version in ("4.9.7", "5.3.3"):
        recovery = recover(tmp_path, version)
        assert recovery.is_full
        (cut,) = rows(recovery, "truncate", "segment")
        assert (recovery.log_end, recovery.cut_bytes, cut["commit_log_offset"], cut["bytes"]) == (end, 0, end, 100)
        assert [row["count"] for row in rows(recovery, "complete")] == [5, 5]  # without queues, all are built
    assert recover(tmp_path, "5.3.1").lost == 10


def test_a_log_without_room_ends_before_its_blank(tmp_path: Path) -> None:
    """`index >= mappedFiles.size()`: the blank does not count."""
    writer = small_log()
    end = writer.next_offset
    writer.roll()
    del writer.segments[4096]
    writer.write(tmp_path)
    for version in VERSIONS:
        recovery = recover(tmp_path, version)
        assert (recovery.log_end, recovery.cut_bytes) == (end, 0)


def test_old_records_without_a_gap_are_revived(tmp_path: Path) -> None:
    written, end = store_with_old_records(tmp_path)
    for version in VERSIONS:
        recovery = recover(tmp_path, version)
        (revived,) = rows(recovery, "revive")
        assert (recovery.revived, revived["commit_log_offset"]) == (8, written)
        assert recovery.log_end == end
        assert not recovery.is_harmless


def write_units(folder: Path, queue_id: int, units: list[tuple[int, int]], base: int = 0, count: int = 20) -> None:
    file = folder / "consumequeue" / "T" / str(queue_id) / f"{base:020d}"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"".join(UNIT.pack(offset, size, 0) for offset, size in units).ljust(count * 20, b"\0"))


def test_a_hole_in_a_queue_drops_what_follows_it(tmp_path: Path) -> None:
    """`ConsumeQueue.recover` stops at the first unit without a size, and deletes the files after it."""
    writer = small_log()
    writer.write(tmp_path)
    size = writer.offsets[1]
    first = [(offset, size) for offset in writer.offsets[::2]]
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[1::2]])
    write_units(tmp_path, 0, [first[0], (0, 0)], count=2)
    write_units(tmp_path, 0, first[2:4], base=40, count=2)
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeConsumeQueue=40\n")
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[1:4:2]], count=2)
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[5:8:2]], base=40, count=2)
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[9::2]], base=80, count=2)
    recovery = next_recovery(str(tmp_path), "5.3.3", str(conf))
    assert [row["file"] for row in rows(recovery, "delete", "queue file")] == [f"consumequeue/T/0/{40:020d}"]
    (lost,) = rows(recovery, "lose")
    assert (lost["queue_id"], lost["count"], lost["commit_log_offset"]) == (0, 4, writer.offsets[2])
    assert recovery.max_offsets == {("T", 0): 1, ("T", 1): 5}
    # 4.9 dispatches from the end of the queues on, which queue 1 has reached.
    assert next_recovery(str(tmp_path), "4.9.7", str(conf)).lost == 4
    (tmp_path / "abort").touch()
    forced = next_recovery(str(tmp_path), "5.3.3", str(conf))
    assert [(row["queue_id"], row["count"]) for row in rows(forced, "complete")] == [(0, 4)]
    assert forced.is_harmless


def test_an_empty_last_queue_file_gets_a_unit_of_zeros_when_queues_are_cut(tmp_path: Path) -> None:
    """`truncateDirtyLogicFiles` counts the first unit of a file, if its offset is before the end of the log."""
    writer = small_log()
    offset = change(writer, 9, BODY_CRC_AT, b"\x11\x11\x11\x11")
    writer.write(tmp_path)
    size = writer.offsets[1]
    units = [[(offset, size) for offset in writer.offsets[queue::2]] for queue in (0, 1)]
    write_units(tmp_path, 1, units[1], count=5)
    write_units(tmp_path, 0, units[0], count=5)
    write_units(tmp_path, 0, [], base=100, count=5)
    recovery = recover(tmp_path, "5.3.3")
    assert recovery.log_end == offset
    changed = [*rows(recovery, "truncate", "queue"), *rows(recovery, "add")]
    assert [(row["queue_id"], row["queue_offset"], row["count"]) for row in changed] == [(1, 4, 1), (0, 5, 1)]
    assert recovery.max_offsets == {("T", 0): 6, ("T", 1): 4}


@pytest.mark.parametrize(("version", "starts"), [("4.9.7", True), ("5.1.4", False), ("5.3.3", False), ("5.5.0", True)])
def test_a_last_queue_file_without_a_unit_keeps_some_from_starting(version: str, starts: bool, tmp_path: Path) -> None:
    """`ConsumeQueue.correctMinOffset` reads the unit before the first byte of the file; real brokers do not start."""
    writer = small_log()
    writer.write(tmp_path)
    size = writer.offsets[1]
    write_units(tmp_path, 0, [(offset, size) for offset in writer.offsets[::2]], count=5)
    write_units(tmp_path, 0, [], base=100, count=5)
    # Without this lack, the queues would be cut at the end of the log, and the file would get a unit of zeros.
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[1:9:2]], count=5)
    recovery = recover(tmp_path, version)
    assert [row["file"] for row in rows(recovery, "refuse")] == [f"consumequeue/T/0/{100:020d}"] * (not starts)
    assert bool(recovery.obstacles) is not starts
    assert bool(store_state(str(tmp_path), version, full=True).obstacles) is not starts


def test_a_last_queue_file_is_deleted_if_its_torn_unit_leads_after_the_log(tmp_path: Path) -> None:
    """`truncateDirtyLogicFiles` looks at the offset of the first unit of a file only, and its size is 0."""
    writer = small_log()
    change(writer, 9, BODY_CRC_AT, b"\x11\x11\x11\x11")
    writer.write(tmp_path)
    size = writer.offsets[1]
    write_units(tmp_path, 0, [(offset, size) for offset in writer.offsets[::2]], count=5)
    write_units(tmp_path, 0, [(writer.next_offset, 0)], base=100, count=5)
    write_units(tmp_path, 1, [(offset, size) for offset in writer.offsets[1::2]], count=5)
    recovery = recover(tmp_path, "5.3.3")
    assert [row["file"] for row in rows(recovery, "delete", "queue file")] == [f"consumequeue/T/0/{100:020d}"]
    assert (recovery.obstacles, recovery.max_offsets) == ((), {("T", 0): 5, ("T", 1): 4})


@pytest.mark.parametrize(("version", "end", "lost", "shifted"), [("5.3.3", 8, 3, 2), ("5.4.0", 11, 2, 0)])
def test_units_after_a_gap_count_again_if_new_ones_fill_it(
    version: str, end: int, lost: int, shifted: int, tmp_path: Path
) -> None:
    """`truncateDirtyLogicFiles` reads the last file from its start; a clean boot of 5.4.0 calls it after all puts.

    The unit at 6 is lost. The last two messages are dispatched, and get the units at 6 and 7.
    """
    writer = LogWriter(4096)
    for number in range(12):
        writer.append(NOW + number, b"order %04d" % number, queue_id=int(number == 8))
    writer.write(tmp_path)
    size = writer.offsets[1]
    units = [(offset, size) for offset in writer.offsets]
    write_units(tmp_path, 0, [*units[:6], (0, 0), units[7], *units[9:]])
    write_units(tmp_path, 1, units[8:9])
    recovery = recover(tmp_path, version)
    assert recovery.max_offsets == {("T", 0): end, ("T", 1): 1}
    assert (recovery.lost, recovery.shifted) == (lost, shifted)


def zero(folder: Path, offset: int) -> None:
    """Write zeros over the first bytes of a record in the last segment but one."""
    with (folder / "commitlog" / f"{393216:020d}").open("r+b") as file:
        file.seek(offset - 393216)
        file.write(bytes(8))


def index_of(store: RealStore, folder: Path) -> tuple[list[Path], list[tuple[int, int]]]:
    """The index files, and the position and the commit log offset of each entry of the last one."""
    files, layout = sorted((folder / "index").iterdir()), layout_of(store)
    data = files[-1].read_bytes()
    places = range(layout.entries_at + 20, layout.entries_at + 20 * struct.unpack_from(">i", data, 36)[0], 20)
    return files, [(at, struct.unpack_from(">q", data, at + 4)[0]) for at in places]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_file_that_lost_its_end_lacks_messages(version: str, tmp_path: Path) -> None:
    """A power loss after a clean stop: brokers read the header only, and keep the file."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    (*_, file), entries = index_of(store, folder)
    position, first = entries[len(entries) // 2]
    file.write_bytes(file.read_bytes()[:position].ljust(file.stat().st_size, b"\0"))
    (folder / "checkpoint").unlink()
    recovery = recover(folder, version, store)
    assert recovery.is_full
    part = recovery.unindexed
    assert part is not None
    assert all(offset in part for _, offset in entries if offset > first)
    assert part.start > entries[0][1]
    assert not recovery.is_harmless


def test_an_index_file_that_lost_its_header_gets_all_keys_again(tmp_path: Path) -> None:
    """`IndexService.buildIndex` ignores messages before the end of the last file, which then is 0."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    (*_, file), entries = index_of(store, folder)
    file.write_bytes(bytes(40) + file.read_bytes()[40:])
    (folder / "abort").touch()
    (folder / "checkpoint").write_bytes(Checkpoint(0, 0, 1 << 62).encode())
    had = Counter(entries_of(store, folder))
    assert sum(had.values()) > len(entries)
    for version in VERSIONS:
        recovery = recover(folder, version, store)
        assert rows(recovery, "start")[0]["commit_log_offset"] == 0
        live = sum(count for offset, count in had.items() if offset < (recovery.log_end or 0))
        assert [row["count"] for row in rows(recovery, "double")] == [live]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_index_that_ends_after_the_log_has_what_is_left(version: str, tmp_path: Path) -> None:
    """The end of the log was lost after a clean stop."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    offset = some_message(store, 530_000)
    file, _ = body_at(store, folder, offset)
    position = offset - int(file.name)
    file.write_bytes(file.read_bytes()[:position].ljust(file.stat().st_size, b"\0"))
    recovery = recover(folder, version, store)
    assert recovery.is_full
    assert (recovery.log_end, recovery.unindexed) == (offset, None)


def test_an_index_that_lost_files_lacks_what_is_after_damage(tmp_path: Path) -> None:
    """The last record that the index has is damaged, in a segment that a clean boot does not check."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    for file in sorted((folder / "index").iterdir())[-2:]:
        file.unlink()
    _, entries = index_of(store, folder)
    offset = entries[-1][1]
    zero(folder, offset)
    recovery = recover(folder, "5.3.3", store)
    assert recovery.is_full
    part = recovery.unindexed
    assert part is not None
    assert all(fact["offset"] in part for fact in store.facts("msg") if fact["offset"] > offset and fact["keys"])


def test_an_index_has_the_messages_after_a_damaged_one(tmp_path: Path) -> None:
    """A message of the last index file is damaged, in a segment that a clean boot does not check."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    _, entries = index_of(store, folder)
    zero(folder, next(offset for _, offset in entries if entries[0][1] < offset < 524288))
    recovery = recover(folder, "5.3.3", store)
    assert (recovery.damaged_bytes > 0, recovery.unindexed) == (True, None)
    (seen,) = store_state(str(folder), "5.3.3", str(store.broker_conf), full=False).boots
    assert seen.unindexed is None


def test_the_keys_of_a_message_can_be_in_two_index_files(tmp_path: Path) -> None:
    """The first message of the file before the last is damaged, so that nothing is known of this file by its edges."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    heads = [struct.unpack(">qqqqii", file.read_bytes()[:40]) for file in index_of(store, folder)[0]]
    assert heads[-2][3] == heads[-1][2]
    zero(folder, heads[-2][2])
    recovery = recover(folder, "5.3.3", store)
    assert (recovery.damaged_bytes > 0, recovery.unindexed) == (True, None)


def test_an_index_that_lost_a_file_lacks_its_messages(tmp_path: Path) -> None:
    """`IndexService.load` does not ask whether a file is missing between two others."""
    store = STORES["workload-533"]
    folder = store.unpack(tmp_path)
    had = Counter(entries_of(store, folder))
    sorted((folder / "index").iterdir())[-2].unlink()
    has = Counter(entries_of(store, folder))
    recovery = recover(folder, "5.3.3", store)
    part = recovery.unindexed
    assert part is not None
    assert all(offset in part for offset in had if has[offset] < had[offset])


def test_4_9_waits_forever_for_a_segment_that_is_missing(tmp_path: Path) -> None:
    """`DefaultMessageStore.start`@4.9.7 waits until `ReputMessageService` has read the log; `getData` finds no file."""
    writer = LogWriter(4096)
    for number in range(200):
        writer.append(NOW + number, b"order %04d" % number)
    writer.write(tmp_path)
    assert len(writer.segments) > 3
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    recovery = recover(tmp_path, "4.9.7")
    assert "waits forever for commit log offset 4,096" in recovery.obstacles[0]
    assert [row["commit_log_offset"] for row in rows(recovery, "refuse")] == [4096]
    assert recover(tmp_path, "5.3.3").obstacles == ()


@pytest.mark.parametrize(
    ("damage", "path", "refusing"),
    [
        (Path.touch, f"commitlog/{65536:020d}", ("4.9.7", "5.1.2")),
        (Path.touch, f"consumequeue/LastQueue/0/{2000:020d}", ("4.9.7", "5.1.2")),
        (Path.mkdir, "commitlog/old", ("4.9.7", "5.0")),
        (partial(os.truncate, length=50_000), f"commitlog/{0:020d}", ("4.9.7", "5.0", "5.1.2", "5.3.3")),
    ],
)
def test_some_versions_do_not_start(
    damage: Callable[[Path], None], path: str, refusing: tuple[str, ...], tmp_path: Path
) -> None:
    """`MappedFileQueue.doLoad`: folders are skipped since 5.1.0, an empty last file is deleted since 5.1.3."""
    store = STORES["lagging-533"]
    folder = store.unpack(tmp_path)
    damage(folder / path)
    for version in ("4.9.7", "5.0", "5.1.2", "5.3.3"):
        recovery = recover(folder, version, store)
        is_refusing = version in refusing or (version == "5.0" and "5.1.2" in refusing)
        assert bool(recovery.obstacles) is is_refusing
        assert recovery.is_full is not is_refusing
        assert len(rows(recovery, "refuse")) == is_refusing
        assert bool(store_state(str(folder), version, str(store.broker_conf)).obstacles) is is_refusing
    if damage is Path.touch:
        (deleted,) = rows(recover(folder, "5.3.3", store), "delete")
        assert (deleted["bytes"], deleted["reason"]) == (0, "it is empty")


def test_without_segments_the_queues_are_deleted(tmp_path: Path) -> None:
    folder = STORES["lagging-533"].unpack(tmp_path)
    files = {f"consumequeue/{file.relative_to(folder / 'consumequeue')}" for file in folder.glob("consumequeue/*/*/*")}
    for file in (folder / "commitlog").iterdir():
        file.unlink()
    for version in VERSIONS:
        recovery = recover(folder, version, STORES["lagging-533"])
        assert {row["file"] for row in rows(recovery, "delete")} == files
        assert recovery.is_full
        assert recovery.deletes_queues


def test_a_wrong_property_ends_the_log(tmp_path: Path) -> None:
    """`Integer.parseInt` of DELAY throws in the schedule topic only."""
    writer = LogWriter(4096)
    writer.append(NOW, b"a", topic=b"T", properties=b"DELAY\1x\2")
    end = writer.append(NOW, b"a", topic=b"SCHEDULE_TOPIC_XXXX", properties=b"DELAY\1x\2")
    writer.write(tmp_path)
    for version in VERSIONS:
        assert recover(tmp_path, version).log_end == end
    assert "DELAY" in (recover(tmp_path, "5.3.3").end_reason or "")


@pytest.mark.parametrize("version", ["5", "5.3", "4.8", "6", "x", "4.9.x", "5.3.3.1"])
def test_a_version_must_tell_its_rules(version: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"version|rules"):
        recover(tmp_path, version)


def test_a_version_that_is_newer_than_the_rules_is_said(tmp_path: Path) -> None:
    small_log().write(tmp_path)
    (rules,) = (setting for setting in store_state(str(tmp_path), "5.10.0").settings if setting.name == "rules")
    assert (rules.value, "its rules are assumed" in rules.source) == ("of a broker of 5.5.1", True)


def test_nothing_is_changed(tmp_path: Path) -> None:
    store = STORES["killed-533"]
    folder, other = store.unpack(tmp_path / "a"), store.unpack(tmp_path / "b")
    recover(folder, "5.3.3", store)
    files = sorted(path.relative_to(folder) for path in folder.rglob("*"))
    assert files == sorted(path.relative_to(other) for path in other.rglob("*"))
    for file in files:
        if (folder / file).is_file():
            assert (folder / file).read_bytes() == (other / file).read_bytes()
            assert (folder / file).stat().st_mtime_ns == (other / file).stat().st_mtime_ns


@pytest.mark.parametrize("seed", range(300 if SOAKS else 12))
def test_no_damage_raises_an_unknown_error(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    """Files of a store are cut, emptied, overwritten, replaced by a folder, or have a few random bytes."""
    store, chance = STORES[("killed-533", "lagging-533", "stale-49x")[seed % 3]], random.Random(seed)
    folder = tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    logs = [file for file in files if file.parent.name == "commitlog"]
    for file in [chance.choice(logs), *chance.sample(files, 2)]:
        if not file.is_file():
            continue
        data = bytearray(file.read_bytes())
        kind = chance.choice(["cut", "empty", "noise", "ones", "folder", "bytes", "bytes", "bytes", "gone"])
        if kind in ("folder", "gone"):
            file.unlink()
            if kind == "folder":
                file.mkdir()
            continue
        at = chance.randrange(len(data) + 1)
        if kind == "bytes":
            for _ in range(chance.randint(1, 20)):
                if data:
                    data[chance.randrange(len(data))] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
            file.write_bytes(data)
        else:
            tail = {"cut": b"", "noise": chance.randbytes(len(data) - at), "ones": b"\xff" * (len(data) - at)}
            file.write_bytes(data[:at] + tail[kind] if kind in tail else b"")
    if chance.random() < 0.5:
        (folder / "abort").touch()
    for version in ("5.3.3", "4.9.7"):
        try:
            recovery = next_recovery(str(folder), version, chance.choice([None, str(store.broker_conf)]))
        except SparkMqError:
            continue
        assert recovery.rows.num_rows
        assert recovery.obstacles or recovery.is_full
    with suppress(SparkMqError):
        assert store_state(str(folder), broker_conf=chance.choice([None, str(store.broker_conf)])).boots


def test_records_of_other_sizes_are_read(tmp_path: Path) -> None:
    """A record is larger than what is read at a time."""
    writer = LogWriter(24 << 20)
    writer.append(NOW, b"a")
    writer.append(NOW + 1, bytes(9 << 20))
    writer.append(NOW + 2, b"b")
    writer.write(tmp_path)
    recovery = recover(tmp_path, "5.3.3")
    assert (recovery.checked, recovery.log_end) == (3, writer.next_offset)


STARTS = [(group, after_crash) for after_crash in (False, True) for group in boot_groups(ALL_VERSIONS)]


def recover_all(folder: Path, *askings: list[tuple[BrokerVersions, bool]], conf: str | None = None) -> list[Boot]:
    with MessageStore(str(folder), None, conf) as store:
        conditions = BootConditions.of(store)
        return [one for starts in askings for one in next_recoveries(conditions, starts, 0)]


def recover_alone(folder: Path, patch: pytest.MonkeyPatch, conf: str | None = None) -> list[Boot]:
    """The same of each start alone, whose check of the log is by its own rules, and which reads the live log, too."""
    patch.setattr(FileCheck, "holds_for", lambda check, rules: check._rules == rules)
    patch.setattr(CheckedLog, "known", lambda log, segment, stop: None)
    return recover_all(folder, *([start] for start in STARTS), conf=conf)


def said(recovery: Boot) -> tuple[object, ...]:
    """All of it; which of several rows of a kind is the first is no matter."""
    return {**vars(recovery), "rows": None}, sorted(map(str, recovery.rows.to_pylist()))


def damaged_store(seed: int, folder: Path, unpacked: Unpack) -> str:
    """A store of a broker with 1 to 3 damages; returns its settings."""
    store, chance = STORES[("workload-533", "killed-49x", "lagging-533")[seed % 3]], random.Random(seed)
    shutil.copytree(unpacked(store), folder)
    for damage in chance.choices(QUEUE_AND_LOG_ENDS, k=chance.randint(1, 3)):
        if any((folder / "consumequeue").glob("*/*")):
            damage(folder, chance)
    return str(store.broker_conf)


@pytest.mark.parametrize("seed", range(100 if SOAKS else 9))
def test_starts_that_share_what_they_read_do_what_each_does_alone(
    seed: int, unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = damaged_store(seed, tmp_path / "store", unpacked)
    together = recover_all(tmp_path / "store", STARTS, conf=conf)
    alone = recover_alone(tmp_path / "store", monkeypatch, conf)
    assert [said(one) for one in together] == [said(one) for one in alone]


@pytest.mark.parametrize(
    ("at", "data"),
    [
        (0, b"\x7f\xff\xff\xff"),  # 5.3.2 says BAD_SIZE, and others what they find there
        (MAGIC_AT, MAGIC_V2.to_bytes(4, "big", signed=True)),  # 5.1.0 reads another topic
        (BODY_CRC_AT, bytes(4)),
        (-1, b""),
    ],
)
def test_starts_of_versions_with_other_rules_find_their_own_end(
    at: int, data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = small_log()
    writer.append(NOW + 50, b"batch", properties=b"INNER_NUM\1x\2INNER_BASE\x010\2")  # 5.0.0 ends the log there
    writer.roll()
    writer.append(NOW + 99, b"in the second segment")
    if at >= 0:
        change(writer, 6, at, data)
    writer.write(tmp_path)
    together, alone = recover_all(tmp_path, STARTS), recover_alone(tmp_path, monkeypatch)
    assert [said(one) for one in together] == [said(one) for one in alone]
    assert len({(one.log_end, one.end_reason) for one in together}) > (at != BODY_CRC_AT)


def test_all_starts_together_read_each_segment_once(
    unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Counter[str]()

    class CountedCheck(FileCheck):
        def read(self) -> Iterator[RecordChunk]:
            read[self.end.file.location.name] += 1
            return super().read()

    monkeypatch.setattr("spark_mq.store.dispatch_requests.FileCheck", CountedCheck)
    store = STORES["workload-533"]
    recovered = recover_all(unpacked(store), STARTS, conf=str(store.broker_conf))
    assert len(recovered) == 12
    assert set(read.values()) == {1}


@pytest.mark.parametrize("store", version_stores("k"))
def test_a_start_of_its_version_did_what_is_said(store: RealStore, tmp_path: Path) -> None:
    """`NAME.booted.facts` is what the broker had after it was started on the killed store: 4.9.0, 5.3.3 and 5.5.0."""
    version = (store.folder / f"{store.name}.how").read_text().split()[0]
    recovery = recover(store.unpack(tmp_path), version, store)
    booted = RealStore(f"{store.name}.booted", store.folder)
    assert recovery.log_end == booted.facts("store")[0]["maxPhyOffset"]
    assert recovery.is_full
    assert (recovery.lost, recovery.shifted, recovery.cut_bytes, recovery.gone) == (0, 0, 0, 0)
    maxima = {(fact["topic"], fact["queueId"]): fact["max"] for fact in booted.facts("queue") if fact["max"]}
    assert {queue: end for queue, end in recovery.max_offsets.items() if end} == maxima
    found = {offset for fact in booted.facts("query") for offset in fact["offsets"]}
    lacked = recovery.unindexed
    assert found
    assert lacked is None or not [offset for offset in found if offset in lacked]
    assert recovery.is_harmless is (lacked is None)
