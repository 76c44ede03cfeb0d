"""Messages appended to a stopped store: the bytes that a broker makes of the whole log. Only one test starts Spark.

A real store is cut at a record. Then the rest of its log is appended, and must give what the whole log gives.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_mq.indexer.queue_writer as queue_writer
import spark_mq.indexer.stage as stage
from spark_mq.errors import CorruptLogError, NoRoomError
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.job.tasks import spark_tasks
from spark_mq.restorer.append_target import AppendTarget
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.log.commit_log import SegmentSource
from tests.support.appended import TOPICS, append_here, segments_of
from tests.support.index_stores import puts_of
from tests.support.rebuilt import rebuild_here
from tests.support.store_history import cut_log, identities, record_ends, settings_of
from tests.support.stores import OWN_STORES, RealStore, Unpack, index_of, tree_of
from tests.support.verified import check, grave

WORKLOAD_4, WORKLOAD, CRC = (RealStore(name, OWN_STORES) for name in ("workload-49x", "workload-533", "crc-533"))
TAGGED = RealStore("workload-550", OWN_STORES / "versions")
UNITS_PER_FILE = 100
INDEX_ENTRIES = 499
"""As the settings of these stores say: in a queue file, and in an index file."""


def middle_of_a_segment(store: RealStore) -> int:
    return record_ends(store)[200]


def before_a_blank(store: RealStore) -> int:
    return next(at for at, after in zip(record_ends(store), record_ends(store)[1:], strict=False) if is_end(at, after))


def end_of_a_segment(store: RealStore) -> int:
    return before_a_blank(store) // SEGMENT_SIZE * SEGMENT_SIZE + SEGMENT_SIZE


def full_queue_file(store: RealStore) -> int:
    facts = sorted(store.facts("msg"), key=lambda fact: int(fact["offset"]))
    full = next(fact for fact in facts if fact["queueOffset"] == UNITS_PER_FILE - 1 and not fact["sysFlag"] & 0xC)
    return int(full["offset"] + full["size"])


def full_index_file(store: RealStore) -> int:
    entries = 0
    for fact in sorted(store.facts("msg"), key=lambda fact: int(fact["offset"])):
        entries += len(list(puts_of(fact)))
        if entries and entries % INDEX_ENTRIES == 0:
            return int(fact["offset"] + fact["size"])
    raise AssertionError("no index file of this store ends with the last key of a message")


SEGMENT_SIZE = 1 << 17


def is_end(at: int, after: int) -> bool:
    return at // SEGMENT_SIZE != after // SEGMENT_SIZE and after % SEGMENT_SIZE != 0


CASES = {
    "nothing": (WORKLOAD, lambda store: 0),
    "first record": (WORKLOAD, lambda store: record_ends(store)[0]),
    "middle of a segment": (WORKLOAD, middle_of_a_segment),
    "before a blank": (WORKLOAD, before_a_blank),
    "end of a segment": (WORKLOAD, end_of_a_segment),
    "full queue file": (WORKLOAD, full_queue_file),
    "full index file": (WORKLOAD, full_index_file),
    "last record but one": (WORKLOAD, lambda store: record_ends(store)[-2]),
    "full index file of 4.9": (WORKLOAD_4, full_index_file),
    "full index file with CRCs": (CRC, full_index_file),
    "nothing of 5.5": (TAGGED, lambda store: 0),
    "middle of a segment of 5.5": (TAGGED, middle_of_a_segment),
    "last record but one of 5.5": (TAGGED, lambda store: record_ends(store)[-2]),
}


@pytest.fixture(scope="module")
def whole(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Gives a store whose queues and index were rebuilt from its whole log."""
    made: dict[RealStore, Path] = {}

    def rebuilt(store: RealStore) -> Path:
        if store not in made:
            made[store] = cut(unpacked(store), tmp_path_factory.mktemp(str(store)) / "whole", 1 << 62, store)
        return made[store]

    return rebuilt


def cut(folder: Path, target: Path, end: int, store: RealStore) -> Path:
    """The store as it was when its log ended at `end`; consumers had read nothing."""
    cut_log(folder, target, end)
    for file in (target / "config").glob("consumerOffset.json*"):
        file.unlink()
    if end:
        rebuild_here(target, **settings_of(store))
    return target


def files_of(store: Path) -> dict[str, bytes]:
    """All files except the lock; of the checkpoint without the mark of an append."""
    files = {name: data for name, data in tree_of(store).items() if name != "lock"}
    return {name: data[:40] if name == CHECKPOINT else data for name, data in files.items()}


def queues_of(store: Path) -> dict[str, bytes]:
    return {name: data for name, data in tree_of(store).items() if name.startswith("consumequeue/")}


@contextmanager
def reads_of_the_log(patch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The commit log offsets at which segments are read, after the search for the end of the store."""
    read, offsets = SegmentSource.read, []

    def seen(source: SegmentSource, position: int, length: int) -> Any:
        if "/.spark_mq/append/" in source.segment.location.path:
            offsets.append(source.segment.base + position)
        elif offsets:
            raise AssertionError(f"{source.segment.location} is read")
        return read(source, position, length)

    with patch.context() as context:
        context.setattr(SegmentSource, "read", seen)
        yield offsets


@pytest.mark.parametrize(("store", "moment"), CASES.values(), ids=list(CASES))
def test_the_rest_of_a_log(
    store: RealStore,
    moment: Callable[[RealStore], int],
    unpacked: Unpack,
    whole: Unpack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end, log_end = moment(store), record_ends(store)[-1]
    begun = cut(unpacked(store), tmp_path / "store", end, store)
    before, messages = identities(begun), sum(at > end for at in record_ends(store))
    with reads_of_the_log(monkeypatch) as offsets:
        extension = append_here(begun, segments_of(unpacked(store)), log_end, store.broker_conf)
    assert extension is not None
    assert extension.staged.messages == messages
    assert min(offsets) == end
    assert files_of(begun) == files_of(whole(store))
    assert queues_of(begun) == queues_of(unpacked(store))
    assert index_of(begun) == index_of(unpacked(store))
    after, of_whole = identities(begun), identities(whole(store))
    assert {name for name, one in before.items() if after[name][0] == one[0]} == {
        name for name, one in before.items() if after[name][2] == one[2]
    }
    assert all(after[name][1] == of_whole[name][1] for name in after if name.startswith("consumequeue/"))


def test_where_a_store_ends(unpacked: Unpack) -> None:
    for store in (WORKLOAD, WORKLOAD_4, CRC):
        target = AppendTarget(Location.resolve(str(unpacked(store))), BrokerConf.of(str(store.broker_conf)))
        last = max(store.facts("msg"), key=lambda fact: int(fact["offset"]))
        assert target.log_end == last["offset"] + last["size"]
        assert target.last_store_timestamp == last["storeTimestamp"]
        queues = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
        assert target.next_offsets == {name: end for name, end in queues.items() if end}
        assert target.last_segment is not None
        assert (target.last_segment.base, target.segment_size) == (target.log_end & -SEGMENT_SIZE, SEGMENT_SIZE)
        assert target.queue_file_size == UNITS_PER_FILE * 20
        assert target.stale_queues == ()


def test_splits_that_do_not_fit_together_are_read_again(
    unpacked: Unpack, whole: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = middle_of_a_segment(CRC)
    begun = cut(unpacked(CRC), tmp_path / "store", end, CRC)
    monkeypatch.setattr(stage, "misaligned_segments", lambda rows, last_segment: sorted({row.segment for row in rows}))
    with reads_of_the_log(monkeypatch) as offsets:
        append_here(begun, segments_of(unpacked(CRC)), record_ends(CRC)[-1], CRC.broker_conf)
    assert min(offsets) == end
    assert files_of(begun) == files_of(whole(CRC))


def test_tasks_of_spark(spark: SparkSession, unpacked: Unpack, whole: Unpack, tmp_path: Path) -> None:
    begun = cut(unpacked(CRC), tmp_path / "store", middle_of_a_segment(CRC), CRC)
    with spark_tasks(spark) as tasks:
        append_here(begun, segments_of(unpacked(CRC)), record_ends(CRC)[-1], CRC.broker_conf, tasks=tasks)
    assert files_of(begun) == files_of(whole(CRC))


def test_a_full_disk_changes_nothing(unpacked: Unpack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = cut(unpacked(CRC), tmp_path / "store", middle_of_a_segment(CRC), CRC)
    before = identities(begun)

    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(queue_writer, "publish", full)
    with pytest.raises(NoRoomError, match="nothing was appended, the store is as it was"):
        append_here(begun, segments_of(unpacked(CRC)), record_ends(CRC)[-1], CRC.broker_conf)
    assert identities(begun) == before


def test_damaged_records_change_nothing(unpacked: Unpack, tmp_path: Path) -> None:
    begun = cut(unpacked(CRC), tmp_path / "store", middle_of_a_segment(CRC), CRC)
    before = identities(begun)
    segments = segments_of(unpacked(CRC))
    damaged = record_ends(CRC)[-2] % SEGMENT_SIZE
    segments[SEGMENT_SIZE] = segments[SEGMENT_SIZE][: damaged + 4] + b"?" + segments[SEGMENT_SIZE][damaged + 5 :]
    with pytest.raises(CorruptLogError):
        append_here(begun, segments, record_ends(CRC)[-1], CRC.broker_conf)
    assert identities(begun) == before


def test_config_files_keep_their_previous_content_as_brokers_do(
    unpacked: Unpack, whole: Unpack, tmp_path: Path
) -> None:
    begun = cut(unpacked(CRC), tmp_path / "store", record_ends(CRC)[-2], CRC)
    previous = (begun / TOPICS).read_bytes() + b"\n"
    (begun / TOPICS).write_bytes(previous)
    append_here(begun, segments_of(unpacked(CRC)), record_ends(CRC)[-1], CRC.broker_conf, b'{"new":1}')
    assert (begun / TOPICS).read_bytes() == b'{"new":1}'
    assert (begun / f"{TOPICS}.bak").read_bytes() == previous


@pytest.mark.parametrize("name", ["stale-533", "stale-49x"])
def test_a_stale_tail(name: str, unpacked: Unpack, tmp_path: Path) -> None:
    """New records overwrite old ones, and old units lead to none of the new records, also in queues that get none."""
    store = RealStore(name, OWN_STORES)
    path = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    target = AppendTarget(Location.resolve(str(path)), BrokerConf.of(str(store.broker_conf)))
    queue = ("SequenceDemo", 1)
    assert [(folder.topic, folder.queue_id) for folder, _ in target.stale_queues] == [
        ("SequenceDemo", number) for number in range(3)
    ]
    assert target.last_segment is not None
    base, size = target.last_segment.base, target.segment_size
    assert any(segments_of(path)[base][target.log_end - base :])
    data = bytearray(segments_of(path)[base][: target.log_end - base])
    for number in range(4):
        data += Record(
            queue[0].encode(),
            queue_id=queue[1],
            queue_offset=target.next_offsets[queue] + number,
            commit_log_offset=base + len(data),
            body=b"new" * 300,  # they overwrite old records of all queues
            properties=b"UNIQ_KEY\1%d\2" % number,
            store_timestamp=target.last_store_timestamp,
        ).encode()
    log_end = base + len(data)
    append_here(path, {base: bytes(data).ljust(size, b"\0")}, log_end, store.broker_conf)
    assert segments_of(path)[base] == bytes(data).ljust(size, b"\0")
    again = cut_log(path, tmp_path / "again", 1 << 62)
    rebuild_here(again, **settings_of(store))
    assert queues_of(path) == queues_of(again)
    assert index_of(path) == index_of(again)
    assert grave(check(path, store.broker_conf)[1]) == []
