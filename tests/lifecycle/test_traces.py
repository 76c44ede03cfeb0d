"""Trace messages: one event by the plain rule, many by Arrow, hostile bodies by both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.timestamp import epoch_millis
from spark_mq.lifecycle.traces import TraceEvent, parse_trace_body, traces
from spark_mq.tables.lifecycle import TRACES
from tests.support.traces import VALID, hostile_bodies

PUB = TraceEvent(
    "Pub",
    event_millis=1795248093336,
    region_id="r",
    group_name="PID",
    topic="orders",
    unique_key="K1",
    tags="paid",
    keys="a b",
    store_host="h:1",
    client_host="c:2",
    body_length=120,
    cost_millis=12,
    message_type="Normal_Msg",
    offset_message_id="OID",
    is_success=True,
)


def messages(bodies: Sequence[bytes | None]) -> pa.Table:
    """Messages with these bodies; one without a body has a problem."""
    count = len(bodies)
    numbers = pa.array(range(count), pa.int64())
    return pa.table(
        {
            "commit_log_offset": numbers,
            "queue_id": pa.array([0] * count, pa.int32()),
            "queue_offset": numbers,
            "store_timestamp": pa.array([0] * count, TIMESTAMP),
            "born_host": ["127.0.0.1:1"] * count,
            "body": pa.array(bodies, pa.binary()),
            "_corrupt_record": pa.array([None if body is not None else "BODY: broken" for body in bodies], pa.string()),
        }
    )


def rows_of(bodies: list[bytes]) -> list[dict[str, Any]]:
    """The rows of table `traces` by the plain rule."""
    rows = []
    for offset, body in enumerate(bodies):
        for number, event in enumerate(parse_trace_body(body)):
            row = asdict(event)
            row["keys"] = None if row["keys"] is None else [key for key in row["keys"].split(" ") if key]
            rows.append({**row, "commit_log_offset": offset, "queue_offset": offset, "event_number": number})
    return rows


def compared(table: pa.Table) -> list[dict[str, Any]]:
    """The rows of a table, with times in milliseconds, without the columns that are the same in all messages."""
    rows = []
    for row in table.drop_columns(["queue_id", "store_timestamp", "born_host"]).to_pylist():
        moment = row.pop("event_timestamp")
        rows.append({**row, "event_millis": None if moment is None else epoch_millis(moment)})
    return rows


def test_an_event_has_the_fields_of_its_type() -> None:
    assert parse_trace_body(VALID[0].encode() + b"\x02") == [PUB]
    (before,) = parse_trace_body(VALID[4].encode())
    assert (before.region_id, before.request_id, before.retry_times, before.keys) == (None, "REQ", 2, "a  b ")
    (after,) = parse_trace_body(VALID[8].encode())
    assert (after.is_success, after.return_type, after.group_name) == (True, "SUCCESS", "GID")
    (end,) = parse_trace_body(VALID[9].encode())
    assert (end.transaction_state, end.is_from_check, end.message_type) == ("COMMIT_MESSAGE", False, "Trans_msg_Commit")
    (recall,) = parse_trace_body(VALID[11].encode())
    assert (recall.event_type, recall.unique_key, recall.is_success) == ("Recall", "K1", True)


def test_older_clients_leave_out_fields() -> None:
    old = parse_trace_body("\x02".join(VALID[1:4]).encode())
    assert [(event.offset_message_id, event.is_success, event.client_host) for event in old] == [
        ("OID", False, None),
        (None, True, None),
        (None, None, None),
    ]
    after = parse_trace_body("\x02".join(VALID[5:8]).encode())
    assert [(event.return_type, event.event_millis, event.group_name) for event in after] == [
        (None, None, None),
        ("FAILED", None, None),
        ("7", None, None),
    ]


def test_what_cannot_be_read_is_a_row_that_says_so() -> None:
    bodies = [b"Pub\x01x", b"\x01", VALID[0].replace("120", "12O").encode(), None, b"", VALID[0].encode()]
    rows = traces(messages(bodies)).to_pylist()
    assert [row["commit_log_offset"] for row in rows] == [0, 1, 2, 3, 5]
    assert [row["problem"] for row in rows] == [
        "Pub: 2 fields are too few",
        "'' is not a type of event",
        "Pub: body_length '12O' is not an integer of 32 bits",
        "BODY: broken",
        None,
    ]
    assert {row["event_type"] for row in rows[:4]} == {None}
    assert traces(messages([])).schema == TRACES.schema


def test_many_events_have_the_rows_of_single_ones() -> None:
    bodies = hostile_bodies(seed=1, count=400)
    rows = compared(traces(messages(bodies)))
    assert rows == rows_of(bodies)
    assert {row["event_type"] for row in rows} == {"Pub", "SubBefore", "SubAfter", "EndTransaction", "Recall", None}


_PIECES = st.lists(
    st.sampled_from([*VALID, "Pub", "\x01", "\x02", "null", "99999999999999999999", "é", ""]), max_size=6
)


@given(
    st.lists(st.one_of(st.binary(max_size=60), _PIECES.map(lambda pieces: "\x01".join(pieces).encode())), max_size=4)
)
def test_any_bytes_have_the_same_rows_in_both_forms(bodies: list[bytes]) -> None:
    table = traces(messages(bodies))
    assert table.schema == TRACES.schema
    assert compared(table) == rows_of(bodies)
