"""An index in RocksDB: its records against the log, and what a broker answers out of it; the judge is RocketMQ."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.format.java_text import hash_code
from tests.support.in_process import read_rows
from tests.support.rocksdb import ALL_IN_ROCKS
from tests.support.stores import Fact

Unpack = Callable[..., Path]
FOREVER = (1 << 63) - 1


def test_the_answers_are_those_of_the_broker(unpacked: Unpack, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old client names no type of index: the broker looks for a key, and then for a unique key."""
    asked = ALL_IN_ROCKS.facts("query")
    monkeypatch.setattr(time, "time", lambda: max(fact["storeTimestamp"] for fact in ALL_IN_ROCKS.facts("msg")) / 1000)
    assert sum(bool(fact["offsets"]) for fact in asked) > 200
    with MessageStore(str(unpacked(ALL_IN_ROCKS)), broker_conf=str(ALL_IN_ROCKS.broker_conf)) as opened:
        for fact in asked:
            words = fact["topic"], fact["key"], fact["maxNum"], fact["begin"], fact["end"]
            answers = [opened.find_as_broker(*words, index_type) for index_type in "KU"]
            answer = answers[0] if answers[0].records else answers[1]
            assert [record.commit_log_offset for record in answer.records] == fact["offsets"], fact
            assert answer.index_last_update_timestamp == fact["indexLastUpdateTimestamp"]
            assert answer.index_last_update_commit_log_offset == fact["indexLastUpdatePhyoffset"]


def test_a_time_range_that_the_broker_refuses_has_no_answer(unpacked: Unpack, tmp_path: Path) -> None:
    fact = next(fact for fact in ALL_IN_ROCKS.facts("msg") if fact["uniqKey"])
    words = [str(unpacked(ALL_IN_ROCKS)), fact["topic"], fact["uniqKey"], "--as-broker", "--index-type", "U"]
    conf = tmp_path / "broker.conf"
    conf.write_text(ALL_IN_ROCKS.broker_conf.read_text() + "maxRocksDBIndexQueryDays=2\n")
    hours = 3_600_000
    for before, found in ((1 * hours, 0), (47 * hours, 0), (49 * hours, 3)):
        times = ["--begin", str(fact["storeTimestamp"] - before), "--end", str(fact["storeTimestamp"])]
        assert main(["query-by-key", *words, "--broker-conf", str(conf), *times]) == found


def keys_of(fact: Fact) -> set[tuple[str, str]]:
    """What the index has of a message (`IndexRocksDBStore.buildIndex`@5.5.0)."""
    if not fact["uniqKey"] or fact["sysFlag"] & 0xC == 0xC:
        return set()
    found = {("K", key) for key in (fact["keys"] or "").split(" ") if key} | {("U", fact["uniqKey"])}
    return found | ({("T", fact["tags"])} if fact["tags"] else set())


def test_the_table_has_the_keys_of_the_log(unpacked: Unpack) -> None:
    path, conf = str(unpacked(ALL_IN_ROCKS)), str(ALL_IN_ROCKS.broker_conf)
    rows = read_rows(path=path, table="index_entries", brokerConf=conf)
    records = [row for row in rows if row["file"] == "rocksdbstore"]
    assert any(row["index_type"] is None and row["entry"] for row in rows)
    found = {(row["commit_log_offset"], row["topic"], row["index_type"], row["key"]) for row in records}
    facts = {fact["offset"]: fact for fact in ALL_IN_ROCKS.facts("msg")}
    assert len(records) == len(found)
    assert found == {(at, fact["topic"], *key) for at, fact in facts.items() for key in keys_of(fact)}
    for row in records:
        fact = facts[row["commit_log_offset"]]
        text = f"{row['topic']}#{'T#' if row['index_type'] == 'T' else ''}{row['key']}"
        assert row["unique_key"] == fact["uniqKey"]
        assert row["key_hash"] == abs(hash_code(text))
        assert row["store_timestamp"].timestamp() * 1000 == pytest.approx(fact["storeTimestamp"], abs=0.5)
