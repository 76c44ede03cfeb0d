"""An index that is damaged, but whose slots and chains can agree: no check and no look-up is wrong without a word.

The judge is the broker's bytes: a damage that changes none is silent, every other one is found, and a repair gives the
broker's bytes again. Look-ups are judged by the messages that the Java classes found.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.format.index_file import IndexLayout
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.index.folder import found_entries, index_files
from spark_mq.store.store_state import store_state
from spark_mq.testing.plain_check import Oracle
from spark_mq.testing.plain_index import plain_key_hash
from spark_mq.verifier.quick import quick_check
from tests.support.index_damages import EditedIndexFile, damage_index
from tests.support.index_stores import puts_of
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOAD, Fact, index_of, messages_by_key
from tests.support.verified import Bench, check, grave

TRIES = 200 if SOAKS else 16


def edited(bench: Bench, number: int) -> EditedIndexFile:
    times = {fact["offset"]: fact["storeTimestamp"] for fact in bench.messages}
    return EditedIndexFile(bench.path / bench.index_file(number), bench.setting("maxHashSlotNum"), times)


def swaps_within_a_key(bench: Bench) -> Iterator[tuple[int, int, int, tuple[str, str]]]:
    """File, two entries, and a key: the newer of two messages of the key comes to a place before the older one."""
    from spark_mq.format.index_file import index_key_hash

    hashes = {
        index_key_hash(topic.encode(), key.encode()): (topic, key) for topic, key in messages_by_key(bench.messages)
    }
    for number in range(len(list((bench.path / "index").iterdir()))):
        places: dict[int, list[int]] = {}
        for at, (key_hash, *_) in enumerate(edited(bench, number).entries):
            places.setdefault(key_hash, []).append(at)
        for key_hash, found in places.items():
            if len(found) > 1 and found[0] > 0 and key_hash in hashes:
                yield number, found[0] - 1, found[-1], hashes[key_hash]


def test_entries_that_change_places_are_found_and_lose_no_message(bench: Bench) -> None:
    """Also with a time, and if the first message that the chain gives is not the newest one."""
    cases = list(islice(swaps_within_a_key(bench), 0, None, 7))
    assert len(cases) > 5
    expected = messages_by_key(bench.messages)
    for number, one, other, key in cases:
        file = edited(bench, number)
        before = file.path.read_bytes()
        file.swap(one, other)
        file.save_linked()
        _, findings = check(bench.path, bench.packed.broker_conf)
        assert grave(findings), (number, one, other)
        want = [fact["offset"] for fact in expected[key]]
        begin, end = expected[key][-1]["storeTimestamp"], expected[key][0]["storeTimestamp"]
        for check_index in (False, True):
            with MessageStore(
                str(bench.path), broker_conf=str(bench.packed.broker_conf), check_index=check_index
            ) as store:
                assert store.query_message(*key)["commit_log_offset"].to_pylist() == want
                assert store.query_message(*key, max_num=1)["commit_log_offset"].to_pylist() == want[:1]
                assert store.query_message(*key, begin=end, end=end)["commit_log_offset"].to_pylist() == [
                    fact["offset"] for fact in expected[key] if fact["storeTimestamp"] == end
                ]
                assert store.query_message(*key, begin=begin, end=end)["commit_log_offset"].to_pylist() == want
        file.path.write_bytes(before)


def test_no_damage_of_an_index_is_passed_over(bench: Bench) -> None:
    """One to three damages of index files: `verify` is silent only if no byte that a broker reads has changed.

    A look-up gives all rows, or says that it did not use a file. What only a reading of the log shows, an entry that a
    whole file lacks, and what only `check_index` shows, a pointer past entries, are known limits of look-ups.
    """
    files = sorted((bench.path / "index").iterdir())
    before = {file: file.read_bytes() for file in files}
    oracle, expected = Oracle(WORKLOAD, bench.path.parent / "original"), messages_by_key(bench.messages)
    shutil.copytree(bench.path, oracle.original)
    keys = list(expected)
    missed: list[object] = []
    kinds: Counter[str] = Counter()
    for seed in range(TRIES):
        chance = random.Random(seed)
        done = [damage_index(edited(bench, chance.randrange(len(files))), chance) for _ in range(chance.randint(1, 3))]
        kinds.update(one.split()[1] for one in done)
        visible = oracle.visible_changes(bench.path)
        _, findings = check(bench.path, bench.packed.broker_conf)
        if bool(visible) != bool(grave(findings)):
            missed.append((seed, "verify", done, visible))
        touched = sorted(_keys_of_changed_slots(bench, before) & set(keys))
        asked = [*chance.sample(touched, min(len(touched), 30)), *chance.sample(keys, 5)]
        chosen = [key for key in asked if not _is_lacking(bench, expected[key], done)]
        for check_index in (False, True):
            if not check_index and any("pointer" in one or "slot" in one for one in done):
                continue
            wrong = _wrong_answers(bench, expected, chosen, check_index)
            if wrong:
                missed.append((seed, check_index, done, wrong))
        if seed % 4 == 0 and visible:
            report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
            if not report.is_complete or index_of(bench.path) != list(before.values()):
                missed.append((seed, "repair", done, report.verdict))
        for file in (bench.path / "index").iterdir():
            if file not in before:
                file.unlink()
        for file, data in before.items():
            file.write_bytes(data)
    assert not missed
    assert kinds.total() > TRIES
    assert len(kinds) > 6


def _is_lacking(bench: Bench, facts: list[Fact], done: list[str]) -> bool:
    """Whether the index files lack an entry of one of these messages."""
    if not any("is missing" in one for one in done):
        return False
    files = range(len(list((bench.path / "index").iterdir())))
    there = Counter(entry[1] for number in files for entry in edited(bench, number).entries)
    return any(there[fact["offset"]] < len(list(puts_of(fact))) for fact in facts)


def _keys_of_changed_slots(bench: Bench, before: dict[Path, bytes]) -> set[tuple[str, str]]:
    """The keys whose chains a damage changed."""
    by_hash: dict[int, set[tuple[str, str]]] = {}
    for topic, key in messages_by_key(bench.messages):
        by_hash.setdefault(plain_key_hash(topic, key), set()).add((topic, key))
    slot_num, entries_at = bench.setting("maxHashSlotNum"), bench.entry(0)
    found: set[tuple[str, str]] = set()
    for file, old in before.items():
        new = file.read_bytes()
        slots = {at // 4 - 10 for at in range(40, entries_at, 4) if old[at : at + 4] != new[at : at + 4]}
        hashes = {}
        for at in range(entries_at + 20, len(old), 20):
            hashes[at] = struct.unpack_from(">i", old, at)[0]
            if old[at : at + 20] != new[at : at + 20]:
                slots.add(hashes[at] % slot_num)
        for key_hash in hashes.values():
            if key_hash % slot_num in slots:
                found |= by_hash.get(key_hash, set())
    return found


def _wrong_answers(
    bench: Bench, expected: dict[tuple[str, str], list[Fact]], keys: list[tuple[str, str]], check_index: bool
) -> list[tuple[str, str]]:
    """The keys whose look-up, in this process and by the plan of a task, does not give their messages."""
    conf = str(bench.packed.broker_conf)
    wrong = []
    with MessageStore(str(bench.path), broker_conf=conf, check_index=check_index) as store:
        checked = store.index.checked(None, None)
        with MessageStore(str(bench.path), broker_conf=conf, checked_index=checked) as task:
            for key in keys:
                want = [fact["offset"] for fact in expected[key]]
                time = expected[key][0]["storeTimestamp"]
                answers = [
                    (store.query_message(*key), want),
                    (task.query_message(*key), want),
                    (task.query_message(*key, max_num=1), want[:1]),
                    (
                        task.query_message(*key, begin=time, end=time),
                        [fact["offset"] for fact in expected[key] if fact["storeTimestamp"] == time],
                    ),
                ]
                if any(answer["commit_log_offset"].to_pylist() != offsets for answer, offsets in answers):
                    wrong.append(key)
    return wrong


def test_a_cut_file_does_not_hide_the_layout_of_the_others(bench: Bench) -> None:
    """Without the broker's settings, most of the files tell the numbers of slots and entries."""
    file = bench.index_file(-1)
    os.truncate(bench.path / file, bench.entry(1))
    _, findings = check(bench.path, None)
    of_index = {(one.code, one.file) for one in findings if (one.file or "").startswith("index")}
    assert ("INDEX_FILE_SIZE", file) in of_index
    assert "NOT_CHECKED" not in {code for code, _ in of_index}


def with_max_index_num(bench: Bench, number: int, folder: Path) -> Path:
    conf = folder / "broker.conf"
    conf.write_text(f"{bench.packed.broker_conf.read_text()}\nmaxIndexNum={number}\n")
    return conf


def index_codes(bench: Bench, conf: Path) -> set[str]:
    """The codes of a whole and of a quick check that are about index files."""
    _, findings = check(bench.path, conf)
    _, quick = quick_check(str(bench.path), BrokerConf.of(str(conf)))
    return {code for code in [*(one.code for one in findings), *quick["code"].to_pylist()] if code.startswith("INDEX")}


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_larger_max_index_num_loses_no_entry(is_mapped: bool, bench: Bench, tmp_path: Path) -> None:
    """Before the first boot with it, and after one, which makes all files longer; also if it is set back then."""
    layout = IndexLayout(bench.setting("maxHashSlotNum"), 900)
    if is_mapped:
        for file in (bench.path / "index").iterdir():
            os.truncate(file, layout.file_size)
    for conf in (with_max_index_num(bench, 900, tmp_path), bench.packed.broker_conf):
        assert index_codes(bench, conf) == set()
        assert {boot.unindexed for boot in store_state(str(bench.path), broker_conf=str(conf), full=True).boots} == {
            None
        }
        with MessageStore(str(bench.path), broker_conf=str(conf)) as store:
            assert store.index.parts
            assert not store.index.problems


def test_a_smaller_max_index_num_hides_entries(bench: Bench, tmp_path: Path) -> None:
    """A query of the broker ends at the first entry that it does not map (`IndexFile.selectPhyOffset`@5.3.3)."""
    slots, entries = bench.setting("maxHashSlotNum"), 300
    conf, hidden = with_max_index_num(bench, entries, tmp_path), set()
    for info in index_files(Location.resolve(str(bench.path))):
        data, reached = (bench.path / "index" / info.name).read_bytes(), set()
        for slot in range(slots):
            (number,) = struct.unpack_from(">i", data, 40 + 4 * slot)
            while 0 < number < entries:
                reached.add(number)
                (number,) = struct.unpack_from(">i", data, bench.entry(number) + 16)
        found = found_entries(info, IndexLayout(slots, entries))
        assert [entry.tobytes() for entry in found] == [data[bench.entry(n) :][:20] for n in sorted(reached)]
        assert 0 < len(reached) < entries
        others = (one for number, one in enumerate(bench.entries(f"index/{info.name}"), 1) if number not in reached)
        hidden |= {offset for _, offset, *_ in others}
    assert "INDEX_FILE_SIZE" in index_codes(bench, conf)
    lacking = min(fact["offset"] for fact in bench.messages if fact["keys"] or fact["uniqKey"])
    state = store_state(str(bench.path), broker_conf=str(conf), full=True)
    for boot in state.boots:
        assert boot.unindexed is not None
        assert boot.unindexed.start <= lacking
    assert state.index is not None
    assert state.index.lacking == tuple(sorted(offset for offset in hidden if offset in state.index.checked))
