"""Archived rows become the records that they were, for all messages of real stores. No Spark here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_mq.archive.archived_messages import ARCHIVED_COLUMNS, record_of
from spark_mq.format.message_row import message_row
from spark_mq.format.record import BORN_HOST_V6_FLAG, COMPRESSED_FLAG, Record
from spark_mq.store.message_store import MessageStore
from tests.support.stores import WORKLOADS, RealStore

V4_IN_V6 = bytes(10) + b"\xff\xff" + bytes((10, 0, 0, 1)) + bytes((0, 0, 42, 159))


def archived(record: Record) -> dict[str, object]:
    """The row of a record, as the archive has it: the stored body only if it differs."""
    row = message_row(record)
    return {**{name: row.get(name) for name in ARCHIVED_COLUMNS}, "stored_body": row.get("encoded_body")}


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_records_are_those_of_the_log(packed: RealStore, described: Callable[[RealStore], MessageStore]) -> None:
    store = described(packed)
    records = [store.records.record(fact["offset"]) for fact in packed.facts("msg")]
    assert any(record.sys_flag & COMPRESSED_FLAG for record in records)
    for record in records:
        assert record_of(archived(record)) == record


def test_a_host_keeps_its_bytes() -> None:
    record = Record(b"t", born_host=V4_IN_V6, sys_flag=BORN_HOST_V6_FLAG, body=b"x", body_crc=1)
    assert record_of(archived(record)) == record


def test_an_archive_without_stored_bodies_and_properties() -> None:
    record = Record(b"t", body=b"x", properties=b"KEYS\x01a b\x02", sys_flag=COMPRESSED_FLAG, body_crc=1)
    row = {**archived(record), "body": b"text", "stored_body": None, "properties_bytes": b""}
    found = record_of(row)
    assert (found.body, found.sys_flag, found.properties) == (b"text", 0, record.properties)
