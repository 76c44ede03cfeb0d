"""What a boot does to light message queues: a plain model; `tests/broker/test_light_and_batch.py` has real boots."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.errors import MissingPackageError, UnsupportedStoreError
from spark_mq.store.boot import Boot, QueueOutcome
from spark_mq.store.lacking_messages import find_lacking_messages
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from tests.support.light_queues import dispatched, fail_dispatch, without_units
from tests.support.rocksdb import lose_units
from tests.support.stores import OWN_STORES, RealStore

STORE = RealStore("fLmq533", OWN_STORES / "forms")
LITE = RealStore("fLite550", OWN_STORES / "forms")
NAME = "%LMQ%b"
OFFSETS = dispatched(STORE)[NAME]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = STORE.unpack(tmp_path)
    (path / "abort").unlink(missing_ok=True)
    return path


def recovered(store: Path, version: str = "5.3.3") -> Boot:
    return next_recovery(str(store), version, str(STORE.broker_conf))


def outcomes(recovery: Boot) -> list[QueueOutcome]:
    assert recovery.is_full
    return list(recovery.queues)


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_sound_store_keeps_all_units(is_killed: bool, store: Path) -> None:
    if is_killed:
        (store / "abort").touch()
    recovery = recovered(store)
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in STORE.facts("queue") if fact["max"]}
    assert recovery.max_offsets == ends
    assert recovery.is_full
    assert recovery.loses_no_message
    (check,) = [row for row in recovery.rows.to_pylist() if row["action"] == "check"]
    assert check["count"] == len([fact for fact in STORE.facts("msg") if fact["offset"] >= check["commit_log_offset"]])


def test_an_unclean_boot_dispatches_to_light_queues(store: Path) -> None:
    """The checkpoint says where it begins: after all of these messages, or without one at the start of the log."""
    (store / "abort").touch()
    without_units(store, NAME, len(OFFSETS) - 5)
    assert outcomes(recovered(store)) == [QueueOutcome(NAME, 0, 0, 0, 5, OFFSETS[-5])]
    (store / "checkpoint").unlink()
    recovery = recovered(store)
    assert outcomes(recovery) == [QueueOutcome(NAME, 0, 5, 0, 0, None)]
    assert recovery.max_offsets[NAME, 0] == len(OFFSETS)
    first, _ = [row for row in recovery.rows.to_pylist() if row["action"] in ("dispatch", "ignore")]
    assert first["count"] == len(STORE.facts("msg"))


def test_a_clean_boot_leaves_a_light_queue_that_lags(store: Path) -> None:
    """The queues of the messages themselves do not lag, so nothing is dispatched."""
    without_units(store, NAME, len(OFFSETS) - 3)
    recovery = recovered(store)
    assert outcomes(recovery) == [QueueOutcome(NAME, 0, 0, 0, 3, OFFSETS[-3])]
    assert recovery.max_offsets[NAME, 0] == len(OFFSETS) - 3
    with MessageStore(str(store), broker_conf=str(STORE.broker_conf)) as opened:
        found = find_lacking_messages(opened)
    assert [(one.topic, one.commit_log_offset) for one in found.messages] == [(NAME, at) for at in OFFSETS[-3:]]


def test_a_broker_does_not_start_if_a_dispatch_fails(store: Path, tmp_path: Path) -> None:
    """`ConsumeQueue.multiDispatchLmqQueue`@5.3.3; a clean start does not dispatch the message."""
    at = fail_dispatch(store, STORE)
    assert not recovered(store).obstacles
    (store / "abort").touch()
    assert not recovered(store).obstacles  # it begins after all of these messages
    (store / "checkpoint").unlink()
    (obstacle,) = recovered(store).obstacles
    assert f"commit log offset {at:,} fails" in obstacle
    for full in (True, False):
        (said,) = store_state(str(store), "5.3.3", str(STORE.broker_conf), full).obstacles
        assert said.endswith(obstacle)
    conf = tmp_path / "broker.conf"
    conf.write_text(STORE.broker_conf.read_text().replace("enableMultiDispatch=true", "enableMultiDispatch=false"))
    without_units(store, NAME, len(OFFSETS) - 5)
    recovery = next_recovery(str(store), "5.3.3", str(conf))
    assert recovery.obstacles == ()
    assert [(queue.topic, queue.lost) for queue in recovery.queues] == [(NAME, 4)]  # the fifth is that message
    (quick,) = store_state(str(store), "5.3.3", str(conf), full=False).boots
    assert (quick.obstacles, quick.queues) == ((), recovery.queues)


def test_expired_lite_topics_are_no_loss(tmp_path: Path) -> None:
    """Those in files."""
    store = LITE.unpack(tmp_path)
    for folder in (store / "consumequeue").iterdir():
        if folder.is_file():
            folder.unlink()
    conf = tmp_path / "broker.conf"
    settings = [line for line in LITE.broker_conf.read_text().splitlines() if "rocksdb" not in line.lower()]
    conf.write_text("\n".join(settings))
    recovery = next_recovery(str(store), "5.5.0", str(conf))
    assert recovery.is_full
    assert (recovery.lost, recovery.deleted) == (0, 0)


@pytest.mark.parametrize("is_killed", [False, True])
def test_light_queues_in_a_database_that_lags(is_killed: bool, tmp_path: Path) -> None:
    """A clean boot dispatches what is after the offset that the database names, and not the message at it."""
    store, conf = LITE.unpack(tmp_path), str(LITE.broker_conf)
    facts = [fact for fact in LITE.facts("msg") if "INNER_MULTI_DISPATCH" in fact["properties"]]
    at = facts[40]["offset"]
    of_sensors = {fact["offset"] for fact in facts if fact["topic"] == "Sensors" and fact["offset"] >= at}
    assert lose_units(store, at) >= 2 * len(of_sensors)
    if is_killed:
        (store / "abort").touch()
    exact = next_recovery(str(store), "5.5.0", conf)
    quick = store_state(str(store), "5.5.0", conf, full=False, with_forced=False).boots[0]
    for boot in (exact, quick):
        found = [queue for queue in boot.queues if "$Sensors$" in queue.topic]
        assert sum(queue.completed + queue.lost for queue in found) == len(of_sensors)
        lost = [(queue.lost, queue.first_lost_offset) for queue in found if queue.lost]
        assert lost == ([] if is_killed else [(1, at)])
    ends = {fact["topic"]: fact["max"] for fact in LITE.facts("lite") if "$Sensors$" in fact["topic"]}
    assert {name: exact.max_offsets[name, 0] for name in ends} == ends


def test_boots_before_5_5_of_light_queues_in_a_database_are_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedStoreError, match=r"which brokers have from 5\.5\.0 on"):
        next_recovery(str(LITE.unpack(tmp_path)), "5.4.0", str(LITE.broker_conf))


def test_light_queues_in_a_database_that_cannot_be_read_are_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_mq.store.queue.queue_database.can_read_rocksdb", lambda: False)
    monkeypatch.delattr("rocksdict.Rdict")
    path, conf = str(LITE.unpack(tmp_path)), str(LITE.broker_conf)
    with pytest.raises(MissingPackageError, match=r"spark-mq\[rocksdb\]"):
        store_state(path, broker_conf=conf)
