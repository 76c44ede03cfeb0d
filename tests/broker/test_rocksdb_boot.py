"""Stores with RocksDB and real brokers: what a boot does to queues is what was said, and a rebuilt index answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.expirer import expire
from spark_mq.store.boot import Boot
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from tests.broker import harness
from tests.broker.make_stores import NO_TIMERS, SMALL_SETTINGS, log_records
from tests.support.boots import rows
from tests.support.rebuilt import rebuild_here
from tests.support.rocksdb import next_offsets
from tests.support.soak import cases

LACKING = harness.missing()
pytestmark = [pytest.mark.broker, pytest.mark.skipif(LACKING is not None, reason=LACKING or "")]

SETTINGS = {**SMALL_SETTINGS, **NO_TIMERS, "storeType": "defaultRocksDB"}
TOPIC = "SequenceDemo"


def make(version: str, store: Path) -> Path:
    """A store whose broker was stopped cleanly: three queues of 60 messages, and one of 5 messages among them."""
    with harness.Broker(version, store, SETTINGS) as broker:
        harness.send(broker, "sequence", seed=5, count=150, body=200)
        harness.send(broker, "last-queue", seed=8, count=5)
        harness.send(broker, "sequence", seed=5, count=30, first=150, body=200)
    return store


def predicted(store: Path, version: str) -> Boot:
    recovery = next_recovery(str(store), version, str(conf_of(store)))
    (boot,) = store_state(str(store), version, str(conf_of(store)), with_forced=False).boots
    assert recovery == boot
    return recovery


def conf_of(store: Path) -> Path:
    file = store.parent / "broker.conf"
    file.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()), encoding="utf-8")
    return file


def boot(version: str, store: Path) -> dict[tuple[str, int], int]:
    """The next queue offsets of all queues after a start and a clean stop."""
    with harness.Broker(version, store, SETTINGS):
        pass
    return next_offsets(store / "consumequeue")


def cut(store: Path, offset: int) -> None:
    """End the log at an offset: the rest of the segment is zeros, and later segments are gone."""
    for segment in sorted((store / "commitlog").iterdir()):
        data = segment.read_bytes()
        kept = max(min(offset - int(segment.name), len(data)), 0)
        if kept:
            segment.write_bytes(data[:kept] + bytes(len(data) - kept))
        else:
            segment.unlink()


@pytest.mark.parametrize("version", cases(["5.5.0"], ["5.3.3", "5.5.0"]))
def test_a_boot_does_to_queues_in_rocksdb_what_was_said(version: str, tmp_path: Path) -> None:
    store = make(version, tmp_path / "store")
    base = harness.copy_store(store, tmp_path / "base")
    with harness.Broker(version, store, SETTINGS) as broker:
        harness.send(broker, "sequence", seed=5, count=60, first=180, body=200)
        broker.kill()
    killed = predicted(store, version)
    # RocksDB lost all units since the last stop.
    assert sum(row["count"] for row in rows(killed, "complete")) == 60
    assert killed.is_harmless
    assert (
        boot(version, store)
        == killed.max_offsets
        == {(TOPIC, 0): 80, (TOPIC, 1): 80, (TOPIC, 2): 80, ("LastQueue", 0): 5}
    )

    if version == "5.5.0":
        expired = harness.copy_store(base, tmp_path / "expired")
        assert expire(str(expired), min_offset=65_536, apply=True, even_if_unread=True).new_log_start == 65_536
        harness.check_served(expired, conf_of(expired), index=True, version=version)
    offsets = [offset for offset, _ in log_records(base)]
    few = [(42, False)] if version == "5.3.3" else [(152, True)]
    for number, has_abort in cases(few, [(n, abort) for n in (3, 42, 43, 100, 152, 170) for abort in (False, True)]):
        copy = harness.copy_store(base, tmp_path / f"cut-{number}-{has_abort}")
        cut(copy, offsets[number])
        if has_abort:
            (copy / "abort").touch()
        recovery = predicted(copy, version)
        assert recovery.log_end == offsets[number]
        if (number, has_abort) == (42, False):
            # `binarySearchInCQ` meets the first message after the end at once: the queue keeps one of 14 messages.
            assert (recovery.max_offsets[TOPIC, 0], recovery and recovery.lost) == (1, 13)
        assert boot(version, copy) == recovery.max_offsets, (number, has_abort)


def test_a_broker_finds_messages_in_the_index_that_was_made(tmp_path: Path) -> None:
    """It looks only into RocksDB, by keys and by unique keys, and goes on with new messages."""
    settings = {**SMALL_SETTINGS, **NO_TIMERS, "indexRocksDBEnable": "true", "indexFileReadEnable": "false"}
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    with harness.Broker("5.5.0", store, settings) as broker:
        harness.send(broker, "sequence", seed=5, count=60)
    report = rebuild_here(store, broker_conf=str(conf), replace=True)
    assert report.index_records > 100
    harness.check_served(store, conf, index=True, version="5.5.0")
