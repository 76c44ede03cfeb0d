"""Messages sent again to a running broker, and messages consumed directly: a Java consumer gets each once."""

from __future__ import annotations

import json
import shutil
import time
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
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, stores_in

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]
STORES = {"5.3.3": "workload-533", "4.9.7": "workload-49x", "5.5.0": "workload-533"}
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
    packed = next(store for store in stores_in(OWN_STORES) if store.name == STORES[request.param])
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
    with harness.consuming(served.broker, "GID_direct", "SequenceDemo", 1) as consumer:
        deadline = time.monotonic() + 60
        while main([*command]) == 3:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        plan = run(*command)
        assert (plan["applied"], plan["topic"], plan["subscribed"]) == (False, "SequenceDemo", True)
        assert "is not connected" in run(*command, "--client-id", "10.0.0.1@other", status=2)["stderr"]
        answer = run(*command, "--client-id", plan["client_id"], "--apply")
        (taken,) = consumer.wait()
    assert answer.items() >= {**plan, "applied": True, "stderr": ""}.items()
    assert (answer["consume_result"], answer["order"], answer["auto_commit"]) == ("CR_SUCCESS", True, True)
    assert answer["remark"] is None
    assert answer["spent_time_millis"] >= 0
    assert (taken["topic"], taken["queueOffset"]) == ("SequenceDemo", record.queue_offset)
    assert taken["uniqKey"] == plan["unique_key"]
    old = encode_offset_message_id(b"\x7f\0\0\1\0\0\0\1", 0)
    assert "not a broker of" in run(*command[:3], old, status=2)["stderr"]
    beyond = encode_offset_message_id(record.store_host, 1 << 40)
    assert "has no message" in run(*command[:3], beyond, status=3)["stderr"]
