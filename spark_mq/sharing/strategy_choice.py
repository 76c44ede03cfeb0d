"""A strategy as a person chooses it: its name, and what it needs to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.sharing.consumers import Consumers
from spark_mq.sharing.hash_ring import POINTS
from spark_mq.sharing.message_queue import MessageQueue
from spark_mq.sharing.strategies import (
    Average,
    AverageByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    Strategy,
    room_in_name,
)

STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY", "CONFIG")
"""RocketMQ's names of the strategies."""

MOST_POINTS = 2_000_000
"""Points on a ring: its hashes take some seconds."""

UNNAMED = "-"
"""Stands for the name of a broker if the strategy does not depend on it."""


@dataclass(frozen=True)
class StrategyChoice:
    """What the arguments say of a strategy.

    Attributes:
        name: One of `STRATEGIES`.
        broker_name: The broker's name, which a store does not contain; None if it is not given.
        inner: The strategy in a machine room, for MACHINE_ROOM_NEARBY.
        rooms: The machine rooms whose queues are shared out, for MACHINE_ROOM.
        broker_room: The machine room of the broker, for MACHINE_ROOM_NEARBY; None: as its name says.
        points: Points of each client on the ring, for CONSISTENT_HASH.
    """

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
