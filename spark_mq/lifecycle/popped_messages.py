"""What a broker of 5.x notes about messages that consumer groups popped, and acknowledged.

A broker stores a check point for each pop, and a note for each acknowledgement, in the topic `rmq_sys_REVIVE_LOG_...`
(`PopCheckPoint`, `AckMsg`, `BatchAckMsg`@5.3.3). Both first wait in the timer, so that they are in the revive topic
when the message would be visible again (`PopMessageProcessor.buildCkMsg`, `AckMessageProcessor.appendAck`@5.3.3).

A group's offset passes a message only when the check point of its pop is in the log, or when the pop was acknowledged
in the memory of the broker (`PopBufferMergeService.scanCommitOffset`@5.3.3). So a message before the group's offset
without a note was not popped in vain. That is not true of a broker that keeps pops in RocksDB
(`popConsumerKVServiceEnable`), which has a folder `kvStore`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from spark_mq.io.location import Location
from spark_mq.store.log.segment_files import CorruptRange

_CHECK_POINT, _ACK, _BATCH_ACK = "ck", "ack", "bAck"
NOTE_TAGS = frozenset({_CHECK_POINT, _ACK, _BATCH_ACK})
"""The tags of the notes (`PopAckConstants`@5.3.3)."""

T = TypeVar("T")
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

    CONSUMED = "CONSUMED"  # the group acknowledged it
    POPPED = "POPPED"  # it has not; after the invisible time the broker gives it to the group again
    UNKNOWN = "UNKNOWN"  # the store does not show it


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

    The bit map of a check point says which of its messages are acknowledged (`PopReviveService.reviveMsgFromCk`@5.3.3,
    `DataConverter.getBit`: Java takes the index of a bit modulo 64).
    """
    try:
        content = json.loads(body)
        if not isinstance(content, dict):
            return None
        group, topic = _value(content, "c", str, ""), _value(content, "t", str, "")
        if not group or not topic:
            return None
        integer = partial(_value, content, kind=int, absent=0)
        integers = partial(_value, content, kind=list, absent=[])
        start = integer("so")
        popped: tuple[int, ...] = ()
        if tags == _CHECK_POINT:
            differences, count, bits = integers("d"), integer("n"), integer("bm")
            if not differences and not 0 <= count <= _MAX_BYTE:
                return None
            # `PopCheckPoint.ackOffsetByIndex`@5.3.3
            popped = tuple(start + difference for difference in differences or range(count))
            acknowledged = [offset for index, offset in enumerate(popped) if bits >> (index & 63) & 1]
        elif tags == _BATCH_ACK:
            acknowledged = integers("aol")
        else:
            acknowledged = [integer("ao")]
        return PopNote(
            group,
            topic,
            integer("q"),
            start,
            integer("pt"),
            _value(content, "bn", str, "") or None,
            frozenset(popped),
            frozenset(acknowledged),
            integer("it") if tags == _CHECK_POINT else 0,
        )
    except (ValueError, RecursionError):
        return None


def _value(content: dict[str, Any], name: str, kind: type[T], absent: T) -> T:
    """The value of a note by its short name; one of another type, or of more than 64 bits, is an error."""
    value = content.get(name)
    value = content.get(_LONG_NAMES[name]) if value is None else value
    if value is None:
        return absent
    numbers = value if kind is list else [value] if kind is int else []
    if type(value) is not kind or not all(type(one) is int and -(1 << 63) <= one < 1 << 63 for one in numbers):
        raise ValueError(value)
    return value


@dataclass(frozen=True)
class Popped:
    """One pop of a message; the broker gives it to the group again at `visible_timestamp`, in milliseconds."""

    pop_timestamp: int
    visible_timestamp: int
    is_acknowledged: bool

    @property
    def state(self) -> PopState:
        """CONSUMED or POPPED."""
        return PopState.CONSUMED if self.is_acknowledged else PopState.POPPED


def _last_pop(offset: int, notes: Sequence[PopNote]) -> Popped:
    """The last pop of a message; of two with one time, the one that ends later, which the broker wrote again."""
    acknowledgements = [note for note in notes if offset not in note.popped]
    pops, matched = [], set()
    for note in notes:
        if offset in note.popped:
            own = [id(ack) for ack in acknowledgements if _is_of(ack, note)]
            matched.update(own)
            is_acknowledged = offset in note.acknowledged or bool(own)
            pops.append(Popped(note.pop_time, note.pop_time + note.invisible_time, is_acknowledged))
    for ack in acknowledgements:
        if id(ack) not in matched:  # its check point was only in the memory of the broker
            pops.append(Popped(ack.pop_time, ack.pop_time, is_acknowledged=True))
    return max(pops, key=lambda pop: (pop.pop_timestamp, pop.visible_timestamp))


def _is_of(acknowledgement: PopNote, check_point: PopNote) -> bool:
    """Whether an acknowledgement is one of a check point (`PopReviveService.consumeReviveMessage`@5.3.3: mergeKey).

    A broker leaves its name out of batches of acknowledgements.
    """
    if (acknowledgement.start_offset, acknowledgement.pop_time) != (check_point.start_offset, check_point.pop_time):
        return False
    names = {acknowledgement.broker_name, check_point.broker_name}
    return None in names or len(names) == 1


class PoppedMessages:
    """The last pops of messages by groups, out of notes in any order; a note can come twice."""

    def __init__(
        self,
        notes: Iterable[PopNote] = (),
        is_wanted: Callable[[Position], bool] = lambda _: True,
        damage: tuple[CorruptRange, ...] = (),
    ) -> None:
        """The pops that notes tell of; only those of messages for which `is_wanted` is true."""
        self.damage = damage
        self._notes: dict[tuple[str, Position], list[PopNote]] = {}
        for note in notes:
            for offset in note.popped | note.acknowledged:
                position = note.topic, note.queue_id, offset
                if is_wanted(position):
                    self._notes.setdefault((note.consumer_group, position), []).append(note)

    def last(self, consumer_group: str, position: Position) -> Popped | None:
        """The last pop of a message by a group; None if no note tells of one."""
        notes = self._notes.get((consumer_group, position))
        return None if notes is None else _last_pop(position[2], notes)

    def only_acknowledged(self) -> PoppedMessages:
        """The pops that were acknowledged: later notes can add to them, and cannot contradict them."""
        result = PoppedMessages(damage=self.damage)
        result._notes = {name: of for name, of in self._notes.items() if _last_pop(name[1][2], of).is_acknowledged}
        return result

    @property
    def are_acknowledged(self) -> bool:
        """Whether all pops were acknowledged."""
        return all(_last_pop(name[1][2], of).is_acknowledged for name, of in self._notes.items())


def unread_pops(store: Location) -> str | None:
    """Why pops can be somewhere else than in the log; None if they are not."""
    if (store / "kvStore").is_directory:  # `PopConsumerService`@5.3.3
        return "the broker can keep pops in RocksDB (folder kvStore), which is not read"
    return None
