"""The pops of a few messages, by look-ups: the notes about them follow the messages in the queues of the broker."""

from __future__ import annotations

from collections.abc import Mapping

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, TIMER_TOPIC
from spark_mq.lifecycle.consumption.popped_messages import (
    NOTE_TAGS,
    Place,
    PopNote,
    Popped,
    PoppedMessages,
    parse_pop_note,
    unread_pops,
)
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.lifecycle.life.queue_tail import Cut
from spark_mq.lifecycle.life.situation import body_of
from spark_mq.lifecycle.life.time_text import time_text


def find_pops(store: LifeStore, places: Mapping[Place, int]) -> tuple[PoppedMessages, tuple[str, ...]]:
    """The pops of some messages, and why notes about pops can be missing, as texts for a person.

    Args:
        places: The commit log offset of each message: all notes about it follow in the log.
    """
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
