"""Which consumer groups are past one message, by their offsets in its queue, or by what they popped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.event import time_text
from spark_mq.lifecycle.life.life_store import Cut, LifeStore
from spark_mq.lifecycle.life.situation import body_of
from spark_mq.lifecycle.popped_messages import (
    NOTE_TAGS,
    Place,
    PopNote,
    Popped,
    PoppedMessages,
    PopState,
    parse_pop_note,
    unread_pops,
)
from spark_mq.store.config.config_file import CONSUMER_OFFSETS, ConsumerOffset, load_config, load_consumer_offsets


def find_pops(store: LifeStore, places: Mapping[Place, int]) -> tuple[PoppedMessages, tuple[str, ...]]:
    """The pops of some messages, and why notes about pops can be missing, as texts for a person."""
    if not places:
        return PoppedMessages(), ()
    unread = unread_pops(store.location)
    cuts = [] if unread is None else [unread]
    notes = []
    for part in store.revive_messages(min(places.values())):
        note = part if isinstance(part, Cut) else _note_of(part)
        if isinstance(note, Cut):
            cuts.append(note.reason)
        elif note is not None:
            notes.append(note)
    return PoppedMessages(notes, places.__contains__), tuple(dict.fromkeys(cuts))


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

    PAST = "PAST"
    """Its offset is after the message: it has consumed it, or has given it back for a retry."""
    POPPED = "POPPED"
    """Its offset is after the message, because it popped it, and it has not acknowledged it."""
    NOT_YET = "NOT_YET"
    """Its offset is at the message, or before it."""
    NO_OFFSET = "NO_OFFSET"
    """It has offsets in other queues of the topic, and none in this queue."""


@dataclass(frozen=True)
class MessageConsumer:
    """One consumer group of a message.

    Attributes:
        consumer_offset: The offset that the group consumes next; None without one.
        messages_before: Messages that the group consumes before this one; None if it is past it or has no offset.
        popped: The last pop of the message by the group; None if no note of a broker tells of one.
    """

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
        place = f"{self.topic}/{self.queue_id}"
        if self.state in (ConsumerState.PAST, ConsumerState.POPPED):
            past = f"past it: its offset in {place} is {self.consumer_offset}"
            return past if self.popped is None else f"{past}; {pop_text(self.popped)}"
        if self.state is ConsumerState.NO_OFFSET:
            return f"not known: it has an offset in other queues of {self.topic}, and none in queue {self.queue_id}"
        before = self.messages_before
        many = "it is the next one" if before == 0 else f"{before} message{'' if before == 1 else 's'} before it"
        return f"not yet: its offset in {place} is {self.consumer_offset}, {many}"

    def with_pops(self, pops: PoppedMessages) -> MessageConsumer:
        """The group with what is known of its pops of the message."""
        popped = pops.last(self.consumer_group, (self.topic, self.queue_id, self.queue_offset))
        if self.state is not ConsumerState.PAST or popped is None:
            return self
        state = ConsumerState.POPPED if popped.state is PopState.POPPED else self.state
        return replace(self, state=state, popped=popped)


class ConsumerOffsets:
    """The consumer offsets of a store, read once."""

    def __init__(self, store: Location, name: str) -> None:
        """The offsets of a store, which has a folder `config`; `name` is its name in the results."""
        self._name = name
        self._offsets: Sequence[ConsumerOffset] = ()
        self.problem: str | None = None
        try:
            self._offsets = load_consumer_offsets(store)
            if not self._offsets and load_config(store, CONSUMER_OFFSETS, lambda _: True) is None:
                self.problem = f"which consumer groups are past it: there is no config/{CONSUMER_OFFSETS}"
        except (ConfigError, UnsupportedStoreError) as error:
            self.problem = f"which consumer groups are past it: {error}"

    def of(self, topic: str, queue_id: int, queue_offset: int) -> list[MessageConsumer]:
        """The groups that consume a topic, by name, with their states for the message at an offset of a queue."""
        by_group: dict[str, int | None] = {}
        for one in self._offsets:
            if one.topic == topic:
                by_group.setdefault(one.consumer_group, None)
                if one.queue_id == queue_id:
                    by_group[one.consumer_group] = one.offset
        place = topic, queue_id, queue_offset
        found = []
        for group, offset in sorted(by_group.items()):
            if offset is None:
                found.append(MessageConsumer(group, *place, ConsumerState.NO_OFFSET, store=self._name))
            elif offset > queue_offset:
                found.append(MessageConsumer(group, *place, ConsumerState.PAST, offset, store=self._name))
            else:
                before = queue_offset - offset
                found.append(MessageConsumer(group, *place, ConsumerState.NOT_YET, offset, before, store=self._name))
        return found

    def offset(self, consumer_group: str, topic: str, queue_id: int) -> int | None:
        """The offset of one group in one queue; None if there is none."""
        wanted = consumer_group, topic, queue_id
        found = (one.offset for one in self._offsets if (one.consumer_group, one.topic, one.queue_id) == wanted)
        return next(found, None)
