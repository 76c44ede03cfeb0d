"""Queues of a broker with `enableConsumeQueueExt`: rebuilt, and continued. Only one test starts Spark."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

import spark_mq.indexer.queue_extensions as extensions
from spark_mq import MessageStore, rebuild
from spark_mq.errors import CorruptLogError, NoRoomError, OptionError
from spark_mq.format.consume_queue_ext import offset_of
from spark_mq.testing import LogWriter
from tests.support.filtered_store import FILTERED, TOPIC, records_of
from tests.support.rebuilt import rebuild_here
from tests.support.stores import Unpack, tree_of
from tests.support.verified import check, grave


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(FILTERED), tmp_path / "store"))


def test_rebuilt_extensions_are_those_of_a_broker(store: Path, tmp_path: Path) -> None:
    """A broker that booted without its queues made them again, with all filters."""
    report = rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(FILTERED.broker_conf))
    assert report.trees == ["consumequeue", "consumequeue_ext", "index"]
    assert not report.notes
    of_the_broker = FILTERED.unpack(tmp_path, "rebuilt")
    for tree in ("consumequeue", "consumequeue_ext"):
        assert tree_of(tmp_path / "rebuilt" / tree) == tree_of(of_the_broker / tree)


def test_rebuilt_units_have_the_tags_codes_of_the_extension(store: Path, tmp_path: Path) -> None:
    report = rebuild_here(store, tmp_path / "rebuilt")
    assert "consumequeue_ext is not rebuilt" in "".join(report.notes)
    shutil.copytree(store / "commitlog", tmp_path / "rebuilt" / "commitlog")
    with MessageStore(str(store)) as one, MessageStore(str(tmp_path / "rebuilt")) as other:
        assert set(one.queues) == set(other.queues)
        for name, queue in one.queues.items():
            units = queue.units(0, queue.written_end)
            rebuilt = other.queues[name].units(0, queue.written_end)
            codes, is_known = queue.tags_codes(units)
            assert is_known.all()
            assert rebuilt["tags_code"].astype(np.int64).tolist() == codes.tolist()
            for column in ("commit_log_offset", "store_size"):
                assert rebuilt[column].tolist() == units[column].tolist()


def test_continued_queues_keep_their_addresses(store: Path) -> None:
    before = tree_of(store / "consumequeue")
    report = rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)
    assert (report.files_completed, report.corrupt) == (0, [])
    assert tree_of(store / "consumequeue") == before
    file = store / "consumequeue" / TOPIC / "0" / f"{2000:020d}"
    content = file.read_bytes()
    file.write_bytes(content[:200].ljust(2000, b"\0"))
    report = rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)
    assert (report.files_completed, report.corrupt) == (1, [])
    completed = file.read_bytes()
    assert completed[:200] == content[:200]
    assert completed != content  # the new units have tags codes, which brokers accept
    assert grave(check(store, FILTERED.broker_conf)[1]) == []


def test_another_tags_code_in_the_extension_contradicts_the_log(store: Path) -> None:
    file = store / "consumequeue_ext" / TOPIC / "0" / f"{0:020d}"
    content = bytearray(file.read_bytes())
    content[9] ^= 1
    file.write_bytes(content)
    with pytest.raises(CorruptLogError, match=f"{TOPIC}/0: 1 units"):
        rebuild_here(store, broker_conf=str(FILTERED.broker_conf), resume=True)


def test_one_queue_with_spark(spark: SparkSession, store: Path, tmp_path: Path) -> None:
    conf = str(FILTERED.broker_conf)
    report = rebuild(spark, str(store), topic=TOPIC, queue_id=1, broker_conf=conf, replace=True)
    assert report.trees == [f"consumequeue/{TOPIC}/1", f"consumequeue_ext/{TOPIC}/1"]
    of_the_broker, before = FILTERED.unpack(tmp_path / "broker", "rebuilt"), FILTERED.unpack(tmp_path / "before")
    for tree in ("consumequeue", "consumequeue_ext"):
        for queue, expected in ((f"{TOPIC}/1", of_the_broker), (f"{TOPIC}/0", before)):
            assert tree_of(store / tree / queue) == tree_of(expected / tree / queue)
    assert grave(check(store, FILTERED.broker_conf)[1]) == []


def test_a_job_that_ended_early_is_resumed(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"broker_conf": str(FILTERED.broker_conf)}
    monkeypatch.setattr(extensions, "publish", full_disk)
    with pytest.raises(NoRoomError, match="full"):
        rebuild_here(store, tmp_path / "rebuilt", **options)
    monkeypatch.undo()
    assert not (tmp_path / "rebuilt" / "consumequeue").exists()
    report = rebuild_here(store, tmp_path / "rebuilt", **options, resume=True)
    assert report.segments_staged_before == 1  # the last segment is always read again
    of_the_broker = FILTERED.unpack(tmp_path, "rebuilt")
    for tree in ("consumequeue", "consumequeue_ext"):
        assert tree_of(tmp_path / "rebuilt" / tree) == tree_of(of_the_broker / tree)


def full_disk(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


def test_without_filters_units_have_no_bit_map(store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(FILTERED.broker_conf.read_text().replace("enableCalcFilterBitMap=true", ""))
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(conf))
    shutil.copytree(store / "commitlog", tmp_path / "rebuilt" / "commitlog")
    with MessageStore(str(tmp_path / "rebuilt")) as other:
        records = records_of(other)
        for (topic, queue_id), queue in other.queues.items():
            for queue_offset in range(queue.written_end):
                unit = queue.ext.unit(queue.unit(queue_offset)[2])
                stored = records[topic, queue_id, queue_offset].store_timestamp
                assert unit is not None
                assert (unit.store_timestamp, unit.bit_map) == (stored, b"")


def test_a_segment_without_a_unit(tmp_path: Path) -> None:
    """Messages of type PREPARED are in no queue. The queue begins at 7, and 4 bytes of each file stay free."""
    writer, path = LogWriter(1 << 10), tmp_path / "store"
    for number in range(-6, 6):
        sys_flag = 4 if number < 0 else 0
        writer.append(1_700_000_000_000, b"x" * 100, b"T", 0, 7 + max(number, 0), sys_flag=sys_flag)
    writer.write(path)
    conf = tmp_path / "broker.conf"
    conf.write_text("enableConsumeQueueExt=true\nmappedFileSizeConsumeQueueExt=100\n")
    rebuild_here(path, broker_conf=str(conf))
    names = [file.name for file in sorted((path / "consumequeue_ext" / "T" / "0").iterdir())]
    assert names == [f"{0:020d}", f"{100:020d}"]
    with MessageStore(str(path)) as store:
        places = [offset_of(store.queues["T", 0].unit(7 + number)[2]) for number in range(6)]
    assert places == [0, 20, 40, 60, 100, 120]
    assert grave(check(path, conf)[1]) == []


def test_lost_messages_leave_units_without_a_message(store: Path, tmp_path: Path) -> None:
    """A broker takes zeros for the end of an extension."""
    with MessageStore(str(store)) as opened:
        places = {offset: opened.queues[TOPIC, 0].unit(offset)[:2] for offset in (20, 21, 60)}
    segment = store / "commitlog" / f"{0:020d}"
    content = bytearray(segment.read_bytes())
    for offset, size in places.values():
        content[offset : offset + size] = bytes(size)
    segment.write_bytes(content)
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(FILTERED.broker_conf), mode="permissive")
    expected = FILTERED.unpack(tmp_path, "rebuilt") / "consumequeue_ext" / TOPIC / "0"
    for name, data in tree_of(tmp_path / "rebuilt" / "consumequeue_ext" / TOPIC / "0").items():
        wanted = bytearray((expected / name).read_bytes())
        for queue_offset in places:
            if int(name) == queue_offset // 58 * 2000:
                at = queue_offset % 58 * 34
                wanted[at + 2 : at + 34] = bytes(16) + b"\0\16" + bytes(14)
        assert data == bytes(wanted)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("mappedFileSizeConsumeQueueExt=30", "34 bytes do not fit"),
        ("mappedFileSizeConsumeQueueExt=x", "not a positive number"),
        ("maxErrorRateOfBloomFilter=100", "percentage"),
        ("expectConsumerNumUseFilter=999999", "do not fit"),
    ],
)
def test_settings_with_which_no_unit_is_stored(setting: str, message: str, store: Path, tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(FILTERED.broker_conf.read_text() + f"{setting}\n")
    with pytest.raises(OptionError, match=message):
        rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(conf))
