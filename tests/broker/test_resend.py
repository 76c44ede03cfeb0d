"""Messages sent again to a running broker, and messages consumed directly: a Java consumer gets each once."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import Record
from tests.broker import harness
from tests.support.paused_process import environment, killed, spark_mq
from tests.support.soak import SOAKS, cases

pytestmark = pytest.mark.broker
TOPIC, GROUP = "RetryDemo", "GID_failing"
DEAD = f"%DLQ%{GROUP}"
Run = Callable[..., dict[str, Any]]


@dataclass
class Served:
    """A broker on a copy of a store, and the store as it was."""

    broker: harness.Broker
    store: Path

    @property
    def address(self) -> str:
        return f"rocketmq://{self.broker.name_server}"


@pytest.fixture(scope="module", params=cases(("5.3.3",), ("5.3.3", "4.9.7", "5.5.0")))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    packed = harness.WORKLOADS[request.param]
    path = packed.unpack(tmp_path_factory.mktemp("served"))
    copy = shutil.copytree(path, tmp_path_factory.mktemp("copy") / "store")
    with harness.Broker(request.param, path, packed.broker_conf) as broker:
        yield Served(broker, copy)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def once(*words: str, status: int = 0) -> dict[str, Any]:
        """What a command prints as JSON, and its lines on stderr."""
        capsys.readouterr()
        found = main([*words, "--json"])
        printed = capsys.readouterr()
        assert found == status, printed.err
        fields: dict[str, Any] = json.loads(printed.out) if printed.out else {}
        return fields | {"stderr": printed.err}

    return once


def stored(served: Served, topic: str) -> list[Record]:
    with MessageStore(str(served.broker.store)) as store:
        return [part for part in store.messages_of_topic(topic) if isinstance(part, Record)]


def test_a_consumer_consumes_a_message_directly(served: Served, run: Run) -> None:
    harness.send(served.broker, "sequence", 1, 3)
    messages = stored(served, "SequenceDemo")
    record = messages[-1]
    message_id = encode_offset_message_id(record.store_host, record.commit_log_offset)
    command = ("consume-directly", served.address, "GID_direct", message_id)
    assert "no consumer of group GID_direct" in run(*command, status=3)["stderr"]
    assert len(harness.consume(served.broker, "GID_direct", "SequenceDemo", len(messages))) == len(messages)
    with harness.consuming(served.broker, "GID_direct", "SequenceDemo", 1) as taken:
        deadline = time.monotonic() + 60
        while main([*command]) == 3:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        plan = run(*command)
        assert (plan["applied"], plan["topic"], plan["subscribed"]) == (False, "SequenceDemo", True)
        assert "is not connected" in run(*command, "--client-id", "10.0.0.1@other", status=2)["stderr"]
        answer = run(*command, "--client-id", plan["client_id"], "--apply")
        (message,) = taken()
    assert answer.items() >= {**plan, "applied": True, "stderr": ""}.items()
    assert (answer["consume_result"], answer["order"], answer["auto_commit"]) == ("CR_SUCCESS", True, True)
    assert answer["remark"] is None
    assert answer["spent_time_millis"] >= 0
    assert (message["topic"], message["queueOffset"]) == ("SequenceDemo", record.queue_offset)
    assert message["properties"]["UNIQ_KEY"] == plan["unique_key"]
    old = encode_offset_message_id(b"\x7f\0\0\1\0\0\0\1", 0)
    assert "not a broker of" in run(*command[:3], old, status=2)["stderr"]
    beyond = encode_offset_message_id(record.store_host, 1 << 40)
    assert "has no message" in run(*command[:3], beyond, status=3)["stderr"]


def origins_of(messages: list[Record]) -> list[dict[str, str]]:
    """The properties of messages that were sent again."""
    found = [message.text_properties for message in messages]
    return [properties for properties in found if "RESENT_FROM_TOPIC" in properties]


def counts(receipt: dict[str, Any]) -> dict[str, int]:
    names = ("found", "would_send", "sent", "already_sent", "uncertain", "copies", "refused")
    return {name: receipt[name] for name in names if receipt[name]}


def test_dead_letters_arrive_once(served: Served, run: Run, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    command = ["resend", str(served.store), served.address, "--dead-letters", GROUP, "--journal", journal]
    before = stored(served, TOPIC)
    assert counts(run(*command)) == {"found": 5, "would_send": 5}
    assert not Path(journal).exists()
    assert counts(run("resend", served.address, *command[3:])) == {"found": 5, "would_send": 5}
    # Killed after a message was noted, and before it was sent.
    killed(spark_mq(*command, "--apply"), "spark_mq.producer.resend:send_message:2:", tmp_path)
    assert counts(run(*command, status=1)) == {"found": 5, "would_send": 3, "already_sent": 1, "uncertain": 1}
    assert len(stored(served, TOPIC)) == len(before) + 1
    assert counts(run(*command, "--apply", status=1)) == {"found": 5, "sent": 3, "already_sent": 1, "uncertain": 1}
    sent = run(*command, "--apply", "--send-uncertain")
    assert counts(sent) == {"found": 5, "sent": 1, "already_sent": 4}
    assert sent["topics"] == [{"from_topic": DEAD, "to_topic": TOPIC, "messages": 1}]
    assert counts(run(*command, "--apply", "--send-uncertain")) == {"found": 5, "already_sent": 5}

    dead = {encode_offset_message_id(one.store_host, one.commit_log_offset): one for one in stored(served, DEAD)}
    consumed = harness.consume(served.broker, "GID_resent", TOPIC, len(before) + 5)
    assert len(consumed) == len(before) + 5
    resent = [one for one in consumed if "RESENT_FROM_TOPIC" in one["properties"]]
    assert sorted(one["properties"]["RESENT_FROM_MESSAGE_ID"] for one in resent) == sorted(dead)
    assert len({one["uniqKey"] for one in consumed}) == len(consumed)
    for one in resent:
        got, origin = one["properties"], dead[one["properties"]["RESENT_FROM_MESSAGE_ID"]]
        had = origin.text_properties
        assert one["body"].encode() == origin.body
        assert (got["RESENT_FROM_TOPIC"], got["RESENT_FROM_UNIQUE_KEY"]) == (DEAD, had["UNIQ_KEY"])
        for name in ("TAGS", "KEYS", "price", "region"):
            assert got.get(name) == had.get(name)
        assert not {"DELAY", "REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"} & set(got)
        assert got.get("WAIT", "true") == "true"


def test_a_message_that_was_sent_before_a_kill_is_found(served: Served, run: Run, tmp_path: Path) -> None:
    journal = str(tmp_path / "journal")
    command = ["resend", str(served.store), served.address, "--dead-letters", GROUP, "--journal", journal]
    command += ["--to-topic", "PaymentLog"]
    # Killed after the broker stored a message, and before that was noted; the line was then cut.
    killed(spark_mq(*command, "--apply"), "spark_mq.producer.resend:Journal.note_sent:3:", tmp_path)
    with open(journal, "a") as file:
        file.write('{"sent": "%DLQ%')
    assert len(origins_of(stored(served, "PaymentLog"))) == 3
    assert counts(run(*command)) == {"found": 5, "would_send": 2, "already_sent": 3}
    assert counts(run(*command, "--apply")) == {"found": 5, "sent": 2, "already_sent": 3}
    assert counts(run(*command, "--apply")) == {"found": 5, "already_sent": 5}
    found = origins_of(stored(served, "PaymentLog"))
    assert len(found) == len({one["RESENT_FROM_MESSAGE_ID"] for one in found}) == 5
    assert "another resend: its to_topic" in run(*command[:-2], status=2)["stderr"]


def test_a_topic_sent_to_itself_does_not_grow_with_each_run(served: Served, run: Run, tmp_path: Path) -> None:
    before = len(stored(served, "PaymentLog"))
    words = ("resend", served.address, "--topic", "PaymentLog", "--apply", "--journal", str(tmp_path / "journal"))
    assert counts(run(*words)) == {"found": before, "sent": before}
    assert counts(run(*words)) == {"found": 2 * before, "already_sent": 2 * before}
    assert len(stored(served, "PaymentLog")) == 2 * before


@pytest.mark.skipif(not SOAKS, reason="make soak")
def test_kills_at_any_time_send_nothing_twice(served: Served, run: Run, tmp_path: Path) -> None:
    journal, kills = tmp_path / "journal", 0
    harness.send(served.broker, "sequence", 3, 6000)
    words = ["resend", served.address, "--topic", "SequenceDemo", "--to-topic", "PaymentLog", "--apply"]
    words += ["--journal", str(journal)]
    choice = random.Random(7)
    while kills < 20:
        size = journal.stat().st_size if journal.exists() else 0
        process = subprocess.Popen(spark_mq(*words), env=environment(), stderr=subprocess.DEVNULL)
        while process.poll() is None and (not journal.exists() or journal.stat().st_size <= size + 100):
            time.sleep(0.005)
        time.sleep(choice.uniform(0, 0.2))
        assert process.poll() is None
        process.kill()
        process.wait()
        kills += 1
    assert main(words) in (0, 1)
    total = run(*words, "--send-uncertain")
    found = Counter(one["RESENT_FROM_MESSAGE_ID"] for one in origins_of(stored(served, "PaymentLog")))
    messages = stored(served, "SequenceDemo")
    sequence = {encode_offset_message_id(one.store_host, one.commit_log_offset) for one in messages}
    assert sequence <= set(found)
    assert len(sequence) == total["found"] > 6000
    assert not [one for one in sequence if found[one] > 1]
