"""The answer of a broker to a look-up by key: the judge is RocketMQ's own store, which was asked the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.errors import OptionError
from spark_mq.format.broker_version import INDEX_TAGS, BrokerVersion
from spark_mq.format.java_text import hash_code
from tests.support.index_stores import STORES
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, Unpack, version_stores

FOREVER = (1 << 63) - 1


@pytest.mark.parametrize("store", STORES, ids=str)
def test_the_answers_are_those_of_the_broker(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    """Windows to the millisecond, small limits, keys with the hash of another, entries of expired messages."""
    folder = store.unpack_as_described(tmp_path) if store.has("recovered") else unpacked(store)
    asked = store.facts("query")
    assert len(asked) > 200
    with MessageStore(str(folder), broker_conf=str(store.broker_conf)) as opened:
        for fact in asked:
            answer = opened.find_as_broker(fact["topic"], fact["key"], fact["maxNum"], fact["begin"], fact["end"])
            assert [record.commit_log_offset for record in answer.records] == fact["offsets"], fact
            assert answer.index_last_update_timestamp == fact["indexLastUpdateTimestamp"]
            assert answer.index_last_update_commit_log_offset == fact["indexLastUpdatePhyoffset"]


def words(store: Path, topic: str, key: str, *more: str) -> list[str]:
    return ["query-by-key", str(store), topic, key, "--broker-conf", str(WORKLOAD.broker_conf), "--json", *more]


def test_the_command_prints_what_the_broker_answers(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    """At most 64 messages; and of a key that no message has, those that have its hash."""
    folder = unpacked(WORKLOAD)
    keys = {(fact["topic"], fact["offset"]): (fact.get("keys") or "").split(" ") for fact in WORKLOAD.facts("msg")}
    most = others = 0
    for fact in WORKLOAD.facts("query"):
        if fact["maxNum"] != 64 or fact["end"] != FOREVER or fact["begin"]:
            continue
        collides = any(fact["key"] not in keys.get((fact["topic"], at), ()) for at in fact["offsets"])
        if not (collides or len(fact["offsets"]) > 20) or min(most, others) > 2:
            continue
        assert main([*words(folder, fact["topic"], fact["key"]), "--as-broker"]) == 0
        captured = capsys.readouterr()
        assert [json.loads(line)["commit_log_offset"] for line in captured.out.splitlines()] == fact["offsets"]
        most, others = max(most, len(fact["offsets"])), others + ("another key with the same hash" in captured.err)
    assert main([*words(folder, "DirectTopic", "shared"), "--as-broker"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 64
    assert main(words(folder, "DirectTopic", "shared")) == 0
    assert len(capsys.readouterr().out.splitlines()) > 64
    assert others


def test_a_look_up_that_finds_nothing_says_why(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unpacked(WORKLOAD)
    assert main([*words(folder, "OrderEvents", "no such key"), "--as-broker"]) == 3
    assert "a broker finds no message" in capsys.readouterr().err


@pytest.mark.parametrize("more", [["--filter", "a > 1"], ["--check-index"], ["--explain"]], ids=str)
def test_what_a_broker_cannot_do_is_an_error(
    more: list[str], unpacked: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(unpacked(WORKLOAD), "OrderEvents", "k"), "--as-broker", *more]) == 2
    assert f"{more[0]} is not part of a broker's own look-up: leave out --as-broker" in capsys.readouterr().err


def test_the_limit_of_the_settings_counts(unpacked: Unpack, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(WORKLOAD.broker_conf.read_text() + "\nmaxMsgsNumBatch=5\n")
    with MessageStore(str(unpacked(WORKLOAD)), broker_conf=str(conf)) as store:
        assert store.query_message_as_broker("DirectTopic", "shared", max_num=20).num_rows == 5


TAGGED = RealStore("workload-550", OWN_STORES / "versions")


@pytest.mark.parametrize("store", [TAGGED, *version_stores("p")], ids=str)
def test_by_tags_a_broker_finds_the_messages_that_have_them(store: RealStore, unpacked: Unpack) -> None:
    """At most 64, the newest ones, and those of tags with the same hash; none before the index had tags."""
    facts = [fact for fact in store.facts("msg") if fact["tags"] and fact["sysFlag"] & 0xC != 0xC]
    has_tags = INDEX_TAGS.holds(BrokerVersion.parse(store.broker_version))
    expected = {
        (topic, tags): [
            fact["offset"]
            for fact in facts
            if has_tags and fact["topic"] == topic and hash_code(fact["tags"]) == hash_code(tags)
        ]
        for topic, tags in {(fact["topic"], fact["tags"]) for fact in facts}
    }
    assert max(map(len, expected.values())) > 10 or not has_tags
    with MessageStore(str(unpacked(store)), broker_conf=str(store.broker_conf)) as opened:
        for (topic, tags), offsets in expected.items():
            found = opened.query_message_as_broker(topic, tags, index_type="T")
            assert found["commit_log_offset"].to_pylist() == offsets[-64:]


def test_a_look_up_by_tags_is_one_of_a_broker(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unpacked(TAGGED)
    with MessageStore(str(folder), broker_conf=str(TAGGED.broker_conf)) as opened:
        expected = opened.query_message_as_broker("DirectTopic", "TagA", index_type="T")
        with pytest.raises(OptionError, match="index type 'X' is none of K"):
            opened.find_as_broker("DirectTopic", "TagA", index_type="X")
    command = ["query-by-key", str(folder), "DirectTopic", "TagA", "--broker-conf", str(TAGGED.broker_conf), "--json"]
    assert main([*command, "--as-broker", "--index-type", "T"]) == 0
    printed = [json.loads(line)["commit_log_offset"] for line in capsys.readouterr().out.splitlines()]
    assert printed == expected["commit_log_offset"].to_pylist() != []
    assert main([*command, "--index-type", "T"]) == 2
    assert "add --as-broker" in capsys.readouterr().err


def test_a_key_with_the_text_of_a_tags_key_reads_no_log(unpacked: Unpack) -> None:
    """Its entries are those of the tags: they are sound, and of messages that do not have the key."""
    folder = unpacked(TAGGED)
    fact = next(fact for fact in TAGGED.facts("msg") if fact["tags"] and fact["keys"])
    with MessageStore(str(folder), broker_conf=str(TAGGED.broker_conf), check_index=True) as opened:
        assert list(opened.find_messages(fact["topic"], f"T#{fact['tags']}")) == []
        assert not opened.index.problems
