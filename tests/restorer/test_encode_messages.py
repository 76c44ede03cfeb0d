from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.archive.archive_tables import StoreIdentity
from spark_mq.archive.streams import READ_COLUMNS, message_rows
from spark_mq.errors import InvalidMessageError
from spark_mq.format.message_id import has_plausible_port, is_offset_message_id, parse_host, unique_key_time
from spark_mq.format.message_row import message_row
from spark_mq.format.message_schema import CORRUPT_RECORD, MESSAGE_SCHEMA
from spark_mq.format.record import MAGIC_V1, MAGIC_V2, Record, decode_record
from spark_mq.restorer.encode_messages import UNKNOWN, encode_messages, make_unique_keys
from spark_mq.restorer.source_columns import EncodingRules
from spark_mq.testing.strategies import records
from tests.support.in_process import message_batches
from tests.support.kernels import examples
from tests.support.message_rows import EXACT_COLUMNS, NO_CRC, batch_of, encoded_records, plain_record, sealed
from tests.support.stores import RealStore, Unpack, usual_stores

NOW = 1_700_000_000_000
FAITHFUL = EncodingRules(is_faithful=True, now=NOW)
COMPACT = EncodingRules(is_faithful=False, now=NOW)
BATCHES = EncodingRules(is_faithful=False, now=NOW, batch_topics=frozenset({"Topic"}))
STORES = usual_stores()
INT32, INT64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
TIMES = st.integers(1, 253_402_300_799_999)
OFFSETS = st.integers(0, 1 << 58)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\1\2"), max_size=12)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "a", "REAL_TOPIC", "schlüssel"])
TOPICS = st.sampled_from(["T", "%RETRY%group", "SCHEDULE_TOPIC_XXXX", "%RETRY%" + "g" * 150, "|-_9"])
SOURCE_TOPICS = TOPICS | st.sampled_from(["schlüssel", "ü" * 64, "t" * 128, "a b"])
V4_MAPPED = bytes(10) + b"\xff\xff\x0a\x00\x00\x01\0\0\0\1"


def segments(store: Path) -> dict[int, bytes]:
    return {int(file.name): file.read_bytes() for file in sorted((store / "commitlog").iterdir())}


def record_in(log: dict[int, bytes], offset: int, size: int) -> bytes:
    base = max(start for start in log if start <= offset)
    return log[base][offset - base : offset - base + size]


def sound_batches(store: Path, names: list[str]) -> Iterator[pa.RecordBatch]:
    for batch in message_batches(names, path=str(store)):
        kept = batch.filter(pc.is_null(batch.column(CORRUPT_RECORD)))
        if kept.num_rows:
            yield kept


@pytest.mark.parametrize("is_archived", [False, True], ids=["store", "archive"])
@pytest.mark.parametrize("store", STORES, ids=str)
def test_every_message_of_a_store_gets_the_bytes_that_it_had(
    store: RealStore, is_archived: bool, unpacked: Unpack
) -> None:
    folder = unpacked(store)
    log = segments(folder)
    offsets: list[int] = []
    for read in sound_batches(folder, list(READ_COLUMNS) if is_archived else EXACT_COLUMNS):
        batch = message_rows(read, StoreIdentity("c", "b", "s")) if is_archived else read
        encoded = encode_messages(batch, FAITHFUL)
        rows = zip(encoded.rows.commit_log_offset.tolist(), encoded_records(encoded), strict=True)
        assert all(record == record_in(log, offset, len(record)) for offset, record in rows)
        offsets += encoded.rows.commit_log_offset.tolist()
        assert encoded.rows.queue_offset.tolist() == batch.column("queue_offset").to_pylist()
        queues = [encoded.queues[number] for number in encoded.rows.queue_number.tolist()]
        columns = (batch.column("topic").to_pylist(), batch.column("queue_id").to_pylist())
        assert queues == list(zip(*columns, strict=True))
    assert set(offsets) >= {fact["offset"] for fact in store.facts("msg")}


@pytest.mark.parametrize("store", STORES, ids=str)
def test_default_columns_are_enough_for_what_a_reader_shows(store: RealStore, unpacked: Unpack) -> None:
    """All columns but those of stored bytes: the new records are read as the same rows, except their offsets."""
    changed = {"commit_log_offset", "queue_offset", "offset_message_id", "store_size", "prepared_transaction_offset"}
    for batch in sound_batches(unpacked(store), MESSAGE_SCHEMA.names):
        encoded = encode_messages(batch, COMPACT)
        assert encoded.rows.commit_log_offset.tolist() == batch.column("commit_log_offset").to_pylist()
        for row, data in zip(batch.to_pylist(), encoded_records(encoded), strict=True):
            record = decode_record(data)
            assert (record.commit_log_offset, record.queue_offset, record.prepared_transaction_offset) == (0, 0, 0)
            read = message_row(record)
            was_compressed = row["sys_flag"] & 1
            assert read["sys_flag"] == (row["sys_flag"] & ~0x701 if was_compressed else row["sys_flag"])
            for name in set(MESSAGE_SCHEMA.names) - changed - {"sys_flag"}:
                value = read.get(name)
                if name == "properties":
                    assert value is not None
                    old, new = dict(row[name]), dict(value)
                    assert old.pop("__CRC32#", None) is None or new.pop("__CRC32#") is not None
                    assert new == old
                elif name.endswith("timestamp"):
                    assert value == round(row[name].timestamp() * 1000) * 1000
                elif name != "body_crc" or not was_compressed:
                    assert value == row[name], name


@pytest.mark.parametrize("store", [store for store in STORES if store.name.startswith("crc")], ids=str)
def test_a_faithful_message_without_its_stored_bytes_is_exact_or_an_error(store: RealStore, unpacked: Unpack) -> None:
    log = segments(unpacked(store))
    exact = 0
    for batch in sound_batches(unpacked(store), MESSAGE_SCHEMA.names):
        for row in range(batch.num_rows):
            try:
                encoded = encode_messages(batch.slice(row, 1), FAITHFUL)
            except InvalidMessageError:
                continue
            (record,) = encoded_records(encoded)
            assert record == record_in(log, int(encoded.rows.commit_log_offset[0]), len(record))
            exact += 1
    assert exact > len(store.facts("msg")) // 2  # the others lack the last separator, or are compressed


@st.composite
def stored_records(draw: st.DrawFn) -> Record:
    """A record that a faithful restore can write."""
    topic = draw(SOURCE_TOPICS).encode()
    properties = draw(st.binary(max_size=30) | st.just(NO_CRC))
    record = replace(
        draw(records()),
        topic=topic,
        queue_id=draw(st.integers(0, (1 << 31) - 2)),
        queue_offset=draw(OFFSETS),
        commit_log_offset=draw(OFFSETS),
        properties=properties,
        magic=MAGIC_V2 if len(topic) > 127 else draw(st.sampled_from([MAGIC_V1, MAGIC_V2])),
    )
    if draw(st.booleans()):
        record = replace(record, born_host=V4_MAPPED, store_host=V4_MAPPED)
    # A broker writes no inner batch into a plain queue.
    return replace(record, sys_flag=record.sys_flag & ~(0x81 if record.body else 0x80))


@settings(max_examples=examples(120))
@given(st.lists(stored_records(), min_size=1, max_size=4), st.booleans())
def test_any_stored_record_comes_back_from_its_row(stored: list[Record], with_stored_body: bool) -> None:
    rows = [message_row(decode_record(record.encode())) for record in stored]
    for row in rows:
        if not with_stored_body:
            del row["stored_body"]
    assert encoded_records(encode_messages(batch_of(rows), FAITHFUL)) == [record.encode() for record in stored]


def test_units_in_other_queues_are_counted() -> None:
    """A light message queue has queue id 0; a rolled back message is in no queue."""
    names = [None, "", "%LMQ%a", "other,%LMQ%a", "%LMQ%a"]
    rows = [
        {
            "topic": "T",
            "unique_key": str(row),
            "queue_id": 3,
            "sys_flag": 0xC if row == 4 else 0,
            "properties": [] if name is None else [("INNER_MULTI_DISPATCH", name)],
        }
        for row, name in enumerate(names)
    ]
    assert encode_messages(batch_of(rows), COMPACT).dispatched == {("%LMQ%a", 0): 2, ("other", 3): 1}


PLAIN_ROWS = st.fixed_dictionaries(
    {"topic": TOPICS, "unique_key": st.text("0123456789ABCDEF", min_size=32, max_size=32)},
    optional={
        "queue_id": st.integers(0, 100) | st.none(),
        "tags": TEXT | st.none(),
        "keys": st.lists(TEXT.filter(lambda key: " " not in key) | st.none(), max_size=4) | st.none(),
        "flag": INT32 | st.none(),
        "sys_flag": INT32.map(lambda flags: flags & ~0xB0) | st.none(),
        "born_timestamp_millis": TIMES | st.none(),
        "store_timestamp_millis": TIMES | st.none(),
        "reconsume_times": INT32 | st.none(),
        "prepared_transaction_offset": INT64 | st.none(),
        "body": st.binary(max_size=40) | st.none(),
        "properties": st.lists(st.tuples(NAMES, TEXT), max_size=4, unique_by=lambda pair: pair[0]) | st.none(),
        "properties_bytes": st.binary(max_size=20) | st.none(),
    },
)


@settings(max_examples=examples(150))
@given(st.lists(PLAIN_ROWS, min_size=1, max_size=5), st.integers(0, 4))
def test_any_row_is_what_the_plain_twin_makes_of_it(rows: list[dict[str, Any]], start: int) -> None:
    expected = [plain_record(row, NOW).encode() for row in rows]
    encoded = encode_messages(batch_of(rows), COMPACT)
    assert encoded_records(encoded) == expected
    assert encoded.rows.commit_log_offset.tolist() == encoded.rows.queue_offset.tolist() == [UNKNOWN] * len(rows)
    assert encoded_records(encode_messages(batch_of(rows).slice(start, 2), COMPACT)) == expected[start : start + 2]


def one(row: dict[str, Any], rules: EncodingRules = COMPACT) -> Record:
    """The record of one row that has a unique key."""
    (data,) = encoded_records(encode_messages(batch_of([{"topic": "T", "unique_key": "U", **row}]), rules))
    return decode_record(data)


def test_a_row_of_a_topic_alone_has_defaults() -> None:
    assert one({}) == replace(
        Record(b"T", properties=b"UNIQ_KEY\1U\2", born_timestamp=NOW, store_timestamp=NOW), body_crc=0
    )


def test_arrow_types_that_mean_the_same_give_the_same() -> None:
    rows = [{"topic": topic, "tags": tags, "body": body} for topic, tags, body in (("T", "a", b"x"), ("S", None, b""))]
    usual = batch_of([{**row, "unique_key": "U"} for row in rows])
    for kinds in (
        {"topic": pa.large_string(), "tags": pa.large_string(), "body": pa.large_binary()},
        {"topic": pa.string_view(), "tags": pa.string_view(), "body": pa.binary_view()},
        {"topic": pa.dictionary(pa.int32(), pa.string()), "tags": pa.dictionary(pa.int8(), pa.string())},
        {"body": pa.string()},
    ):
        other = usual
        for name, kind in kinds.items():
            column = usual.column(name)
            column = column.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else column.cast(kind)
            other = other.set_column(other.schema.get_field_index(name), name, column)
        assert encoded_records(encode_messages(other, COMPACT)) == encoded_records(encode_messages(usual, COMPACT))


def test_columns_that_say_nothing_new_are_ignored() -> None:
    batch = batch_of([{"topic": "T", "unique_key": "U", "transaction_type": "COMMIT", "offset_message_id": "00"}])
    for name in ("cluster", "broker", "store", "key", "key_type"):
        batch = batch.append_column(name, pa.array(["x"]))
    batch = batch.append_column("queue_id", pa.nulls(1))
    (data,) = encoded_records(encode_messages(batch, COMPACT))
    assert decode_record(data) == one({})


def test_keys_can_be_a_string_in_which_spaces_separate_them() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["T"], "keys": ["a  b"], "unique_key": ["U"]})
    (data,) = encoded_records(encode_messages(batch, COMPACT))
    assert decode_record(data).properties == b"KEYS\1a  b\2UNIQ_KEY\1U\2"


def test_times_can_be_timestamps_and_milliseconds_win() -> None:
    at = datetime(2026, 11, 20, 8, 0, 0, 123_999, tzinfo=UTC)
    for unit in ("us", "ns", "ms"):
        moments = pa.array([at]).cast(pa.timestamp(unit, "Asia/Shanghai"), safe=False)
        batch = pa.RecordBatch.from_pydict({"topic": ["T"], "store_timestamp": moments, "born_timestamp": moments})
        (data,) = encoded_records(encode_messages(batch, COMPACT))
        record = decode_record(data)
        assert record.store_timestamp == record.born_timestamp == int(at.timestamp() * 1000)
    record = one({"store_timestamp": 5_000_000, "store_timestamp_millis": 7})
    assert (record.store_timestamp, record.born_timestamp) == (7, 7)


def test_hosts_are_of_the_row_or_of_the_rules() -> None:
    hosts = {"born_host": "10.1.2.3:5", "store_host": "[2001:db8::a]:10911"}
    record = one({**hosts, "sys_flag": 0x8})
    assert (record.born_host, record.sys_flag) == (bytes([10, 1, 2, 3, 0, 0, 0, 5]), 0x28)
    assert record.store_host == bytes.fromhex("20010db800000000000000000000000a") + (10911).to_bytes(4, "big")
    moved = one(hosts, replace(COMPACT, store_host="10.9.9.9:1"))
    assert (moved.store_host, moved.sys_flag) == (bytes([10, 9, 9, 9, 0, 0, 0, 1]), 0)
    mapped = one({"born_host": "10.0.0.1:1", "sys_flag": 0x10})
    assert (mapped.born_host, mapped.sys_flag) == (V4_MAPPED, 0x10)


def test_a_compressed_body_stays_as_it_was_stored_and_its_content_is_written_uncompressed() -> None:
    stored = one({"body": b"content", "stored_body": b"deflated", "sys_flag": 0x301})
    assert (stored.body, stored.sys_flag) == (b"deflated", 0x301)
    by_name = one({"body": b"content", "encoded_body": b"deflated", "sys_flag": 0x301})
    assert by_name == stored
    content = one({"body": b"content", "sys_flag": 0x301, "body_crc": 5})
    assert (content.body, content.sys_flag) == (b"content", 0)
    assert content.body_crc == one({"body": b"content"}).body_crc


def test_a_half_message_in_its_old_store_is_named_only_by_faithful_messages() -> None:
    row = {"commit_log_offset": 9, "queue_offset": 8, "prepared_transaction_offset": 7}
    assert one(row).prepared_transaction_offset == 0
    record = one(row, FAITHFUL)
    assert (record.commit_log_offset, record.queue_offset, record.prepared_transaction_offset) == (9, 8, 7)


def test_topics_get_their_new_names_also_in_properties() -> None:
    rules = replace(COMPACT, topics={"old": "new-and-longer", "T": "S"})
    rows = [
        {"topic": "old", "properties_bytes": b"a\1b\2REAL_TOPIC\1old\2RETRY_TOPIC\1T\2c\1d\2"},
        {"topic": "other", "properties_bytes": b"REAL_TOPIC\1older\2"},
        {"topic": "new-and-longer", "properties_bytes": b""},
        {"topic": "T", "properties_bytes": b"RETRY_TOPIC\1T"},
    ]
    encoded = encode_messages(batch_of(rows), rules)
    found = [decode_record(data) for data in encoded_records(encoded)]
    assert [record.topic for record in found] == [b"new-and-longer", b"other", b"new-and-longer", b"S"]
    assert [record.properties for record in found] == [
        b"a\1b\2REAL_TOPIC\1new-and-longer\2RETRY_TOPIC\1S\2c\1d\2",
        b"REAL_TOPIC\1older\2",
        b"",
        b"RETRY_TOPIC\1S",
    ]
    assert encoded.queues == (("new-and-longer", 0), ("other", 0), ("S", 0))
    assert encoded.rows.queue_number.tolist() == [0, 1, 0, 2]


def test_property_crcs_are_added_if_asked_and_always_right_at_the_end() -> None:
    rules = replace(COMPACT, properties_crc=True)
    rows: list[dict[str, Any]] = [
        {"topic": "T", "properties_bytes": b"a\1b"},
        {"topic": "T", "properties_bytes": b"a\1b\2" + NO_CRC},
        {"topic": "T", "unique_key": "U", "properties": [("__CRC32#", "0000000000"), ("a", "b")]},
        {"topic": "T", "properties_bytes": b""},
    ]
    common = Record(b"T", properties=b"a\1b\2" + NO_CRC, born_timestamp=NOW, store_timestamp=NOW)
    from_map = replace(common, properties=b"a\1b\2UNIQ_KEY\1U\2" + NO_CRC)
    expected = [sealed(common), sealed(common), sealed(from_map), sealed(replace(common, properties=NO_CRC))]
    assert encoded_records(encode_messages(batch_of(rows), rules)) == expected
    plain = replace(common, properties=b"a\1b")
    as_given = [plain.encode(), sealed(common), sealed(from_map), replace(plain, properties=b"").encode()]
    assert encoded_records(encode_messages(batch_of(rows), COMPACT)) == as_given


def test_a_property_crc_fits_a_new_store_host() -> None:
    record = Record(b"T", commit_log_offset=5, properties=NO_CRC, store_timestamp=1, born_timestamp=1)
    row = message_row(decode_record(sealed(record)))
    rules = replace(FAITHFUL, store_host="10.0.0.1:2")
    (data,) = encoded_records(encode_messages(batch_of([row]), rules))
    assert data == sealed(replace(record, store_host=bytes([10, 0, 0, 1, 0, 0, 0, 2])))


def test_a_faithful_record_has_no_room_for_a_longer_store_host() -> None:
    record = Record(b"T", commit_log_offset=5, store_timestamp=1, born_timestamp=1)
    row = message_row(decode_record(record.encode()))
    rules = replace(FAITHFUL, store_host="[2001:db8::7]:10911")
    with pytest.raises(InvalidMessageError, match=r"is an IPv6 address, and the source has an IPv4 one: .*renumber"):
        encode_messages(batch_of([row]), rules)


def unique_keys(batch: pa.RecordBatch, rules: EncodingRules = COMPACT, **place: int) -> list[bytes]:
    found = [decode_record(data).properties for data in encoded_records(encode_messages(batch, rules, **place))]
    assert all(properties.startswith(b"UNIQ_KEY\1") and len(properties) == 42 for properties in found)
    return [properties[9:41] for properties in found]


def test_rows_that_were_in_no_store_get_a_unique_key_that_is_the_same_again() -> None:
    batch = batch_of([{"topic": "T", "born_timestamp_millis": 1_700_000_000_000}] * 3)
    keys = unique_keys(batch, partition=3, first_row=65_535)
    assert len(set(keys)) == 3
    assert keys == unique_keys(batch, partition=3, first_row=65_535)
    assert keys[1:] == unique_keys(batch.slice(1), partition=3, first_row=65_536)
    others = unique_keys(batch, partition=4, first_row=65_535)
    others += unique_keys(batch, replace(COMPACT, now=NOW + 1), partition=3, first_row=65_535)
    others += unique_keys(batch, partition=3, first_row=2 * 65_536 - 1)
    assert not set(keys) & set(others)


def test_a_row_that_was_in_a_store_without_a_unique_key_gets_none() -> None:
    row = {"topic": "T", "commit_log_offset": 5}
    (data,) = encoded_records(encode_messages(batch_of([row]), COMPACT))
    assert decode_record(data).properties == b""


def test_no_rows_are_no_records() -> None:
    for rules in (COMPACT, FAITHFUL):
        batch = batch_of([message_row(decode_record(Record(b"T").encode()))]).slice(0, 0)
        encoded = encode_messages(batch, rules)
        assert (encoded.data.size, encoded.rows.store_size.size, encoded.queues) == (0, 0, ())
    assert encode_messages(batch_of([{"topic": "T"}]).slice(0, 0), COMPACT).data.size == 0


def test_versions() -> None:
    row = {"topic": "T", "commit_log_offset": 0, "queue_offset": 0}
    assert one(row | {"store_size": 91 + 1 + 11}, FAITHFUL).magic == MAGIC_V1
    assert one(row | {"store_size": 92 + 1 + 11}, FAITHFUL).magic == MAGIC_V2
    assert one(row | {"store_size": 92 + 1 + 11}).magic == MAGIC_V1
    assert one({"topic": "%RETRY%" + "g" * 120}).magic == MAGIC_V1
    assert one({"topic": "%RETRY%" + "g" * 121}).magic == MAGIC_V2


SOURCE = {"commit_log_offset": 4096, "queue_offset": 3, "queue_id": 2}


@pytest.mark.parametrize(
    ("row", "rules", "said"),
    [
        ({"topic": None}, COMPACT, "topic is NULL"),
        ({"topic": "a.b"}, COMPACT, "the topic has other characters than"),
        ({"topic": ""}, COMPACT, "the topic is empty"),
        ({"topic": "t" * 128}, COMPACT, "the topic has more than 127 characters"),
        ({"topic": "%RETRY%" + "t" * 249}, COMPACT, "the topic has more than 255 characters"),
        ({"topic": "../x", **SOURCE}, FAITHFUL, "the topic cannot be the name of a folder"),
        ({"topic": "a\ufffd", **SOURCE}, FAITHFUL, "the topic has bytes that are not UTF-8"),
        ({"body": bytes((4 << 20) + 1)}, COMPACT, "the body has 4194305 bytes: a broker takes 4194304 at most"),
        ({"body": bytes(3), "sys_flag": 1, **SOURCE}, replace(COMPACT, max_body_size=2), "the body has 3 bytes"),
        ({"stored_body": bytes(17 << 20)}, COMPACT, "bytes: 16908288 fit"),
        ({"properties_bytes": b"a\1" + b"b" * 32_766}, COMPACT, "the properties have 32768 bytes"),
        ({"tags": "t" * 32_762}, COMPACT, "the properties have 32779 bytes"),
        ({"tags": "a\2b"}, COMPACT, "contains the character 1 or 2"),
        ({"keys": ["a", "b\1"]}, COMPACT, "contains the character 1 or 2"),
        ({"keys": ["a b"]}, COMPACT, "a key in column keys contains a space"),
        ({"unique_key": "a\1"}, COMPACT, "contains the character 1 or 2"),
        ({"properties": [("a\1", "b")]}, COMPACT, "the name of a property contains"),
        ({"properties": [("a", "b\2")]}, COMPACT, "a property, a tag or a key contains"),
        ({"properties": [("", "b")]}, COMPACT, "the name of a property is empty"),
        ({"queue_id": -1}, COMPACT, "queue_id -1 is not from 0 to 2147483646"),
        ({"queue_id": (1 << 31) - 1}, COMPACT, "queue_id 2147483647 is not from 0"),
        ({"queue_offset": -1}, COMPACT, "queue_offset -1 is not from 0"),
        ({"queue_offset": (1 << 58) + 1}, COMPACT, "queue_offset 288230376151711745 is not from 0"),
        ({"commit_log_offset": -1}, COMPACT, "commit_log_offset -1 is not from 0"),
        ({"commit_log_offset": (1 << 63) - 1}, COMPACT, "commit_log_offset 9223372036854775807 is not from 0"),
        ({"commit_log_offset": 5}, FAITHFUL, "column 'queue_offset' is missing"),
        ({"commit_log_offset": 5, "queue_offset": None}, FAITHFUL, "queue_offset is NULL"),
        ({"queue_offset": 5, "commit_log_offset": None}, FAITHFUL, "commit_log_offset is NULL"),
        ({"born_host": "broker:10911"}, COMPACT, "born_host 'broker:10911' is not an address and a port"),
        ({"store_host": "1.2.3.4:65536"}, COMPACT, "store_host '1.2.3.4:65536' has a port that is not"),
        ({"born_host": "1.2.3.4:99999999999", **SOURCE}, COMPACT, "is not an address and a port"),
        ({"store_timestamp_millis": 0}, COMPACT, "store_timestamp is 0 milliseconds, which is not a time"),
        ({"born_timestamp_millis": -1}, COMPACT, "born_timestamp is -1 milliseconds, which is not a time"),
        ({"store_timestamp_millis": 1 << 60}, COMPACT, "which is not a time from 1970 to 9999"),
        ({"body": b"x", "sys_flag": 1, **SOURCE}, FAITHFUL, "the body is compressed in its store"),
        ({"body": b"x", "body_crc": 5, **SOURCE}, FAITHFUL, "body_crc 5 is not the CRC of the body"),
        ({"stored_body": b"x", "body_crc": 5}, COMPACT, "body_crc 5 is not the CRC of the body"),
        ({"sys_flag": 0x80, **SOURCE}, COMPACT, "the message is a batch of several messages .bit 0x80 of sys_flag"),
        ({"sys_flag": 0xC1, **SOURCE}, FAITHFUL, "no batch consume queues .* leave such rows out .sys_flag & 128 = 0"),
        ({"sys_flag": 0x80, **SOURCE}, BATCHES, "INNER_BASE and INNER_NUM .1 to 32767. belong together"),
        ({"properties": [("INNER_BASE", "7")], **SOURCE}, BATCHES, "belong together"),
        ({"sys_flag": 0x80, "properties": [("INNER_NUM", "7")], **SOURCE}, BATCHES, "belong together"),
        *(
            (
                {"sys_flag": 0x80, "properties": [("INNER_BASE", "7"), ("INNER_NUM", text)], **SOURCE},
                BATCHES,
                "1 to 32767",
            )
            for text in ("0", "32768", "-1", "x", "99999999999")
        ),
        (
            {"store_size": 200, **SOURCE},
            FAITHFUL,
            "would take 107 bytes, but took 200.*properties_bytes, stored_body.* are missing",
        ),
        (
            {CORRUPT_RECORD: "BODY_CRC: why", **SOURCE},
            COMPACT,
            "the row is damaged .'BODY_CRC: why'.*cannot be restored",
        ),
    ],
)
def test_a_row_that_cannot_be_a_message_is_an_error_that_names_it(
    row: dict[str, Any], rules: EncodingRules, said: str
) -> None:
    usual = {"topic": "Topic", "unique_key": "U", **SOURCE}
    usual = {name: value for name, value in usual.items() if name in row or name in ("topic", "unique_key")}
    with pytest.raises(InvalidMessageError, match=said) as raised:
        encode_messages(batch_of([usual, usual | row]), rules, first_row=10)
    if "column" not in said:
        assert str(raised.value).startswith(("row 11: ", "row 11 ("))
        assert "\n" not in str(raised.value)
        if row.get("topic", "Topic") and len(row.get("topic") or "") < 80:
            assert f"topic {row.get('topic', 'Topic')!r}" in str(raised.value)
        if "commit_log_offset" in row and row["commit_log_offset"] is not None:
            assert f"commit log offset {row['commit_log_offset']}," in str(raised.value)


def test_numbers_that_an_int_cannot_hold_are_errors() -> None:
    for name in ("flag", "sys_flag", "reconsume_times", "queue_id"):
        batch = pa.RecordBatch.from_pydict({"topic": ["T"], name: pa.array([1 << 31], pa.int64())})
        with pytest.raises(InvalidMessageError, match=f"{name} 2147483648 is not from"):
            encode_messages(batch, COMPACT)


def test_text_that_is_not_utf8_is_an_error() -> None:
    broken = pa.array([b"\xff\xfe"]).cast(pa.string(), safe=False)
    for name in ("topic", "born_host"):
        batch = pa.RecordBatch.from_pydict({"topic": ["T"], **{name: broken}})
        with pytest.raises(InvalidMessageError, match=r"topic has|born_host"):
            encode_messages(batch, COMPACT)


HOST = parse_host("10.0.0.1:10911")


def made_keys(partition: int = 0, first_row: int = 0, count: int = 1, host: bytes = HOST) -> list[str]:
    born = np.full(count, int(datetime(2026, 2, 3, 4, tzinfo=UTC).timestamp() * 1000), np.int64)
    pieces = make_unique_keys(host, 1_700_000_000_000, partition, first_row, born)
    return [pieces.piece(row).decode() for row in range(count)]


def test_a_key_has_the_form_of_a_clients() -> None:
    for partition in range(200):
        (key,) = made_keys(partition)
        assert is_offset_message_id(key)
        assert not has_plausible_port(key)
        assert key.startswith("0A000001")
        assert unique_key_time(key) == timedelta(days=2, hours=4)
    assert made_keys(host=parse_host("[::1]:1"))[0].startswith("7F000001")


def test_keys_differ_beyond_the_range_of_the_counter() -> None:
    assert len(set(made_keys(count=200_000))) == 200_000
    assert made_keys(count=200_000)[65_530:65_540] == made_keys(first_row=65_530, count=10)
