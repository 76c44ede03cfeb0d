"""Batch consume queues out of the log: the files are those of a broker, byte for byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptLogError, OptionError, OutputExistsError
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from spark_mq.format.java_text import hash_code
from spark_mq.format.kernels.dispatch import batch_units
from spark_mq.format.record import Record
from spark_mq.testing import LogWriter
from tests.support.kernels import array, examples, frames_of
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
CONF = str(STORE.broker_conf)
TREE = "batchconsumequeue"


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


@pytest.mark.parametrize("split_size", [128 << 20, 64 << 10])
def test_the_files_are_those_of_the_broker(store: Path, tmp_path: Path, split_size: int) -> None:
    report = rebuild_here(store, tmp_path / "rebuilt", broker_conf=CONF, split_size=split_size)
    assert tree_of(tmp_path / "rebuilt" / TREE) == tree_of(store / TREE)
    assert tree_of(tmp_path / "rebuilt/consumequeue") == tree_of(store / "consumequeue")
    assert report.trees == ["consumequeue", TREE, "index"]
    assert (report.queues, report.units) == (18, 326)
    assert report.notes == []
    assert not report.lost_queues


def test_the_topics_alone_tell_which_queues_these_are(store: Path, tmp_path: Path) -> None:
    before = tree_of(store / TREE)
    shutil.rmtree(store / TREE)
    (store / "config/consumerOffset.json").write_text('{"offsetTable":{"b1bcq@readers":{0:67}}}')
    report = rebuild_here(store, tmp_path / "rebuilt", broker_conf=CONF)
    assert tree_of(tmp_path / "rebuilt" / TREE) == before
    assert not (tmp_path / "rebuilt/consumequeue/b1bcq").exists()  # which would keep a broker from starting
    assert report.lost_queues == []


def test_a_queue_goes_on_in_the_next_file(store: Path, tmp_path: Path) -> None:
    """`BatchConsumeQueue.putBatchMessagePositionInfo`@5.3.3: a unit after the other, through all files."""
    conf = tmp_path / "broker.conf"
    conf.write_text(STORE.broker_conf.read_text() + f"mapperFileSizeBatchConsumeQueue={10 * BATCH_UNIT_SIZE}\n")
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(conf))
    for queue in (store / TREE / "b1bcq").iterdir():
        (whole,) = queue.iterdir()
        files = sorted((tmp_path / "rebuilt" / TREE / "b1bcq" / queue.name).iterdir())
        assert [file.name for file in files] == [f"{number * 460:020d}" for number in range(4)]
        assert {file.stat().st_size for file in files} == {460}
        joined = b"".join(file.read_bytes() for file in files)
        assert joined == whole.read_bytes()[: len(joined)]


def test_what_cannot_be_done_says_what_can(store: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="leave out --topic"):
        rebuild_here(store, tmp_path / "rebuilt", topic="b1bcq")
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=CONF)
    with pytest.raises(OutputExistsError, match="batch consume queues are not continued: give --replace"):
        rebuild_here(store, tmp_path / "rebuilt", broker_conf=CONF, resume=True)
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=CONF, replace=True)
    report = rebuild_here(store, tmp_path / "one", broker_conf=CONF, topic="b1_Main")
    assert report.trees == ["consumequeue/b1_Main"]


def test_numbers_that_no_broker_writes_are_damage(tmp_path: Path) -> None:
    writer = LogWriter(1 << 16)
    for base in (b"0", b"-1", b"5"):
        writer.append(1000, b"x", b"T", 0, 0, b"INNER_BASE\1" + base + b"\2INNER_NUM\0012\2", sys_flag=0x80)
    writer.write(tmp_path / "store")
    (tmp_path / "store/config").mkdir()
    topics = {"topicConfigTable": {"T": {"topicName": "T", "attributes": {"queue.type": "BatchCQ"}}}}
    (tmp_path / "store/config/topics.json").write_text(json.dumps(topics))
    with pytest.raises(CorruptLogError, match="INNER_BASE or INNER_NUM is impossible"):
        rebuild_here(tmp_path / "store", tmp_path / "rebuilt", only="consumequeue")
    report = rebuild_here(tmp_path / "store", tmp_path / "rebuilt", only="consumequeue", mode="permissive")
    assert (report.units, len(report.corrupt)) == (2, 1)


@settings(max_examples=examples(100))
@given(
    st.none() | st.integers(0, 1 << 50),
    st.none() | st.integers(1, (1 << 15) - 1),
    st.text("ab", max_size=3),
    st.integers(0, 1 << 40),
)
def test_a_unit_has_the_offset_and_the_number_of_its_batch(
    base: int | None, count: int | None, tags: str, queue_offset: int
) -> None:
    """`CommitLog.setBatchSizeIfNeeded`@5.3.3: both properties count, or none."""
    values = {"TAGS": tags, "INNER_BASE": base, "INNER_NUM": count}
    properties = "".join(f"{name}\1{value}\2" for name, value in values.items() if value is not None).encode()
    record = Record(b"T", properties=properties, queue_offset=queue_offset, store_timestamp=77)
    data = record.encode()
    (unit,) = batch_units(array(data), frames_of(data)).tolist()
    expected = (queue_offset, 1) if base is None or count is None else (base, count)
    assert unit == (0, len(data), hash_code(tags), 77, *expected, -1, 0)
