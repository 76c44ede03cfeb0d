"""The kit that users get for tests of their own programs: the store builder, and models that say what brokers say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.errors import MissingPackageError
from spark_mq.format.properties import encode_properties
from spark_mq.format.record import Record
from spark_mq.testing import LogWriter
from spark_mq.testing.plain_index import index_of as plain_index_of
from spark_mq.testing.plain_log import records_of
from spark_mq.testing.plain_queue import dispatched, units_of
from tests.support.index_stores import layout_of
from tests.support.pages import blocks
from tests.support.stores import OWN_STORES, PROJECT, STORES, RealStore, Unpack, index_of

SOUND = [STORES["workload-533"], STORES["workload-49x"], STORES["crc-533"]]
OF_550 = RealStore("workload-550", OWN_STORES / "versions")
LIGHT = RealStore("fLmq533", OWN_STORES / "forms")


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


@pytest.mark.parametrize("store", [*SOUND, OF_550, LIGHT], ids=str)
def test_the_plain_units_are_those_of_the_broker(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    made, found = dispatched(records_of(folder / "commitlog")), units_of(folder)
    assert made == {queue: units for queue, units in found.items() if units}


@pytest.mark.parametrize("store", [*SOUND, OF_550], ids=str)
def test_the_plain_index_files_are_those_of_the_broker(store: RealStore, unpacked: Unpack) -> None:
    folder = unpacked(store)
    has_tags = store == OF_550
    made = plain_index_of(records_of(folder / "commitlog"), layout_of(store), lambda number: has_tags)
    assert [file.encode() for file in made.files] == index_of(folder)


def test_the_page_judges_a_reader(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And an implementation that leaves out a message is wrong."""
    monkeypatch.chdir(PROJECT)
    (block,) = [block for page, block in blocks("python") if page.name == "testing.md"]
    exec(block, {})
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["right"] * len(STORES)
    exec(block.replace("return [", "return []; ["), {})
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["wrong"] * len(STORES)


def test_without_hypothesis_an_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    monkeypatch.delitem(sys.modules, "spark_mq.testing.strategies", raising=False)
    with pytest.raises(MissingPackageError, match="run pip install hypothesis"):
        import spark_mq.testing.strategies  # noqa: F401
