"""The main job's queue files against those that brokers wrote, whole, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

import spark_mq
from spark_mq.errors import (
    CorruptLogError,
    EmptyStoreError,
    OptionError,
    OutputExistsError,
    StorageError,
    StoreLockedError,
    StoreNotFoundError,
    UnsafeNameError,
)
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.record import Record, encode_blank
from spark_mq.indexer import queue_runs as runs
from spark_mq.job.output_committer import OutputCommitter
from tests.support.rebuilt import rebuild_here
from tests.support.stores import RealStore, Unpack, all_stores, tree_of

rebuild = partial(rebuild_here, only="consumequeue")
ZERO_UNIT = bytes(UNIT_SIZE)
PRE_BLANK_UNIT = bytes(8) + (0x7FFFFFFF).to_bytes(4, "big") + bytes(8)


def queues_of(store: Path) -> dict[str, bytes]:
    return tree_of(store / "consumequeue")


def sound_store() -> RealStore:
    return max((s for s in all_stores() if s.name.startswith("workload")), key=lambda s: len(s.facts("msg")))


def test_the_log_is_read_once(unpacked: Unpack, tmp_path: Path) -> None:
    report = rebuild(str(unpacked(sound_store())), str(tmp_path), split_size=64 << 10)
    # What may be read twice: up to 4 KiB behind each split's end, and the 64 KiB in which a split looks for its start.
    splits = -(-report.log_bytes // (64 << 10)) + 8
    assert report.log_bytes * 0.9 < report.bytes_read
    whole = rebuild(str(unpacked(sound_store())), str(tmp_path / "whole"))
    segments = len(list((unpacked(sound_store()) / "commitlog").iterdir()))
    assert whole.bytes_read <= whole.log_bytes + segments * 4096
    assert report.bytes_read <= report.log_bytes + splits * (68 << 10)


def test_more_runs_than_the_driver_takes_give_the_same_files(
    spark: SparkSession, unpacked: Unpack, tmp_path: Path
) -> None:
    store = unpacked(sound_store())
    with (
        mock.patch.object(runs, "_MAX_RUNS_IN_DRIVER", 0),
        mock.patch.object(runs, "_SPLITS_PER_TASK", 2),
        mock.patch.object(runs.LocalRuns, "read") as read_in_driver,
    ):
        spark_mq.rebuild(spark, str(store), str(tmp_path), only="consumequeue", split_size=64 << 10)
    read_in_driver.assert_not_called()
    assert queues_of(tmp_path) == queues_of(store)


def test_progress_is_said(unpacked: Unpack, tmp_path: Path) -> None:
    lines: list[str] = []
    rebuild(str(unpacked(sound_store())), str(tmp_path), progress=lines.append)
    assert [line.split(":")[0] for line in lines if " in " in line] == ["dispatch", "write queues"]


class TestPlaces:
    """Where the output goes, and what happens to what is there."""

    @pytest.fixture
    def store(self, unpacked: Unpack, tmp_path: Path) -> Path:
        return Path(shutil.copytree(unpacked(sound_store()), tmp_path / "store"))

    def test_a_store_with_queues_is_refused(self, store: Path) -> None:
        before = tree_of(store)
        with pytest.raises(OutputExistsError, match="--replace"):
            rebuild(str(store))
        assert tree_of(store) == before

    def test_a_store_without_queues_gets_them(self, store: Path) -> None:
        expected = queues_of(store)
        shutil.rmtree(store / "consumequeue")
        rebuild(str(store), broker_conf=str(sound_store().broker_conf))
        assert queues_of(store) == expected
        assert not (store / ".spark_mq").exists()

    def test_replace_puts_the_new_tree_in_place_of_the_old(self, store: Path) -> None:
        expected = queues_of(store)
        (victim,) = [path for path in (store / "consumequeue").rglob("0*") if path.is_file()][:1]
        victim.write_bytes(bytes(victim.stat().st_size))
        before = tree_of(store / "consumequeue")
        report = rebuild(str(store), replace=True)
        assert queues_of(store) == expected
        assert report.backup is not None
        assert tree_of(Path(report.backup) / "consumequeue") == before

    def test_one_queue_is_rebuilt_and_nothing_else(self, store: Path) -> None:
        """It is lost; and then it is replaced. The checkpoint speaks of all queues, so it stays as it is."""
        name = next(iter(queues_of(store)))
        topic, queue_id, _ = name.split("/")
        before = tree_of(store)
        shutil.rmtree(store / "consumequeue" / topic / queue_id)
        lost = tree_of(store)
        report = rebuild_here(str(store), topic=topic, queue_id=int(queue_id))
        assert report.trees == [f"consumequeue/{topic}/{queue_id}"]
        assert report.queues == 1
        assert {**tree_of(store), "lock": b""} == {**before, "lock": b""}
        assert lost != before
        report = rebuild_here(str(store), topic=topic, replace=True, backup=False)
        assert report.backup is None
        assert {**tree_of(store), "lock": b""} == {**before, "lock": b""}

    def test_a_topic_that_is_not_there_is_named(self, store: Path, tmp_path: Path) -> None:
        topic = next(iter(queues_of(store))).split("/")[0]
        with pytest.raises(OptionError, match=f"neither messages nor queue files; similar topics: .*{topic}"):
            rebuild_here(str(store), str(tmp_path / "out"), topic=f"{topic}s")
        with pytest.raises(OptionError, match=f"topic {topic} has messages in queues 0"):
            rebuild_here(str(store), str(tmp_path / "out"), topic=topic, queue_id=4711)
        assert tree_of(tmp_path / "out") == {}

    def test_a_failed_replace_leaves_the_old_tree(self, store: Path) -> None:
        segment = sorted((store / "commitlog").iterdir())[0]
        data = bytearray(segment.read_bytes())
        data[4] ^= 0xFF
        segment.write_bytes(data)
        before = tree_of(store)
        with pytest.raises(CorruptLogError, match=segment.name):
            rebuild(str(store), replace=True)
        assert tree_of(store) == {**before, "lock": b"lock"}  # a broker leaves it, too

    @pytest.mark.parametrize("settings", [{"replace": True}, {"resume": True}], ids=["replace", "resume"])
    def test_a_store_on_which_a_broker_runs_is_left_alone(
        self, store: Path, tmp_path: Path, settings: dict[str, Any]
    ) -> None:
        """The lock is held for as long as files are written; another output needs none."""
        conf = str(sound_store().broker_conf)
        (store / "lock").touch()
        before = tree_of(store)
        with locked_by_another_process(store / "lock"):
            with pytest.raises(StoreLockedError, match="a broker runs on this store"):
                rebuild(str(store), broker_conf=conf, **settings)
            assert tree_of(store) == before
            rebuild(str(store), str(tmp_path / "out"), broker_conf=conf)
        publish = OutputCommitter.commit

        def publish_and_try(*arguments: Any) -> str | None:
            with pytest.raises(subprocess.CalledProcessError), locked_by_another_process(store / "lock"):
                pytest.fail("a broker could have started")
            return publish(*arguments)

        with mock.patch.object(OutputCommitter, "commit", publish_and_try):
            rebuild(str(store), broker_conf=conf, **settings)
        assert queues_of(store) == queues_of(tmp_path / "out")

    def test_an_empty_output_is_not_the_store(self, store: Path) -> None:
        shutil.rmtree(store / "consumequeue")
        before = tree_of(store)
        with pytest.raises(OptionError, match="the path is empty"):
            rebuild(str(store), "")
        assert tree_of(store) == before

    def test_an_output_that_cannot_be_written(self, store: Path, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match="is a file"):
            rebuild(str(store), str(tmp_path / "file"))
        with pytest.raises(StorageError, match=r"cannot be created: .*; give a folder"):
            rebuild(str(store), "/proc/nothing")

    def test_a_tree_set_aside_by_a_killed_job_comes_back(self, store: Path) -> None:
        expected = queues_of(store)
        (store / ".spark_mq" / "kept-1").mkdir(parents=True)
        (store / "consumequeue").rename(store / ".spark_mq" / "kept-1" / "consumequeue")
        with pytest.raises(OutputExistsError):
            rebuild(str(store))
        assert queues_of(store) == expected


@contextmanager
def locked_by_another_process(lock: Path) -> Iterator[None]:
    """A context in which a process locks the file as a broker does; raises if it cannot."""
    code = "import fcntl, sys; f = open(sys.argv[1], 'r+b'); fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)"
    command = [sys.executable, "-c", f"{code}; print('held', flush=True); sys.stdin.read()", str(lock)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "held\n":
            raise subprocess.CalledProcessError(process.wait(), command)
        yield
    finally:
        process.stdin.close()
        process.wait()


TOPIC = b"orders"
BODY = b"0123456789"


def record(base: int, queue_offset: int, topic: bytes = TOPIC) -> bytes:
    return Record(
        topic=topic,
        body=BODY,
        queue_offset=queue_offset,
        commit_log_offset=base,
        store_timestamp=1_795_000_000_000 + base,
    ).encode()


def write_store(folder: Path, queue_offsets: list[int], topic: bytes = TOPIC, segment_size: int = 1 << 16) -> Path:
    """A store of one segment with one queue, whose messages have these queue offsets."""
    log = b""
    for queue_offset in queue_offsets:
        log += record(len(log), queue_offset, topic)
    (folder / "commitlog").mkdir(parents=True)
    (folder / "commitlog" / f"{0:020d}").write_bytes(log.ljust(segment_size, b"\0"))
    return folder


def units_of(folder: Path) -> list[bytes]:
    (data,) = queues_of(folder).values()
    return [data[at : at + UNIT_SIZE] for at in range(0, len(data), UNIT_SIZE)]


class TestHostileStores:
    """Bad input gets an error or a reported range; nothing is written outside, nothing is lost."""

    @pytest.mark.parametrize("topic", [b"../../x", b"..", b"a/b", b"/etc", b"a\0b"])
    def test_a_topic_that_leads_outside_is_refused(self, tmp_path: Path, topic: bytes) -> None:
        store = write_store(tmp_path / "in" / "store", [0, 1], topic)
        before = tree_of(tmp_path)
        with pytest.raises(UnsafeNameError, match="first message at commit log offset 0"):
            rebuild(str(store), str(tmp_path / "deep" / "er" / "out"))
        after = tree_of(tmp_path)
        assert after == before

    def test_permissive_leaves_such_a_topic_out(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 1], b"../../x")
        log = store / "commitlog" / f"{0:020d}"
        data = log.read_bytes()[: 2 * len(record(0, 0, b"../../x"))]
        log.write_bytes((data + record(len(data), 0)).ljust(1 << 16, b"\0"))
        report = rebuild(str(store), str(tmp_path / "out"), mode="permissive")
        assert list(queues_of(tmp_path / "out")) == [f"orders/0/{0:020d}"]
        assert any("../../x" in note for note in report.notes)
        assert (report.topics_left_out, report.has_damage) == (["../../x"], True)

    def test_a_size_past_the_segment_stops_with_file_and_offset(self, tmp_path: Path) -> None:
        store, at = two_segments_with_a_bad_size(tmp_path)
        with pytest.raises(CorruptLogError, match=rf"{0:020d}: \d+ bytes from commit log offset {at}.*permissive"):
            rebuild(str(store), str(tmp_path / "out"))
        assert not (tmp_path / "out" / "consumequeue").exists()

    def test_permissive_reports_the_skipped_range_and_keeps_the_rest(self, tmp_path: Path) -> None:
        store, at = two_segments_with_a_bad_size(tmp_path)
        report = rebuild(str(store), str(tmp_path / "out"), mode="permissive")
        skipped, hole = report.corrupt
        assert (skipped.commit_log_offset, skipped.length, skipped.code) == (at, len(record(0, 0)), "BAD_SIZE")
        assert (hole.code, hole.file) == ("MISSING_UNITS", "orders/0")
        assert hole.describe() == "orders/0: queue offset 3 has no message"
        assert report.has_damage
        units = units_of(tmp_path / "out")
        assert units[3] == PRE_BLANK_UNIT
        assert [int.from_bytes(unit[:8], "big") for unit in units[4:6]] == [at + len(record(0, 0)), 4096]
        assert units[6] == ZERO_UNIT

    def test_a_missing_segment_stops_the_job(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 1], segment_size=4096)
        later = record(12288, 2).ljust(4096, b"\0")
        (store / "commitlog" / f"{12288:020d}").write_bytes(later)
        with pytest.raises(CorruptLogError, match="8192 bytes from commit log offset 4096: no segment"):
            rebuild(str(store), str(tmp_path / "out"))

    def test_of_two_messages_with_one_queue_offset_the_first_has_it(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 1, 1, 2])
        with pytest.raises(CorruptLogError, match="queue offset that an earlier message has"):
            rebuild(str(store), str(tmp_path / "strict"))
        report = rebuild(str(store), str(tmp_path / "out"), mode="permissive")
        assert [corrupt.describe() for corrupt in report.corrupt] == [
            "orders/0: 1 messages have a queue offset that an earlier message has, the first of them queue offset 1: "
            "they are in no queue"
        ]
        places = [int.from_bytes(unit[:8], "big") for unit in units_of(tmp_path / "out")[:3]]
        size = len(record(0, 0))
        assert places == [0, size, 3 * size]

    @pytest.mark.parametrize("queue_offset", [-1, 1 << 60])
    def test_an_impossible_queue_offset_is_reported(self, tmp_path: Path, queue_offset: int) -> None:
        store = write_store(tmp_path / "store", [0, queue_offset])
        report = rebuild(str(store), str(tmp_path / "out"), mode="permissive")
        assert [corrupt.code for corrupt in report.corrupt] == ["BAD_QUEUE_OFFSET"]
        assert len(queues_of(tmp_path / "out")) == 1

    def test_far_queue_offsets_do_not_fill_the_disk(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 2, 4, 1 << 50])
        report = rebuild(str(store), str(tmp_path / "out"), mode="permissive")
        assert len(queues_of(tmp_path / "out")) == 2
        last = (1 << 50) - 1
        (hole,) = report.corrupt
        assert hole.describe() == (f"orders/0: queue offsets 1, 3, 5 to {last} have no message ({last - 2} in all)")

    def test_a_stale_tail_with_a_record_inside_a_body_at_a_split(self, tmp_path: Path) -> None:
        """A body that carries a whole record with the right own offset, where a split begins."""
        fake = record(4096, 7)
        head = Record(topic=TOPIC, body=b"", queue_offset=0, store_timestamp=1).size
        padding = bytes(4096 - (head - len(TOPIC) - 1 - 2))
        outer = Record(topic=TOPIC, body=padding + fake + bytes(100), queue_offset=0, store_timestamp=1).encode()
        assert outer.index(fake) == 4096
        log = outer + record(len(outer), 1)
        log += encode_blank(16384 - len(log))
        store = tmp_path / "store"
        (store / "commitlog").mkdir(parents=True)
        (store / "commitlog" / f"{0:020d}").write_bytes(log)
        (store / "commitlog" / f"{16384:020d}").write_bytes(record(16384, 2).ljust(16384, b"\0"))
        report = rebuild(str(store), str(tmp_path / "out"), split_size=4096)
        assert report.messages == 3
        places = [int.from_bytes(unit[:8], "big") for unit in units_of(tmp_path / "out")[:4]]
        assert places == [0, len(outer), 16384, 0]

    def test_an_empty_commit_log(self, tmp_path: Path) -> None:
        (tmp_path / "commitlog").mkdir()
        with pytest.raises(EmptyStoreError, match="has no record"):
            rebuild(str(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == ["commitlog"]

    def test_a_path_that_is_no_store(self, tmp_path: Path) -> None:
        with pytest.raises(StoreNotFoundError, match="does not exist"):
            rebuild(str(tmp_path / "nothing"))

    def test_a_mode_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="--mode"):
            rebuild(str(tmp_path), mode="lenient")


def two_segments_with_a_bad_size(folder: Path) -> tuple[Path, int]:
    """Five messages in one segment, the fourth with a size past its end; a sixth in the next segment."""
    size = len(record(0, 0))
    log = bytearray(b"".join(record(index * size, index) for index in range(5)))
    at = 3 * size
    log[at : at + 4] = (1 << 20).to_bytes(4, "big")
    store = folder / "store"
    (store / "commitlog").mkdir(parents=True)
    (store / "commitlog" / f"{0:020d}").write_bytes(bytes(log) + encode_blank(4096 - len(log)))
    (store / "commitlog" / f"{4096:020d}").write_bytes(record(4096, 5).ljust(4096, b"\0"))
    return store, at


class TestQueuesWithoutLiveMessages:
    """Their next offset is known only by their files, or by consumers."""

    def test_without_files_consumers_offsets_name_what_is_lost(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 1])
        (store / "config").mkdir()
        offsets = '{"offsetTable":{"orders@group":{0:2,3:15},"gone@group":{1:7}}}'
        (store / "config" / "consumerOffset.json").write_text(offsets)
        report = rebuild(str(store), str(tmp_path / "out"))
        assert [line.split(":")[0] for line in report.lost_queues] == ["gone/1", "orders/3"]

    def test_files_of_another_size_are_not_carried_over(self, tmp_path: Path) -> None:
        store = write_store(tmp_path / "store", [0, 1])
        queue = store / "consumequeue" / "gone" / "0"
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(bytes(400))
        conf = tmp_path / "broker.conf"
        conf.write_text("mappedFileSizeConsumeQueue=2000\n")
        report = rebuild(str(store), str(tmp_path / "out"), broker_conf=str(conf))
        assert "gone/0" in report.lost_queues[0]
        assert [len(data) for data in queues_of(tmp_path / "out").values()] == [2000]


def test_a_stray_file_stops_the_job_or_is_reported(unpacked: Unpack, tmp_path: Path) -> None:
    """A far name would otherwise be the end of the log."""
    store = sound_store()
    shutil.copytree(unpacked(store), tmp_path / "store")
    first = min((tmp_path / "store" / "commitlog").iterdir())
    stray = first.with_name(f"{1 << 50:020d}")
    shutil.copy(first, stray)
    with pytest.raises(CorruptLogError, match=f"{stray.name}: the file is not a segment .* --mode permissive"):
        rebuild(str(tmp_path / "store"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    conf = str(store.broker_conf)
    report = rebuild(str(tmp_path / "store"), str(tmp_path / "out"), mode="permissive", broker_conf=conf)
    assert [corrupt.file for corrupt in report.corrupt] == [str(stray)]
    assert queues_of(tmp_path / "out") == queues_of(unpacked(store))
