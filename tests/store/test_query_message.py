"""Look-ups by key: the judge is a look at every message that the Java classes found in the store."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import cache
from itertools import islice, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, INDEX_COUNT_AT, index_key_hash
from spark_mq.format.timestamp import iso_text
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.index import key_index
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.testing import LogWriter
from tests.support.index_stores import index_files, layout_of
from tests.support.kernels import examples
from tests.support.rebuilt import rebuild_here
from tests.support.stores import (
    OWN_STORES,
    WORKLOAD,
    Fact,
    RealStore,
    Unpack,
    index_keys,
    messages_by_key,
    stores_in,
    usual_stores,
    without_full_index_files,
)

each_store = pytest.mark.parametrize("store", usual_stores(), ids=str)
each_own_store = pytest.mark.parametrize("store", stores_in(OWN_STORES), ids=str)
ROLLBACK = 12
FOREVER = (1 << 63) - 1


def offsets(table: pa.Table) -> list[int]:
    return list(table.column("commit_log_offset").to_pylist())


@cache
def by_key(store: RealStore) -> dict[tuple[str, str], list[Fact]]:
    return messages_by_key(store.facts("msg"))


def hash_of(topic: str, key: str) -> int:
    return index_key_hash(topic.encode(), key.encode())


def opened(store: RealStore, folder: Path, **arguments: Any) -> MessageStore:
    return MessageStore(str(folder), broker_conf=str(store.broker_conf), **arguments)


def all_at_once(found: MessageStore, keys: list[tuple[str, str]]) -> dict[tuple[str, str], list[int]]:
    """The messages of many keys in one look-up: their offsets, newest first."""
    asked = pa.table(dict(zip(("topic", "key"), map(list, zip(*keys, strict=True)), strict=True)))
    by_asked: dict[tuple[str, str], list[int]] = {key: [] for key in keys}
    for batch in found.query_messages(asked, ["topic", "key", "commit_log_offset"]):
        for row in batch.to_pylist():
            by_asked[row["topic"], row["key"]].append(row["commit_log_offset"])
    return {key: sorted(offsets, reverse=True) for key, offsets in by_asked.items()}


def expected(facts: list[Fact], begin: int = 0, end: int = FOREVER) -> list[int]:
    return [fact["offset"] for fact in facts if begin <= fact["storeTimestamp"] <= end]


@each_store
def test_every_key_finds_its_messages(store: RealStore, unpacked: Unpack) -> None:
    """On stores that lost their index's tail, that were cut, or that a recovery indexed twice, too."""
    with opened(store, unpacked(store)) as found:
        wanted = by_key(store)
        assert len(wanted) > 100
        some = islice(wanted.items(), 0, None, 1 + len(wanted) // 3000)
        wrong = [key for key, facts in some if offsets(found.query_message(*key)) != expected(facts)]
        assert wrong == []
        assert all_at_once(found, list(wanted)) == {key: expected(facts) for key, facts in wanted.items()}
        assert found.index.problems == []


@each_store
def test_the_questions_that_a_broker_was_asked(store: RealStore, unpacked: Unpack) -> None:
    """Windows to the millisecond, keys of other topics, keys that have only the hash of another."""
    wanted = by_key(store)
    with opened(store, unpacked(store)) as found:
        for fact in store.facts("query"):
            key = fact["topic"], fact["key"]
            answer = found.query_message(*key, fact["maxNum"], fact["begin"], fact["end"])
            messages = expected(wanted.get(key, []), fact["begin"], fact["end"])
            assert offsets(answer) == messages[: fact["maxNum"]], fact


@each_own_store
def test_unique_keys_and_message_ids(store: RealStore, unpacked: Unpack) -> None:
    facts = [fact for fact in store.facts("msg") if fact.get("uniqKey") and index_keys(fact)]
    counted = Counter((fact["topic"], fact["uniqKey"]) for fact in facts)
    with opened(store, unpacked(store)) as found:
        for fact in facts[::7]:
            answer = found.query_message_by_unique_key(fact["topic"], fact["uniqKey"])
            assert fact["offset"] in offsets(answer)
            assert len(offsets(answer)) == counted[fact["topic"], fact["uniqKey"]]
            by_id = found.query_message_by_unique_key(fact["topic"], fact["msgId"].lower())
            assert offsets(by_id) == [fact["offset"]]


def test_a_key_of_keys_is_no_unique_key(unpacked: Unpack) -> None:
    fact = next(fact for fact in WORKLOAD.facts("msg") if fact.get("keys") and index_keys(fact))
    key = fact["keys"].split(" ")[0]
    with opened(WORKLOAD, unpacked(WORKLOAD)) as found:
        assert offsets(found.query_message(fact["topic"], key)) != []
        assert offsets(found.query_message_by_unique_key(fact["topic"], key)) == []


def test_a_rollback_is_in_no_index(unpacked: Unpack) -> None:
    rollbacks = [fact for fact in WORKLOAD.facts("msg") if fact["sysFlag"] & ROLLBACK == ROLLBACK]
    assert rollbacks
    with opened(WORKLOAD, unpacked(WORKLOAD)) as found:
        for fact in rollbacks:
            key = fact["keys"].split(" ")[0]
            assert fact["offset"] not in offsets(found.query_message(fact["topic"], key))


@pytest.mark.parametrize("has_index", [True, False])
def test_keys_of_the_same_hash_find_their_own_messages(has_index: bool, tmp_path: Path) -> None:
    """Keys, topics, and tags, which have entries since 5.4.0; a key that a message has three times gives one row."""
    writer = LogWriter(1 << 16)
    stored: dict[tuple[str, str], list[int]] = {}
    for number, (topic, key) in enumerate(product(("Aa", "BB"), ("Aa", "BB", "AaC", "BBC") * 2)):
        properties = f"KEYS\1{key} other {key}\2UNIQ_KEY\1{key}\2TAGS\1Aa\2"
        offset = writer.append(1000 + number, topic=topic.encode(), properties=properties.encode())
        stored.setdefault((topic, key), []).insert(0, offset)
    folder, conf = tmp_path / "store", tmp_path / "broker.conf"
    writer.write(folder)
    conf.write_text("maxHashSlotNum=7\nmaxIndexNum=20\n")
    if has_index:
        rebuild_here(folder, only="index", broker_conf=str(conf), broker_version="5.4.0")
    assert hash_of("Aa", "BBC") == hash_of("BB", "AaC")
    assert hash_of("Aa", "T#BB") == hash_of("BB", "T#Aa")
    others: list[tuple[str, str]] = [("Aa", "T#Aa"), ("BB", "T#BB"), ("CC", "Aa")]
    for asked in (list(stored), [("BB", "AaC")], [*list(stored)[::3], *others]):
        with MessageStore(str(folder), broker_conf=str(conf)) as found:
            assert all_at_once(found, asked) == {key: stored.get(key, []) for key in asked}


def test_odd_questions_find_nothing(unpacked: Unpack) -> None:
    with opened(WORKLOAD, unpacked(WORKLOAD)) as found:
        for key in ("", " ", "a b", "\ud800", "\ufffd", "x" * 100_000):
            assert offsets(found.query_message("OrderEvents", key)) == []
        assert offsets(found.query_message("", "user1")) == []
        some_key = next(iter(by_key(WORKLOAD)))
        assert offsets(found.query_message(*some_key, max_num=0)) == []
        assert offsets(found.query_message(*some_key, begin=FOREVER)) == []
        assert offsets(found.query_message(*some_key, end=-FOREVER)) == []
        assert offsets(found.query_message(*some_key, begin=0, end=-1)) == []


class CountedReads:
    """Counts the bytes that a store's files give, by folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bytes: Counter[str] = Counter()
        read = FileReaders.read

        def counted(readers: FileReaders, location: Location, position: int, length: int) -> bytes:
            data = read(readers, location, position, length)
            self.bytes[Path(location.path).parent.name] += len(data)
            return data

        monkeypatch.setattr(FileReaders, "read", counted)


@each_own_store
def test_a_look_up_reads_the_chain_and_the_hits(
    store: RealStore, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a store is open; to open it, a few records are looked at to see where log and index end."""
    reads = CountedReads(monkeypatch)
    with opened(store, unpacked(store)) as found:
        spans = [part for part in found.index.parts if isinstance(part, IndexedRange)]
        if len(spans) < len(found.index.parts):
            pytest.skip("its index does not cover its log")
        assert reads.bytes["commitlog"] < 64 << 10
        entries = sum(span.header.next_entry - 1 for span in spans)
        sizes: dict[int, Counter[int]] = {}
        for key, facts in by_key(store).items():
            of_hash = sizes.setdefault(hash_of(*key), Counter())
            of_hash.update({fact["offset"]: fact["size"] for fact in facts if fact["offset"] not in of_hash})
        for key in islice(by_key(store), 0, None, 10):
            reads.bytes.clear()
            found.query_message(*key)
            assert reads.bytes["commitlog"] == sizes[hash_of(*key)].total()
            # a header and a slot of each file, and at most all entries
            assert reads.bytes["index"] <= ENTRY_SIZE * entries + (HEADER_SIZE + 4) * len(spans)


def test_why_there_is_none(unpacked: Unpack, tmp_path: Path) -> None:
    """A store whose first segment expired, with all its index files."""
    folder = shutil.copytree(unpacked(WORKLOAD), tmp_path / "store")
    first, second = sorted((folder / "commitlog").iterdir())[:2]
    first.unlink()
    start = int(second.name)
    with opened(WORKLOAD, folder) as found:
        together = all_at_once(found, list(by_key(WORKLOAD)))
        expired = 0
        for key, facts in by_key(WORKLOAD).items():
            live = [fact for fact in facts if fact["offset"] >= start]
            assert offsets(found.query_message(*key)) == expected(live) == together[key]
            if live:
                said = found.why_no_message(*key, end=live[-1]["storeTimestamp"] - 1)
                assert f"stored at {iso_text(live[0]['storeTimestamp'])}" in said
            else:
                assert f"the log begins at {start}" in found.why_no_message(*key)
                expired += 1
        assert expired > 10
        assert "no queue of topic nope" in found.why_no_message("nope", "k")
        assert "has it" in found.why_no_message("OrderEvents", "never was")


@pytest.mark.parametrize("full", ["none", "with another index count"])
def test_other_sizes_than_the_files_tell(full: str, unpacked: Unpack, tmp_path: Path) -> None:
    """Without the broker's settings nobody knows where slots end: the log answers. Many layouts have one size."""
    key, facts = next(iter(by_key(WORKLOAD).items()))
    store = without_full_index_files(unpacked(WORKLOAD), tmp_path)
    if full != "none":
        first = min((unpacked(WORKLOAD) / "index").iterdir())
        data = bytearray(first.read_bytes())
        data[INDEX_COUNT_AT : INDEX_COUNT_AT + 4] = (layout_of(WORKLOAD).index_num - 8).to_bytes(4, "big")
        (store / "index" / first.name).write_bytes(data)
    with MessageStore(str(store)) as found:
        assert all_at_once(found, [key]) == {key: expected(facts)}
        assert offsets(found.query_message(*key)) == expected(facts)
        (problem,) = found.index.problems
        assert "maxHashSlotNum" in problem


@pytest.fixture(scope="module")
def damaged_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return WORKLOAD.unpack(tmp_path_factory.mktemp("damaged"))


def newest_entries(file: Path, topic: str, key: str) -> list[int]:
    """Places in the file of the entries that have the key's hash, newest first."""
    layout, data, wanted = layout_of(WORKLOAD), file.read_bytes(), hash_of(topic, key)
    places = [layout.entries_at + ENTRY_SIZE * number for number in range(1, int.from_bytes(data[36:40], "big"))]
    return [at for at in reversed(places) if int.from_bytes(data[at : at + 4], "big") == wanted]


@pytest.mark.parametrize("change", ["early", "late", "place"])
def test_an_entry_with_another_time_or_another_message_s_place_leaves_nothing_out(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its slot and its hash are right: only the log, and the entries beside it, can tell."""
    monkeypatch.setattr(key_index, "CLOCK_TOLERANCE_MILLIS", 0)  # the store was written in less than a minute
    folder = WORKLOAD.unpack(tmp_path)
    (topic, key), facts = max(by_key(WORKLOAD).items(), key=lambda item: len(item[1]))
    file = next(file for file in reversed(index_files(folder)) if len(newest_entries(file, topic, key)) > 3)
    entries = newest_entries(file, topic, key)
    data = bytearray(file.read_bytes())
    if change == "place":
        data[entries[-2] + 4 : entries[-2] + 12] = data[entries[-1] + 4 : entries[-1] + 12]
    else:
        data[entries[1] + 12 : entries[1] + 16] = (0 if change == "early" else 0x7FFFFFFF).to_bytes(4, "big")
    file.write_bytes(data)
    times = [fact["storeTimestamp"] for fact in facts]
    with opened(WORKLOAD, folder) as found:
        assert all_at_once(found, [(topic, key)]) == {(topic, key): expected(facts)}
        assert offsets(found.query_message(topic, key)) == expected(facts)
        for begin, end in ((times[-1], times[0]), (times[len(times) // 2], times[0] + 100_000), (times[2], times[0])):
            wanted = [fact for fact in facts if begin <= fact["storeTimestamp"] <= end]
            assert offsets(found.query_message(topic, key, begin=begin, end=end)) == expected(wanted)


class TestDamage:
    """Never a wrong message, never an endless walk; what is damaged is named, and the log answers."""

    @settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data())
    def test_any_bit(self, damaged_folder: Path, data: st.DataObject) -> None:
        """Checked files give every message; unchecked ones may miss some where a pointer was cut."""
        folder = damaged_folder
        file = data.draw(st.sampled_from(index_files(folder)))
        layout = layout_of(WORKLOAD)
        sound = file.read_bytes()
        used = layout.entries_at + ENTRY_SIZE * int.from_bytes(sound[36:40], "big")
        place, bit = data.draw(st.integers(0, used - 1)), data.draw(st.integers(0, 7))
        wanted = by_key(WORKLOAD)
        keys = data.draw(st.lists(st.sampled_from(list(wanted)), min_size=20, max_size=20))
        damaged = bytearray(sound)
        damaged[place] ^= 1 << bit
        file.write_bytes(damaged)
        try:
            with opened(WORKLOAD, folder, check_index=True) as checked:
                for key in keys:
                    assert offsets(checked.query_message(*key)) == expected(wanted[key])
            with opened(WORKLOAD, folder) as unchecked:
                together = all_at_once(unchecked, keys)
                for key in keys:
                    found = offsets(unchecked.query_message(*key))
                    assert found == [offset for offset in expected(wanted[key]) if offset in found] == together[key]
                    if not _is_pointer(place, layout.entries_at):
                        assert found == expected(wanted[key])
        finally:
            file.write_bytes(sound)

    @pytest.mark.parametrize("damage", ["short", "empty", "garbage", "zeros", "folder"])
    def test_a_file_that_is_none(self, damage: str, unpacked: Unpack, tmp_path: Path) -> None:
        folder = shutil.copytree(unpacked(WORKLOAD), tmp_path / "store")
        file = index_files(folder)[1]
        sound = file.read_bytes()
        if damage == "folder":
            shutil.rmtree(folder / "index")
            (folder / "index").mkdir()
        else:
            broken = {"short": sound[:-1], "empty": b"", "garbage": b"\xa5" * len(sound), "zeros": bytes(len(sound))}
            file.write_bytes(broken[damage])
        with opened(WORKLOAD, folder) as found:
            wanted = {key: expected(facts) for key, facts in islice(by_key(WORKLOAD).items(), 0, None, 10)}
            assert all_at_once(found, list(wanted)) == wanted
            assert {key: offsets(found.query_message(*key)) for key in wanted} == wanted
            named = [problem for problem in found.index.problems if file.name in problem]
            assert len(named) == (damage in ("short", "empty", "garbage"))

    def test_entries_that_go_in_a_ring(self, unpacked: Unpack, tmp_path: Path) -> None:
        folder = shutil.copytree(unpacked(WORKLOAD), tmp_path / "store")
        layout = layout_of(WORKLOAD)
        for file in index_files(folder):
            data = bytearray(file.read_bytes())
            for number in range(1, int.from_bytes(data[36:40], "big")):
                at = layout.entries_at + ENTRY_SIZE * number + 16
                data[at : at + 4] = number.to_bytes(4, "big")
            file.write_bytes(data)
        with opened(WORKLOAD, folder) as found:
            wanted = {key: expected(facts) for key, facts in islice(by_key(WORKLOAD).items(), 0, None, 40)}
            assert all_at_once(found, list(wanted)) == wanted
            assert {key: offsets(found.query_message(*key)) for key in wanted} == wanted
            assert found.index.problems


def _is_pointer(place: int, entries_at: int) -> bool:
    """A slot, or the number of the entry before."""
    if place < entries_at:
        return place >= HEADER_SIZE
    return (place - entries_at) % ENTRY_SIZE >= 16
