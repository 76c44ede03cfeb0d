"""A strategy as a person chooses it: its name, the consumers, and what it needs to know."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from spark_mq.errors import OptionError, StorageError
from spark_mq.sharing.strategies import (
    POINTS,
    Average,
    AverageByCircle,
    ByConfig,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
    MessageQueue,
    Strategy,
    room_in_name,
)

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
    """The consumers of a group.

    Attributes:
        rooms: The machine rooms of those that have one, by client id.
        queue_ids: The queues that consumers are configured to take, by client id.
        is_made_up: Whether only their number is known, so that the client ids are made up.
    """

    client_ids: tuple[str, ...]
    rooms: dict[str, str] = field(default_factory=dict)
    queue_ids: dict[str, tuple[int, ...]] = field(default_factory=dict)
    is_made_up: bool = False


def parse_consumers(name: str, text: str, digits: int = 1) -> Consumers:
    """The consumers that an argument names.

    Args:
        name: What the text is given for; errors name it.
        text: A number, or the path of a text file: on each line a client id, then perhaps `room=R`, and
            `queues=0,1,2`. Lines that are empty or begin with # do not count.
        digits: The least number of digits in client ids that are made up. Clients sort their ids as text.
    """
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
