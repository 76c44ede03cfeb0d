"""Rows as requests: their bytes are those that `MessageDecoder` writes, and no message is left out or doubled."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import InvalidMessageError
from spark_mq.format.properties import parse_properties
from spark_mq.producer.writer import Request, SentMessages, by_queue, topics_of


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties of a text, by name."""
    return {name.decode(): value.decode() for name, value in parse_properties(data).items()}


def messages_of(request: Request) -> list[tuple[bytes, dict[str, str], int]]:
    """Body, properties and flag of each message of a request (`MessageDecoder.decodeMessage`@5.3.3)."""
    if request.properties is not None:
        return [(request.body, decode_properties(request.properties.encode()), request.flag)]
    found, at = [], 0
    while at < len(request.body):
        size, magic, crc, flag, length = struct.unpack_from(">iiiii", request.body, at)
        assert (magic, crc) == (0, 0)
        body = request.body[at + 20 : at + 20 + length]
        (properties_length,) = struct.unpack_from(">h", request.body, at + 20 + length)
        assert size == 22 + length + properties_length
        found.append((body, decode_properties(request.body[at + size - properties_length : at + size]), flag))
        at += size
    return found


def test_requests_have_each_message_once_and_in_order() -> None:
    count = 200
    rows = pa.record_batch(
        {
            "topic": pa.array(["T", None] * (count // 2)),
            "body": pa.array([b"%d" % number * (1 + number % 40) for number in range(count)]),
            "tags": pa.array(["a" if number % 3 else None for number in range(count)]),
            "keys": pa.array([[f"k{number}", "all"] for number in range(count)]),
            "flag": pa.array(range(count), pa.int32()),
            "delay_level": pa.array([3 if number % 50 == 7 else None for number in range(count)], pa.int32()),
            "sharding_key": pa.array([f"s{number % 5}" for number in range(count)]),
        }
    )
    sent = SentMessages.of(rows, "U", 0, 0)
    keys = [sent.sharding_keys.piece(number).decode() for number in range(count)]
    assert keys == rows["sharding_key"].to_pylist()
    assert [(topic, of.size) for topic, of in topics_of(sent)] == [("T", 100), ("U", 100)]
    requests = list(sent.requests(np.arange(count), 2000))
    assert [request.rows for request in requests if request.properties is not None].count(1) >= 4
    assert all(len(request.body) < 4000 for request in requests)
    assert len(requests) > 10
    found = [message for request in requests for message in messages_of(request)]
    assert [body for body, _, _ in found] == rows["body"].to_pylist()
    assert [flag for _, _, flag in found] == list(range(count))
    assert len({properties["UNIQ_KEY"] for _, properties, _ in found}) == count
    for number, (_, properties, _) in enumerate(found):
        assert properties["KEYS"] == f"k{number} all"
        assert properties["__SHARDINGKEY"] == f"s{number % 5}"
        assert properties.get("DELAY") == ("3" if number % 50 == 7 else None)
        assert properties.get("TAGS") == ("a" if number % 3 else None)


def test_a_message_that_waits_has_a_request_of_its_own() -> None:
    due = datetime(2030, 1, 2, tzinfo=UTC)
    rows = pa.record_batch(
        {
            "topic": ["T"] * 3,
            "body": ["x"] * 3,
            "deliver_timestamp": pa.array([None, due, None], pa.timestamp("us", "UTC")),
        }
    )
    requests = list(SentMessages.of(rows, None, 0, 0).requests(np.arange(3), 1000))
    assert [request.rows for request in requests] == [1, 1, 1]
    assert messages_of(requests[1])[0][1]["TIMER_DELIVER_MS"] == str(int(due.timestamp() * 1000))


def test_a_row_that_would_begin_a_transaction_is_refused() -> None:
    rows = pa.record_batch(
        {"topic": ["T", "T"], "properties": pa.array([None, {"TRAN_MSG": "true"}], pa.map_(pa.string(), pa.string()))}
    )
    with pytest.raises(InvalidMessageError, match="row 8 has property TRAN_MSG"):
        SentMessages.of(rows, None, 0, 7)


@pytest.mark.parametrize("body", [b"", None], ids=["empty", "null"])
def test_a_row_without_a_body_is_refused(body: bytes | None) -> None:
    rows = pa.record_batch({"body": pa.array([b"x", body, b"y"], pa.binary())})
    with pytest.raises(InvalidMessageError, match="row 8 has no body"):
        SentMessages.of(rows, "Orders", 0, 7)


@given(st.lists(st.integers(0, 4), max_size=30))
def test_rows_of_a_queue_stay_in_order(numbers: list[int]) -> None:
    rows = np.arange(100, 100 + len(numbers))
    found = by_queue(np.array(numbers, np.int64), rows)
    assert [number for number, _ in found] == sorted(set(numbers))
    for number, of_queue in found:
        assert of_queue.tolist() == [100 + at for at, one in enumerate(numbers) if one == number]
