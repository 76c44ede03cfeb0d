"""Archived rows as records: the inverse of `format.message_row`, for a few messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.format.host_text import V4_MAPPED, parse_host
from spark_mq.format.message_schema import RECORD_COLUMNS
from spark_mq.format.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from spark_mq.format.record import HOST_V4_SIZE, MAGIC_V1, MAGIC_V2, Record
from spark_mq.format.sys_flag import BORN_HOST_V6_FLAG, COMPRESSED_FLAG, STORE_HOST_V6_FLAG

ARCHIVED_COLUMNS = (*RECORD_COLUMNS, "body", "properties")
"""The columns that `record_of` needs. An archive that an older spark-mq wrote lacks some of them: they are NULL."""

_MAX_V1_TOPIC = 127


def record_of(row: Mapping[str, Any]) -> Record:
    """The record of a row with `ARCHIVED_COLUMNS`.

    If the row lacks the stored body, the record has the decompressed one, and no flag of a compression.
    """
    sys_flag, stored = row["sys_flag"], row["stored_body"]
    topic = row["topic"].encode("utf-8")
    return Record(
        topic=topic,
        queue_id=row["queue_id"],
        queue_offset=row["queue_offset"],
        commit_log_offset=row["commit_log_offset"],
        body=(row["body"] or b"") if stored is None else stored,
        properties=row["properties_bytes"] or _properties(row["properties"]),
        flag=row["flag"],
        sys_flag=sys_flag & ~COMPRESSED_FLAG if stored is None else sys_flag,
        born_timestamp=row["born_timestamp_millis"],
        born_host=_host(row["born_host"], sys_flag & BORN_HOST_V6_FLAG),
        store_timestamp=row["store_timestamp_millis"],
        store_host=_host(row["store_host"], sys_flag & STORE_HOST_V6_FLAG),
        reconsume_times=row["reconsume_times"],
        prepared_transaction_offset=row["prepared_transaction_offset"],
        magic=MAGIC_V2 if len(topic) > _MAX_V1_TOPIC else MAGIC_V1,
        body_crc=row["body_crc"],
    )


def _host(text: str, is_v6: int) -> bytes:
    """The stored bytes of a host; Java prints an IPv4 address in an IPv6 field as an IPv4 address."""
    host = parse_host(text, any_port=True)
    return V4_MAPPED + host if is_v6 and len(host) == HOST_V4_SIZE else host


def _properties(properties: list[tuple[str, str]] | None) -> bytes:
    """Properties as a record has them."""
    name_end, value_end = bytes((NAME_VALUE_SEPARATOR,)), bytes((PROPERTY_SEPARATOR,))
    pairs = ((name.encode(), value.encode()) for name, value in properties or ())
    return b"".join(name + name_end + value + value_end for name, value in pairs)
