"""The allocation strategies of the Java client: which consumer of a group gets which queues (`MessageQueue`).

Each consumer computes its own share from the same sorted lists (`RebalanceImpl.rebalanceByTopic`@5.3.3). `allocate`
sorts them and gives the shares of all consumers. Releases 4.9.7 and 5.3.3 have the same rules.

Each client has several points on a ring of 2^32 places. A queue belongs to the client of the first point at or after
the queue's own place.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from hashlib import md5
from typing import Protocol

from spark_mq.errors import OptionError

POINTS = 10
"""Points of a client, if the client does not say another number (`AllocateMessageQueueConsistentHash`@5.3.3)."""


@dataclass(frozen=True)
class MessageQueue:
    """A queue of a topic in a broker (`MessageQueue`@5.3.3).

    Attributes:
        broker_name: The broker's name (`brokerName`).
    """

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
        """The queues of each client.

        Args:
            queues: The queues, sorted; at least one.
            client_ids: The client ids, sorted; at least one.
        """


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

    Attributes:
        points: Points of each client on the ring.
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

    Attributes:
        rooms: The rooms (`consumeridcs`).
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

    Attributes:
        inner: The strategy in a room.
        broker_rooms: The room of each broker, by its name.
        client_rooms: The room of each client, by its id.
    """

    inner: Strategy
    broker_rooms: Mapping[str, str]
    client_rooms: Mapping[str, str]

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`.

        Raises:
            OptionError: The room of a broker or client is not known, or is empty.
        """
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
    """The queues that each client is configured to take, whatever there is (`AllocateMessageQueueByConfig`@5.3.3).

    Attributes:
        configured: The queues of each client, by its id. A client that is not named gets none.
    """

    configured: Mapping[str, Sequence[MessageQueue]]
    name: str = "CONFIG"

    def shares(self, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> Shares:
        """The queues of each client; see `Strategy`. They can be others than `queues`."""
        return [list(self.configured.get(client_id, ())) for client_id in client_ids]


def allocate(
    strategy: Strategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> dict[str, list[MessageQueue]]:
    """The queues of each client, in the order of the client ids.

    Args:
        strategy: The strategy that all clients use.
        queues: The queues of the topic, in any order.
        client_ids: The ids of the group's clients, in any order. Clients of the same id get the same queues.

    Raises:
        OptionError: There is no queue or no client, or a client id is empty; Java's strategies then fail, and no
            client gets a queue (`AbstractAllocateMessageQueueStrategy.check`@5.3.3).

    Example:
        >>> queues = [MessageQueue("orders", "broker-a", number) for number in range(3)]
        >>> {one: [queue.queue_id for queue in its] for one, its in allocate(Average(), queues, ["b", "a"]).items()}
        {'a': [0, 1], 'b': [2]}
    """
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

    Example:
        >>> room_in_name("hangzhou@broker-a")
        'hangzhou'
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
