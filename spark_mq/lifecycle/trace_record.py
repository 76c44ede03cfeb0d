"""The body of a trace message: events of messages that a client with message trace sent and consumed.

An event ends with `0x02`, and `0x01` separates its fields (`TraceDataEncoder.decoderFromTraceDataString`@5.3.3 and
@4.9.7). The first field is the type of the event, and `PLACES` has the others. Recall is from 5.3.2 on.

Older clients leave out the last fields of Pub (from the offset message id, or the client host on) and SubAfter (from
the return type, or the time on). A Pub of 12 fields and the type has the success and no offset message id.

As in Java, empty fields at the end of an event do not count, and an event of another type is not read. An event that
makes the Java decoder fail is an event with a `problem`. `traces` has the same rules for many messages.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_mq.format.java_text import decode_utf8

EVENT_END, FIELD_END = "\x02", "\x01"
NONE = "null"
"""The text that a client writes for a value that it does not have."""

MESSAGE_TYPES = ("Normal_Msg", "Trans_Msg_Half", "Trans_msg_Commit", "Delay_Msg", "Order_Msg")
"""The message types by number (`MessageType`@5.3.3; 4.9 has the first four)."""
RETURN_TYPES = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""What a consumer's listener returned, by number (`ConsumeReturnType`@5.3.3)."""
TRANSACTION_STATES = ("COMMIT_MESSAGE", "ROLLBACK_MESSAGE", "UNKNOW")
"""`LocalTransactionState`@5.3.3."""

_FIELDS = {
    "Pub": "event_millis region_id group_name topic unique_key tags keys store_host body_length cost_millis "
    "message_type offset_message_id is_success client_host",
    "SubBefore": "event_millis region_id group_name request_id unique_key retry_times keys",
    "SubAfter": "request_id unique_key cost_millis is_success keys return_type event_millis group_name",
    "EndTransaction": "event_millis region_id group_name topic unique_key tags keys store_host message_type "
    "transaction_id transaction_state is_from_check",
    "Recall": "event_millis region_id group_name topic unique_key is_success",
}
PLACES = {kind: {name: place for place, name in enumerate(text.split(), 1)} for kind, text in _FIELDS.items()}
"""The position of each field in an event of each type."""
LEAST_FIELDS = {"Pub": 12, "SubBefore": 8, "SubAfter": 6, "EndTransaction": 13, "Recall": 7}
"""The number of fields, with the type, without which an event cannot be read."""
BITS = {"event_millis": 64, "body_length": 32, "cost_millis": 32, "retry_times": 32, "return_type": 32}
"""The fields that are integers, and their bits."""
_FLAGS = ("is_success", "is_from_check")
TEXTS = {name for places in PLACES.values() for name in places} - {*BITS, *_FLAGS, "message_type", "transaction_state"}

_INTEGER = re.compile(r"[+-]?[0-9]+")


@dataclass(frozen=True)
class TraceEvent:
    """An event of a trace message; a field that its type or its client does not have is None."""

    event_type: str | None
    event_millis: int | None = None
    region_id: str | None = None
    group_name: str | None = None
    topic: str | None = None
    unique_key: str | None = None
    tags: str | None = None
    keys: str | None = None
    store_host: str | None = None
    client_host: str | None = None
    body_length: int | None = None
    cost_millis: int | None = None
    message_type: str | None = None
    offset_message_id: str | None = None
    is_success: bool | None = None
    request_id: str | None = None
    retry_times: int | None = None
    return_type: str | None = None
    transaction_id: str | None = None
    transaction_state: str | None = None
    is_from_check: bool | None = None
    problem: str | None = None


def parse_trace_body(body: bytes) -> list[TraceEvent]:
    """The events of a trace message's body, in their order."""
    return [parse_trace_event(piece) for piece in decode_utf8(body).split(EVENT_END) if piece]


def parse_trace_event(piece: str) -> TraceEvent:
    """The event of a text without `0x02`."""
    fields = piece.rstrip(FIELD_END).split(FIELD_END)
    event_type = fields[0]
    if event_type not in PLACES:
        return TraceEvent(None, problem=f"{event_type[:40]!r} is not a type of event")
    if len(fields) < LEAST_FIELDS[event_type]:
        return TraceEvent(None, problem=f"{event_type}: {len(fields)} fields are too few")
    try:
        return TraceEvent(event_type, **_values(event_type, fields))  # type: ignore[arg-type]
    except ValueError as error:
        return TraceEvent(None, problem=f"{event_type}: {error}")


def _values(event_type: str, fields: list[str]) -> dict[str, str | int | bool | None]:
    """The values of the fields. Raises `ValueError` if one is not valid."""
    places = dict(PLACES[event_type])
    if event_type == "Pub" and len(fields) == 13:
        places["is_success"] = places.pop("offset_message_id")
    if event_type == "SubAfter" and len(fields) == 8:
        del places["event_millis"]  # it counts only together with the group
    texts = {name: fields[place] for name, place in places.items() if place < len(fields)}
    values: dict[str, str | int | bool | None] = {}
    for name, text in texts.items():
        if name in BITS:
            values[name] = parse_integer(name, text, BITS[name])
        elif name in _FLAGS:
            values[name] = text.lower() == "true"
        elif name == "message_type":
            kind = parse_integer(name, text, 32)
            if not 0 <= kind < len(MESSAGE_TYPES):
                raise ValueError(f"{kind} is not a message type")
            values[name] = MESSAGE_TYPES[kind]
        elif name == "transaction_state":
            if text not in TRANSACTION_STATES:
                raise ValueError(f"{text[:40]!r} is not a transaction state")
            values[name] = text
        else:
            values[name] = None if text in ("", NONE) else text
    number = values.get("return_type")
    if isinstance(number, int):
        values["return_type"] = RETURN_TYPES[number] if 0 <= number < len(RETURN_TYPES) else str(number)
    return values


def parse_integer(name: str, text: str, bits: int) -> int:
    """A field as a signed integer of `bits` bits. Raises `ValueError` if it is not one."""
    number = int(text) if _INTEGER.fullmatch(text) else None
    if number is None or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{name} {text[:40]!r} is not an integer of {bits} bits")
    return number
