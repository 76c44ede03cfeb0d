"""A message is found by its unique key without its topic, with and without an index."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.store.message_selection import find_unique_key, known_topics
from tests.support.stores import WORKLOAD, Unpack


def found(store: MessageStore, key: str) -> list[int]:
    return [record.commit_log_offset for record in find_unique_key(store, key)]


@pytest.mark.parametrize("index", ["whole", "half", "none"])
def test_the_messages_of_all_topics_are_found(index: str, unpacked: Unpack, tmp_path: Path) -> None:
    folder = unpacked(WORKLOAD)
    if index != "whole":
        folder = WORKLOAD.unpack(tmp_path)
        files = sorted((folder / "index").iterdir())
        for file in files if index == "none" else files[: len(files) // 2]:
            file.unlink()
    expected = defaultdict(list)
    for fact in sorted(WORKLOAD.facts("msg"), key=lambda fact: -int(fact["offset"])):
        if fact["uniqKey"] and fact["sysFlag"] & 12 != 12:
            expected[fact["uniqKey"]].append(fact["offset"])
    repeated = [key for key, offsets in expected.items() if len(offsets) > 1]
    assert repeated  # a retried message has the unique key of the first one
    with MessageStore(str(folder), broker_conf=str(WORKLOAD.broker_conf)) as store:
        for key in [*repeated[:3], *list(expected)[:: 1 + len(expected) // 8]]:
            assert found(store, key) == expected[key]
        assert found(store, "7F0000010B5F18B4AAC28F1B3B6D0000") == []


def test_a_key_of_keys_is_not_a_unique_key(unpacked: Unpack) -> None:
    key = next(fact["keys"] for fact in WORKLOAD.facts("msg") if fact["keys"]).split()[0]
    with MessageStore(str(unpacked(WORKLOAD)), broker_conf=str(WORKLOAD.broker_conf)) as store:
        assert found(store, key) == []


def test_topics_are_known_without_queues(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    with MessageStore(str(folder)) as store:
        before = known_topics(store)
    shutil.rmtree(folder / "consumequeue" / "OrderEvents")
    with MessageStore(str(folder)) as store:
        assert known_topics(store) == before
        assert "OrderEvents" in before
