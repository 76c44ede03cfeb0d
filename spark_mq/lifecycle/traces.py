"""What clients traced: table `traces`, a row for each event of the messages of a trace topic; see `trace_record`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import table_of, timestamps
from spark_mq.format.message_schema import CORRUPT_RECORD
from spark_mq.format.system_topic import TRACE_TOPIC
from spark_mq.format.timestamp import micros
from spark_mq.lifecycle.message_arrays import flags, integers, ranks, taken
from spark_mq.lifecycle.selected_messages import LogSource, Selection, rule_of
from spark_mq.lifecycle.trace_record import (
    EVENT_END,
    FIELD_END,
    LEAST_FIELDS,
    MESSAGE_TYPES,
    NONE,
    PLACES,
    RETURN_TYPES,
    TEXTS,
    TRANSACTION_STATES,
    parse_trace_event,
)
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import TRACES

_MESSAGE = ("commit_log_offset", "queue_id", "queue_offset", "store_timestamp", "born_host")
"""The columns that are those of the trace message."""
_EVENT = pa.schema([field for field in TRACES.schema if field.name not in _MESSAGE])
_COLUMNS = (*_MESSAGE, "body", CORRUPT_RECORD)
_KEYS = TRACES.schema.field("keys").type
_INT32S = ("body_length", "cost_millis", "retry_times")
_SHORT, _LONG, _DIGIT = "^[+-]?[0-9]{1,9}$", "^[+-]?[0-9]{1,18}$", "^[0-9]$"


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
    from spark_mq.format.kernels.columns import text_array

    filled = pc.fill_null(bodies, b"")
    _, offsets, data = filled.buffers()
    ends = np.frombuffer(offsets, np.int32)[filled.offset : filled.offset + len(filled) + 1] if len(filled) else _ZERO
    texts = text_array(np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]], ends - ends[0])
    split = pc.split_pattern(texts, EVENT_END)
    pieces, owners = pc.list_flatten(split), integers(pc.list_parent_indices(split))
    is_event = flags(pc.not_equal(pieces, ""))
    return owners[is_event], pieces.filter(pa.array(is_event))


_ZERO = np.zeros(1, np.int32)


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
    """A column of `_EVENT` of the usual events."""
    if name == "event_timestamp":
        millis = _numbers(texts["event_millis"].take(rows))
        return timestamps(integers(pc.fill_null(millis, 0)), flags(millis.is_valid()))
    if name in ("event_number", "problem"):
        return pa.nulls(len(rows), _EVENT.field(name).type)
    text = texts[name].take(rows)
    if name in _INT32S:
        return _numbers(text).cast(pa.int32())
    if name in ("is_success", "is_from_check"):
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
