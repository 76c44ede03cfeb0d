"""An index that is damaged, but whose slots and chains can agree: no check and no look-up is wrong without a word.

The judge is the broker's bytes: a damage that changes none is silent, every other one is found, and a repair gives the
broker's bytes again. Look-ups are judged by the messages that the Java classes found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from spark_mq import MessageStore
from tests.support.index_damages import EditedIndexFile
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, Fact, RealStore
from tests.support.verified import Bench, check, grave

Unpack = Callable[[RealStore], Path]
WORKLOAD = RealStore("workload-533", OWN_STORES)
TRIES = 400 if SOAKS else 40


@pytest.fixture
def bench(unpacked: Unpack, tmp_path: Path) -> Bench:
    return Bench.of(unpacked(WORKLOAD), WORKLOAD.name, tmp_path)


def edited(bench: Bench, number: int) -> EditedIndexFile:
    times = {fact["offset"]: fact["storeTimestamp"] for fact in bench.messages}
    return EditedIndexFile(bench.path / bench.index_file(number), bench.setting("maxHashSlotNum"), times)


def by_key(messages: list[Fact]) -> dict[tuple[str, str], list[Fact]]:
    """The messages with each key, newest first."""
    found: dict[tuple[str, str], list[Fact]] = {}
    for fact in sorted(messages, key=lambda fact: -int(fact["offset"])):
        keys = {key for key in [*(fact["keys"] or "").split(" "), fact["uniqKey"]] if key}
        for key in keys if fact["sysFlag"] & 12 != 12 else ():
            found.setdefault((fact["topic"], key), []).append(fact)
    return found


def swaps_within_a_key(bench: Bench) -> Iterator[tuple[int, int, int, tuple[str, str]]]:
    """File, two entries, and a key: the newer of two messages of the key comes to a place before the older one."""
    from spark_mq.format.index_file import index_key_hash

    hashes = {index_key_hash(topic.encode(), key.encode()): (topic, key) for topic, key in by_key(bench.messages)}
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
    expected = by_key(bench.messages)
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
