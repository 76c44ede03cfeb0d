"""The deletion: dry by default, under the store's lock, and with clear errors."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import spark_mq
from spark_mq.errors import OptionError, StorageError, StoreLockedError, StoreNotFoundError, UnsupportedStoreError
from spark_mq.expirer import PlannedFile
from spark_mq.io.location import Location
from spark_mq.store.store_lock import LOCK, store_lock
from tests.support.stores import WORKLOAD, Unpack, files_of


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))


def test_a_dry_run_changes_nothing(store: Path) -> None:
    before = files_of(store)
    report = spark_mq.expire(str(store), min_offset=300_000)
    assert (report.dry_run, report.new_log_start) == (True, 262_144)
    assert report.files
    assert files_of(store) == before


def test_the_files_of_the_plan_are_deleted_and_no_other(store: Path) -> None:
    before = files_of(store)
    planned = spark_mq.expire(str(store), min_offset=300_000).files
    deleted: list[str] = []

    def note(file: PlannedFile, number: int, total: int) -> None:
        deleted.append(file.path)
        assert not (store / file.path).exists()
        assert (number, total) == (len(deleted), len(planned))

    report = spark_mq.expire(str(store), min_offset=300_000, apply=True, progress=note)
    assert deleted == [file.path for file in planned] == [file.path for file in report.files]
    assert report.freed_bytes == sum(len(before[path]) for path in deleted)
    assert (store / LOCK).read_bytes() == b"lock"
    assert files_of(store) == {path: data for path, data in before.items() if path not in deleted}
    assert spark_mq.expire(str(store), min_offset=300_000).files == ()


def test_unread_messages_are_not_deleted_unless_that_is_said(store: Path) -> None:
    """The counts are those of the facts, for each group and queue."""
    offsets = {"OrderEvents@behind": {"0": 3, "1": 0}, "SequenceDemo@slow": {"0": 10}, "OrderEvents@done": {"0": 62}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    before = files_of(store)
    expected = {
        (name.split("@")[1], name.split("@")[0], int(queue_id)): sum(
            (fact["topic"], fact["queueId"]) == (name.split("@")[0], int(queue_id))
            and fact["queueOffset"] >= offset
            and fact["offset"] < 262_144
            for fact in WORKLOAD.facts("msg")
        )
        for name, queues in offsets.items()
        for queue_id, offset in queues.items()
    }
    report = spark_mq.expire(str(store), min_offset=300_000)
    assert report.unread is not None
    found = {(one.consumer_group, one.topic, one.queue_id): one.count for one in report.unread}
    assert found == {queue: count for queue, count in expected.items() if count}
    behind = sum(count for (group, *_), count in expected.items() if group == "behind")
    assert f"consumer group behind loses {behind:,} unread messages" in report.to_text()
    with pytest.raises(OptionError, match=r"nothing was deleted: consumer group .* --even-if-unread"):
        spark_mq.expire(str(store), min_offset=300_000, apply=True)
    assert files_of(store) == before
    assert spark_mq.expire(str(store), min_offset=300_000, apply=True, even_if_unread=True).files == report.files


def test_offsets_that_cannot_be_read_are_no_permission(store: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (store / "config" / name).write_text("{broken")
    with pytest.raises(OptionError, match="it is not known which groups lose unread messages"):
        spark_mq.expire(str(store), min_offset=300_000, apply=True)
    assert spark_mq.expire(str(store), min_offset=300_000, apply=True, even_if_unread=True).files


def test_messages_that_are_kept_are_served(store: Path) -> None:
    """Every message after the new start, by its queue and by its keys."""
    spark_mq.expire(str(store), min_offset=300_000, apply=True)
    kept = [fact for fact in WORKLOAD.facts("msg") if fact["offset"] >= 262_144]
    with spark_mq.MessageStore(str(store), broker_conf=str(WORKLOAD.broker_conf)) as opened:
        assert opened.get_min_phy_offset() == 262_144
        for fact in kept:
            if fact["sysFlag"] & 0xC in (0, 8):
                rows = opened.get_message(fact["topic"], fact["queueId"], fact["queueOffset"], 1)
                assert rows["commit_log_offset"].to_pylist() == [fact["offset"]]
        keyed = next(fact for fact in kept if fact["keys"] and fact["sysFlag"] & 0xC in (0, 8))
        found = opened.query_message(keyed["topic"], keyed["keys"].split()[0])
        assert keyed["offset"] in found["commit_log_offset"].to_pylist()


def test_a_store_that_a_broker_has(store: Path) -> None:
    before = files_of(store)
    with store_lock(Location.resolve(str(store))):
        assert spark_mq.expire(str(store), min_offset=300_000).is_running is True
        with pytest.raises(StoreLockedError, match=r"is locked: a broker runs .* Stop the broker, or wait"):
            spark_mq.expire(str(store), min_offset=300_000, apply=True)
    assert files_of(store) == before


@pytest.mark.parametrize("number", [1, 3, 8])
def test_a_file_that_cannot_be_deleted(number: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was deleted before stays deleted, in the broker's order; the same call deletes the rest."""
    files = [file.path for file in spark_mq.expire(str(store), min_offset=300_000).files]
    unlink, before = os.unlink, files_of(store)

    def failing(path: str) -> None:
        if path.endswith(files[number - 1]):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        unlink(path)

    with monkeypatch.context() as patch:
        patch.setattr("os.unlink", failing)
        said = rf"{files[number - 1]} cannot be deleted: Read-only file system; {number - 1} of {len(files)} files"
        with pytest.raises(StorageError, match=said):
            spark_mq.expire(str(store), min_offset=300_000, apply=True)
    assert set(before) - set(files_of(store)) == set(files[: number - 1])
    spark_mq.expire(str(store), min_offset=300_000, apply=True)
    assert set(before) - set(files_of(store)) == set(files)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "exactly one"),
        ({"min_offset": 1, "reserved_hours": 1}, "exactly one"),
        ({"min_offset": -1}, "not a commit log offset"),
        ({"min_offset": 1, "at": 0}, "--at has no effect"),
        ({"min_offset": 1 << 62}, "after the end of the log"),
        ({"reserved_hours": -1}, "give hours from 0"),
        ({"reserved_hours": 1, "at": 4_102_444_800_000, "apply": True}, "in the future"),
        ({"reserved_hours": 1, "at": 5}, "too small for epoch milliseconds"),
    ],
)
def test_arguments_without_sense(arguments: dict[str, Any], said: str, store: Path) -> None:
    before = files_of(store)
    with pytest.raises(OptionError, match=said):
        spark_mq.expire(str(store), **arguments)
    assert files_of(store) == before


@pytest.mark.parametrize("apply", [False, True])
def test_a_link_in_the_place_of_a_segment(apply: bool, store: Path, tmp_path: Path) -> None:
    """As in a folder `commitlog/` of links to the segments of several folders of `storePathCommitLog`."""
    segment = min((store / "commitlog").iterdir())
    segment.rename(tmp_path / segment.name)
    segment.symlink_to(tmp_path / segment.name)
    before = files_of(store)
    with pytest.raises(UnsupportedStoreError, match=f"{segment.name} is a link: its deletion would keep the file"):
        spark_mq.expire(str(store), min_offset=300_000, apply=apply, even_if_unread=True)
    assert files_of(store) == before


def test_a_path_that_is_not_a_store_gets_no_lock(tmp_path: Path) -> None:
    with pytest.raises(StoreNotFoundError):
        spark_mq.expire(str(tmp_path), min_offset=0, apply=True)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_local() -> None:
    with pytest.raises(UnsupportedStoreError, match="not local"):
        spark_mq.expire("s3://bucket/store", min_offset=0)
