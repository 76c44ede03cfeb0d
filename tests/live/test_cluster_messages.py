"""Look-ups of point commands in a running cluster: what they find, and what they say if they find nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.cli.messages import print_message
from spark_mq.errors import DataLossError, ProtocolError
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.live.cluster_messages import ClusterMessages
from spark_mq.live.look_ups import records_of_range
from spark_mq.live.options import parse_live_options
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.command import RemotingCommand
from spark_mq.remoting.pull import QueueRange
from spark_mq.store.config.named_stores import NamedRecord
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import COUNT, FIRST_TIME, OTHER, QUEUES, TOPIC, HostileCluster, record

HOST = bytes((127, 0, 0, 1))


@pytest.fixture(scope="module")
def cluster() -> Iterator[HostileCluster]:
    made = HostileCluster()
    with serving(made.answer) as address:
        made.address = address
        yield made


@contextmanager
def messages_of(address: str, **options: str) -> Iterator[ClusterMessages]:
    parsed = parse_live_options({"path": f"rocketmq://{address}", "topicPattern": ".*"} | options)
    with RemotingClient(parsed.client) as client:
        yield ClusterMessages(client, parsed)


def offset_message_id(port: int, commit_log_offset: int) -> str:
    return encode_offset_message_id(HOST + port.to_bytes(4, "big"), commit_log_offset)


@contextmanager
def two_brokers() -> Iterator[tuple[HostileCluster, HostileCluster]]:
    """Two brokers with the same messages; the second is a slave of a master that does not run."""
    first, second = HostileCluster(), HostileCluster()
    with serving(first.answer) as first.address, serving(second.answer) as second.address:
        first.others = {"z": {0: "127.0.0.1:9", 3: second.address}}
        yield first, second


def test_messages_of_several_brokers_are_in_the_order_of_their_times() -> None:
    with two_brokers() as (first, second):
        first.others = {"z": {0: second.address}}
        with messages_of(first.address) as messages:
            found = list(messages.of_topic(TOPIC))
            backwards = list(messages.of_topic(TOPIC, newest_first=True))
            with_key = list(messages.with_key("k1", TOPIC))
    assert len(found) == 2 * QUEUES * COUNT
    times = [one.record.store_timestamp for one in found]
    assert times == sorted(times)
    assert {one.names for one in found} == {("c", "b", first.address), ("c", "z", second.address)}

    def key(one: NamedRecord) -> tuple[int, tuple[str, str, str]]:
        return one.record.store_timestamp, one.names

    assert sorted(found, key=key) == sorted(backwards, key=key)
    assert [one.record.store_timestamp for one in backwards] == times[::-1]
    assert sorted(map(key, with_key)) == sorted(key(one) for one in found if b"k1" in one.record.properties)
    with_key_times = [one.record.store_timestamp for one in with_key]
    assert with_key_times == sorted(with_key_times, reverse=True)


def test_an_id_names_any_member_of_its_broker() -> None:
    with two_brokers() as (first, second):
        first.others["b"] = {0: first.address, 3: first.address}
        with messages_of(first.address, readFrom="slave") as messages:
            # The message says that it was stored by the broker that answers; its master has another address.
            assert [one.names[1] for one in messages.with_id(offset_message_id(second.port, 15000))] == ["z"]
            assert list(messages.with_id(offset_message_id(9, 15000))) == []
            assert [one.names[1] for one in messages.with_id(offset_message_id(9, 15000), any_host=True)] == ["b", "z"]


def test_a_key_is_found_in_all_topics_and_in_a_time(cluster: HostileCluster) -> None:
    with messages_of(cluster.address) as messages:
        topics = [one.record.topic.decode() for one in messages.with_key("k3")]
        assert sorted(topics) == sorted([TOPIC, OTHER] * 8)
        (one,) = messages.with_key(f"{OTHER}-1-7", is_unique=True)
        assert (one.record.topic.decode(), one.record.queue_id, one.record.queue_offset) == (OTHER, 1, 7)
        assert list(messages.with_key("k3", TOPIC, is_unique=True)) == []
        begin, end = FIRST_TIME + 60, FIRST_TIME + 170
        found = [one.record.store_timestamp for one in messages.with_key("k3", TOPIC, begin=begin, end=end)]
        assert found == [FIRST_TIME + 170, FIRST_TIME + 160, FIRST_TIME + 70, FIRST_TIME + 60]


def test_new_messages_follow_those_that_were_read(cluster: HostileCluster) -> None:
    ends = [5]

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.GET_MAX_OFFSET:
            yield response(request, fields={"offset": str(ends[0])})
        else:
            yield from cluster.answer(request)

    def offsets(found: Iterator[Any]) -> list[int]:
        return [one.record.queue_offset for one in found]

    with serving(answer) as address, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "address", address)
        with messages_of(address) as messages:
            begun = messages.of_topic(TOPIC, queue_id=1)
            ends[0] = 7
            assert offsets(begun) == [0, 1, 2, 3, 4]
            assert offsets(messages.new_messages()) == [5, 6]
            assert offsets(messages.new_messages()) == []
            ends[0] = 20
            assert offsets(messages.new_messages()) == list(range(7, 20))
            ends[0] = 19
            with pytest.raises(DataLossError, match=r"queue Orders/1 .*up to queue offset 20.*ends at 19"):
                messages.new_messages()


FOUND: list[tuple[list[str], list[str]]] = [
    (["query-by-key", TOPIC, "k1", "--max-num", "3"], [f"{TOPIC}-{one}" for one in ("1-16", "0-16", "1-11")]),
    (
        ["query-by-key", TOPIC, "k1", "--begin", str(FIRST_TIME + 230)],
        [f"{TOPIC}-{one}" for one in ("1-16", "0-16", "1-11")],
    ),
    (["query-by-unique-key", f"{OTHER}-0-3"], [f"{OTHER}-0-3"]),
    (["query-by-unique-key", TOPIC, f"{TOPIC}-0-3"], [f"{TOPIC}-0-3"]),
    (["query-by-offset", TOPIC, "1", "7"], [f"{TOPIC}-1-7"]),
    (["query-by-id", "ID"], [f"{TOPIC}-1-7"]),
    (["print-message", TOPIC, "--limit", "2"], [f"{TOPIC}-0-0", f"{TOPIC}-1-0"]),
    (["print-message", TOPIC, "--last", "3", "--tag", "t1"], [f"{TOPIC}-{one}" for one in ("1-17", "0-19", "1-19")]),
    (["print-message", TOPIC, "--queue-id", "1", "--last", "1", "--newest-first"], [f"{TOPIC}-1-19"]),
    (["print-message", TOPIC, "--key", f"{TOPIC}-1-5"], [f"{TOPIC}-1-5"]),
]


@pytest.mark.parametrize(("command", "expected"), FOUND, ids=[" ".join(command) for command, _ in FOUND])
def test_a_command_prints_what_brokers_find(
    cluster: HostileCluster, capsys: pytest.CaptureFixture[str], command: list[str], expected: list[str]
) -> None:
    name, *asked = [offset_message_id(cluster.port, 15000) if word == "ID" else word for word in command]
    assert main([name, f"rocketmq://{cluster.address}", *asked, "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["unique_key"] for row in rows] == expected
    assert {(row["cluster"], row["broker"], row["store"]) for row in rows} == {("c", "b", cluster.address)}


NOTHING: list[tuple[list[str], int, str]] = [
    (["query-by-key", TOPIC, "nokey"], 3, "has no such message"),
    (["query-by-key", "Order", "nokey"], 3, "no broker has topic Order; similar: Orders"),
    (["query-by-unique-key", f"{TOPIC}-0-99"], 3, "has no such message"),
    (["query-by-offset", TOPIC, "1", "20"], 3, "queue Orders/1 of broker b has offsets 0 to 19"),
    (["query-by-offset", TOPIC, "2", "0"], 3, "no broker has a queue Orders/2 that consumers can read"),
    (["query-by-id", "7F00000100002A9F0000000000001000"], 3, "10911 is not a broker of this cluster; --any-host"),
    (["query-by-id", "7F0000010B5F18B4AAC28F1B3B6D0000"], 3, "no topic has this unique key"),
    (["query-by-id", "ID", "7F00000100002A9F0000000000001000"], 3, "no message 7F00000100002A9F0000000000001000"),
    (["print-message", TOPIC, "--begin", str(FIRST_TIME + 500)], 3, "has no such message"),
    (["print-message", TOPIC, "--last", "0"], 2, "give 1 or more"),
    (["query-by-key", TOPIC, "k1", "--as-broker"], 2, "--as-broker has no effect"),
    (["query-by-key", TOPIC, "k1", "--broker-conf", "x"], 2, "is a running cluster"),
    (["life", "nokey"], 3, "has such a message, or its index does not find it"),
    (["life", "k1", "--broker-conf", "x"], 2, "--broker-conf has no effect"),
    (["life", "k1", "--store-name", "x"], 2, "is not an archive"),
    (
        ["why-not-consumed", "GID", TOPIC, "0", "0", "--broker", "z"],
        2,
        "no such broker has queue Orders/0: --broker choos",
    ),
    (["restore", "/tmp/new"], 2, "restore needs the files of a store"),
    (["verify"], 2, "verify needs the files of a store"),
]


@pytest.mark.parametrize(("command", "status", "text"), NOTHING, ids=[" ".join(command) for command, *_ in NOTHING])
def test_a_command_says_why_nothing_was_found(
    cluster: HostileCluster, capsys: pytest.CaptureFixture[str], command: list[str], status: int, text: str
) -> None:
    name, *asked = [offset_message_id(cluster.port, 15000) if word == "ID" else word for word in command]
    assert main([name, f"rocketmq://{cluster.address}", *asked]) == status
    assert text in capsys.readouterr().err


def test_new_messages_are_printed_as_they_come(
    cluster: HostileCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = iter([*[5] * QUEUES, *[5] * QUEUES, *[7] * QUEUES])
    monkeypatch.setattr(print_message, "_POLL_SECONDS", 0)

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.GET_MAX_OFFSET:
            yield response(request, fields={"offset": str(next(ends, 7))})
        else:
            yield from cluster.answer(request)

    with serving(answer) as address:
        monkeypatch.setattr(cluster, "address", address)
        follow = ["print-message", f"rocketmq://{address}", TOPIC, "--follow", "--columns", "unique_key"]
        assert main([*follow, "--limit", "3"]) == 0
        printed = capsys.readouterr()
        assert printed.out.split() == ["unique_key", f"{TOPIC}-0-5", f"{TOPIC}-1-5", f"{TOPIC}-0-6"]
        assert "waiting for new messages" in printed.err


def test_what_a_delayed_message_means_depends_on_the_settings_of_its_broker(
    cluster: HostileCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    levels = ["7s 9s"]

    def answer(request: RemotingCommand) -> Iterator[bytes]:
        if request.code == RequestCode.GET_BROKER_CONFIG:
            yield response(request, body=f"messageDelayLevel={levels[0]}\n".encode())
        else:
            yield from cluster.answer(request)

    with serving(answer) as address:
        monkeypatch.setattr(cluster, "address", address)
        command = ["query-by-offset", f"rocketmq://{address}", SCHEDULE_TOPIC, "1", "3"]
        monkeypatch.setattr("tests.support.hostile_cluster.OTHER", SCHEDULE_TOPIC)
        assert main(command) == 0
        assert "delayed (level 2, 9 s), due 2023-11-14T22:13:29.070Z" in capsys.readouterr().out
        levels[0] = "7x"
        assert main(command) == 1
        assert f"{address}: the answer to GET_BROKER_CONFIG: messageDelayLevel: '7x'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "sent",
    [[(TOPIC, 1, 3), (TOPIC, 1, 3)], [(TOPIC, 1, 4), (TOPIC, 1, 3)], [(TOPIC, 0, 3)], [(OTHER, 1, 3)], [(TOPIC, 1, 2)]],
    ids=["twice", "backwards", "other queue", "other topic", "before the range"],
)
def test_messages_that_were_not_asked_for_are_an_error(sent: list[tuple[str, int, int]]) -> None:
    queue = QueueRange("b", "127.0.0.1:1", TOPIC, 1, 3, 5)
    right = b"".join(record(TOPIC, 1, offset, 1).encode() for offset in (3, 4, 5))
    assert [one.queue_offset for one in records_of_range(right, queue)[0]] == [3, 4]
    with pytest.raises(ProtocolError, match=r"127.0.0.1:1: PULL_MESSAGE of queue Orders/1 of broker b"):
        records_of_range(b"".join(record(*one, 1).encode() for one in sent), queue)
    with pytest.raises(ProtocolError, match=r"127.0.0.1:1: the answer to PULL_MESSAGE has no whole record"):
        records_of_range(right[:-1], queue)


def test_client_conf_is_for_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query-by-key", "/data/store", TOPIC, "k", "--client-conf", "x"]) == 2
    assert "--client-conf has only an effect on a running cluster" in capsys.readouterr().err
