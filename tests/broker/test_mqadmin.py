"""What `mqadmin` does and says is what this package says without a broker: offsets of a reset, messages of a key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.sharing.shares import LAST, begin_offsets
from tests.broker import harness
from tests.support.soak import cases
from tests.support.stores import Fact, RealStore

pytestmark = pytest.mark.broker
TOPIC = "OrderEvents"
DIRECT = "DirectTopic"
"""A topic that is in no `topics.json`, one key of which more messages have than a broker returns."""


@dataclass(frozen=True)
class Served:
    """A store, the broker that runs on a copy of it, and the offsets of resets, by the word for the time."""

    packed: RealStore
    sound: Path
    broker: harness.Broker
    foreseen: dict[str, dict[int, int]]


@pytest.fixture(scope="module", params=cases(harness.VERSIONS[:1], harness.VERSIONS))
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    packed = harness.WORKLOADS[request.param]
    sound = packed.unpack(tmp_path_factory.mktemp("sound"))
    path = packed.unpack(tmp_path_factory.mktemp("served"))
    stored = sorted(fact["storeTimestamp"] for fact in packed.facts("msg") if fact["topic"] == TOPIC)
    middle = (stored[len(stored) // 2] + stored[len(stored) // 2 + 1]) // 2
    with MessageStore(str(path)) as store:
        foreseen = {
            word: {row["queue_id"]: row["reset_offset"] for row in begin_offsets(store, where, TOPIC).to_pylist()}
            for word, where in ((str(middle), middle), ("now", LAST))
        }
    # A broker of 4.9 refuses the reset if the group lacks an offset in a queue.
    offsets_file = path / "config" / "consumerOffset.json"
    offsets_file.write_text(json.dumps({"offsetTable": {f"{TOPIC}@GID_failing": dict.fromkeys(range(4), 1)}}))
    harness.configure(path, DIRECT)
    with harness.Broker(request.param, path, packed.broker_conf) as broker:
        yield Served(packed, sound, broker, foreseen)


def test_a_reset_by_time_is_foreseen(served: Served) -> None:
    assert len({offset for offsets in served.foreseen.values() for offset in offsets.items()}) > 4
    for word, offsets in served.foreseen.items():
        said = harness.mqadmin(served.broker, ["resetOffsetByTime", "-g", "GID_failing", "-t", TOPIC, "-s", word])
        found = re.findall(r"^\S+ +(\d+)( +-?\d+)* +(-?\d+) *$", said, re.MULTILINE)
        assert {int(queue_id): int(offset) for queue_id, _, offset in found} == offsets, said


def collision(packed: RealStore) -> Fact:
    """A look-up of the Java store that also found a message with another key."""
    keys = {fact["offset"]: {*(fact["keys"] or "").split(), fact["uniqKey"]} for fact in packed.facts("msg")}
    return next(
        fact
        for fact in packed.facts("query")
        if len(fact["offsets"]) > 1 and {fact["key"] in keys[offset] for offset in fact["offsets"]} == {False, True}
    )


def test_the_messages_of_a_key_are_those_of_mqadmin(served: Served) -> None:
    """It prints what the broker answers, without the messages that lack the key: the broker counts them."""
    other = collision(served.packed)
    asked: list[tuple[str, str, dict[str, Any], list[str]]] = [
        (DIRECT, "shared", {}, []),
        (other["topic"], other["key"], {}, []),
    ]
    if served.broker.version != "4.9.7":  # its mqadmin has no such arguments
        found = [fact for fact in served.packed.facts("msg") if fact["offset"] in other["offsets"]]
        begin, end = (extreme(fact["storeTimestamp"] for fact in found) for extreme in (min, max))
        asked.append((other["topic"], other["key"], {"max_num": 1}, ["-m", "1"]))
        asked.append((other["topic"], other["key"], {"begin": begin, "end": end}, ["-b", str(begin), "-e", str(end)]))
    for topic, key, arguments, words in asked:
        said = harness.mqadmin(served.broker, ["queryMsgByKey", "-t", topic, "-k", key, *words])
        lines = re.findall(r"^\S.* (\d+) +(\d+)$", said, re.MULTILINE)  # message id, queue id, queue offset
        printed = [(int(queue_id), int(queue_offset)) for queue_id, queue_offset in lines]
        with MessageStore(str(served.sound), broker_conf=str(served.packed.broker_conf)) as store:
            answer = store.query_message_as_broker(topic, key, **arguments).to_pylist()
        with_key = [row for row in answer if key in (row["keys"] or ())]
        assert printed == [(row["queue_id"], row["queue_offset"]) for row in with_key], (words, said)
        if topic == DIRECT:
            assert len(answer) == 64
        elif not words:
            assert 0 < len(with_key) < len(answer)
