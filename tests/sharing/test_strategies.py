"""The allocation strategies, against answers of the Java strategies and the rules that they promise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OptionError
from spark_mq.sharing.strategies import (
    Average,
    AverageByCircle,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    MessageQueue,
    Strategy,
    allocate,
    room_in_name,
)
from tests.support.allocation_cases import NAMES, answer

JAVA = [json.loads(line) for line in (Path(__file__).parent / "allocations.jsonl").read_text().splitlines()]
EVERY_QUEUE_ONCE: list[Strategy] = [
    Average(),
    AverageByCircle(),
    ConsistentHash(),
    MachineRoom(frozenset({"a", "b"})),
    MachineRoomNearby(Average(), {"a@0": "a", "b@0": "b"}, dict.fromkeys("abcdefghijklmnopqrst", "a")),
]
queues = st.sets(
    st.builds(MessageQueue, st.just("orders"), st.sampled_from(["a@0", "b@0"]), st.integers(0, 50)), min_size=1
)
clients = st.sets(st.sampled_from("abcdefghijklmnopqrst"), min_size=1)


@pytest.mark.parametrize("name", NAMES)
def test_shares_are_those_of_java(name: str) -> None:
    cases = [(line["case"], line["said"]) for line in JAVA if line["case"]["strategy"] == name]
    assert len(cases) == 25
    for case, said in cases:
        assert answer(case) == said.get("shares"), case
    assert sum("shares" in said for _, said in cases) > 10


@pytest.mark.parametrize("strategy", EVERY_QUEUE_ONCE, ids=lambda strategy: strategy.name)
@given(queues=queues, clients=clients)
def test_each_queue_has_one_client(strategy: Strategy, queues: set[MessageQueue], clients: set[str]) -> None:
    shares = allocate(strategy, list(queues), list(clients))
    assert list(shares) == sorted(clients)
    assert Counter(queue for share in shares.values() for queue in share) == Counter(queues)


@pytest.mark.parametrize("strategy", [Average(), AverageByCircle(), MachineRoom(frozenset({"a", "b"}))])
@given(queues=queues, clients=clients)
def test_even_shares_differ_by_at_most_one_queue(
    strategy: Strategy, queues: set[MessageQueue], clients: set[str]
) -> None:
    sizes = [len(share) for share in allocate(strategy, list(queues), list(clients)).values()]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(queues=queues, clients=clients)
def test_a_new_client_on_the_ring_only_takes_queues(queues: set[MessageQueue], clients: set[str]) -> None:
    before = allocate(ConsistentHash(), list(queues), list(clients))
    after = allocate(ConsistentHash(), list(queues), [*clients, "new"])
    assert all(set(after[client]) <= set(share) for client, share in before.items())


def test_what_java_refuses_is_refused() -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    for queues, clients in (([], ["a"]), ([queue], []), ([queue], ["a", ""])):
        with pytest.raises(OptionError):
            allocate(Average(), queues, clients)
    with pytest.raises(OptionError, match="room of client a"):
        allocate(MachineRoomNearby(Average(), {"broker-a": "x"}, {}), [queue], ["a"])
    assert allocate(ConsistentHash(points=0), [queue], ["a"]) == {"a": []}


@pytest.mark.parametrize(
    ("name", "room"),
    [("a@b", "a"), ("a@b@", "a"), ("@b", ""), ("a@", None), ("@", None), ("", None), ("a", None), ("a@b@c", None)],
)
def test_the_room_in_a_name_is_that_of_java_split(name: str, room: str | None) -> None:
    assert room_in_name(name) == room
