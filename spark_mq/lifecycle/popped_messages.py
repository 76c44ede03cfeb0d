"""What a broker of 5.x notes about messages that consumer groups popped, and acknowledged.

A broker stores a check point for each pop, and a note for each acknowledgement, in the topic `rmq_sys_REVIVE_LOG_...`
(`PopCheckPoint`, `AckMsg`, `BatchAckMsg`@5.3.3). Both first wait in the timer, so that they are in the revive topic
when the message would be visible again (`PopMessageProcessor.buildCkMsg`, `AckMessageProcessor.appendAck`@5.3.3).

A group's offset passes a message only when the check point of its pop is in the log, or when the pop was acknowledged
in the memory of the broker (`PopBufferMergeService.scanCommitOffset`@5.3.3). So a message before the group's offset
without a note was not popped in vain. That does not hold for a broker that keeps pops in RocksDB
(`popConsumerKVServiceEnable`), which has a folder `kvStore`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from spark_mq.io.location import Location
from spark_mq.store.log.segment_files import CorruptRange

_CHECK_POINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"
NOTE_TAGS = frozenset({_CHECK_POINT, _ACK, _BATCH_ACK})
"""The tags of the notes (`PopAckConstants`@5.3.3)."""

KV_STORE = "kvStore"
"""The folder of a broker that keeps pops in RocksDB (`PopConsumerService`@5.3.3)."""

Position = tuple[str, int, int]
"""A topic, a queue id, and a queue offset."""

_LONG_NAMES = {
    "so": "startOffset",
    "pt": "popTime",
    "it": "invisibleTime",
    "bm": "bitMap",
    "n": "num",
    "q": "queueId",
    "t": "topic",
    "c": "consumerGroup",
    "d": "queueOffsetDiff",
    "bn": "brokerName",
    "ao": "ackOffset",
    "aol": "ackOffsetList",
}
"""The names in the notes of acknowledgements of older brokers (`AckMsg`@5.0.0), by the names of newer ones."""
_MAX_BYTE = 127


class PopState(StrEnum):
    """What became of a message that a group popped."""

    CONSUMED = "CONSUMED"
    """The group acknowledged it."""
    POPPED = "POPPED"
    """The group has not acknowledged it; after the invisible time the broker gives it to the group again."""
    UNKNOWN = "UNKNOWN"
    """The store does not show it."""


@dataclass(frozen=True)
class PopNote:
    """A check point, or a note of acknowledgements."""

    consumer_group: str
    topic: str
    queue_id: int
    start_offset: int
    pop_time: int
    broker_name: str | None
    popped: frozenset[int]
    acknowledged: frozenset[int]
    invisible_time: int = 0


def parse_pop_note(tags: str, body: bytes) -> PopNote | None:
    """The note in the body of a message; None if it cannot be read.

    The bit map of a check point says which of its messages are acknowledged (`PopReviveService.reviveMsgFromCk`@5.3.3).
    """
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            return None
        values = _Values(content)
        group, topic = values.text("c"), values.text("t")
        if not group or not topic:
            return None
        start = values.integer("so")
        popped: frozenset[int] = frozenset()
        if tags == _CHECK_POINT:
            offsets = _popped_offsets(start, values)
            popped, acknowledged = frozenset(offsets), _marked(offsets, values.integer("bm"))
        elif tags == _BATCH_ACK:
            acknowledged = frozenset(values.integers("aol"))
        else:
            acknowledged = frozenset({values.integer("ao")})
        return PopNote(
            group,
            topic,
            values.integer("q"),
            start,
            values.integer("pt"),
            values.text("bn") or None,
            popped,
            acknowledged,
            values.integer("it") if tags == _CHECK_POINT else 0,
        )
    except (ValueError, RecursionError):
        return None


class _Values:
    """The values of a note by their short names; a value of another type is a ValueError."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def _value(self, name: str) -> Any:
        value = self._content.get(name)
        return self._content.get(_LONG_NAMES[name]) if value is None else value

    def text(self, name: str) -> str:
        """A text; empty without one."""
        value = self._value(name)
        if value is not None and not isinstance(value, str):
            raise ValueError(name)
        return value or ""

    def integer(self, name: str) -> int:
        """A number of 64 bits; 0 without one, as in Java."""
        return _integer(self._value(name))

    def integers(self, name: str) -> list[int]:
        """A list of numbers; empty without one."""
        values = self._value(name)
        if values is None:
            return []
        if not isinstance(values, list):
            raise ValueError(name)
        return [_integer(value) for value in values]


def _integer(value: object) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not -(1 << 63) <= value < 1 << 63:
        raise ValueError(value)
    return value


def _popped_offsets(start: int, values: _Values) -> tuple[int, ...]:
    """The queue offsets of a check point in their order (`PopCheckPoint.ackOffsetByIndex`@5.3.3)."""
    differences, count = values.integers("d"), values.integer("n")
    if differences:
        return tuple(start + difference for difference in differences)
    if not 0 <= count <= _MAX_BYTE:
        raise ValueError(count)
    return tuple(range(start, start + count))


def _marked(offsets: tuple[int, ...], bit_map: int) -> frozenset[int]:
    """The offsets whose bits are set (`DataConverter.getBit`@5.3.3: Java takes the index of a bit modulo 64)."""
    return frozenset(offset for index, offset in enumerate(offsets) if bit_map >> (index & 63) & 1)


@dataclass(frozen=True)
class Popped:
    """One pop of a message.

    Attributes:
        pop_timestamp: When the group popped it, milliseconds since the epoch.
        visible_timestamp: When the broker gives it to the group again, unless it is acknowledged before.
    """

    pop_timestamp: int
    visible_timestamp: int
    is_acknowledged: bool

    @property
    def state(self) -> PopState:
        """CONSUMED or POPPED."""
        return PopState.CONSUMED if self.is_acknowledged else PopState.POPPED


@dataclass
class _Pops:
    """The notes about one message and one group: check points, and acknowledgements."""

    check_points: list[tuple[PopNote, bool]] = field(default_factory=list)
    acknowledgements: list[PopNote] = field(default_factory=list)

    def last(self) -> Popped:
        """The last pop; of two with one time, the one that ends later, which the broker wrote again."""
        pops = []
        matched = set()
        for note, is_marked in self.check_points:
            own = [number for number, ack in enumerate(self.acknowledgements) if _is_of(ack, note)]
            matched.update(own)
            pops.append(Popped(note.pop_time, note.pop_time + note.invisible_time, is_marked or bool(own)))
        for number, ack in enumerate(self.acknowledgements):
            if number not in matched:  # its check point was only in the memory of the broker
                pops.append(Popped(ack.pop_time, ack.pop_time, is_acknowledged=True))
        return max(pops, key=lambda pop: (pop.pop_timestamp, pop.visible_timestamp))


def _is_of(acknowledgement: PopNote, check_point: PopNote) -> bool:
    """Whether an acknowledgement is one of a check point (`PopReviveService.consumeReviveMessage`@5.3.3: mergeKey).

    A broker leaves its name out of batches of acknowledgements.
    """
    if (acknowledgement.start_offset, acknowledgement.pop_time) != (check_point.start_offset, check_point.pop_time):
        return False
    return None in (acknowledgement.broker_name, check_point.broker_name) or (
        acknowledgement.broker_name == check_point.broker_name
    )


class PoppedMessages:
    """The pops of messages by groups, out of notes in any order; a note can come twice."""

    def __init__(
        self,
        notes: Iterable[PopNote] = (),
        is_wanted: Callable[[Position], bool] = lambda _: True,
        damage: tuple[CorruptRange, ...] = (),
    ) -> None:
        """The pops that notes tell of; only those of messages for which `is_wanted` is true."""
        self.damage = damage
        self._pops: dict[tuple[str, Position], _Pops] = {}
        for note in notes:
            for offset in note.popped | note.acknowledged:
                position = note.topic, note.queue_id, offset
                if is_wanted(position):
                    pops = self._pops.setdefault((note.consumer_group, position), _Pops())
                    if offset in note.popped:
                        pops.check_points.append((note, offset in note.acknowledged))
                    else:
                        pops.acknowledgements.append(note)

    def last(self, consumer_group: str, position: Position) -> Popped | None:
        """The last pop of a message by a group; None if no note tells of one."""
        pops = self._pops.get((consumer_group, position))
        return None if pops is None else pops.last()

    def only_acknowledged(self) -> PoppedMessages:
        """The pops that were acknowledged: later notes can add to them, and cannot contradict them."""
        result = PoppedMessages(damage=self.damage)
        result._pops = {name: pops for name, pops in self._pops.items() if pops.last().is_acknowledged}
        return result

    @property
    def are_acknowledged(self) -> bool:
        """Whether all pops were acknowledged."""
        return all(pops.last().is_acknowledged for pops in self._pops.values())


def unread_pops(store: Location) -> str | None:
    """Why pops can be somewhere else than in the log; None if they are not."""
    if (store / KV_STORE).is_directory:
        return f"the broker can keep pops in RocksDB (folder {KV_STORE}), which is not read"
    return None
