from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format import compression
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels import batches as batching
from spark_mq.format.kernels.batches import BODY_COLUMNS, message_batches
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import Frames, new_frames, scan_records
from spark_mq.format.message_schema import (
    ALL_MESSAGE_FIELDS,
    MAX_TIMESTAMP_MILLIS,
    MIN_TIMESTAMP_MILLIS,
    WRONG_BODY_CRC,
    WRONG_PROPERTY_CRC,
)
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import MAGIC_V2, MIN_RECORD_SIZE, Record
from spark_mq.testing.strategies import records
from tests.support.kernels import WITHOUT_JIT, array, examples, frames_of
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack, segment_files, stores_in, usual_stores

ALL_NAMES = list(ALL_MESSAGE_FIELDS)
STORES = usual_stores()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TRANSACTION_TYPES = {0: "NONE", 4: "PREPARED", 8: "COMMIT", 12: "ROLLBACK"}
COMPRESSED = replace(Record(b"T", sys_flag=0x301), body=zlib.compress(b"content"))


def messages_of(*messages: Record) -> MessageColumns:
    """Messages that lie one after the other."""
    data = b""
    for message in messages:
        data += replace(message, commit_log_offset=len(data)).encode()
    return MessageColumns(array(data), frames_of(data))


def values(messages: MessageColumns, name: str) -> list[Any]:
    column = messages.column(name)
    column.validate(full=True)
    assert column.type == ALL_MESSAGE_FIELDS[name].type
    return list(column.to_pylist())


def host_text(fact_host: str) -> str:
    address, port = fact_host.split("|")
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


def expected_row(fact: Fact) -> dict[str, Any]:
    """What the Java decoder said, under this package's column names."""
    return {
        "commit_log_offset": fact["offset"],
        "store_size": fact["size"],
        "offset_message_id": fact["msgId"],
        "topic": fact["topic"],
        "queue_id": fact["queueId"],
        "queue_offset": fact["queueOffset"],
        "tags": fact["tags"],
        "keys": None if fact["keys"] is None else [key for key in fact["keys"].split(" ") if key],
        "unique_key": fact["uniqKey"],
        "flag": fact["flag"],
        "sys_flag": fact["sysFlag"],
        "transaction_type": TRANSACTION_TYPES[fact["sysFlag"] & 12],
        "born_timestamp": EPOCH + timedelta(milliseconds=fact["bornTimestamp"]),
        "born_host": host_text(fact["bornHost"]),
        "store_timestamp": EPOCH + timedelta(milliseconds=fact["storeTimestamp"]),
        "store_host": host_text(fact["storeHost"]),
        "reconsume_times": fact["reconsumeTimes"],
        "prepared_transaction_offset": fact["preparedTransactionOffset"],
        "body_crc": fact["bodyCRC"],
        "body": (fact["bodyLen"], fact["bodyMd5"]),
        "properties": fact["properties"],
        "_corrupt_record": None,
        "born_timestamp_millis": fact["bornTimestamp"],
        "store_timestamp_millis": fact["storeTimestamp"],
        "properties_bytes": fact["properties"],
        "stored_body": (fact["bodyLenRaw"], fact["bodyCRC"]),
        "encoded_body": (fact["bodyLenRaw"], fact["bodyCRC"]) if is_compressed(fact) else None,
    }


def is_compressed(fact: Fact) -> bool:
    return bool(fact["sysFlag"] & 1 and fact["bodyLenRaw"])


def comparable(name: str, value: Any) -> Any:
    """A column's value in the form of `expected_row`."""
    match name:
        case "body":
            return len(value), hashlib.md5(value).hexdigest()
        case "stored_body" | "encoded_body" if value is not None:
            return len(value), zlib.crc32(value) & 0x7FFFFFFF
        case "properties":
            assert len(dict(value)) == len(value)
            return dict(value)
        case "properties_bytes":
            return {decode_utf8(key): decode_utf8(text) for key, text in parse_properties(value).items()}
    return value


def real_segments(store: RealStore, folder: Path) -> Iterator[tuple[bytes, int, Frames, list[Fact]]]:
    """Each segment's bytes, base, the frames of its live messages, and their facts."""
    facts = store.facts("msg")
    for file in segment_files(folder):
        base, data = int(file.name), file.read_bytes()
        frames = new_frames(len(data) // MIN_RECORD_SIZE + 1)
        count, _, _ = scan_records(array(data), 0, len(data), base, len(data), frames)
        wanted = [fact for fact in facts if base <= fact["offset"] < base + len(data)]
        assert count >= len(wanted)
        yield data, base, frames[: len(wanted)], wanted


def read(data: bytes, base: int, frames: Frames, names: list[str], max_rows: int) -> pa.Table:
    batches = message_batches(array(data), frames, names, max_rows)
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])
    return pa.Table.from_batches([batch.record_batch(names) for batch in batches], schema)


SIZES = (7,) if WITHOUT_JIT else (1, 7, 8192)


@pytest.mark.parametrize(
    ("store", "max_rows"),
    [(store, rows) for store in STORES for rows in SIZES if rows > 1 or store.name == "crc-533"],
    ids=str,
)
def test_every_column_of_every_message_is_what_the_java_decoder_says(
    store: RealStore, max_rows: int, unpacked: Unpack
) -> None:
    for data, base, frames, facts in real_segments(store, unpacked(store)):
        table = read(data, base, frames, ALL_NAMES, max_rows)
        rows = [expected_row(fact) for fact in facts]
        for name in ALL_NAMES:
            got = [comparable(name, value) for value in table.column(name).to_pylist()]
            assert got == [row[name] for row in rows], name


@pytest.mark.parametrize("name", ALL_NAMES)
def test_a_column_alone_is_as_among_all(name: str, unpacked: Unpack) -> None:
    store = next(store for store in stores_in(OWN_STORES) if store.name.startswith("workload"))
    data, base, frames, _ = next(real_segments(store, unpacked(store)))
    assert read(data, base, frames, [name], 100).column(name) == read(data, base, frames, ALL_NAMES, 8192).column(name)


@settings(max_examples=examples(100))
@given(st.lists(records(), min_size=1, max_size=5))
def test_any_messages_give_valid_columns(messages: list[Record]) -> None:
    batch = messages_of(*messages).record_batch(ALL_NAMES)
    batch.validate(full=True)
    assert batch.num_rows == len(messages)
    assert batch.column("queue_id").to_pylist() == [message.queue_id for message in messages]
    assert batch.column("topic").to_pylist() == [decode_utf8(message.topic) for message in messages]
    assert batch.column("store_timestamp_millis").to_pylist() == [message.store_timestamp for message in messages]


def test_no_messages_give_empty_columns() -> None:
    batch = MessageColumns(array(b""), new_frames(0)).record_batch(ALL_NAMES)
    assert (batch.num_rows, batch.num_columns) == (0, len(ALL_NAMES))


@pytest.mark.parametrize(
    "millis", [MIN_TIMESTAMP_MILLIS - 1, MAX_TIMESTAMP_MILLIS + 1, -(1 << 63), (1 << 63) - 1, 1 << 54]
)
def test_a_time_outside_years_1_to_9999_is_null_but_kept_in_milliseconds(millis: int) -> None:
    messages = messages_of(Record(b"T", born_timestamp=millis, store_timestamp=millis))
    for name in ("born_timestamp", "store_timestamp"):
        assert values(messages, name) == [None]
        assert values(messages, f"{name}_millis") == [millis]


@pytest.mark.parametrize(
    ("millis", "time"),
    [
        (MIN_TIMESTAMP_MILLIS, datetime(1, 1, 1, tzinfo=UTC)),
        (MAX_TIMESTAMP_MILLIS, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
    ],
)
def test_a_time_within_years_1_to_9999_is_given(millis: int, time: datetime) -> None:
    assert values(messages_of(Record(b"T", store_timestamp=millis)), "store_timestamp") == [time]


def test_a_map_of_properties_has_each_name_once() -> None:
    messages = messages_of(Record(b"T", properties=b"\xff\1first\2\xfe\1last\2"))
    assert values(messages, "properties") == [[("\ufffd", "last")]]


def test_a_v2_record_has_a_long_topic() -> None:
    topic = b"t" * 1000
    assert values(messages_of(Record(topic, magic=MAGIC_V2), Record(b"T")), "topic") == [topic.decode(), "T"]


def test_a_broken_body_is_null_with_a_reason() -> None:
    broken = replace(COMPRESSED, body=b"no zlib stream")
    messages = messages_of(COMPRESSED, broken, Record(b"T", body=b"plain"))
    assert values(messages, "body") == [b"content", None, b"plain"]
    reasons = values(messages, "_corrupt_record")
    assert (reasons[0], reasons[2]) == (None, None)
    assert reasons[1].startswith("BODY: broken zlib stream")


def test_the_encoded_body_is_the_stored_one_where_the_body_is_another() -> None:
    messages = messages_of(Record(b"T", body=b"plain"), COMPRESSED, Record(b"T", body=b"broken", body_crc=1))
    assert values(messages, "encoded_body") == [None, COMPRESSED.body, None]
    (batch,) = checked(messages, ["encoded_body"])
    assert values(batch, "encoded_body") == [None, COMPRESSED.body, b"broken"]


def test_a_body_beyond_the_limit_is_null_with_a_reason() -> None:
    messages = messages_of(COMPRESSED, COMPRESSED)
    data, frames = messages.buffer, messages.frames
    (batch,) = message_batches(data, frames, ["body", "_corrupt_record"], 10, body_limit=6)
    assert values(batch, "body") == [None, None]
    assert "longer than the limit of 6 bytes" in values(batch, "_corrupt_record")[0]


def test_many_large_bodies_are_cut_into_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "_BATCH_BODY_BYTES", 2500)
    bodies = [bytes((number,)) * 1000 for number in range(10)]
    plain = Record(b"T", body=b"plain")
    messages = messages_of(*(replace(COMPRESSED, body=zlib.compress(body)) for body in bodies), plain)
    batches = list(message_batches(messages.buffer, messages.frames, ["body"], 8192))
    assert [batch.frames.size for batch in batches] == [3, 3, 3, 2]
    assert [body for batch in batches for body in values(batch, "body")] == [*bodies, b"plain"]


def test_a_batch_reads_no_body_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> bytes:
        raise AssertionError("a body was decompressed")

    monkeypatch.setattr(compression, "decompress", refuse)
    messages = messages_of(COMPRESSED)
    names = [name for name in ALL_NAMES if name not in BODY_COLUMNS]
    (batch,) = message_batches(messages.buffer, messages.frames, names, 10)
    assert batch.record_batch(names).num_rows == 1


def checked(messages: MessageColumns, names: list[str], max_rows: int = 8192) -> list[MessageColumns]:
    return list(message_batches(messages.buffer, messages.frames, names, max_rows, check_crc=True))


def test_a_body_with_a_wrong_crc_is_null_with_a_reason() -> None:
    messages = messages_of(Record(b"T", body=b"sound"), Record(b"T", body=b"broken", body_crc=1), COMPRESSED)
    (batch,) = checked(messages, ["body"])
    assert values(batch, "body") == [b"sound", None, b"content"]
    assert values(batch, "_corrupt_record") == [None, WRONG_BODY_CRC, None]
    assert values(batch, "stored_body") == [b"sound", b"broken", COMPRESSED.body]


def test_a_compressed_body_with_a_wrong_crc_is_not_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "decompress", lambda *_: pytest.fail("a body was decompressed"))
    (batch,) = checked(messages_of(replace(COMPRESSED, body_crc=1)), ["body"])
    assert values(batch, "body") == [None]
    assert values(batch, "_corrupt_record") == [WRONG_BODY_CRC]


def test_all_that_is_wrong_with_a_message_is_said() -> None:
    no_crc = b"__CRC32#\x010000000000\2"
    wrong_body = Record(b"T", body=b"x", body_crc=1, properties=no_crc)
    broken_stream = Record(b"T", body=b"x", sys_flag=0x301, properties=no_crc)
    (batch,) = checked(messages_of(wrong_body, broken_stream), ["body"])
    body, stream = values(batch, "_corrupt_record")
    assert body == f"{WRONG_BODY_CRC}; {WRONG_PROPERTY_CRC}"
    assert stream.startswith("BODY: the zlib stream is cut")
    assert stream.endswith(f"; {WRONG_PROPERTY_CRC}")


def test_a_wrong_property_crc_changes_no_value() -> None:
    messages = messages_of(Record(b"T", body=b"x", properties=b"__CRC32#\x010000000000\2"))
    (batch,) = checked(messages, ALL_NAMES)
    assert values(batch, "_corrupt_record") == [WRONG_PROPERTY_CRC]
    others = [name for name in ALL_NAMES if name != "_corrupt_record"]
    assert batch.record_batch(others) == messages.record_batch(others)


def test_crcs_are_checked_without_their_columns_and_nothing_is_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "decompress", lambda *_: pytest.fail("a body was decompressed"))
    (batch,) = checked(messages_of(COMPRESSED, Record(b"T", body=b"x", body_crc=1)), ["topic"])
    assert batch.bodies is not None
    assert batch.bodies.reasons == {1: WRONG_BODY_CRC}


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(["sound", "wrong", "compressed", "wrong compressed", "broken"]), max_size=30),
    st.integers(1, 9),
    st.integers(1, 60),
)
def test_however_messages_are_cut_into_batches_they_keep_their_reasons(
    kinds: list[str], max_rows: int, batch_bytes: int
) -> None:
    of_kind = {
        "sound": Record(b"T", body=b"sound"),
        "wrong": Record(b"T", body=b"wrong", body_crc=1),
        "compressed": COMPRESSED,
        "wrong compressed": replace(COMPRESSED, body_crc=1),
        "broken": Record(b"T", body=b"broken", sys_flag=0x301),
    }
    bodies = {"sound": b"sound", "compressed": b"content"}
    messages = messages_of(*(of_kind[kind] for kind in kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batching, "_BATCH_BODY_BYTES", batch_bytes)
        batches = checked(messages, ["body"], max_rows)
    assert [body for batch in batches for body in values(batch, "body")] == [bodies.get(kind) for kind in kinds]
    reasons = [reason for batch in batches for reason in values(batch, "_corrupt_record")]
    assert [reason and reason.split(":")[0] for reason in reasons] == [
        "BODY" if kind == "broken" else "BODY_CRC" if "wrong" in kind else None for kind in kinds
    ]


def test_a_topic_is_compared_by_its_bytes() -> None:
    messages = messages_of(Record(b"T"), Record(b"TT"), Record(b"\xff"), Record(b"T"))
    assert messages.topic_is(b"T").tolist() == [True, False, False, True]
    assert messages.topic_is("\ufffd".encode()).tolist() == [False] * 4


def test_columns_are_given_in_the_asked_order() -> None:
    names = ["topic", "flag", "topic", "body"]
    assert messages_of(Record(b"T")).record_batch(names).schema.names == names
