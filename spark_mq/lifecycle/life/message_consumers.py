"""Which consumer groups are past one message, by their offsets in its queue, or by what they popped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_mq.format.amounts import counted
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.event import body_of, time_text
from spark_mq.lifecycle.life.life_store import Cut, LifeStore
from spark_mq.lifecycle.popped_messages import (
    NOTE_TAGS,
    PopNote,
    Popped,
    PoppedMessages,
    PopState,
    Position,
    parse_pop_note,
)
from spark_mq.lifecycle.retry_topic import consumer_offsets
from spark_mq.store.config.config_file import CONSUMER_OFFSETS, read_config


def find_pops(store: LifeStore, positions: Mapping[Position, int]) -> tuple[PoppedMessages, tuple[str, ...]]:
    """The pops of some messages, and why notes about pops can be missing, as texts for a person."""
    if not positions:
        return PoppedMessages(), ()
    unread = store.unread_pops()
    cuts = [] if unread is None else [unread]
    notes = []
    for part in store.revive_messages(min(positions.values())):
        note = part if isinstance(part, Cut) else _note_of(part)
        if isinstance(note, Cut):
            cuts.append(note.reason)
        elif note is not None:
            notes.append(note)
    return PoppedMessages(notes, positions.__contains__), tuple(dict.fromkeys(cuts))


def pop_text(popped: Popped) -> str:
    """The pop in a few words."""
    text = f"the group popped it at {time_text(popped.pop_timestamp)}"
    if popped.is_acknowledged:
        return f"{text}, and acknowledged it"
    visible = time_text(popped.visible_timestamp)
    return f"{text}, and has not acknowledged it: from {visible} on, the broker gives it to the group again"


def _note_of(message: Record) -> PopNote | Cut | None:
    """The note in a message of the timer or of a revive topic; None if it is another message."""
    properties = parse_properties(message.properties)
    if b"\0" in message.properties:  # see `sound_messages`
        return Cut(f"the message at commit log offset {message.commit_log_offset} is damaged")
    topic = properties.get(b"REAL_TOPIC", b"") if decode_utf8(message.topic) == TIMER_TOPIC else message.topic
    tags = decode_utf8(properties.get(TAGS, b""))
    if tags not in NOTE_TAGS or not topic.startswith(REVIVE_PREFIX.encode()):
        return None
    note = parse_pop_note(tags, body_of(message) or b"")
    return note or Cut(f"the note at commit log offset {message.commit_log_offset} cannot be read")


class ConsumerState(StrEnum):
    """Whether a consumer group has consumed a message."""

    PAST = "PAST"  # its offset is after the message: it has consumed it, or has given it back for a retry
    POPPED = "POPPED"  # its offset is after the message, because it popped it, and it has not acknowledged it
    NOT_YET = "NOT_YET"  # its offset is at the message, or before it
    NO_OFFSET = "NO_OFFSET"  # it has offsets in other queues of the topic, and none in this queue


@dataclass(frozen=True)
class MessageConsumer:
    """One consumer group of a message; it consumes `messages_before` first, and `popped` is its last pop."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    state: ConsumerState
    consumer_offset: int | None = None
    messages_before: int | None = None
    store: str = ""
    popped: Popped | None = None

    @property
    def text(self) -> str:
        """The state in a few words."""
        offset = f"its offset in {self.topic}/{self.queue_id} is {self.consumer_offset}"
        if self.state in (ConsumerState.PAST, ConsumerState.POPPED):
            return f"past it: {offset}" + ("" if self.popped is None else f"; {pop_text(self.popped)}")
        if self.state is ConsumerState.NO_OFFSET:
            return f"not known: it has an offset in other queues of {self.topic}, and none in queue {self.queue_id}"
        return f"not yet: {offset}, {before_text(self.messages_before or 0)}"

    def with_pops(self, pops: PoppedMessages) -> MessageConsumer:
        """The group with what is known of its pops of the message."""
        popped = pops.last(self.consumer_group, (self.topic, self.queue_id, self.queue_offset))
        if self.state is not ConsumerState.PAST or popped is None:
            return self
        state = ConsumerState.POPPED if popped.state is PopState.POPPED else self.state
        return replace(self, state=state, popped=popped)


def before_text(count: int) -> str:
    """How many messages are before one, for a person."""
    return "it is the next one" if count == 0 else f"{counted(count, 'message')} before it"


class ConsumerOffsets:
    """The consumer offsets of a store, read once."""

    def __init__(self, store: Location, name: str) -> None:
        """The offsets of a store, which has a folder `config`; `name` is its name in the results."""
        self._name = name
        offsets, self.unread = read_config(lambda: consumer_offsets(store))
        if self.unread is None and offsets is None:
            self.unread = f"there is no config/{CONSUMER_OFFSETS}"
        self._offsets = offsets or {}

    @property
    def problem(self) -> str | None:
        """What is not known because the file cannot be read; None if it can."""
        return None if self.unread is None else f"which consumer groups are past it: {self.unread}"

    def of(self, topic: str, queue_id: int, queue_offset: int) -> list[MessageConsumer]:
        """The groups that consume a topic, by name, with their states for the message at an offset of a queue."""
        found = []
        for group in sorted({group for group, name, _ in self._offsets if name == topic}):
            offset = self.offset(group, topic, queue_id)
            state, before = ConsumerState.NO_OFFSET, None
            if offset is not None:
                state = ConsumerState.PAST if offset > queue_offset else ConsumerState.NOT_YET
                before = None if offset > queue_offset else queue_offset - offset
            found.append(MessageConsumer(group, topic, queue_id, queue_offset, state, offset, before, self._name))
        return found

    def offset(self, consumer_group: str, topic: str, queue_id: int) -> int | None:
        """The offset of one group in one queue; None if there is none."""
        return self._offsets.get((consumer_group, topic, queue_id))
