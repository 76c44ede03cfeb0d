"""What a boot does to batch consume queues, against a plain model of `BatchConsumeQueue`@5.3.3 (the same in 5.5.0).

`tests/broker/test_light_and_batch.py` has what a real broker did.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import UnsupportedStoreError
from spark_mq.store.boot import Boot
from spark_mq.store.recovery import next_recovery
from spark_mq.store.store_state import store_state
from tests.support.boots import rows
from tests.support.rebuilt import rebuild_here
from tests.support.rocksdb import write_database
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
CONF = str(STORE.broker_conf)
TREE, TOPIC = "batchconsumequeue", "b1bcq"
UNIT = struct.Struct(">qiqqqhii")
IN_FILE = 10
"""Units in a file of the store whose files are small."""


class Unit(NamedTuple):
    offset: int
    next_queue_offset: int


@pytest.fixture(scope="module")
def small_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store with four files in each batch consume queue."""
    folder = tmp_path_factory.mktemp("small")
    store = STORE.unpack(folder)
    conf = folder / "broker.conf"
    conf.write_text(STORE.broker_conf.read_text() + f"mapperFileSizeBatchConsumeQueue={IN_FILE * UNIT.size}\n")
    rebuild_here(store, folder / "rebuilt", broker_conf=str(conf))
    shutil.rmtree(store / TREE)
    shutil.move(folder / "rebuilt" / TREE, store / TREE)
    return store


def conf_of(store: Path, settings: str = "") -> str:
    conf = store.parent / "broker.conf"
    size = f"mapperFileSizeBatchConsumeQueue={IN_FILE * UNIT.size}\n"
    conf.write_text(STORE.broker_conf.read_text() + size + settings)
    return str(conf)


def predicted(store: Path, version: str, conf: str) -> Boot:
    recovery = next_recovery(str(store), version, conf)
    (boot,) = store_state(str(store), version, conf, with_forced=False).boots
    assert recovery == boot
    return recovery


@pytest.mark.parametrize("version", ["5.1.4", "5.3.1", "5.3.3", "5.4.0", "5.5.0"])
def test_a_sound_store_keeps_its_queues(version: str, unpacked: Unpack) -> None:
    recovery = predicted(unpacked(STORE), version, CONF)
    assert recovery.is_harmless
    settings = store_state(str(unpacked(STORE)), version, CONF, with_forced=False).settings
    (batch_files,) = (setting for setting in settings if setting.name == "batch queue files")
    assert batch_files.value == "13,800,000 bytes each"
    assert recovery.log_end == STORE.facts("store")[0]["maxPhyOffset"]
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in STORE.facts("queue") if fact["max"]}
    for fact in STORE.facts("msg"):  # the Java store was asked for other queues only
        if fact["topic"] == TOPIC:
            ends[TOPIC, fact["queueId"]] = unit_of(fact).next_queue_offset
    assert recovery.max_offsets == ends


def is_unit(fact: Fact) -> bool:
    return (fact["sysFlag"] & 0xC) in (0, 8)


def unit_of(fact: Fact) -> Unit:
    properties = fact["properties"]
    first = int(properties.get("INNER_BASE", fact["queueOffset"]))
    return Unit(fact["offset"], first + int(properties.get("INNER_NUM", 1)))


def change_units(store: Path, queue_id: int, first: int, stop: int) -> None:
    """Write zeros over the units with these numbers."""
    for number in range(first, stop):
        base = number // IN_FILE * IN_FILE * UNIT.size
        file = store / TREE / TOPIC / str(queue_id) / f"{base:020d}"
        with file.open("r+b") as opened:
            opened.seek(number % IN_FILE * UNIT.size)
            opened.write(bytes(UNIT.size))


def cut_log(store: Path, offset: int) -> None:
    """Write zeros over the log from an offset on; segments after it disappear."""
    for segment in sorted((store / "commitlog").iterdir()):
        data, base = segment.read_bytes(), int(segment.name)
        if base > offset:
            segment.unlink()
        else:
            kept = data[: offset - base]
            segment.write_bytes(kept + bytes(len(data) - len(kept)))


USUAL = [(seed, version) for seed in range(6) for version in ("5.3.1", "5.3.3", "5.5.0")]


@pytest.mark.parametrize(
    ("seed", "version"),
    cases(USUAL, [(seed, version) for seed in range(200) for version in ("5.1.4", "5.3.1", "5.3.3", "5.4.0", "5.5.0")]),
)
def test_damaged_queues_end_where_the_rules_say(seed: int, version: str, small_files: Path, tmp_path: Path) -> None:
    """Units are lost at the end of a queue or in it, the log can lose its end, and the broker can have been killed."""
    choice, store = random.Random(seed), Path(shutil.copytree(small_files, tmp_path / "store"))
    records = sorted((fact for fact in STORE.facts("msg") if is_unit(fact)), key=lambda fact: fact["offset"])
    units: dict[int, list[Unit]] = defaultdict(list)
    for fact in records:
        if fact["topic"] == TOPIC:
            units[fact["queueId"]].append(unit_of(fact))
    after_hole: dict[int, list[Unit]] = {}
    for queue_id, of_queue in units.items():
        count = choice.choice((0, 0, 1, 5, len(of_queue) // 2, len(of_queue)))
        first = len(of_queue) - count
        stop = choice.choice((len(of_queue), min(first + 1, len(of_queue))))
        change_units(store, queue_id, first, stop)
        # A boot looks for the first unit that is not valid in the last three of the four files only.
        if first == 3 * IN_FILE:
            after_hole[queue_id] = of_queue[stop:]
        del of_queue[first : stop if stop < IN_FILE else None]
    log_end = STORE.facts("store")[0]["maxPhyOffset"]
    if choice.random() < 0.5:
        log_end = choice.choice(records)["offset"]
        cut_log(store, log_end)
    is_crash, has_others = choice.random() < 0.5, choice.random() < 0.5
    if is_crash:
        (store / "abort").touch()
    if not has_others:  # then a record of a batch consume queue is the last one that a queue has
        shutil.rmtree(store / "consumequeue")
    recovery = predicted(store, version, conf_of(store))
    assert recovery.is_full
    assert recovery.log_end == log_end
    others = [fact["offset"] + fact["size"] for fact in records if fact["topic"] != TOPIC and has_others]
    highest = max([*others, *(of_queue[-1].offset for of_queue in units.values() if of_queue)], default=-1)
    (start,) = rows(recovery, "start")
    since = start["commit_log_offset"] if is_crash else log_end if version < "5.3.2" else highest + 1
    since = max(since, start["commit_log_offset"])
    dispatched = [fact for fact in records if fact["topic"] == TOPIC and since <= fact["offset"] < log_end]
    for fact in dispatched:
        of_queue = units[fact["queueId"]]
        if not of_queue or fact["offset"] > of_queue[-1].offset:
            of_queue.append(unit_of(fact))
            after_hole.pop(fact["queueId"], None)
    if highest >= log_end:
        for queue_id, of_queue in units.items():
            # The first unit of a file is kept, whatever it contains, and so are all files before it.
            rest = [Unit(0, 0), *after_hole[queue_id]] if queue_id in after_hole else []
            kept = of_queue if rest else [unit for unit in of_queue if unit.offset < log_end]
            units[queue_id] = [*kept, *(unit for unit in rest if unit.offset < log_end)]
    ends = {queue_id: of_queue[-1].next_queue_offset if of_queue else 0 for queue_id, of_queue in units.items()}
    assert {queue_id: recovery.max_offsets.get((TOPIC, queue_id), 0) for queue_id in units} == ends
    live = {fact["offset"] for fact in records if fact["topic"] == TOPIC and fact["offset"] < log_end}
    served = {unit for number, of_queue in units.items() for unit in of_queue if unit.next_queue_offset <= ends[number]}
    lost = live - {unit.offset for unit in served}
    outcomes = [queue for queue in recovery.queues if queue.topic == TOPIC]
    assert sum(queue.lost for queue in outcomes) == len(lost)
    assert not any(queue.shifted for queue in outcomes)


def test_the_record_right_after_the_last_one_of_a_batch_queue_is_dispatched(small_files: Path, tmp_path: Path) -> None:
    """`BatchConsumeQueue.getMaxPhysicOffset`@5.3.3 is the offset of the record, not the one after it."""
    store = Path(shutil.copytree(small_files, tmp_path / "store"))
    shutil.rmtree(store / "consumequeue")
    records = sorted((fact for fact in STORE.facts("msg")), key=lambda fact: fact["offset"])
    pairs = pairwise(records)
    *_, (last, _) = (pair for pair in pairs if {fact["topic"] for fact in pair} == {TOPIC})
    for queue_id in (0, 1):
        of_queue = [fact["offset"] for fact in records if (fact["topic"], fact["queueId"]) == (TOPIC, queue_id)]
        change_units(store, queue_id, sum(offset <= last["offset"] for offset in of_queue), len(of_queue))
    recovery = predicted(store, "5.3.3", conf_of(store))
    assert recovery.is_full
    outcomes = {queue.queue_id: queue for queue in recovery.queues if queue.topic == TOPIC}
    assert sum(queue.completed for queue in outcomes.values()) > 0
    assert not any(queue.lost for queue in outcomes.values())


def test_a_topic_with_queues_of_both_kinds_keeps_the_broker_from_starting(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ConsumeQueueStore.queueTypeShouldBe`@5.3.3."""
    store = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    (store / "consumequeue" / TOPIC / "0").mkdir(parents=True)
    (obstacle,) = next_recovery(str(store), "5.3.3", CONF).obstacles
    assert obstacle.startswith(f"consumequeue/{TOPIC}/0 is a consume queue, but config/topics.json says queue.type")
    shutil.rmtree(store / "consumequeue" / TOPIC)
    topics = json.loads((store / "config/topics.json").read_text())
    del topics["topicConfigTable"][TOPIC]["attributes"]
    (store / "config/topics.json").write_text(json.dumps(topics))
    obstacles = next_recovery(str(store), "5.3.3", CONF).obstacles
    assert [one.split(" is ")[0] for one in obstacles] == [f"{TREE}/{TOPIC}/0", f"{TREE}/{TOPIC}/1"]
    assert main(["check", str(store), "--broker-conf", CONF]) == 1
    assert "does not say queue.type=BatchCQ" in capsys.readouterr().out


def test_what_is_not_predicted_is_said(unpacked: Unpack, tmp_path: Path) -> None:
    store = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    for version, settings, said in (
        ("4.9.7", "", "from 5.0.0 on"),
        ("5.3.3", "recheckReputOffsetFromCq=true\n", "is not predicted with recheckReputOffsetFromCq=true"),
    ):
        with pytest.raises(UnsupportedStoreError, match=said):
            next_recovery(str(store), version, conf_of(store, settings))
    file = store / TREE / TOPIC / "0" / f"{0:020d}"
    assert f"{file.relative_to(store)} has 13,800,000 bytes, not 460" in "".join(
        next_recovery(str(store), "5.3.3", conf_of(store)).obstacles
    )
    shutil.rmtree(store / "consumequeue")
    write_database(store / "consumequeue", {"default": {}, "offset": {}})
    with pytest.raises(UnsupportedStoreError, match="beside topics with queue"):
        next_recovery(str(store), "5.3.3")
