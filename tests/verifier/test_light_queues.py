"""Light message queues are checked, made, repaired, restored and read as any queue: judged by a broker's own files."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.io.location import Location
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.store.config.config_file import load_consumer_offsets
from spark_mq.store.message_store import MessageStore
from tests.support.light_queues import fail_dispatch
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, Unpack
from tests.support.verified import check, grave

STORE = RealStore("fLmq533", OWN_STORES / "forms")
LIGHT = ("%LMQ%a", "%LMQ%b", "%LMQ%c")
TRIES = 500 if SOAKS else 40
NAME = f"0/{0:020d}"


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


def codes(store: Path, conf: Path | None = STORE.broker_conf) -> set[tuple[str, str | None]]:
    return {(finding.code, finding.topic) for finding in grave(check(store, conf)[1])}


def light_files(store: Path) -> dict[str, bytes]:
    return {name: (store / "consumequeue" / name / NAME).read_bytes() for name in LIGHT}


def test_a_brokers_light_queues_are_sound(store: Path) -> None:
    report, findings = check(store, STORE.broker_conf)
    assert grave(findings) == []
    assert report.units == sum(fact["max"] for fact in STORE.facts("queue"))
    assert not [finding for finding in findings if (finding.topic or "").startswith("%LMQ%")]


@pytest.mark.parametrize("conf", [STORE.broker_conf, None])
def test_a_lost_light_queue_is_found_and_made_again(store: Path, conf: Path | None) -> None:
    before = light_files(store)
    shutil.rmtree(store / "consumequeue/%LMQ%b")
    assert codes(store, conf) == {("QUEUE_MISSING", "%LMQ%b")}
    repair_here(store, STORE.broker_conf, apply=True)
    assert light_files(store) == before
    assert codes(store, conf) == set()


def test_the_queue_of_a_lite_topic_can_be_deleted(store: Path) -> None:
    """A broker of 5.5 deletes lite topics: their messages stay in the log."""
    (store / "consumequeue/%LMQ%b").rename(store / "consumequeue/%LMQ%$")
    for segment in (store / "commitlog").iterdir():
        segment.write_bytes(segment.read_bytes().replace(b"%LMQ%b", b"%LMQ%$"))
    assert codes(store) == set()
    shutil.rmtree(store / "consumequeue/%LMQ%$")
    _, findings = check(store, STORE.broker_conf)
    assert {(one.code, one.severity) for one in findings if one.topic == "%LMQ%$"} == {("QUEUE_DELETED", "note")}


@pytest.mark.parametrize("is_last", [True, False])
def test_a_message_that_no_light_queue_gets_is_named(
    is_last: bool, store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "LIGHT_QUEUE_LEFT_OUT" not in {finding.code for finding in check(store, STORE.broker_conf)[1]}
    at = fail_dispatch(store, STORE, is_last=is_last)
    _, findings = check(store, STORE.broker_conf)
    (found,) = [finding for finding in findings if finding.code == "LIGHT_QUEUE_LEFT_OUT"]
    assert (found.severity, found.commit_log_offset) == ("note", at)
    (fact,) = [fact for fact in STORE.facts("msg") if fact["offset"] == at]
    assert main(["life", str(store), fact["msgId"]]) == 0
    name = (found.expected or "").removeprefix("a unit in ")
    assert f"consumers of {name} never get it" in capsys.readouterr().out


def test_every_damaged_unit_is_named(store: Path) -> None:
    for seed in range(TRIES):
        chance = random.Random(seed)
        file = store / "consumequeue" / chance.choice(LIGHT) / NAME
        before = file.read_bytes()
        data = bytearray(before)
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        file.write_bytes(data)
        path = str(file.relative_to(store))
        differ = {at for at in range(0, len(data), 20) if data[at : at + 20] != before[at : at + 20]}
        found = grave(check(store, STORE.broker_conf)[1])
        assert {(one.file, one.position) for one in found} == {(path, at) for at in differ}, seed
        file.write_bytes(before)


def test_light_queues_in_rocksdb(store: Path, tmp_path: Path) -> None:
    """`RocksDBConsumeQueueStore.dispatchLMQ`@5.3.3: the units of the files, as entries of the database."""
    rebuild_here(
        store, tmp_path / "rocks", broker_conf=str(STORE.broker_conf), only="consumequeue", queue_store="rocksdb"
    )
    shutil.rmtree(store / "consumequeue")
    shutil.move(tmp_path / "rocks/consumequeue", store / "consumequeue")
    for conf in (STORE.broker_conf, None):
        report, findings = check(store, conf)
        assert [one for one in grave(findings) if one.topic] == []
        assert report.units == sum(fact["max"] for fact in STORE.facts("queue"))
    rebuild_here(store, tmp_path / "back", only="consumequeue", queue_store="files")
    assert {path.name for path in (tmp_path / "back/consumequeue").glob("%LMQ%*")} == set(LIGHT)


@pytest.mark.parametrize("renumber", [False, True])
def test_a_restore_makes_light_queues(store: Path, tmp_path: Path, renumber: bool) -> None:
    report = restore_here(store, tmp_path / "restored", STORE.broker_conf, renumber=renumber)
    assert not [note for note in report.notes if "INNER_MULTI_DISPATCH" in note]
    if not renumber:
        assert light_files(tmp_path / "restored") == light_files(store)
    assert codes(tmp_path / "restored") == set()


def test_nothing_tells_that_a_broker_makes_light_queues(store: Path, tmp_path: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    rebuild_here(store, tmp_path / "without", only="consumequeue")
    assert not list((tmp_path / "without/consumequeue").glob("%LMQ%*"))
    rebuild_here(store, tmp_path / "with", only="consumequeue", broker_conf=str(STORE.broker_conf))
    assert {path.name for path in (tmp_path / "with/consumequeue").glob("%LMQ%*")} == set(LIGHT)


def test_offsets_of_consumers_are_in_the_file_of_light_queues(store: Path) -> None:
    """`LmqConsumerOffsetManager.decode`@5.3.3: with enableLmq, those of all groups."""
    content = {"offsetTable": {"b1_Main@readers": {"1": 5}}, "lmqOffsetTable": {"%LMQ%a@%LMQ%sensors": 70}}
    (store / "config/lmqConsumerOffset.json").write_text(json.dumps(content))
    found = load_consumer_offsets(Location.resolve(str(store)))
    assert [(one.consumer_group, one.topic, one.queue_id, one.offset) for one in found] == [
        ("%LMQ%sensors", "%LMQ%a", 0, 70),
        ("readers", "b1_Main", 1, 5),
    ]
    content["lmqOffsetTable"] = {"%LMQ%a@%LMQ%sensors": 79}
    (store / "config/lmqConsumerOffset.json").write_text(json.dumps(content))
    assert codes(store) == {("OFFSET_PAST_END", "%LMQ%a")}
    repair_here(store, STORE.broker_conf, apply=True, offsets=True)
    assert codes(store) == set()
    assert {one.topic: one.offset for one in load_consumer_offsets(Location.resolve(str(store)))} == {
        "%LMQ%a": next(fact["max"] for fact in STORE.facts("queue") if fact["topic"] == "%LMQ%a"),
        "b1_Main": 5,
    }


def test_the_progress_of_a_group_of_a_light_queue_is_known(store: Path) -> None:
    """The unread messages are those that the Java store has after the offset."""
    (end,) = [fact["max"] for fact in STORE.facts("queue") if fact["topic"] == "%LMQ%a"]
    content = {"offsetTable": {}, "lmqOffsetTable": {"%LMQ%a@%LMQ%sensors": 70}}
    (store / "config/lmqConsumerOffset.json").write_text(json.dumps(content))
    with MessageStore(str(store)) as opened:
        (row,) = consumer_progress_rows(opened, topic="%LMQ%a").to_pylist()
    assert (row["consumer_group"], row["state"], row["lag"]) == ("%LMQ%sensors", "LAGGING", end - 70)
    assert row["queue_count"] == 1
