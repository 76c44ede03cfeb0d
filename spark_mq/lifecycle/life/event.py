"""One event in the life of a message; times, durations and properties as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

from spark_mq.format.amounts import duration_text
from spark_mq.format.compression import decompress_or_reason
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import COMPRESSED_FLAG, Record
from spark_mq.format.timestamp import iso_text

if TYPE_CHECKING:
    from spark_mq.lifecycle.traces import TraceEvent


def time_text(millis: int) -> str:
    """A time as ISO 8601 in UTC, without milliseconds if they are 0."""
    return iso_text(millis).replace(".000Z", "Z")


def body_of(record: Record) -> bytes | None:
    """The body of a record, decompressed; None if it cannot be decompressed."""
    if not record.sys_flag & COMPRESSED_FLAG or not record.body:
        return record.body
    return decompress_or_reason(record.body, record.sys_flag)[0]


class EventKind(StrEnum):
    """What happened."""

    SENT = "SENT"  # the message was stored, for consumers at once
    HALF = "HALF"  # the message was stored as a half message of a transaction
    CHECKED = "CHECKED"  # the half message was written again: to ask the producer, or as it was too young to ask
    COMMITTED = "COMMITTED"  # the producer committed the transaction
    DECIDED = "DECIDED"  # an op message says that a half message is decided: committed or rolled back
    DISCARDED = "DISCARDED"  # the broker gave up a half message
    DELAYED = "DELAYED"  # the message was stored to be delivered later: after a delay level, or at a time
    ROLLED = "ROLLED"  # a timer whose time is far away was written again
    CANCELLED = "CANCELLED"  # a note that cancels a timer was stored
    DELIVERED = "DELIVERED"  # a delayed message was put where consumers get it
    RETRIED = "RETRIED"  # a consumer group returned the message, and gets it again
    DEAD = "DEAD"  # a consumer group gave up the message
    TRACED = "TRACED"  # a client told what it did, with the time of its own clock
    OTHER = "OTHER"  # another record with the key, such as a note of the broker


@dataclass(frozen=True)
class Event:
    """One event, which in most cases is a record of the log; times are milliseconds since the epoch.

    `attempt` counts failed deliveries, and `check` how often the broker had asked about a half message. `number` counts
    the events of a message in the order of time; `parent` is the number of the event from which it follows.
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


@dataclass(eq=False)
class TracedStep(Step):
    """One event of a trace message, with the unique key and the keys of the message that it is of."""

    unique_key: str = field(kw_only=True)
    keys: tuple[str, ...] = field(kw_only=True)


def traced_steps(record: Record, store: str) -> Iterator[TracedStep]:
    """The events in the body of a trace message. What cannot be read is left out."""
    from spark_mq.lifecycle.traces import parse_trace_body  # few messages are traced

    for event in parse_trace_body(body_of(record) or b""):
        if event.problem is None and event.unique_key is not None:
            traced = record_event(
                EventKind.TRACED,
                record,
                f"trace: {_trace_text(event)}",
                store,
                timestamp=record.store_timestamp if event.event_millis is None else event.event_millis,
                consumer_group=event.group_name if event.event_type in ("SubBefore", "SubAfter") else None,
            )
            keys = tuple(filter(None, (event.keys or "").split(" ")))
            yield TracedStep(traced, unique_key=event.unique_key, keys=keys)


def _trace_text(event: TraceEvent) -> str:
    producer = f"producer group {event.group_name}"
    in_time = "" if event.cost_millis is None else f" in {duration_text(event.cost_millis)}"
    if event.event_type == "Pub":
        done = "sent it" if event.is_success else "could not send it"
        return f"{producer} {done} to {event.topic}{in_time}"
    if event.event_type == "SubBefore":
        again = f", retry {event.retry_times}" if event.retry_times else ""
        return f"a consumer of group {event.group_name} began to consume it{again}"
    if event.event_type == "SubAfter":
        who = "the consumer" if event.group_name is None else f"group {event.group_name}"
        returned = "" if event.return_type in (None, "SUCCESS") else f" ({event.return_type})"
        return f"{who} {'consumed it' if event.is_success else 'failed to consume it'}{in_time}{returned}"
    if event.event_type == "EndTransaction":
        asked = ", when the broker asked" if event.is_from_check else ""
        return f"{producer} ended the transaction: {event.transaction_state}{asked}"
    return f"{producer} {'recalled it' if event.is_success else 'could not recall it'}"


def numbered(steps: Sequence[Step]) -> tuple[Event, ...]:
    """The events in the order of time, with their numbers and the numbers of their parents.

    An event never comes before its parent, whatever the clocks of brokers and clients said.
    """
    children: dict[int, list[Step]] = {}
    for step in steps:
        children.setdefault(id(step.parent), []).append(step)
    unique = count()
    ready = [(step.order, next(unique), step) for step in children.pop(id(None), ())]
    heapify(ready)
    numbers: dict[int, int] = {}
    events: list[Event] = []
    while ready:
        _, _, step = heappop(ready)
        numbers[id(step)] = len(events)
        parent = None if step.parent is None else numbers[id(step.parent)]
        events.append(replace(step.event, number=len(events), parent=parent))
        for child in children.get(id(step), ()):
            heappush(ready, (child.order, next(unique), child))
    return tuple(events)
