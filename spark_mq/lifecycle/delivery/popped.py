"""The notes of a broker of 5.x about messages that a group popped, and acknowledged.

A broker stores a check point for each pop, and a note for each acknowledgement, in the topic `rmq_sys_REVIVE_LOG_...`
(`PopCheckPoint`, `AckMsg`@5.3.3). Both first wait in the timer, so that they are in the revive topic when the
message would be visible again (`PopMessageProcessor.buildCkMsg`, `AckMessageProcessor`@5.3.3). A pop that was
acknowledged in the memory of the broker (`enablePopBufferMerge`), and pops that a broker keeps in RocksDB
(`popConsumerKVServiceEnable`), leave no note. The notes are found by the units of their queues.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.lifecycle.life.queue_tail import Cut, messages_after
from spark_mq.lifecycle.life.situation import body_of
from spark_mq.lifecycle.life.time_text import time_text
from spark_mq.store.message_store import MessageStore

_CHECK_POINT, _ACK, _BATCH_ACK = b"ck", b"ack", b"bAck"
"""The tags of the notes (`PopAckConstants`@5.3.3)."""


@dataclass(frozen=True)
class Popped:
    """One pop of a message.

    Attributes:
        pop_time: When the group popped it, milliseconds since the epoch.
        invisible_until: Until when no other consumer of the group gets it.
        is_acknowledged: Whether the group acknowledged it.
        at: The time of the question.

    """

    pop_time: int
    invisible_until: int
    is_acknowledged: bool
    at: int

    @property
    def text(self) -> str:
        """The pop in a few words."""
        popped = f"the group popped it at {time_text(self.pop_time)}"
        if self.is_acknowledged:
            return f"{popped}, and acknowledged it"
        if self.invisible_until > self.at:
            return f"{popped}, and can acknowledge it until {time_text(self.invisible_until)}"
        over = time_text(self.invisible_until)
        return f"{popped}, and did not acknowledge it until {over}: the broker gives it to the group again"


@dataclass(frozen=True)
class Pops:
    """What the notes say of one message.

    Attributes:
        last: The last pop; None if no note tells of one.
        cuts: Why notes can be missing.

    """

    last: Popped | None
    cuts: tuple[str, ...] = ()


def find_pops(store: MessageStore, consumer_group: str, place: tuple[str, int, int], after: int, at: int) -> Pops:
    """What a broker noted about the pops of a message by a group.

    Args:
        store: The store.
        consumer_group: The group.
        place: The topic, the queue id and the queue offset of the message.
        after: The commit log offset of the message: all notes about it follow in the log.
        at: The time of the question, milliseconds since the epoch.

    """
    times: dict[int, int] = {}
    acknowledged: set[int] = set()
    cuts = []
    for note in _notes(store, after):
        if isinstance(note, Cut):
            cuts.append(f"whether it was popped: {note.reason}")
            continue
        tag, content = note
        if not _is_of(content, tag, consumer_group, place):
            continue
        pop_time = _integer(content.get("pt"))
        if tag == _CHECK_POINT:
            times[pop_time] = pop_time + _integer(content.get("it"))
        else:
            acknowledged.add(pop_time)
    if not times and not acknowledged:
        return Pops(None, tuple(cuts))
    last = max({*times, *acknowledged})
    return Pops(Popped(last, times.get(last, last), last in acknowledged, at), tuple(cuts))


def _notes(store: MessageStore, after: int) -> Iterator[tuple[bytes, Mapping[str, Any]] | Cut]:
    """The notes that follow in the log, in the timer and in the revive topic; a note can come twice."""
    queues = [name for name in store.queue_names if name[0] == TIMER_TOPIC or name[0].startswith(REVIVE_PREFIX)]
    for topic, queue_id in queues:
        for message in messages_after(store, topic, queue_id, after):
            if isinstance(message, Cut):
                yield message
                continue
            note = _note_of(message)
            if note is not None:
                yield note


def _note_of(message: Record) -> tuple[bytes, Mapping[str, Any]] | None:
    properties = parse_properties(message.properties)
    tag = properties.get(TAGS, b"")
    topic = properties.get(b"REAL_TOPIC", message.topic)
    if tag not in (_CHECK_POINT, _ACK, _BATCH_ACK) or not topic.startswith(REVIVE_PREFIX.encode()):
        return None
    try:
        content = json.loads(body_of(message) or b"")
    except (ValueError, RecursionError):
        return None
    return (tag, content) if isinstance(content, dict) else None


def _is_of(content: Mapping[str, Any], tag: bytes, consumer_group: str, place: tuple[str, int, int]) -> bool:
    """Whether a note is about the message (`PopCheckPoint.indexOfAck`@5.3.3)."""
    topic, queue_id, queue_offset = place
    if (content.get("c"), content.get("t"), content.get("q")) != (consumer_group, topic, queue_id):
        return False
    if tag == _ACK:
        return bool(content.get("ao") == queue_offset)
    if tag == _BATCH_ACK:
        offsets = content.get("aol")
        return isinstance(offsets, list) and queue_offset in offsets
    start, differences = _integer(content.get("so")), content.get("d")
    if isinstance(differences, list) and differences:
        return queue_offset - start in differences
    return start <= queue_offset < start + _integer(content.get("n"))


def _integer(value: object) -> int:
    """The number; 0 for anything else, such as a damaged note."""
    return value if isinstance(value, int) and -(1 << 63) <= value < 1 << 63 else 0
