"""Nobody says that nothing is lost where a message is lost: damaged stores, after clean stops and crashes, by version.

The judge is `spark_mq/testing/plain_queue.py`, a plain model of a boot, message by message.
"""

from __future__ import annotations

import random
import shutil
import struct
from functools import cache
from pathlib import Path

import pytest

from spark_mq.cli.check import check_store
from spark_mq.cli.recover import recovery_verdict
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from spark_mq.store.verdict import verdict as state_verdict
from spark_mq.testing.plain_log import Log
from spark_mq.testing.plain_queue import OracleMessage, messages_of, never_consumed, offsets_of
from spark_mq.verifier.quick import quick_check
from tests.support.random_damages import QUEUE_AND_LOG_ENDS
from tests.support.soak import SOAKS
from tests.support.stores import STORES, RealStore, Unpack

VERSIONS = ("4.9.0", "4.9.7", "5.0.0", "5.1.0", "5.3.1", "5.3.3", "5.4.0", "5.5.1")
NAMES = ("workload-533", "workload-49x", "killed-533", "killed-49x", "crc-533", "lagging-533")


@cache
def known(store: RealStore, folder: Path) -> list[OracleMessage]:
    return messages_of(store, folder)


@pytest.mark.parametrize("seed", range(400 if SOAKS else 32))
def test_nobody_denies_a_loss(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    chance = random.Random(seed)
    store, version = STORES[NAMES[seed % len(NAMES)]], chance.choice(VERSIONS)
    sound, folder = unpacked(store), tmp_path / "store"
    messages, conf = known(store, sound), str(store.broker_conf)
    shutil.copytree(sound, folder)
    for damage in chance.choices(QUEUE_AND_LOG_ENDS, k=chance.randint(1, 3)):
        if any((folder / "consumequeue").glob("*/*")):
            damage(folder, chance)
    if chance.random() < 0.5:
        (folder / "abort").touch()
    else:
        (folder / "abort").unlink(missing_ok=True)
    physic, logics, *_, logics_offset = struct.unpack(">qqqqqq", (folder / "checkpoint").read_bytes()[:48])
    times = {"physic": physic, "logics": logics, "logics_offset": logics_offset}
    numbers = tuple(map(int, version.split(".")))
    lost = never_consumed(messages, folder, numbers, times)  # type: ignore[arg-type]
    # Of a message that neither the log nor a queue has, nothing is left that could be counted.
    log, units = Log(folder), {offset for places in offsets_of(folder).values() for offset in places.values()}
    whole = {message.offset for message in messages if log.read(message.offset, message.size) == message.data}
    lost &= whole | units

    boot = next_recovery(str(folder), version, conf)
    assert boot.is_full, boot.obstacles
    said = boot.lost + boot.shifted + boot.cut_messages + boot.gone + boot.deleted
    assert said >= len(lost), (seed, version, said, len(lost))
    assert said == len(lost) or boot.gone, (seed, version, said, len(lost))  # the index can show more
    assert not (boot.is_harmless and lost)
    full = store_state(str(folder), version, conf, full=True)
    assert list(full.boots) == [boot]
    quick = store_state(str(folder), version, conf, full=False)
    report, _ = quick_check(str(folder), BrokerConf.of(conf))
    texts = [recovery_verdict(full), state_verdict(quick)]
    if lost:
        assert not [text for text in texts if "loses nothing" in " ".join(text) and "not known" not in " ".join(text)]
        if not report.is_sound:
            assert "sound" not in report.verdict.replace("not sound", "")
    (answer,) = check_store(str(folder), version, conf)
    assert not (answer.answer == "yes" and (lost or not boot.is_harmless))
    assert answer.answer != "no"
    (seen,) = quick.boots
    assert not seen.is_full
    assert seen.lost + seen.shifted <= boot.lost + boot.shifted + boot.cut_messages + boot.deleted
    for forced in full.forced_boots:  # what a file `abort` would do
        (folder / "abort").touch()
        if forced.loses_nothing:
            assert not never_consumed(messages, folder, numbers, times) & (whole | units)  # type: ignore[arg-type]


def test_a_lost_topic_is_not_harmless(unpacked: Unpack, tmp_path: Path) -> None:
    """The folder of one topic is gone, whose last message is long before the end of the log."""
    store = STORES["workload-533"]
    folder = tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    shutil.rmtree(folder / "consumequeue" / "PaymentLog")
    count = sum(fact["topic"] == "PaymentLog" for fact in store.facts("msg"))
    conf = str(store.broker_conf)
    for is_clean in (True, False):
        (folder / "abort").unlink(missing_ok=True) if is_clean else (folder / "abort").touch()
        for version in ("5.0.0", "5.3.1", "5.3.3", "5.4.0", "5.5.1"):
            (boot,) = store_state(str(folder), version, conf).boots
            assert (boot.lost, boot.is_full) == (count, True)


def test_a_log_that_is_older_than_its_queues_is_not_harmless(unpacked: Unpack, tmp_path: Path) -> None:
    store = STORES["workload-533"]
    folder = tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    first = max(fact["offset"] for fact in store.facts("msg") if fact["offset"] <= 530_400)
    file = folder / "commitlog" / f"{524288:020d}"
    data = file.read_bytes()
    file.write_bytes(data[: first + 50 - 524288] + bytes(len(data) - (first + 50 - 524288)))
    gone = sum(fact["offset"] >= first and fact["sysFlag"] & 0xC in (0, 8) for fact in store.facts("msg"))
    for version in VERSIONS:
        for is_clean in (True, False):
            (folder / "abort").unlink(missing_ok=True) if is_clean else (folder / "abort").touch()
            recovery = next_recovery(str(folder), version, str(store.broker_conf))
            assert recovery.is_full
            assert recovery.gone == gone
            assert not recovery.is_harmless
            state = store_state(str(folder), version, str(store.broker_conf), full=False)
            assert state.gone.count == gone
            assert f"at least {gone} messages" in " ".join(state_verdict(state))
    _, found = quick_check(str(folder), BrokerConf.of(str(store.broker_conf)))
    codes = set(found["code"].to_pylist())
    assert "QUEUE_UNIT_STALE" in codes
    assert not codes & {"QUEUE_LAGS", "QUEUE_LAGS_CLEAN"}
