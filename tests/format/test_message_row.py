from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.message_row import Row, corrupt_row, host_text, message_row, message_table
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MESSAGE_SCHEMA
from spark_mq.format.record import Record, decode_record
from spark_mq.testing.strategies import records
from tests.support.kernels import array, examples, frames_of
from tests.support.stores import RealStore, Unpack, segment_files, usual_stores

ALL_NAMES = list(ALL_MESSAGE_FIELDS)
ALL_COLUMNS = pa.schema(list(ALL_MESSAGE_FIELDS.values()))
PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from([b"KEYS", b"TAGS", b"UNIQ_KEY", b"x", b"", b"\xed\xa0\x80"]),
        st.sampled_from([b"a b  c", b" ", b"", b"v\1w", b"\xff\xfe", b"\xed\xa0\x80z", "schlüssel".encode()]),
    ),
    max_size=5,
).map(lambda pairs: b"\2".join(name + b"\1" + value for name, value in pairs))


def as_dict(row: Row) -> Row:
    properties = row["properties"]
    return {**row, "properties": None if properties is None else dict(properties)}


def plain(table: pa.Table) -> list[Row]:
    """The rows; properties without their order, which means nothing."""
    assert table.schema.equals(ALL_COLUMNS)
    return [as_dict(row) for row in table.to_pylist()]


def by_kernels(data: bytes, base: int = 0) -> list[Row]:
    columns = MessageColumns(array(data), frames_of(data, base))
    return plain(pa.Table.from_batches([columns.record_batch(ALL_NAMES)]))


def by_rows(records: Iterable[Record]) -> list[Row]:
    return plain(message_table([message_row(record) for record in records], ALL_COLUMNS))


@settings(max_examples=examples(300))
@given(records(), PROPERTIES | st.none())
def test_a_row_is_what_the_kernels_make_of_the_record(record: Record, properties: bytes | None) -> None:
    data = (record if properties is None else replace(record, properties=properties)).encode()
    assert by_rows([decode_record(data)]) == by_kernels(data)


@pytest.mark.parametrize("body", [zlib.compress(b"content"), b"broken", zlib.compress(b"cut")[:-3], b""])
def test_compressed_bodies_and_their_damage_too(body: bytes) -> None:
    data = Record(b"T", sys_flag=0x301, body=body).encode()
    assert by_rows([decode_record(data)]) == by_kernels(data)


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_rows_of_real_messages_are_what_the_kernels_make_of_them(store: RealStore, unpacked: Unpack) -> None:
    facts = store.facts("msg")
    for file in segment_files(unpacked(store)):
        base, data = int(file.name), file.read_bytes()
        here = [fact for fact in facts if base <= fact["offset"] < base + len(data)][:200]
        if not here:
            continue
        start, stop = here[0]["offset"], here[-1]["offset"] + here[-1]["size"]
        whole = data[start - base : stop - base]
        records = [decode_record(whole, fact["offset"] - start, fact["offset"]) for fact in here]
        assert by_rows(records) == by_kernels(whole, start)


def test_a_corrupt_row_says_where_and_why() -> None:
    (row,) = message_table([corrupt_row(7, 100, "BAD_MAGIC: why")]).to_pylist()
    named = {name: value for name, value in row.items() if value is not None}
    assert named == {"commit_log_offset": 7, "store_size": 100, "_corrupt_record": "BAD_MAGIC: why"}
    assert as_dict(row)["properties"] is None


def test_no_rows_give_the_columns() -> None:
    assert message_table([]).schema.equals(MESSAGE_SCHEMA)


def test_hosts() -> None:
    assert host_text(bytes([127, 0, 0, 1, 0, 0, 42, 159])) == "127.0.0.1:10911"
    assert host_text(bytes.fromhex("fe800000000000000000000100020a0b") + b"\0\0\0\1") == "[fe80:0:0:0:0:1:2:a0b]:1"
