"""The store builder that users get for their own tests."""

from __future__ import annotations

from pathlib import Path

from spark_mq import MessageStore
from spark_mq.format.properties import encode_properties
from spark_mq.format.record import Record
from spark_mq.testing import LogWriter


def test_a_store_has_the_records_that_were_appended(tmp_path: Path) -> None:
    """The first segment has no room for the second record, so a blank ends it."""
    writer = LogWriter(segment_size=300, first_segment=600)
    properties = encode_properties({b"KEYS": b"order-42", b"TAGS": b"paid"})
    offsets = [
        writer.append(1_795_248_093_336 + number, bytes([number]) * 60, b"orders", queue_id=1, properties=properties)
        for number in range(2)
    ]
    assert offsets == writer.offsets == [600, 900]
    with MessageStore(str(writer.write(tmp_path / "store"))) as store:
        found = [store.find_record(offset) for offset in offsets]
        assert (store.get_min_phy_offset(), store.get_max_phy_offset()) == (600, writer.next_offset)
    records = [record for record in found if isinstance(record, Record)]
    assert [(record.topic, record.queue_id, record.queue_offset) for record in records] == [
        (b"orders", 1, 0),
        (b"orders", 1, 1),
    ]
    assert [record.body for record in records] == [b"\0" * 60, b"\1" * 60]
