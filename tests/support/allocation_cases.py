"""Random cases for the allocation strategies, and what the package answers in the form of `Allocate.java`."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.sharing.strategies import (
    Average,
    AverageByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    MessageQueue,
    Strategy,
    allocate,
)

NAMES = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "CONFIG", "MACHINE_ROOM_NEARBY")
_ROOMS = ("hz", "sh", "", "\uffee", "\U0001f600")
_TOPICS = ("orders", "订单", "%RETRY%GID_a", "a\U0001f600", "half \ud800")
_BROKERS = ("broker-a", "hz@a", "hz@b", "sh@a", "@a", "hz@a@", "hz@", "@", "a@b@c", "", "sh@\U0001f600", "sh@\uffee")


def random_cases(seed: int, count: int) -> list[dict[str, Any]]:
    """Cases of all strategies, in turn: any number of queues and clients, also equal ids, none, and unknown rooms."""
    return [_random_case(random.Random(f"{seed}/{number}"), NAMES[number % len(NAMES)]) for number in range(count)]


def _random_case(rng: random.Random, strategy: str) -> dict[str, Any]:
    named = {
        (
            rng.choice(_TOPICS[:1] if rng.random() < 0.7 else _TOPICS),
            rng.choice(_BROKERS[:4] if rng.random() < 0.7 else _BROKERS),
            rng.choice((0, 1, rng.randrange(20), rng.randrange(1 << 31))),
        )
        for _ in range(rng.choice((0, 1, 4, 8, 16, rng.randrange(60))))
    }
    queues = [{"topic": topic, "broker": broker, "id": number} for topic, broker, number in sorted(named)]
    rng.shuffle(queues)
    clients = list(_clients(rng, rng.choice((0, 1, 2, 3, 5, 8, rng.randrange(1, 40)))))
    if strategy == "CONFIG":  # it alone does not check its arguments
        clients, queues = clients or ["one"], queues or [{"topic": "orders", "broker": "broker-a", "id": 0}]
        clients = [client or "one" for client in clients]
    known = _ROOMS[:2] if rng.random() < 0.8 else _ROOMS
    broker_rooms = {queue["broker"]: rng.choice(known) for queue in queues}
    client_rooms = {client: rng.choice(known[: rng.randrange(1, 6)]) for client in clients}
    if client_rooms and rng.random() < 0.05:
        client_rooms.popitem()
    configured = {
        client: rng.sample(range(len(queues)), rng.randrange(len(queues) + 1))
        for client in clients
        if rng.random() < 0.8
    }
    return {
        "strategy": strategy,
        "inner": rng.choice(NAMES[:4]),
        "points": rng.choice((10, 10, 1, 0, 100)),
        "queues": queues,
        "clients": clients,
        "rooms": list(_ROOMS[:2]) if rng.random() < 0.7 else rng.sample(_ROOMS, rng.randrange(4)),
        "brokerRooms": broker_rooms,
        "clientRooms": client_rooms,
        "configured": configured,
    }


def _clients(rng: random.Random, count: int) -> Iterator[str]:
    for number in range(count):
        address = f"10.0.{rng.randrange(3)}.{rng.randrange(256)}@{rng.randrange(100_000)}"
        yield rng.choice(
            (address, f"c{number}", "same", "same", f"客户{number}", f"\U0001f600{number}", f"\uffee{number}")
        )
    if rng.random() < 0.02:
        yield ""


def answer(case: Mapping[str, Any]) -> dict[str, list[int]] | None:
    """The positions of each client's queues, as the package shares them out; None if it refuses the case."""
    queues = [MessageQueue(queue["topic"], queue["broker"], queue["id"]) for queue in case["queues"]]
    try:
        shares = allocate(strategy_of(case, case["strategy"], queues), queues, case["clients"])
    except OptionError:
        return None
    return {client: [queues.index(queue) for queue in share] for client, share in shares.items()}


def strategy_of(case: Mapping[str, Any], name: str, queues: Sequence[MessageQueue]) -> Strategy:
    """The strategy of a case."""
    if name == "MACHINE_ROOM_NEARBY":
        return MachineRoomNearby(strategy_of(case, case["inner"], queues), case["brokerRooms"], case["clientRooms"])
    if name == "CONFIG":
        return ByConfig({one: [queues[at] for at in positions] for one, positions in case["configured"].items()})
    if name == "MACHINE_ROOM":
        return MachineRoom(frozenset(case["rooms"]))
    if name == "CONSISTENT_HASH":
        return ConsistentHash(case["points"])
    return Average() if name == "AVG" else AverageByCircle()
