"""Rows of messages for tests of a restore, and what a broker would append for them, in plain Python."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa

from spark_mq.format.arrow_array import array_of
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.format.properties import PROPERTY_CRC_SIZE
from spark_mq.format.record import MAGIC_V1, MAGIC_V2, Record
from spark_mq.restorer.encode_messages import EncodedMessages

NO_CRC = b"__CRC32#\x010000000000\2"
EXACT_COLUMNS = [name for name in ALL_MESSAGE_FIELDS if name != "encoded_body"]
"""All columns that a faithful restore of a store reads."""


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """The rows, with the columns that at least one row has; a timestamp is microseconds."""
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([ALL_MESSAGE_FIELDS[name] for name in names])
    return pa.RecordBatch.from_arrays(
        [array_of([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema
    )


def encoded_records(encoded: EncodedMessages) -> list[bytes]:
    """The bytes of each record, which must lie one after the other."""
    sizes, starts = encoded.rows.store_size.tolist(), encoded.rows.starts.tolist()
    assert encoded.data.size == sum(sizes)
    data = encoded.data.tobytes()
    return [data[at : at + size] for at, size in zip(starts, sizes, strict=False)]


def sealed(record: Record) -> bytes:
    """The bytes of a record whose last property is a property CRC, with the CRC that a broker would write."""
    data = record.encode()
    digits = f"{zlib.crc32(data[:-PROPERTY_CRC_SIZE]) & 0x7FFFFFFF:010d}"[::-1]
    return data[:-11] + digits.encode() + b"\2"


def plain_record(row: dict[str, Any], now: int) -> Record:
    """What a broker would append for a row of a compact restore that was in no store, and has its unique key."""
    properties = {name: value for name, value in dict(row.get("properties") or {}).items() if value}
    keys = row.get("keys")
    for name, value in (
        ("TAGS", row.get("tags")),
        ("KEYS", " ".join(key for key in keys if key) if isinstance(keys, list) else keys),
        ("UNIQ_KEY", row["unique_key"]),
    ):
        if value:
            properties.setdefault(name, value)
    stored = "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode()
    topic = row["topic"].encode()
    store_timestamp = row.get("store_timestamp_millis")
    store_timestamp = now if store_timestamp is None else store_timestamp
    born_timestamp = row.get("born_timestamp_millis")
    flags = row.get("sys_flag") or 0
    body = row.get("body") or b""
    return Record(
        topic,
        queue_id=row.get("queue_id") or 0,
        body=body,
        properties=stored if row.get("properties_bytes") is None else row["properties_bytes"],
        flag=row.get("flag") or 0,
        sys_flag=flags & ~0x701 if flags & 1 and body else flags,
        born_timestamp=store_timestamp if born_timestamp is None else born_timestamp,
        store_timestamp=store_timestamp,
        reconsume_times=row.get("reconsume_times") or 0,
        magic=MAGIC_V2 if len(topic) > 127 else MAGIC_V1,
    )
