"""The events of trace messages as steps in the life of a message. The times are those of the clients' clocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import Record
from spark_mq.lifecycle.life.event import Event, EventKind, Step
from spark_mq.lifecycle.life.situation import body_of
from spark_mq.lifecycle.life.time_text import duration_text
from spark_mq.lifecycle.traces.trace_record import TraceEvent, parse_trace_body

_CONSUMED = ("SubBefore", "SubAfter")


@dataclass(frozen=True)
class TracedStep:
    """One event of a trace message: the unique key and the keys of the message that it is of, and its step."""

    unique_key: str
    keys: tuple[str, ...]
    step: Step


def traced_steps(record: Record, store: str) -> Iterator[TracedStep]:
    """The events in the body of a trace message. What cannot be read is left out."""
    for event in parse_trace_body(body_of(record) or b""):
        if event.problem is None and event.unique_key is not None:
            keys = tuple(filter(None, (event.keys or "").split(" ")))
            yield TracedStep(event.unique_key, keys, Step(_event(record, store, event)))


def _event(record: Record, store: str, event: TraceEvent) -> Event:
    return Event(
        EventKind.TRACED,
        record.store_timestamp if event.event_millis is None else event.event_millis,
        f"trace: {_text(event)}",
        store,
        decode_utf8(record.topic),
        record.queue_id,
        record.queue_offset,
        record.commit_log_offset,
        encode_offset_message_id(record.store_host, record.commit_log_offset),
        consumer_group=event.group_name if event.event_type in _CONSUMED else None,
    )


def _text(event: TraceEvent) -> str:
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
