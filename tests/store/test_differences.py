"""What brokers do where articles say something else; the rows of `docs/differences.md` name these tests.

The files of real stores are read here with `struct` alone, and compared with the facts of the Java classes.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.format.consume_queue import DEFAULT_FILE_SIZE, queue_file_name
from spark_mq.format.java_text import hash_code
from spark_mq.store.index.file_names import index_file_names
from spark_mq.store.store_state import store_state
from spark_mq.testing.plain_index import plain_key_hash
from tests.support.index_stores import STORES, WHOLE, index_files, layout_of, puts_of
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack

Entry = tuple[int, int, int, int]
HEADER_SIZE, SLOT_SIZE, ENTRY_SIZE = 40, 4, 20
HALF, SCHEDULE = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"
COMMIT, PREPARED_AND_ROLLBACK = 8, (4, 12)
WORKLOADS = [store for store in STORES if store.name.startswith("workload")]
each_workload = pytest.mark.parametrize("store", WORKLOADS, ids=str)
each_whole = pytest.mark.parametrize("store", WHOLE, ids=str)


@dataclass(frozen=True)
class IndexFile:
    """An index file, at the addresses of `IndexFile.putKey`."""

    name: str
    data: bytes
    hash_slot_num: int

    @cached_property
    def header(self) -> tuple[int, ...]:
        """Begin and end time, begin and end offset, hashSlotCount, indexCount."""
        return struct.unpack_from(">qqqqii", self.data)

    def slot(self, number: int) -> int:
        """The content of a slot; slots are numbered from 0 on."""
        return int(struct.unpack_from(">i", self.data, HEADER_SIZE + SLOT_SIZE * number)[0])

    def entry(self, number: int) -> Entry:
        """Key hash, commit log offset, time difference and number of the entry before it."""
        at = HEADER_SIZE + SLOT_SIZE * self.hash_slot_num + ENTRY_SIZE * number
        return struct.unpack_from(">iqii", self.data, at)

    def entries(self) -> Iterator[Entry]:
        """Those that were put."""
        return map(self.entry, range(1, self.header[5]))

    def chain(self, key_hash: int) -> Iterator[Entry]:
        """The entries of a slot, newest first."""
        number = self.slot(key_hash % self.hash_slot_num)
        while number:
            entry = self.entry(number)
            yield entry
            number = entry[3]


def index_of(store: RealStore, folder: Path) -> list[IndexFile]:
    slots = layout_of(store).hash_slot_num
    return [IndexFile(file.name, file.read_bytes(), slots) for file in index_files(folder)]


def offsets_of(files: list[IndexFile], topic: str, key: str) -> set[int]:
    """The commit log offsets of the entries of a key."""
    key_hash = plain_key_hash(topic, key)
    return {entry[1] for file in files for entry in file.chain(key_hash) if entry[0] == key_hash}


def unit_of(folder: Path, fact: Fact, file_size: int) -> tuple[int, int, int]:
    """The unit at the queue offset of a message: commit log offset, size, tags code."""
    at = 20 * int(fact["queueOffset"])
    name = f"{at - at % file_size:020d}"
    data = (folder / "consumequeue" / fact["topic"] / str(fact["queueId"]) / name).read_bytes()
    return struct.unpack_from(">qiq", data, at % file_size)


def queue_file_size(store: RealStore) -> int:
    return int(store.facts("store")[0]["mappedFileSizeConsumeQueue"])


def transaction_type(fact: Fact) -> int:
    return int(fact["sysFlag"]) & 0xC


def time_of(name: str) -> int:
    """The time of a name in milliseconds; the brokers of these stores ran in UTC."""
    moment = datetime.strptime(name[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return round(moment.timestamp()) * 1000 + int(name[14:])


@pytest.mark.parametrize("store", STORES, ids=str)
def test_an_index_file_is_named_after_the_clock_at_its_creation(store: RealStore, unpacked: Unpack) -> None:
    """That is later than the store time of its first message: after a crash, later than all of its messages."""
    folder = unpacked(store)
    late = [time_of(file.name) - file.header[0] for file in index_of(store, folder)]
    assert all(0 <= millis < 60_000 for millis in late)
    assert any(late)


def test_an_index_file_that_a_recovery_made_is_named_after_the_recovery(tmp_path: Path) -> None:
    store = RealStore("killed-533", OWN_STORES)
    last_stored = max(fact["storeTimestamp"] for fact in store.facts("msg"))
    *_, last = index_of(store, store.unpack(tmp_path, "recovered"))
    assert last.header[1] == last_stored < time_of(last.name)


def test_names_in_utc_are_ahead_of_a_broker_west_of_it() -> None:
    """A rebuilt file in UTC sorts after a file that such a broker makes an hour later."""
    west = timezone(timedelta(hours=-8))
    first, hour_later = 1_795_258_842_150, 1_795_258_842_150 + 3_600_000
    (rebuilt,), (made,) = index_file_names([first], UTC), index_file_names([hour_later], west)
    assert made < rebuilt
    (rebuilt,) = index_file_names([first], west)
    assert rebuilt < made


def test_names_in_another_order_hide_messages_from_a_broker_and_from_no_look_up(
    unpacked: Unpack, tmp_path: Path
) -> None:
    """A broker reads the files in the order of their names, and stops at one that begins before the time range."""
    store = RealStore("workload-533", OWN_STORES)
    folder = shutil.copytree(unpacked(store), tmp_path / "store")
    *_, older, newer = index_files(folder)
    begin = IndexFile(newer.name, newer.read_bytes(), 0).header[0]
    fact = [fact for fact in store.facts("msg") if fact["storeTimestamp"] > begin + 1000 and fact["uniqKey"]][-1]
    asked = (fact["topic"], fact["uniqKey"], 64, begin + 1, fact["storeTimestamp"])

    def answers() -> tuple[bool, bool]:
        with MessageStore(str(folder), broker_conf=str(store.broker_conf)) as opened:
            as_broker = [record.commit_log_offset for record in opened.find_as_broker(*asked).records]
            found = opened.query_message(*asked)["commit_log_offset"].to_pylist()
        return fact["offset"] in as_broker, fact["offset"] in found

    assert answers() == (True, True)
    older.rename(older.with_name("20991231235959999"))
    assert answers() == (False, True)


@each_whole
def test_index_count_is_the_number_of_the_next_entry(store: RealStore, unpacked: Unpack) -> None:
    """A file for 500 entries is full with 499: the place of entry 0 stays zeros."""
    files = index_of(store, unpacked(store))
    assert sum(file.header[5] - 1 for file in files) == sum(1 for fact in store.facts("msg") for _ in puts_of(fact))
    for file in files[:-1]:
        assert file.header[5] == layout_of(store).index_num
    for file in files:
        assert file.entry(0) == (0, 0, 0, 0)
        assert file.entry(file.header[5] - 1)[1] == file.header[3]


@each_whole
def test_every_key_is_found_by_its_slot_and_its_chain(store: RealStore, unpacked: Unpack) -> None:
    """Slot n is at 40 + 4 n, and entry m at 40 + 4 N + 20 m; a slot contains the number of its newest entry."""
    files = index_of(store, unpacked(store))
    wanted: dict[tuple[str, str], set[int]] = {}
    for fact in store.facts("msg"):
        if transaction_type(fact) != 12:
            for key in filter(None, {fact["uniqKey"], *(fact["keys"] or "").split(" ")}):
                wanted.setdefault((fact["topic"], key), set()).add(fact["offset"])
    assert len(wanted) > 100
    assert [key for key, offsets in wanted.items() if not offsets <= offsets_of(files, *key)] == []


@each_whole
def test_hash_slot_count_is_the_number_of_slots_with_an_entry(store: RealStore, unpacked: Unpack) -> None:
    """And no slot has an entry that no key put there: slots are counted when they are empty."""
    for file in index_of(store, unpacked(store)):
        used = sum(file.slot(number) != 0 for number in range(file.hash_slot_num))
        assert file.header[4] == used < file.header[5] - 1


@each_workload
def test_times_of_entries_are_seconds_of_store_times_after_the_files_begin(store: RealStore, unpacked: Unpack) -> None:
    """Births are earlier. The first entry of a file counts from what the header said before it."""
    stored = {fact["offset"]: fact["storeTimestamp"] for fact in store.facts("msg")}
    born = {fact["offset"]: fact["bornTimestamp"] for fact in store.facts("msg")}
    other_births = 0
    differences = Counter[int]()
    for file in index_of(store, unpacked(store)):
        for _, offset, time_difference, _ in list(file.entries())[1:]:
            assert time_difference == (stored[offset] - file.header[0]) // 1000
            differences[time_difference] += 1
            other_births += time_difference != (born[offset] - file.header[0]) // 1000
    assert len(differences) > 5
    assert other_births > 5


@each_workload
def test_an_index_contains_uniq_key_and_keys_and_nothing_else(store: RealStore, unpacked: Unpack) -> None:
    read = [entry[:2] for file in index_of(store, unpacked(store)) for entry in file.entries()]
    assert read == [put for fact in store.facts("msg") for put in puts_of(fact)]


@pytest.mark.parametrize("name", ["killed-533", "killed-49x"])
def test_a_recovery_puts_the_keys_of_one_message_twice(name: str, tmp_path: Path) -> None:
    store = RealStore(name, OWN_STORES)
    files = index_of(store, store.unpack(tmp_path, "recovered"))
    kept = {file.name for file in index_files(store.unpack(tmp_path))}
    (last_kept,) = [file for file in files if file.name in kept][-1:]
    expected = Counter(put for fact in store.facts("msg") for put in puts_of(fact))
    again = Counter(entry[:2] for file in files for entry in file.entries()) - expected
    assert {offset for _, offset in again} == {last_kept.header[3]}


@pytest.mark.parametrize("store", [one for one in WHOLE if one.name.endswith(("533", "49x"))], ids=str)
def test_a_checkpoint_has_the_end_of_the_last_full_index_file(store: RealStore, unpacked: Unpack) -> None:
    files = index_of(store, unpacked(store))
    (index_timestamp,) = struct.unpack_from(">q", (unpacked(store) / "checkpoint").read_bytes(), 16)
    assert index_timestamp == (files[-2].header[1] if len(files) > 1 else 0)
    assert index_timestamp < files[-1].header[1]


@each_workload
def test_a_half_message_has_a_unit_and_index_entries(store: RealStore, unpacked: Unpack) -> None:
    """It is stored as an ordinary message of the half topic; only records that no client sends have type PREPARED."""
    folder = unpacked(store)
    files = index_of(store, folder)
    halves = [fact for fact in store.facts("msg") if fact["topic"] == HALF]
    assert len(halves) > 10
    for fact in halves:
        assert transaction_type(fact) == 0
        assert unit_of(folder, fact, queue_file_size(store))[:2] == (fact["offset"], fact["size"])
        assert fact["offset"] in offsets_of(files, HALF, fact["uniqKey"])
    assert {fact["topic"] for fact in store.facts("msg") if transaction_type(fact) == 4} == {"DirectTopic"}


@each_workload
def test_each_check_stores_the_half_message_again(store: RealStore) -> None:
    by_key: dict[str, list[Fact]] = {}
    for fact in store.facts("msg"):
        if fact["topic"] == HALF:
            by_key.setdefault(fact["uniqKey"], []).append(fact)
    times = "TRANSACTION_CHECK_TIMES"
    checks = [[int(fact["properties"].get(times, 0)) for fact in facts] for facts in by_key.values()]
    assert max(map(len, checks)) > 2
    assert all(counts == sorted(counts) and set(counts) == set(range(max(counts) + 1)) for counts in checks)
    discarded = [fact for fact in store.facts("msg") if fact["topic"] == "TRANS_CHECK_MAX_TIME_TOPIC"]
    assert discarded
    assert all(fact["uniqKey"] in by_key for fact in discarded)


@each_workload
def test_a_commit_is_a_whole_message_that_names_its_half_message(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    files = index_of(store, folder)
    halves = {fact["offset"]: fact for fact in store.facts("msg") if fact["topic"] == HALF}
    commits = [fact for fact in store.facts("msg") if transaction_type(fact) == COMMIT]
    assert commits
    for fact in commits:
        half = halves[fact["preparedTransactionOffset"]]
        assert fact["topic"] == half["properties"]["REAL_TOPIC"]
        assert (fact["bodyMd5"], fact["uniqKey"]) == (half["bodyMd5"], half["uniqKey"])
        assert unit_of(folder, fact, queue_file_size(store))[:2] == (fact["offset"], fact["size"])
        assert offsets_of(files, fact["topic"], fact["uniqKey"]) >= {fact["offset"]}


@each_workload
def test_one_unique_key_can_be_in_several_messages(store: RealStore) -> None:
    topics: dict[str, list[str]] = {}
    for fact in store.facts("msg"):
        if fact["uniqKey"] and fact["topic"] != "DirectTopic":
            topics.setdefault(fact["uniqKey"], []).append(fact["topic"])
    assert any(Counter(found)[HALF] > 1 for found in topics.values())
    assert [HALF, "TransactionDemo"] in topics.values()
    assert [SCHEDULE, "DelayDemo"] in topics.values()


@each_workload
def test_a_tags_code_is_the_hash_of_32_bits_or_a_due_time(store: RealStore, unpacked: Unpack) -> None:
    folder, codes = unpacked(store), set()
    for fact in store.facts("msg"):
        if transaction_type(fact) in PREPARED_AND_ROLLBACK:
            continue
        code = unit_of(folder, fact, queue_file_size(store))[2]
        if fact["topic"] == SCHEDULE:
            assert 0 < code - fact["storeTimestamp"] <= 2 * 3_600_000
        else:
            assert code == hash_code(fact["tags"] or "")
            codes.add(code)
    assert len(codes) > 5


def test_with_extension_files_a_tags_code_is_an_address(unpacked: Unpack) -> None:
    """An address is less than any hash of 32 bits."""
    folder = unpacked(RealStore("filtered-533", OWN_STORES)) / "consumequeue"
    data = b"".join(file.read_bytes() for file in sorted(folder.rglob("0" * 20)))
    codes = [code for _, size, code in struct.iter_unpack(">qiq", data) if size]
    assert len(codes) > 200
    assert max(codes) < -(1 << 31)


@each_workload
def test_an_offset_message_id_has_28_bytes_with_an_ipv6_host(store: RealStore) -> None:
    sizes = {(len(bytes.fromhex(fact["msgId"])), bool(fact["sysFlag"] & 0x20)) for fact in store.facts("msg")}
    assert sizes == {(16, False), (28, True)}


@each_workload
def test_a_filler_has_8_bytes_or_more(store: RealStore, unpacked: Unpack) -> None:
    """It begins with its size and a magic number, and ends the segment."""
    (sizes,) = [fact["mappedFileSizeCommitLog"] for fact in store.facts("store")]
    blanks = store.facts("blank")
    assert blanks
    for fact in blanks:
        base = fact["offset"] - fact["offset"] % sizes
        data = (unpacked(store) / "commitlog" / f"{base:020d}").read_bytes()
        assert struct.unpack_from(">iI", data, fact["offset"] - base) == (fact["size"], 0xCBD43194)
        assert fact["offset"] + fact["size"] == base + sizes
    assert min(fact["size"] for fact in blanks) >= 8


@each_workload
def test_a_store_of_5_has_more_than_five_files_of_config(store: RealStore, unpacked: Unpack) -> None:
    names = {path.name for path in (unpacked(store) / "config").iterdir() if path.suffix != ".bak"}
    told = {"topics.json", "consumerOffset.json", "subscriptionGroup.json", "consumerFilter.json", "delayOffset.json"}
    more = {"consumerOrderInfo.json", "timercheck", "timermetrics", "transactionMetrics"}
    assert names == (told | more if store.broker_version == "5" else told)


@each_workload
def test_only_4_9_finds_an_offset_by_time_by_the_times_of_files(
    store: RealStore, unpacked: Unpack, tmp_path: Path
) -> None:
    """If queue files lost their times, 4.9 looks into the last file of a queue; 5.3.3 answers as before."""
    folder = shutil.copytree(unpacked(store), tmp_path / "store")
    for file in (folder / "consumequeue").rglob("0*"):
        if file.is_file():
            os.utime(file, (0, 0))
    units, differ = queue_file_size(store) // 20, 0
    with MessageStore(str(folder), broker_version=store.broker_version) as opened:
        for fact in store.facts("queue"):
            last_file = (fact["max"] - 1) // units * units
            for time, offset in fact["offsetByTime"] or []:
                found = opened.get_offset_in_queue_by_time(fact["topic"], fact["queueId"], time)
                assert found == offset or (store.broker_version == "4.9" and offset < last_file <= found)
                differ += found != offset
    assert (differ > 0) == (store.broker_version == "4.9")


@each_workload
def test_a_pull_at_a_pre_blank_unit_passes_over_messages_of_the_first_segment(store: RealStore) -> None:
    """The unit names commit log offset 0, where its message is not: a broker goes on in the next segment."""
    (facts,) = store.facts("store")
    live = [fact for fact in store.facts("msg") if fact["topic"] == "MovedQueue"]
    assert max(fact["offset"] for fact in live) < facts["mappedFileSizeCommitLog"]
    pulls = [fact for fact in store.facts("get") if fact["topic"] == "MovedQueue" and fact["status"] != "FOUND"]
    before = [fact for fact in pulls if fact["minOffset"] <= fact["offset"] < live[0]["queueOffset"]]
    assert before
    assert {fact["status"] for fact in before} == {"MESSAGE_WAS_REMOVING"}
    assert {fact["nextBeginOffset"] for fact in before} == {live[-1]["queueOffset"] + 1}


@pytest.mark.parametrize("version", ["4.9.7", "5.3.1", "5.3.3"])
def test_no_boot_after_a_clean_stop_makes_a_lost_index_again(version: str, tmp_path: Path) -> None:
    store = RealStore("workload-49x", OWN_STORES)
    folder = store.unpack(tmp_path)
    shutil.rmtree(folder / "index")
    boots = store_state(str(folder), version, str(store.broker_conf)).boots
    assert boots
    for boot in boots:
        assert boot.unindexed is not None
        assert (boot.unindexed.start, boot.dispatched) == (0, ())


def test_a_queue_file_of_default_settings_has_300_000_units() -> None:
    assert DEFAULT_FILE_SIZE == 300_000 * 20
    assert queue_file_name(1, DEFAULT_FILE_SIZE) == "00000000000006000000"
