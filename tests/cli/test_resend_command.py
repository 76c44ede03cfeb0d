"""`resend` against a cluster in this process. `tests/broker/test_resend.py` has a real one."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import Record, decode_record
from spark_mq.producer import resend
from spark_mq.producer.resend_journal import Journal
from spark_mq.remoting.codes import RequestCode, ResponseCode
from spark_mq.remoting.command import RemotingCommand
from tests.support.fake_server import response, serving
from tests.support.hostile_cluster import COUNT, QUEUES, TOPIC, HostileCluster
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, Unpack, stores_in

DEAD = "%DLQ%GID_failing"


class Cluster(HostileCluster):
    """A cluster that keeps what is sent; `codes` are the answers to the first sends, None for no answer."""

    def __init__(self, *codes: int | None) -> None:
        super().__init__()
        self.codes = list(codes)
        self.sent: list[RemotingCommand] = []
        self.queried = b""
        self.has_index = False
        self.unknown_topic = ""
        self.perm = 6

    def answer(self, request: RemotingCommand) -> Iterator[bytes]:
        fields = request.ext_fields
        if request.code == RequestCode.SEND_MESSAGE_V2:
            code = self.codes.pop(0) if self.codes else 0
            self.sent.append(request)
            if code is None:
                raise ConnectionError
            yield response(request, code, remark="because")
        elif request.code == RequestCode.QUERY_MESSAGE:
            key = fields["key"].encode()
            found = self.queried or b"".join(
                Record(b"RetryDemo", properties=one.ext_fields["i"].encode()).encode()
                for one in self.sent
                if self.has_index and parse_properties(one.ext_fields["i"].encode())[b"UNIQ_KEY"] == key
            )
            yield response(request, 0 if found else ResponseCode.QUERY_NOT_FOUND, body=found)
        elif request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC and fields["topic"] == self.unknown_topic:
            yield response(request, ResponseCode.TOPIC_NOT_EXIST)
        elif request.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            (frame,) = super().answer(request)
            yield frame.replace(b'"perm": 6', b'"perm": %d' % self.perm)
        else:
            yield from super().answer(request)


@pytest.fixture(scope="module")
def store(unpacked: Unpack) -> Path:
    return unpacked(next(one for one in stores_in(OWN_STORES) if one.name == "workload-533"))


@contextmanager
def running(cluster: Cluster) -> Iterator[str]:
    """The address of the cluster."""
    with serving(cluster.answer) as address:
        cluster.address = address
        yield f"rocketmq://{address}"


Run = Callable[..., tuple[int, dict[str, int], dict[str, Any], str]]


@pytest.fixture
def run(store: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def once(address: str, *words: str) -> tuple[int, dict[str, int], dict[str, Any], str]:
        """The exit status, the counts that are not 0, the whole receipt, and stderr."""
        capsys.readouterr()  # a run that was killed printed something, too
        status = main(["resend", str(store), address, *words, "--json"])
        printed = capsys.readouterr()
        receipt = json.loads(printed.out) if printed.out else {}
        numbers = {name: one for name, one in receipt.items() if isinstance(one, int) and one and name != "applied"}
        return status, numbers, receipt, printed.err

    return once


@pytest.fixture
def applied(tmp_path: Path) -> list[str]:
    return ["--dead-letters", "GID_failing", "--apply", "--journal", str(tmp_path / "journal")]


def records(store: Path, topic: str) -> list[Record]:
    with MessageStore(str(store)) as opened:
        return [part for part in opened.messages_of_topic(topic) if isinstance(part, Record)]


def test_nothing_is_sent_without_apply(run: Run, tmp_path: Path) -> None:
    cluster = Cluster()
    with running(cluster) as address:
        status, counts, receipt, said = run(address, "--dead-letters", "GID_failing")
        assert (status, counts) == (0, {"found": 5, "would_send": 5})
        assert receipt["topics"] == [{"from_topic": DEAD, "to_topic": "RetryDemo", "messages": 5}]
        assert "5 found: 5 would be sent (--apply --journal FILE sends them)" in said
        status, counts, _, said = run(address, "--dead-letters", "GID_failling")
        assert (status, counts) == (3, {})
        assert "no matching message in %DLQ%GID_failling: " in said
        assert "similar topics: %DLQ%GID_failing" in said
    assert cluster.sent == []
    assert list(tmp_path.iterdir()) == []


def test_a_request_has_the_message(run: Run, store: Path, applied: list[str]) -> None:
    cluster = Cluster()
    with running(cluster) as address:
        assert run(address, *applied)[:2] == (0, {"found": 5, "sent": 5})
        assert run(address, *applied)[:2] == (0, {"found": 5, "already_sent": 5})
    dead = records(store, DEAD)
    assert [request.body for request in cluster.sent] == [one.body for one in dead]
    queues = [int(request.ext_fields["e"]) for request in cluster.sent]
    assert queues in ([0, 1, 0, 1, 0], [1, 0, 1, 0, 1])
    for request, one in zip(cluster.sent, dead, strict=True):
        fields, had = request.ext_fields, parse_properties(one.properties)
        assert (fields["b"], fields["m"], fields["j"], fields["n"]) == ("RetryDemo", "false", "0", "b")
        sent = parse_properties(fields["i"].encode())
        assert sent[b"RESENT_FROM_TOPIC"] == DEAD.encode()
        assert sent[b"RESENT_FROM_UNIQUE_KEY"] == had[b"UNIQ_KEY"] != sent[b"UNIQ_KEY"]


def test_without_an_answer_a_message_is_uncertain(run: Run, applied: list[str]) -> None:
    cluster = Cluster(0, None)
    with running(cluster) as address:
        status, counts, _, said = run(address, *applied)
        assert (status, counts) == (1, {"found": 2, "sent": 1, "uncertain": 1})
        assert "SEND_MESSAGE_V2" in said
        expected = {"found": 5, "already_sent": 1, "uncertain": 1, "sent": 3}
        assert run(address, *applied)[:2] == (1, expected)
        assert run(address, *applied[:2], *applied[3:])[:2] == (1, {"found": 5, "already_sent": 4, "uncertain": 1})
        last = parse_properties(cluster.sent[1].ext_fields["i"].encode())[b"UNIQ_KEY"]
        cluster.queried = Record(b"RetryDemo", properties=b"UNIQ_KEY\1other\2").encode()
        assert run(address, *applied)[1]["uncertain"] == 1
        cluster.queried = cluster.queried[:-1]
        assert run(address, *applied)[0] == 1
        cluster.queried = Record(b"RetryDemo", properties=b"UNIQ_KEY\1" + last + b"\2").encode()
        assert run(address, *applied)[:2] == (0, {"found": 5, "already_sent": 5})
        cluster.queried = b""
        assert run(address, *applied)[:2] == (0, {"found": 5, "already_sent": 5})
    assert len(cluster.sent) == 5


class Killed(BaseException):
    """The end of a run, as a kill ends it: what was written stays, and nothing more is done."""


@pytest.mark.parametrize("has_index", cases((True,), (True, False)))
def test_a_run_can_be_killed_at_any_step(
    has_index: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 0

    def killing(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, before and after which a run can be killed."""

        def step(*arguments: Any, **named: Any) -> Any:
            count()
            result = function(*arguments, **named)
            count()
            return result

        return step

    def count() -> None:
        nonlocal steps
        steps -= 1
        if steps == 0:
            raise Killed

    places: tuple[tuple[Any, str], ...] = ((Journal, "_write"), (resend, "send_message"), (os, "fsync"))
    for owner, name in places:
        monkeypatch.setattr(owner, name, killing(getattr(owner, name)))
    kills = 0
    for number in itertools.count(1):
        cluster = Cluster()
        cluster.has_index = has_index
        words = ["--dead-letters", "GID_failing", "--tag", "Aa", "--apply"]
        words += ["--journal", str(tmp_path / f"journal-{number}")]
        with running(cluster) as address:
            steps = number
            try:
                assert run(address, *words)[0] == 0
                break
            except Killed:
                kills += 1
            steps = 0
            status, counts, _, _ = run(address, *words)
            bodies = [request.body for request in cluster.sent]
            assert len(set(bodies)) == len(bodies), f"twice after a kill at step {number}"
            uncertain = counts.get("uncertain", 0)
            assert uncertain <= 1
            assert status == uncertain
            if has_index:  # then a message that is uncertain was not sent
                assert len(bodies) == 2 - uncertain
                assert run(address, *words, "--send-uncertain")[0] == 0
                assert len({request.body for request in cluster.sent}) == len(cluster.sent) == 2
            else:
                assert len(bodies) >= 2 - uncertain
    assert kills > 12


def test_an_uncertain_message_is_sent_again_only_if_told(run: Run, applied: list[str]) -> None:
    cluster = Cluster(None)
    with running(cluster) as address:
        assert run(address, *applied)[:2] == (1, {"found": 1, "uncertain": 1})
        assert run(address, *applied, "--send-uncertain")[:2] == (0, {"found": 5, "sent": 5})
    assert len(cluster.sent) == 6


def test_what_a_broker_refuses_is_counted_and_tried_by_the_next_run(run: Run, applied: list[str]) -> None:
    cluster = Cluster(0, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.SYSTEM_BUSY, ResponseCode.FLUSH_DISK_TIMEOUT)
    with running(cluster) as address:
        status, counts, receipt, _ = run(address, *applied)
        assert (status, counts) == (1, {"found": 5, "sent": 4, "refused": 1})
        assert "MESSAGE_ILLEGAL: because" in receipt["reasons"][0]["reason"]
        assert len(cluster.sent) == 6  # the one that found the broker busy was sent again
        assert run(address, *applied)[:2] == (0, {"found": 5, "sent": 1, "already_sent": 4})


def test_a_topic_that_does_not_exist_is_a_reason(run: Run, applied: list[str]) -> None:
    cluster = Cluster()
    cluster.unknown_topic = "RetryDemo"
    with running(cluster) as address:
        status, counts, receipt, _ = run(address, *applied)
        assert (status, counts) == (1, {"found": 5, "refused": 5})
        assert "topic RetryDemo" in receipt["reasons"][0]["reason"]
        assert run(address, *applied, "--to-topic", "PaymentLog")[0] == 2  # the journal is of another resend
    assert cluster.sent == []


def test_messages_are_selected_as_by_the_look_ups(run: Run, store: Path, tmp_path: Path) -> None:
    with running(Cluster()) as address:
        dead = records(store, DEAD)
        key = parse_properties(dead[1].properties)[b"UNIQ_KEY"].decode()
        begin = dead[3].store_timestamp
        for words, count in (
            (["--key", key], 1),
            (["--tag", "Aa"], 2),
            (["--property", "region=eu-west"], 1),
            (["--filter", "price > 30"], 1),
            (["--begin", str(begin)], sum(one.store_timestamp >= begin for one in dead)),
            (["--body-contains", "order 15"], 1),
        ):
            assert run(address, "--dead-letters", "GID_failing", *words)[1] == {"found": count, "would_send": count}
        topic = records(store, "PaymentLog")
        assert run(address, "--topic", "PaymentLog")[1]["found"] == len(topic) > 100
        refused = run(address, "--topic", "%RETRY%GID_failing")
        assert refused[0] == 1
        assert refused[1]["refused"] == refused[1]["found"] > 0
        ids = [encode_offset_message_id(one.store_host, one.commit_log_offset) for one in (dead[4], topic[0])]
        beyond = encode_offset_message_id(topic[0].store_host, 1 << 40)
        file = tmp_path / "ids"
        file.write_text(f'{{"offset_message_id": "{ids[0]}", "topic": "x"}}\n\n{ids[1].lower()}\n{ids[0]}\n')
        _, counts, receipt, _ = run(address, "--ids", str(file))
        assert counts == {"found": 3, "would_send": 2, "copies": 1}
        assert {row["to_topic"] for row in receipt["topics"]} == {"RetryDemo", "PaymentLog"}
        file.write_text(f"{beyond}\n{ids[0]}\n")
        status, counts, receipt, said = run(address, "--ids", str(file))
        assert (status, counts) == (1, {"found": 1, "would_send": 1})
        assert receipt["missing"] == [f"{store} has no message {beyond}"]
        assert "at least 1 found" in said
        file.write_text(f"{beyond}\n" * 12)
        status, _, receipt, said = run(address, "--ids", str(file))
        assert (status, len(receipt["missing"]), said.count("has no message")) == (1, 12, 10)
        file.write_text("{}\n")
        assert run(address, "--ids", str(file))[0] == 2


def test_messages_that_a_run_made_are_not_sent_by_the_next_one(run: Run, store: Path, tmp_path: Path) -> None:
    """A topic's messages sent to the topic itself are found by the next run: here the journal has their keys."""
    journal = tmp_path / "journal"
    keys = [parse_properties(one.properties)[b"UNIQ_KEY"].decode() for one in records(store, DEAD)]
    cluster = Cluster()
    with running(cluster) as address:
        head = {"journal": "spark-mq resend 1", "source": str(store), "cluster": address, "to_topic": None}
        begun = [{"begin": "orders 1", "topic": "t", "unique_key": keys[0]}, {"sent": "orders 1"}]
        begun += [{"begin": "orders 2", "topic": "t", "unique_key": keys[3]}]
        journal.write_text("".join(json.dumps(line) + "\n" for line in (head, *begun)))
        words = ["--dead-letters", "GID_failing", "--journal", str(journal), "--apply"]
        assert run(address, *words)[:2] == (0, {"found": 5, "sent": 3, "already_sent": 2})
    assert len(cluster.sent) == 3


def test_a_cluster_is_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, other = Cluster(), Cluster()
    conf = tmp_path / "live.conf"
    conf.write_text("requestTimeout=20\n")
    with running(cluster) as address, running(other) as target:

        def run(*words: str) -> tuple[int, int]:
            status = main(["resend", *words, "--json"])
            return status, json.loads(capsys.readouterr().out)["found"]

        assert run(address, "--topic", TOPIC) == (0, QUEUES * COUNT)
        tagged = ("--topic", TOPIC, "--tag", "t1", "--source-conf", str(conf))
        assert run(address, target, *tagged) == (0, QUEUES * COUNT // 2)
        message_id = encode_offset_message_id(b"\x7f\0\0\1" + struct.pack(">i", cluster.port), 5000)
        (tmp_path / "ids").write_text(message_id)
        journal = str(tmp_path / "journal")
        words = ("--ids", str(tmp_path / "ids"), "--apply", "--journal", journal)
        assert run(address, target, *words) == (0, 1)
        assert run(address, target, *words) == (0, 1)
        cluster.perm = 2
        assert run(address, "--topic", TOPIC) == (1, 0)
        assert main(["resend", address, "--topic", TOPIC]) == 1
        assert "cannot be read, as its perm is 2" in capsys.readouterr().err
    assert cluster.sent == []
    (sent,) = other.sent
    stored = decode_record(cluster.record(TOPIC, 1, 2))
    assert (sent.body, sent.ext_fields["f"]) == (stored.body, "1")
    assert f"RESENT_FROM_MESSAGE_ID\1{message_id}\2" in sent.ext_fields["i"]


def test_damage_is_said(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = Path(shutil.copytree(store, tmp_path / "store"))
    dead = records(store, DEAD)[2]
    segments = sorted((damaged / "commitlog").iterdir())
    segment = [one for one in segments if int(one.name) <= dead.commit_log_offset][-1]
    with segment.open("r+b") as file:
        file.seek(dead.commit_log_offset - int(segment.name))
        file.write(bytes(60))
    with running(Cluster()) as address:
        assert main(["resend", str(damaged), address, "--dead-letters", "GID_failing"]) == 1
    said = capsys.readouterr().err
    assert "skipped: " in said
    assert "at least 4 found: 4 would be sent" in said


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["{address}", "--dead-letters", "g", "--apply"], "--apply needs --journal"),
        (["--dead-letters", "g"], "give CLUSTER"),
        (["{address}", "--topic", "t", "--source-conf", "f"], "--source-conf"),
        (["{address}", "--topic", "t", "--to-topic", "%DLQ%g"], "--to-topic: %DLQ%g is a topic that brokers write"),
        (["{address}", "--ids", "-", "--key", "k"], "--key has no effect on --ids"),
        (["{address}", "--topic", "t", "--begin", "-1h", "--end", "-2h"], "is after --end"),
    ],
)
def test_arguments_without_a_meaning_are_errors(
    words: list[str], error: str, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [word.format(address="rocketmq://127.0.0.1:1") for word in words]
    assert main(["resend", str(store), *named]) == 2
    assert error in capsys.readouterr().err
