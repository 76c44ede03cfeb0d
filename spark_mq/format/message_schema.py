"""The columns of a message: names and Arrow types, the same in tables, in point queries and in files.

This module imports neither numba nor Spark.
"""

from __future__ import annotations

from spark_mq.tables.messages import MESSAGES, MESSAGES_BY_KEY

CORRUPT_RECORD = "_corrupt_record"
WRONG_BODY_CRC = "BODY_CRC: the CRC of the stored body is not the body CRC of the record"
WRONG_PROPERTY_CRC = "PROPERTIES_CRC: the CRC of the record is not the one in its property __CRC32#"
"""The text in that column for a record whose CRC is wrong."""
MAX_STORE_SIZE = (1 << 31) - 1
"""The largest value of column `store_size`."""

MIN_TIMESTAMP_MILLIS = -62_135_596_800_000
"""0001-01-01T00:00:00Z; Python's datetime has no earlier time, so it cannot represent an earlier TIMESTAMP of Spark."""
MAX_TIMESTAMP_MILLIS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""

MESSAGE_SCHEMA = MESSAGES.schema
EXTRA_MESSAGE_SCHEMA = MESSAGES.extra_schema
TIMESTAMP = MESSAGE_SCHEMA.field("store_timestamp").type
"""The type of every column that has a time."""
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

MESSAGE_BY_KEY_SCHEMA = MESSAGES_BY_KEY.schema
KEY_FIELDS = {name: MESSAGE_BY_KEY_SCHEMA.field(name) for name in (KEY, KEY_TYPE)}
