"""The allocation strategies of the Java client: which consumer of a group gets which queues (`MessageQueue`).

Each consumer computes its own share from the same sorted lists (`RebalanceImpl.rebalanceByTopic`@5.3.3). `allocate`
sorts them and gives the shares of all consumers. Releases 4.9.7 and 5.3.3 have the same rules.

Each client has several points on a ring of 2^32 places. A queue belongs to the client of the first point at or after
the queue's own place.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from hashlib import md5
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
    def text(self) -> str:
        """The text whose hash strategy CONSISTENT_HASH uses (`MessageQueue.toString`@5.3.3)."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"

    @property
    def order(self) -> tuple[bytes, bytes, int]:
        """The key by which clients sort queues (`MessageQueue.compareTo`@5.3.3)."""
        return java_order(self.topic), java_order(self.broker_name), self.queue_id


Shares = list[list[MessageQueue]]
"""The queues of each client, in the order of the clients."""


def java_order(text: str) -> bytes:
    r"""The key by which Java sorts a text: its UTF-16 units (`String.compareTo`)."""
    return text.encode("utf-16-be", "surrogatepass")


class HashRing:
    """The points of clients on the ring.

    A client id that is given twice has twice the points. If two points are at one place, the later one counts.
    """

    def __init__(self, client_ids: Sequence[str], points: int = POINTS) -> None:
        """A ring of `client_ids`, each with `points` points."""
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for client_id in client_ids:
            first = sum(owner == client_id for owner in owners.values()) if client_id in seen else 0
            seen.add(client_id)
            for number in range(first, first + points):
                owners[place(f"{client_id}-{number}")] = client_id
        self._places = sorted(owners)
        self._owners = [owners[one] for one in self._places]

    def owner(self, text: str) -> str | None:
        """The client to which a text belongs; None if the ring has no point."""
        if not self._places:
            return None
        found = bisect_left(self._places, place(text))
        return self._owners[found % len(self._owners)]


def place(text: str) -> int:
    """The place of a text on the ring: the first four bytes of the MD5 of its UTF-8, as an unsigned number.

    Half of a surrogate pair becomes a question mark, as in `String.getBytes`.
    """
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4])


class Strategy(Protocol):
    """A rule that shares queues out among clients (`AllocateMessageQueueStrategy`@5.3.3)."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy (`getName`)."""

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client."""


@dataclass(frozen=True)
class Average:
    """Neighbouring queues for each client, in shares that differ by at most one queue; the default of a client.

    The source is `AllocateMessageQueueAveragely`@5.3.3.
    """

    name: str = "AVG"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`."""
        size, rest = divmod(len(queues), len(client_ids))
        shares, start = [], 0
        for index in range(len(client_ids)):
            stop = start + size + (index < rest)
            shares.append(list(queues[start:stop]))
            start = stop
        return shares


@dataclass(frozen=True)
class AverageByCircle:
    """Queue after queue to client after client (`AllocateMessageQueueAveragelyByCircle`@5.3.3)."""

    name: str = "AVG_BY_CIRCLE"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`."""
        return [list(queues[index :: len(client_ids)]) for index in range(len(client_ids))]


@dataclass(frozen=True)
class ConsistentHash:
    """Each queue to the next client on a ring of hashes (`AllocateMessageQueueConsistentHash`@5.3.3).

    Few queues move when a client comes or goes, but shares can be very uneven.
    """

    points: int = POINTS
    name: str = "CONSISTENT_HASH"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`."""
        ring = HashRing(client_ids, self.points)
        by_client: dict[str | None, list[MessageQueue]] = {}
        for queue in queues:
            by_client.setdefault(ring.owner(queue.text), []).append(queue)
        return [by_client.get(client_id, []) for client_id in client_ids]


@dataclass(frozen=True)
class MachineRoom:
    """The queues of brokers in some machine rooms (`AllocateMessageQueueByMachineRoom`@5.3.3).

    The name of a broker says its room: `room@name`. Nobody gets queues of other brokers.
    """

    rooms: AbstractSet[str]
    name: str = "MACHINE_ROOM"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`."""
        kept = [queue for queue in queues if room_in_name(queue.broker_name) in self.rooms]
        size, rest = divmod(len(kept), len(client_ids))
        after = size * len(client_ids)
        return [
            kept[index * size : (index + 1) * size] + (kept[after + index : after + index + 1] if index < rest else [])
            for index in range(len(client_ids))
        ]


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
        """The queues of each client; see `Strategy`."""
        queues_of: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_of.setdefault(_room("broker", queue.broker_name, self.broker_rooms), []).append(queue)
        clients_of: dict[str, list[str]] = {}
        for client_id in client_ids:
            clients_of.setdefault(_room("client", client_id, self.client_rooms), []).append(client_id)
        shares: dict[str, list[MessageQueue]] = {client_id: [] for client_id in client_ids}
        for room, clients in clients_of.items():
            if room in queues_of:
                _add(shares, self.inner, queues_of[room], clients)
        for room in sorted(queues_of.keys() - clients_of.keys(), key=java_order):
            _add(shares, self.inner, queues_of[room], client_ids)
        return [shares[client_id] for client_id in client_ids]


@dataclass(frozen=True)
class ByConfig:
    """The queues that each client is configured to take, whatever there is (`AllocateMessageQueueByConfig`@5.3.3)."""

    configured: Mapping[str, Sequence[MessageQueue]]
    name: str = "CONFIG"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`. They can be others than `queues`."""
        return [list(self.configured.get(client_id, ())) for client_id in client_ids]


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    """The queues of each client, in the order of the client ids."""
    if not queues or not client_ids or "" in client_ids:
        raise OptionError("queues are shared out among consumers: give at least one of each, and no empty client id")
    in_order = sorted(client_ids, key=java_order)
    shares = strategy.shares(sorted(queues, key=lambda queue: queue.order), in_order)
    by_client: dict[str, list[MessageQueue]] = {}
    for client_id, share in zip(in_order, shares, strict=True):
        by_client.setdefault(client_id, share)
    return by_client


def room_in_name(broker_name: str) -> str | None:
    """The machine room in a broker's name `room@name`; None if it does not have this form.

    As in `String.split`, an @ at the end does not count: `room@name@` has the form, `room@` has not.
    """
    room, at, name = broker_name.rstrip("@").partition("@")
    return room if at and "@" not in name else None


def _add(
    shares: Mapping[str, list[MessageQueue]], strategy: Strategy, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> None:
    added: dict[str, list[MessageQueue]] = {}
    for client_id, share in zip(clients, strategy.shares(queues, clients), strict=True):
        added.setdefault(client_id, share)
    for client_id, share in added.items():
        shares[client_id].extend(share)


def _room(what: str, name: str, rooms: Mapping[str, str]) -> str:
    room = rooms.get(name, "")
    if not room:
        raise OptionError(f"the machine room of {what} {name} is not known")
    return room


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


@dataclass(frozen=True)
class StrategyChoice:
    """What the arguments say of a strategy."""

    name: str = "AVG"
    broker_name: str | None = None
    inner: str = "AVG"
    rooms: tuple[str, ...] = ()
    broker_room: str | None = None
    points: int = POINTS

    def strategy(self, topic: str, queue_ids: Sequence[int], consumers: Consumers) -> Strategy:
        """The strategy for a topic and its consumers."""
        return self._named(self.name, topic, queue_ids, consumers)

    def _named(self, name: str, topic: str, queue_ids: Sequence[int], consumers: Consumers) -> Strategy:
        if name == "AVG":
            return Average()
        if name == "AVG_BY_CIRCLE":
            return AverageByCircle()
        if name == "CONSISTENT_HASH":
            self._require_broker_name(name)
            if self.points * len(consumers.client_ids) > MOST_POINTS:
                raise OptionError(f"--points {self.points}: all consumers together have more than {MOST_POINTS} points")
            return ConsistentHash(self.points)
        if name == "MACHINE_ROOM":
            self._require_broker_name(name)
            if not self.rooms:
                raise OptionError("MACHINE_ROOM needs --rooms: the machine rooms whose queues are shared out")
            return MachineRoom(frozenset(self.rooms))
        if name == "MACHINE_ROOM_NEARBY":
            return self._nearby(topic, queue_ids, consumers)
        return self._by_config(topic, queue_ids, consumers)

    def _nearby(self, topic: str, queue_ids: Sequence[int], consumers: Consumers) -> Strategy:
        if self.inner not in STRATEGIES[:4]:
            raise OptionError(f"--inner {self.inner}: give one of {', '.join(STRATEGIES[:4])}")
        room = self.broker_room or (None if self.broker_name is None else room_in_name(self.broker_name))
        if not room:
            raise OptionError("MACHINE_ROOM_NEARBY needs --broker-room, or a --broker-name of the form ROOM@NAME")
        lacking = next((one for one in consumers.client_ids if one not in consumers.rooms), None)
        if lacking is not None:
            raise OptionError(
                f"MACHINE_ROOM_NEARBY needs the room of each consumer, and {lacking} has none: "
                "give a file with lines such as `CLIENT-ID room=ROOM`"
            )
        inner = self._named(self.inner, topic, queue_ids, consumers)
        return MachineRoomNearby(inner, {self.broker_name or UNNAMED: room}, consumers.rooms)

    def _by_config(self, topic: str, queue_ids: Sequence[int], consumers: Consumers) -> Strategy:
        if not consumers.queue_ids:
            raise OptionError("CONFIG needs the queues of consumers: give a file with lines `CLIENT-ID queues=0,1,2`")
        known = set(queue_ids)
        for client_id, wanted in consumers.queue_ids.items():
            lacking = next((queue_id for queue_id in wanted if queue_id not in known), None)
            if lacking is not None:
                raise OptionError(f"consumers of topic {topic} have no queue {lacking}, which {client_id} is given")
        broker = self.broker_name or UNNAMED
        return ByConfig(
            {
                one: [MessageQueue(topic, broker, queue) for queue in wanted]
                for one, wanted in consumers.queue_ids.items()
            }
        )

    def _require_broker_name(self, name: str) -> None:
        if self.broker_name is None:
            raise OptionError(
                f"{name} depends on the broker's name, which a store does not contain: give --broker-name, or "
                "--broker-conf with brokerName"
            )
