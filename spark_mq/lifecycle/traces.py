"""What clients traced: table `traces`, a row for each event of the messages of a trace topic.

An event ends with `0x02`, and `0x01` separates its fields (`TraceDataEncoder.decoderFromTraceDataString`@5.3.3 and
@4.9.7). The first field is the type of the event, and `PLACES` has the others. Recall is from 5.3.2 on.

Older clients leave out the last fields of Pub (from the offset message id, or the client host on) and SubAfter (from
the return type, or the time on). A Pub of 12 fields and the type has the success and no offset message id.

As in Java, empty fields at the end of an event do not count, and an event of another type is not read. An event that
makes the Java decoder fail is an event with a `problem`. `traces` has the same rules for many messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import table_of, timestamps
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.columns import text_array
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.system_topic import TRACE_TOPIC
from spark_mq.format.timestamp import micros
from spark_mq.lifecycle.message_arrays import flags, integers, ranks, taken
from spark_mq.lifecycle.selected_messages import LogSource, Selection, rule_of
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import TRACES

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
_MESSAGE = ("commit_log_offset", "queue_id", "queue_offset", "store_timestamp", "born_host")
"""The columns that are those of the trace message."""
_EVENT = pa.schema([field for field in TRACES.schema if field.name not in _MESSAGE])
_COLUMNS = (*_MESSAGE, "body", CORRUPT_RECORD)
_KEYS = TRACES.schema.field("keys").type
_INT32S = ("body_length", "cost_millis", "retry_times")
_SHORT, _LONG = "^[+-]?[0-9]{1,9}$", "^[+-]?[0-9]{1,18}$"
_ZERO = np.zeros(1, np.int32)


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


def traces_rows(store: MessageStore | LogSource, topic: str | None = None) -> pa.Table:
    """The rows of table `traces`, in the order of the log; see `traces`. None is for RMQ_SYS_TRACE_TOPIC."""
    batches = LogSource.of(store).batches_of(Selection(rule_of(topic or TRACE_TOPIC), _COLUMNS))
    return pa.concat_tables([TRACES.schema.empty_table(), *(traces(pa.table(batch)) for batch in batches)])


def traces(messages: pa.Table) -> pa.Table:
    """The events of trace messages, in the order of the messages; `spark_mq.tables.lifecycle` explains the columns."""
    owners, pieces = _pieces(messages["body"].combine_chunks())
    events = _events(pieces)
    events = events.set_column(0, _EVENT.field(0), pa.array(ranks(owners).astype(np.int32)))
    unread = np.flatnonzero(flags(pc.is_null(messages["body"])))
    if unread.size:
        problems = messages[CORRUPT_RECORD].take(pa.array(unread)).to_pylist()
        events = pa.concat_tables(
            [events, table_of([{"event_number": 0, "problem": text} for text in problems], _EVENT)]
        )
        owners = np.concatenate([owners, unread])
    order = np.argsort(owners, kind="stable")
    events, of_events = events.take(pa.array(order)), messages.take(pa.array(owners[order]))
    columns = [*events.columns, *(of_events[name] for name in _MESSAGE)]
    return pa.table(columns, schema=TRACES.schema)


def _pieces(bodies: pa.Array) -> tuple[Int64s, pa.Array]:
    """The events of all bodies as text, and for each the row of its body."""
    filled = pc.fill_null(bodies, b"")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1] if len(filled) else _ZERO
    texts = text_array(np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]], ends - ends[0])
    split = pc.split_pattern(texts, EVENT_END)
    pieces, owners = pc.list_flatten(split), integers(pc.list_parent_indices(split))
    is_event = flags(pc.not_equal(pieces, ""))
    return owners[is_event], pieces.filter(pa.array(is_event))


def _events(pieces: pa.Array) -> pa.Table:
    """The rows of events. What is not of the usual form is read by the rule for a single event."""
    fields = pc.split_pattern(pc.utf8_rtrim(pieces, characters=FIELD_END), FIELD_END)
    places = _places(fields)
    texts = {name: taken(fields.flatten(), at) for name, at in places.items()}
    usual = np.flatnonzero(_is_usual(texts, integers(pc.list_value_length(fields))))
    others = np.flatnonzero(~np.isin(np.arange(len(pieces)), usual))
    chosen = pa.array(usual)
    rows = pa.table([_column(name, texts, chosen) for name in _EVENT.names], schema=_EVENT)
    if not others.size:
        return rows
    rows = pa.concat_tables([rows, table_of(list(_other_rows(pieces.take(pa.array(others)))), _EVENT)])
    return rows.take(pa.array(np.argsort(np.concatenate([usual, others]), kind="stable")))


def _other_rows(pieces: pa.Array) -> Iterator[dict[str, object]]:
    for piece in pieces.to_pylist():
        event = asdict(parse_trace_event(piece))
        millis, keys = event.pop("event_millis"), event["keys"]
        event["event_timestamp"] = None if millis is None else micros(millis)
        event["keys"] = None if keys is None else [key for key in keys.split(" ") if key]
        yield event


def _places(fields: pa.Array) -> dict[str, Int64s]:
    """For each field and event, the row of its text among all fields; -1 if the event does not have it."""
    lengths = integers(pc.list_value_length(fields))
    starts = integers(fields.offsets)[:-1] - (fields.offsets[0].as_py() if len(fields) else 0)
    found = {"event_type": starts}
    types = fields.flatten().take(pa.array(starts))
    for event_type, places in PLACES.items():
        is_type = flags(pc.equal(types, event_type))
        for name, place in places.items():
            at = found.setdefault(name, np.full(lengths.size, -1, np.int64))
            has_place = is_type & (place < lengths)
            at[has_place] = starts[has_place] + place
    return found


def _is_usual(texts: dict[str, pa.Array], lengths: Int64s) -> Flags:
    """Which events are of a known type, with all fields that it needs, and with fields in their usual forms."""
    usual = np.zeros(lengths.size, np.bool_)
    for event_type in PLACES:
        is_type = flags(pc.equal(texts["event_type"], event_type))
        is_short = (event_type == "Pub") & (lengths == 13) | (event_type == "SubAfter") & (lengths == 8)
        usual |= is_type & (lengths >= LEAST_FIELDS[event_type]) & ~is_short

    def check(name: str, is_valid: pa.Array) -> None:
        nonlocal usual
        usual &= flags(is_valid) | flags(pc.is_null(texts[name]))

    check("event_millis", pc.match_substring_regex(texts["event_millis"], _LONG))
    for name in _INT32S:
        check(name, pc.match_substring_regex(texts[name], _SHORT))
    for name, names in (("message_type", MESSAGE_TYPES), ("return_type", RETURN_TYPES)):
        check(name, pc.is_in(texts[name], pa.array([str(number) for number in range(len(names))])))
    check("transaction_state", pc.is_in(texts["transaction_state"], pa.array(TRANSACTION_STATES)))
    return usual


def _column(name: str, texts: dict[str, pa.Array], rows: pa.Array) -> pa.Array:
    if name == "event_timestamp":
        millis = _numbers(texts["event_millis"].take(rows))
        return timestamps(integers(pc.fill_null(millis, 0)), flags(millis.is_valid()))
    if name in ("event_number", "problem"):
        return pa.nulls(len(rows), _EVENT.field(name).type)
    text = texts[name].take(rows)
    if name in _INT32S:
        return _numbers(text).cast(pa.int32())
    if name in _FLAGS:
        return pc.equal(pc.ascii_lower(text), "true")
    if name in ("message_type", "return_type"):
        return pa.array(MESSAGE_TYPES if name == "message_type" else RETURN_TYPES).take(_numbers(text))
    if name in TEXTS:
        text = pc.if_else(pc.is_in(text, pa.array(["", NONE])), None, text)
    return _keys(text) if name == "keys" else text


def _numbers(texts: pa.Array) -> pa.Array:
    return pc.replace_substring_regex(texts, "^[+]", "").cast(pa.int64())


def _keys(texts: pa.Array) -> pa.Array:
    """The pieces of each text between spaces, without empty ones."""
    trimmed = pc.utf8_trim(pc.replace_substring_regex(texts, " +", " "), " ")
    return pc.if_else(pc.equal(trimmed, ""), pa.scalar([], _KEYS), pc.split_pattern(trimmed, " ").cast(_KEYS))
