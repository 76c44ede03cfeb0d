"""One event in the life of a message, and times and durations as text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import Record
from spark_mq.format.timestamp import iso_text

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000))
_SECOND = 1000


def duration_text(millis: int) -> str:
    """A duration for a person, in its two largest units."""
    if millis < 0:
        return f"-{duration_text(-millis)}"
    for index, (name, size) in enumerate(_UNITS):
        if millis >= size:
            smaller, smaller_size = (*_UNITS, ("s", _SECOND))[index + 1]
            rest = millis % size // smaller_size
            return f"{millis // size} {name} {rest} {smaller}" if rest else f"{millis // size} {name}"
    if millis < _SECOND:
        return f"{millis} ms"
    return f"{millis // _SECOND} s" if millis % _SECOND == 0 else f"{millis / _SECOND:.3f}".rstrip("0") + " s"


def time_text(millis: int) -> str:
    """A time as ISO 8601 in UTC, without milliseconds if they are 0."""
    return iso_text(millis).replace(".000Z", "Z")


class EventKind(StrEnum):
    """What happened."""

    SENT = "SENT"
    """The message was stored, for consumers at once."""
    HALF = "HALF"
    """The message was stored as a half message of a transaction."""
    CHECKED = "CHECKED"
    """The broker wrote the half message again, to ask its producer group, or because it was too young to ask."""
    COMMITTED = "COMMITTED"
    """The producer committed the transaction."""
    DECIDED = "DECIDED"
    """An op message says that a half message is decided: committed or rolled back."""
    DISCARDED = "DISCARDED"
    """The broker gave up a half message."""
    DELAYED = "DELAYED"
    """The message was stored to be delivered later: after a delay level, or at a time."""
    ROLLED = "ROLLED"
    """A timer whose time is far away was written again."""
    CANCELLED = "CANCELLED"
    """A note that cancels a timer was stored."""
    DELIVERED = "DELIVERED"
    """A delayed message was put where consumers get it."""
    RETRIED = "RETRIED"
    """A consumer group returned the message, and gets it again."""
    DEAD = "DEAD"
    """A consumer group gave up the message."""
    TRACED = "TRACED"
    """A client told what it did, with the time of its own clock."""
    OTHER = "OTHER"
    """Another record with the key, such as a note of the broker."""


@dataclass(frozen=True)
class Event:
    """One event, which in most cases is a record of the log.

    Attributes:
        timestamp: When, milliseconds since the epoch: the store time of the record.
        text: The event in a few words.
        topic: The topic of the record; None without a record.
        real_queue_id: The queue id there; None if it is not known.
        consumer_group: The consumer group that did it, or for which it was done; None without one.
        attempt: The number of failed deliveries of a retry or a dead letter.
        check: The number of times that the broker had asked about a half message.
        due_timestamp: When a delay or a timer ends.
        number: The number of the event among those of its message, from 0 on, in the order of time.
        parent: The number of the event from which it follows; None if it follows from none that is known.
    """

    kind: EventKind
    timestamp: int
    text: str
    store: str = ""
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    commit_log_offset: int | None = None
    offset_message_id: str | None = None
    real_topic: str | None = None
    real_queue_id: int | None = None
    consumer_group: str | None = None
    attempt: int | None = None
    check: int | None = None
    due_timestamp: int | None = None
    number: int = -1
    parent: int | None = None


def record_event(kind: EventKind, record: Record, text: str, store: str, **more: Any) -> Event:
    """The event that a record is; `more` are other fields of the event."""
    return Event(
        kind,
        timestamp=more.pop("timestamp", record.store_timestamp),
        text=text,
        store=store,
        topic=decode_utf8(record.topic),
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        commit_log_offset=record.commit_log_offset,
        offset_message_id=encode_offset_message_id(record.store_host, record.commit_log_offset),
        **more,
    )


@dataclass(eq=False)
class Step:
    """An event that is being put together, and the one from which it follows."""

    event: Event
    parent: Step | None = None

    @property
    def order(self) -> tuple[int, str, int]:
        """Events are sorted by this: by time; at the same time, by the order of the log."""
        offset = self.event.commit_log_offset
        return self.event.timestamp, self.event.store, -1 if offset is None else offset


def numbered(steps: list[Step]) -> tuple[Event, ...]:
    """The events in the order of time, with their numbers and the numbers of their parents.

    An event never comes before its parent, whatever the clocks of brokers and clients said.
    """
    children: dict[int, list[Step]] = {}
    ready: list[tuple[tuple[int, str, int], int, Step]] = []
    for index, step in enumerate(steps):
        if step.parent is None:
            heappush(ready, (step.order, index, step))
        else:
            children.setdefault(id(step.parent), []).append(step)
    numbers: dict[int, int] = {}
    events: list[Event] = []
    while ready:
        _, _, step = heappop(ready)
        parent = None if step.parent is None else numbers[id(step.parent)]
        numbers[id(step)] = len(events)
        events.append(replace(step.event, number=len(events), parent=parent))
        for child in children.get(id(step), ()):
            heappush(ready, (child.order, len(steps) + len(events) + len(ready), child))
    return tuple(events)
