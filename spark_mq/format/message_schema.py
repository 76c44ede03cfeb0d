"""The columns of a message: names and Arrow types, the same in tables, in point queries and in files.

This module imports neither numba nor Spark.
"""

from __future__ import annotations

import pyarrow as pa

CORRUPT_RECORD = "_corrupt_record"

MIN_TIMESTAMP_MILLIS = -62_135_596_800_000
"""0001-01-01T00:00:00Z; Python's datetime has no earlier time, so it cannot represent an earlier TIMESTAMP of Spark."""
MAX_TIMESTAMP_MILLIS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""

TIMESTAMP = pa.timestamp("us", "UTC")
"""The type of every column that has a time."""
_STRINGS = pa.list_(pa.field("element", pa.string()))
_PROPERTIES = pa.map_(pa.string(), pa.string())

MESSAGE_SCHEMA = pa.schema(
    [
        ("commit_log_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("offset_message_id", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("tags", pa.string()),
        ("keys", _STRINGS),
        ("unique_key", pa.string()),
        ("flag", pa.int32()),
        ("sys_flag", pa.int32()),
        ("transaction_type", pa.string()),
        ("born_timestamp", TIMESTAMP),
        ("born_host", pa.string()),
        ("store_timestamp", TIMESTAMP),
        ("store_host", pa.string()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("body_crc", pa.int32()),
        ("body", pa.binary()),
        ("properties", _PROPERTIES),
        (CORRUPT_RECORD, pa.string()),
    ]
)
"""The default columns of table `messages`."""

EXTRA_MESSAGE_SCHEMA = pa.schema(
    [
        ("born_timestamp_millis", pa.int64()),
        ("store_timestamp_millis", pa.int64()),
        ("properties_bytes", pa.binary()),
        ("stored_body", pa.binary()),
        ("encoded_body", pa.binary()),
    ]
)
"""Columns of table `messages` that exist only if a reader names them.

`encoded_body` is the stored body if `body` is another value: the decompressed body, or NULL for a broken body."""

ALL_MESSAGE_FIELDS = {field.name: field for field in (*MESSAGE_SCHEMA, *EXTRA_MESSAGE_SCHEMA)}

RECORD_COLUMNS = (
    "commit_log_offset",
    "store_size",
    "topic",
    "queue_id",
    "queue_offset",
    "flag",
    "sys_flag",
    "born_timestamp_millis",
    "born_host",
    "store_timestamp_millis",
    "store_host",
    "reconsume_times",
    "prepared_transaction_offset",
    "body_crc",
    "stored_body",
    "properties_bytes",
)
"""The columns of a store's messages from which the same bytes can be written."""

KEY, KEY_TYPE = "key", "key_type"

KEY_FIELDS = {KEY: pa.field(KEY, pa.string()), KEY_TYPE: pa.field(KEY_TYPE, pa.string())}

MESSAGE_BY_KEY_SCHEMA = pa.schema([*KEY_FIELDS.values(), *MESSAGE_SCHEMA])
"""The default columns of table `messages_by_key`: a key, its property (`KEYS` or `UNIQ_KEY`), and its message."""
