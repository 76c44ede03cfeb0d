"""The allocation strategies of the Java client: which consumer of a group gets which queues (`MessageQueue`).

Each consumer computes its own share from the same sorted lists (`RebalanceImpl.rebalanceByTopic`@5.3.3). `allocate`
sorts them and gives the shares of all consumers. Releases 4.9.7 and 5.3.3 have the same rules.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from spark_mq.errors import OptionError, StorageError

POINTS = 10
"""Points of a client, if the client does not say another number (`AllocateMessageQueueConsistentHash`@5.3.3)."""


@dataclass(frozen=True)
class MessageQueue:
    """A queue of a topic in a broker (`MessageQueue`@5.3.3)."""

    topic: str
    broker_name: str
    queue_id: int

    @property
    def order(self) -> tuple[bytes, bytes, int]:
        """The key by which clients sort queues (`MessageQueue.compareTo`@5.3.3)."""
        return java_order(self.topic), java_order(self.broker_name), self.queue_id


Shares = list[list[MessageQueue]]
"""The queues of each client, in the order of the clients."""


def java_order(text: str) -> bytes:
    """The key by which Java sorts a text: its UTF-16 units (`String.compareTo`)."""
    return text.encode("utf-16-be", "surrogatepass")


class Strategy(Protocol):
    """A rule that shares queues out among clients (`AllocateMessageQueueStrategy`@5.3.3)."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy (`getName`)."""

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; of strategy CONFIG, they can be others than `queues`."""


@dataclass(frozen=True)
class Average:
    """Neighbouring queues for each client; the default of a client (`AllocateMessageQueueAveragely`@5.3.3)."""

    name: str = "AVG"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        size, rest = divmod(len(queues), len(client_ids))
        starts = [index * size + min(index, rest) for index in range(len(client_ids) + 1)]
        return [list(queues[start:stop]) for start, stop in pairwise(starts)]


@dataclass(frozen=True)
class AverageByCircle:
    """Queue after queue to client after client (`AllocateMessageQueueAveragelyByCircle`@5.3.3)."""

    name: str = "AVG_BY_CIRCLE"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        return [list(queues[index :: len(client_ids)]) for index in range(len(client_ids))]


@dataclass(frozen=True)
class ConsistentHash:
    """Each queue to the next client on a ring of hashes (`AllocateMessageQueueConsistentHash`@5.3.3).

    Each client has several points on a ring of 2^32 places. A queue belongs to the client of the first point at or
    after its own place. Few queues move when a client comes or goes, but shares can be very uneven.
    """

    points: int = POINTS
    name: str = "CONSISTENT_HASH"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        owners: dict[int, str] = {}  # if two points are at one place, the later one counts
        seen: set[str] = set()
        for client_id in client_ids:  # one that is given twice has twice the points
            first = sum(owner == client_id for owner in owners.values()) if client_id in seen else 0
            seen.add(client_id)
            owners.update({ring_place(f"{client_id}-{at}"): client_id for at in range(first, first + self.points)})
        places = sorted(owners)
        by_client: dict[str, list[MessageQueue]] = {}
        for queue in queues if places else ():
            # The text is that of `MessageQueue.toString`@5.3.3.
            text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
            owner = owners[places[bisect_left(places, ring_place(text)) % len(places)]]
            by_client.setdefault(owner, []).append(queue)
        return [by_client.get(client_id, []) for client_id in client_ids]


def ring_place(text: str) -> int:
    """The place of a text on the ring: the first four bytes of the MD5 of its UTF-8, as an unsigned number.

    Half of a surrogate pair becomes a question mark, as in `String.getBytes`.
    """
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4])


@dataclass(frozen=True)
class MachineRoom:
    """The queues of brokers in some machine rooms (`AllocateMessageQueueByMachineRoom`@5.3.3).

    The name of a broker says its room: `room@name`. Nobody gets queues of other brokers.
    """

    rooms: AbstractSet[str]
    name: str = "MACHINE_ROOM"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        kept = [queue for queue in queues if room_in_name(queue.broker_name) in self.rooms]
        size = len(kept) // len(client_ids)
        rest = kept[size * len(client_ids) :]
        return [kept[index * size : (index + 1) * size] + rest[index : index + 1] for index in range(len(client_ids))]


@dataclass(frozen=True)
class MachineRoomNearby:
    """Another strategy, in each machine room by itself (`AllocateMachineRoomNearby`@5.3.3).

    The queues of a room without a client are shared out among all clients. In Java, an application's own class says
    where brokers and clients are.
    """

    inner: Strategy
    broker_rooms: Mapping[str, str]
    client_rooms: Mapping[str, str]

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room("broker", queue.broker_name, self.broker_rooms), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for client_id in client_ids:
            clients_of.setdefault(_room("client", client_id, self.client_rooms), []).append(client_id)
        without_clients = sorted(queues_of.keys() - clients_of.keys(), key=java_order)
        rooms = [(room, clients) for room, clients in clients_of.items() if room in queues_of]
        rooms += [(room, list(client_ids)) for room in without_clients]
        shares: dict[str, list[MessageQueue]] = {client_id: [] for client_id in client_ids}
        for room, clients in rooms:
            for client_id, share in _by_client(self.inner, queues_of[room], clients).items():
                shares[client_id].extend(share)
        return [shares[client_id] for client_id in client_ids]


@dataclass(frozen=True)
class ByConfig:
    """The queues that each client is configured to take, whatever there is (`AllocateMessageQueueByConfig`@5.3.3)."""

    configured: Mapping[str, Sequence[MessageQueue]]
    name: str = "CONFIG"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        return [list(self.configured.get(client_id, ())) for client_id in client_ids]


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    """The queues of each client, in the order of the client ids."""
    if not queues or not client_ids or "" in client_ids:
        raise OptionError("queues are shared out among consumers: give at least one of each, and no empty client id")
    return _by_client(strategy, sorted(queues, key=lambda queue: queue.order), sorted(client_ids, key=java_order))


def _by_client(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    """The share of each client; of a client id that is given twice, the first one."""
    by_client: dict[str, list[MessageQueue]] = {}
    for client_id, share in zip(client_ids, strategy.shares(queues, client_ids), strict=True):
        by_client.setdefault(client_id, share)
    return by_client


def room_in_name(broker_name: str) -> str | None:
    """The machine room in a broker's name `room@name`; None if it does not have this form.

    As in `String.split`, an @ at the end does not count: `room@name@` has the form, `room@` has not.
    """
    room, at, name = broker_name.rstrip("@").partition("@")
    return room if at and "@" not in name else None


def _room(what: str, name: str, rooms: Mapping[str, str]) -> str:
    if not rooms.get(name):
        raise OptionError(f"the machine room of {what} {name} is not known")
    return rooms[name]


MOST_CONSUMERS = 100_000
"""More consumers than any group has."""
STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONFIG")
"""RocketMQ's names of the strategies."""

MOST_POINTS = 2_000_000
"""Points on a ring: its hashes take some seconds."""

UNNAMED = "-"
"""Stands for the name of a broker if the strategy does not depend on it."""


@dataclass(frozen=True)
class Consumers:
    """The consumers of a group."""

    client_ids: tuple[str, ...]
    rooms: dict[str, str] = field(default_factory=dict)
    queue_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_made_up: bool = False


def parse_consumers(name: str, text: str, digits: int = 1) -> Consumers:
    """The consumers that an argument names."""
    if text.isascii() and text.isdigit():
        if len(text) > 6 or not 0 < int(text) <= MOST_CONSUMERS:
            raise OptionError(f"{name}={text}: give from 1 to {MOST_CONSUMERS} consumers")
        width = max(digits, len(str(int(text))))
        return Consumers(tuple(f"consumer-{number:0{width}}" for number in range(1, int(text) + 1)), is_made_up=True)
    try:
        lines = Path(text).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        what = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
        raise StorageError(f"{name}={text} is neither a number nor a file that can be read: {what}") from error
    found = Consumers(())
    client_ids: dict[str, None] = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] in client_ids:
            raise OptionError(f"{text}, line {number}: client id {words[0]} is there twice")
        client_ids[words[0]] = None
        for word in words[1:]:
            key, _, value = word.partition("=")
            if key == "room" and value:
                found.rooms[words[0]] = value
            elif key == "queues" and re.fullmatch(r"[0-9]{1,9}(,[0-9]{1,9})*", value, re.ASCII):
                found.queue_ids[words[0]] = tuple(dict.fromkeys(map(int, value.split(","))))
            else:
                raise OptionError(f"{text}, line {number}: {word!r} is neither room=NAME nor queues=0,1,2")
    if not 0 < len(client_ids) <= MOST_CONSUMERS:
        raise OptionError(f"{text} names {len(client_ids)} consumers: give from 1 to {MOST_CONSUMERS}")
    return Consumers(tuple(client_ids), found.rooms, found.queue_ids)


def choose_strategy(
    name: str,
    topic: str,
    queue_ids: Sequence[int],
    consumers: Consumers,
    broker_name: str | None = None,
    inner: str = "AVG",
    rooms: Sequence[str] = (),
    broker_room: str | None = None,
    points: int = POINTS,
) -> Strategy:
    """The strategy of a name for a topic and its consumers."""
    if name in ("CONSISTENT_HASH", "MACHINE_ROOM") and broker_name is None:
        raise OptionError(
            f"{name} depends on the broker's name, which a store does not contain: give --broker-name, or "
            "--broker-conf with brokerName"
        )
    if name == "CONSISTENT_HASH":
        if points * len(consumers.client_ids) > MOST_POINTS:
            raise OptionError(f"--points {points}: all consumers together have more than {MOST_POINTS} points")
        return ConsistentHash(points)
    if name == "MACHINE_ROOM":
        if not rooms:
            raise OptionError("MACHINE_ROOM needs --rooms: the machine rooms whose queues are shared out")
        return MachineRoom(frozenset(rooms))
    if name == "MACHINE_ROOM_NEARBY":
        if inner not in STRATEGIES[:4]:
            raise OptionError(f"--inner {inner}: give one of {', '.join(STRATEGIES[:4])}")
        room = broker_room or room_in_name(broker_name or "")
        if not room:
            raise OptionError("MACHINE_ROOM_NEARBY needs --broker-room, or a --broker-name of the form ROOM@NAME")
        lacking = next((one for one in consumers.client_ids if one not in consumers.rooms), None)
        if lacking is not None:
            raise OptionError(
                f"MACHINE_ROOM_NEARBY needs the room of each consumer, and {lacking} has none: "
                "give a file with lines such as `CLIENT-ID room=ROOM`"
            )
        nested = choose_strategy(inner, topic, queue_ids, consumers, broker_name, rooms=rooms, points=points)
        return MachineRoomNearby(nested, {broker_name or UNNAMED: room}, consumers.rooms)
    if name == "CONFIG":
        return _by_config(topic, queue_ids, consumers, broker_name or UNNAMED)
    return Average() if name == "AVG" else AverageByCircle()


def _by_config(topic: str, queue_ids: Sequence[int], consumers: Consumers, broker_name: str) -> Strategy:
    if not consumers.queue_ids:
        raise OptionError("CONFIG needs the queues of consumers: give a file with lines `CLIENT-ID queues=0,1,2`")
    known = set(queue_ids)
    for client_id, wanted in consumers.queue_ids.items():
        lacking = next((queue_id for queue_id in wanted if queue_id not in known), None)
        if lacking is not None:
            raise OptionError(f"consumers of topic {topic} have no queue {lacking}, which {client_id} is given")
    return ByConfig(
        {one: [MessageQueue(topic, broker_name, queue) for queue in ids] for one, ids in consumers.queue_ids.items()}
    )
