"""A real broker's boot does to a store what `spark-mq state` and `spark-mq recover` said before it.

Few boots only: one that loses messages, and one of each version that cuts the log. `tests/store/test_boot.py` and
`tests/store/test_recovery.py` have what other boots did.
"""

from __future__ import annotations

import random
import re
import shutil
import struct
from collections import Counter
from pathlib import Path

import pytest

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import COMMIT_LOG_OFFSET_AT, MAGIC_V1, QUEUE_OFFSET_AT
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from tests.broker import harness
from tests.support import dledger
from tests.support.boots import body_at, entries_of, flip, rows, some_message
from tests.support.soak import cases
from tests.support.stores import STORES

pytestmark = pytest.mark.broker

NAME = "lagging-533"
_UNIT = struct.Struct(">qiq")


def unit_offsets(store: Path) -> list[int]:
    """The commit log offsets of the units of the queue that lags."""
    data = (store / "consumequeue" / "LastQueue" / "0" / f"{0:020d}").read_bytes()
    return [offset for offset, size, _ in _UNIT.iter_unpack(data) if size > 0]


def test_a_clean_boot_of_5_3_3_loses_the_message_that_is_named(tmp_path: Path) -> None:
    store, conf = STORES[NAME].unpack(tmp_path), STORES[NAME].broker_conf
    settings = dict(line.split("=", 1) for line in conf.read_text().splitlines())
    before = store_state(str(store), "5.3.3", str(conf))
    (boot,) = before.boots
    assert before.lacking is not None
    lacking = [message.commit_log_offset for message in before.lacking.messages]
    recovery = next_recovery(str(store), "5.3.3", str(conf))
    had = unit_offsets(store)
    with harness.Broker("5.3.3", store, settings):
        pass
    assert unit_offsets(store) == had + lacking[1:]
    assert (boot.lost, boot.shifted, boot.queues[0].first_lost_offset) == (1, 2, lacking[0])
    assert recovery == boot
    assert recovery.max_offsets["LastQueue", 0] == len(unit_offsets(store))
    assert [(row["commit_log_offset"], row["count"]) for row in rows(recovery, "lose")] == [(lacking[0], 1)]
    assert [(row["commit_log_offset"], row["count"]) for row in rows(recovery, "shift")] == [(lacking[1], 2)]


def trees(store: Path) -> set[str]:
    """The files of the log, the queues and the index."""
    return {
        str(file.relative_to(store))
        for name in ("commitlog", "consumequeue", "index")
        for file in (store / name).rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("name", "version"),
    cases(
        [("killed-49x", "4.9.7"), ("killed-533", "5.5.0")],
        [("killed-533", "5.3.3"), ("killed-49x", "4.9.7"), ("killed-533", "5.5.0")],
    ),
)
def test_a_boot_after_a_crash_cuts_the_log_as_was_said(name: str, version: str, tmp_path: Path) -> None:
    real, conf = STORES[name], STORES[name].broker_conf
    store = STORES[name].unpack(tmp_path)
    last = max(int(file.name) for file in (store / "commitlog").iterdir() if any(file.read_bytes()))
    offset = some_message(real, last + 20_000)
    flip(*body_at(real, store, offset))
    recovery = next_recovery(str(store), version, str(conf))
    assert recovery.log_end == offset
    before, kept = trees(store), Counter(entries_of(real, store))
    with harness.Broker(version, store, conf):
        pass
    assert before - trees(store) == {row["file"] for row in rows(recovery, "delete")}
    (doubled,) = rows(recovery, "double")
    at = doubled["commit_log_offset"]
    # A broker of 5.4 or later also puts the entry of the tags, which the index does not have.
    tagged = version == "5.5.0" and any(fact["offset"] == at and fact["tags"] for fact in real.facts("msg"))
    assert Counter(entries_of(real, store))[at] - kept[at] == doubled["count"] + tagged
    facts = harness.facts(store, conf, version)
    assert facts["store"][0]["maxPhyOffset"] == recovery.log_end
    assert len(facts["msg"]) == sum(fact["offset"] < offset for fact in real.facts("msg"))
    maxima = {(fact["topic"], fact["queueId"]): fact["max"] for fact in facts["queue"] if fact["max"]}
    assert maxima == {queue: end for queue, end in recovery.max_offsets.items() if end}


def damage(store: Path, chance: random.Random) -> None:
    """Flip bits of records, overwrite fields and units, remove or add queue files; sizes stay, so the broker starts."""
    logs, queue_files = sorted((store / "commitlog").iterdir()), sorted((store / "consumequeue").glob("*/*/*"))
    for kind in chance.choices(["bits", "field", "unit", "file"], k=chance.randint(1, 3)):
        file = chance.choice(logs if kind in ("bits", "field") else queue_files)
        data = bytearray(file.read_bytes())
        used = max(len(data.rstrip(b"\0")), _UNIT.size)
        if kind == "bits":
            for _ in range(3):
                data[chance.randrange(used)] ^= 1 << chance.randrange(8)
        elif kind == "field":
            starts = [found.start() for found in re.finditer(re.escape(MAGIC_V1.to_bytes(4, "big", signed=True)), data)]
            at = chance.choice(starts or [4]) - 4 + chance.choice([0, 4, 8, QUEUE_OFFSET_AT, COMMIT_LOG_OFFSET_AT])
            data[at : at + 4] = struct.pack(">i", chance.choice([0, -1, 1, 77]))
        elif kind == "unit":
            at = chance.randrange(used // _UNIT.size) * _UNIT.size
            unit = _UNIT.pack(chance.randrange(400_000), chance.choice([100, 0]), 0)
            data[at : at + _UNIT.size] = chance.choice([unit, bytes(_UNIT.size)])
        elif chance.random() < 0.5:
            last = max(file.parent.iterdir())
            (file.parent / f"{int(last.name) + last.stat().st_size:020d}").write_bytes(bytes(last.stat().st_size))
        elif len(queue_files) > 1:
            queue_files.remove(file)
            file.unlink()
            continue
        file.write_bytes(data)
    for name, is_there in (("abort", chance.random() < 0.5), ("checkpoint", chance.random() < 0.7)):
        if not is_there:
            (store / name).unlink(missing_ok=True)
        elif name == "abort":
            (store / name).touch()


@pytest.mark.parametrize("seed", cases([1, 2], range(40)))
def test_the_java_store_does_what_is_said_of_a_damaged_copy(seed: int, tmp_path: Path) -> None:
    """The ends of the log and of all queues, after the Java message store was loaded and started."""
    chance, version = random.Random(seed), ("5.3.3", "4.9.7")[seed % 2]
    name = chance.choice(["killed-533", "lagging-533", "stale-49x", "stale-533", "killed-49x"])
    store, conf = STORES[name].unpack(tmp_path), STORES[name].broker_conf
    damage(store, chance)
    recovery = next_recovery(str(store), version, str(conf))
    if recovery.obstacles:
        pytest.skip("4.9 would wait forever")
    try:
        facts = harness.facts(store, conf, version)
    except harness.HarnessError as error:
        if "MessageDecoder.decode" not in str(error):
            raise
        pytest.skip("the program that prints facts cannot decode a record that the broker accepts")
    assert facts["store"][0]["maxPhyOffset"] == recovery.log_end
    maxima = {(fact["topic"], fact["queueId"]): fact["max"] for fact in facts["queue"] if fact["max"]}
    assert maxima == {queue: end for queue, end in recovery.max_offsets.items() if end}


@pytest.mark.parametrize(
    ("version", "is_clean"),
    cases(
        [("5.3.3", False), ("4.9.7", False), ("5.5.0", True)],
        [("5.3.3", False), ("5.3.3", True), ("4.9.7", False), ("5.4.0", True), ("5.5.0", True), ("5.5.0", False)],
    ),
)
def test_a_lost_topic_stays_as_lost_as_was_said(version: str, is_clean: bool, tmp_path: Path) -> None:
    """The folder of a topic is gone: the messages before the part that is dispatched again get no unit."""
    name = "workload-49x" if version == "4.9.7" else "workload-533"
    store, conf = STORES[name].unpack(tmp_path), STORES[name].broker_conf
    shutil.rmtree(store / "consumequeue" / "PaymentLog")
    if not is_clean:
        (store / "abort").touch()
    (state,) = store_state(str(store), version, str(conf)).boots
    recovery = next_recovery(str(store), version, str(conf))
    assert recovery == state
    with harness.Broker(version, store, conf):
        pass
    total = sum(fact["topic"] == "PaymentLog" for fact in STORES[name].facts("msg"))
    units = sum(
        0 < size != PRE_BLANK_SIZE
        for file in (store / "consumequeue" / "PaymentLog").glob("*/*")
        for _, size, _ in _UNIT.iter_unpack(file.read_bytes())
    )
    assert state.lost == total - units > 0


def test_a_boot_of_dledger_after_a_crash_cuts_the_queues_as_predicted(tmp_path: Path) -> None:
    """The broker's own answers, because units that it cuts off stay in the files."""
    path, settings = (
        dledger.STORE.unpack(tmp_path),
        dict(line.split("=", 1) for line in dledger.CONF.read_text().splitlines() if "=" in line),
    )
    (path / "abort").touch()
    entry = dledger.heads(path)[-20]
    dledger.overwrite(path, entry[0] + 148, b"\xff\xfe\x00\x01")  # the CRC of the body is wrong then
    recovery = next_recovery(str(path), "5.3.3", str(dledger.CONF))
    assert recovery.is_full
    with harness.Broker("5.3.3", path, settings) as broker:
        found = harness.mqadmin(broker, ["topicStatus", "-t", "b1_Main"])
    ends = {int(line.split()[1]): int(line.split()[3]) for line in found.splitlines() if line.startswith("broker")}
    assert (
        ends == {queue_id: recovery.max_offsets["b1_Main", queue_id] for queue_id in range(3)} == {0: 50, 1: 49, 2: 50}
    )
    assert {(one.topic, one.queue_id): one.lost for one in recovery.queues if one.topic == "b1_Main"} == {
        ("b1_Main", 1): 1
    }
