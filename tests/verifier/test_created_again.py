"""A topic that was deleted and created again on a 5.3.3 broker: its queues have the newer messages, and are sound.

`gone` had 15 messages in each of its two queues, was deleted, and then got 3 and 4. `stays` has 15.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.store.message_store import MessageStore
from spark_mq.store.metadata_tables import queues
from spark_mq.store.store_state import store_state
from spark_mq.testing import LogWriter
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of
from tests.support.verified import check, grave

STORE = RealStore("fAgain533", OWN_STORES / "forms")
TREE, NOW = "consumequeue", 1_700_000_000_000
SIZES = f"mappedFileSizeCommitLog={1 << 16}\nmappedFileSizeConsumeQueue=2000\n"


def test_it_is_sound_and_may_be_started(unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    folder, conf = unpacked(STORE), STORE.broker_conf
    findings = check(folder, conf)[1]
    assert {(one.code, one.topic, one.queue_id) for one in findings} == {
        ("QUEUE_DELETED", "gone", 0),
        ("QUEUE_DELETED", "gone", 1),
    }
    assert main(["check", str(folder), "--broker-conf", str(conf), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["answers"]
    assert (answer["losses"], answer["next"]) == ([], "start the broker")
    assert answer["facts"][0]["text"].endswith("have 30 messages without a unit")


def test_a_rebuild_and_a_restore_make_the_queues_that_it_has(unpacked: Unpack, tmp_path: Path) -> None:
    """A consumer goes on where it was, and does not get the messages of the deleted topic again."""
    folder, conf = unpacked(STORE), STORE.broker_conf
    rebuild_here(folder, tmp_path / "rebuilt", only=TREE, broker_conf=str(conf))
    report = restore_here(folder, tmp_path / "restored", conf)
    for made in ("rebuilt", "restored"):
        assert tree_of(tmp_path / made / TREE) == tree_of(folder / TREE)
    assert not [note for note in report.notes if "earlier message" in note]


def test_a_repair_does_not_bring_the_older_messages_back(unpacked: Unpack, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    file = folder / TREE / "gone/0/00000000000000000000"
    units = file.read_bytes()
    file.write_bytes(units[:28] + b"\7" + units[29:])
    assert [one.code for one in grave(check(folder, STORE.broker_conf)[1])] == ["QUEUE_UNIT_WRONG"]
    assert repair_here(folder, STORE.broker_conf, apply=True).is_complete
    assert file.read_bytes() == units


def test_offsets_of_a_deleted_topic_are_not_past_an_end(unpacked: Unpack, tmp_path: Path) -> None:
    """A broker of 4.9 keeps them (`AdminBrokerProcessor.deleteTopic`@4.9.7), also when its messages have expired."""
    folder = Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))
    file = folder / "config/consumerOffset.json"
    file.write_text(json.dumps({"offsetTable": {"never@gg": {"0": 15}}}))
    assert grave(check(folder, STORE.broker_conf)[1]) == []
    topics = folder / "config/topics.json"
    topics.write_text(topics.read_text().replace('"stays"', '"never"'))
    codes = {(one.code, one.topic) for one in grave(check(folder, STORE.broker_conf)[1])}
    assert codes == {("OFFSET_PAST_END", "never")}


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_queue_without_messages_since_then_is_deleted_too(is_deleted: bool, tmp_path: Path) -> None:
    """`g` had messages in two queues, and got one in queue 0 since. A deletion leaves no unit in queue 2."""
    writer, messages = LogWriter(1 << 16), []
    order = [0, 0, 0, 1, 1, 0] if is_deleted else [2, 0, 0, 0, 1, 1, 0]
    for number, queue_id in enumerate(order):
        is_newest = number == len(order) - 1
        offset = writer.append(NOW + number, b"body", b"g", queue_id, queue_offset=0 if is_newest else None)
        messages.append((queue_id, offset, writer.next_offset - offset))
    writer.write(tmp_path)
    for queue_id, offset, size in messages[-1:] if is_deleted else (messages[0], messages[-1]):
        folder = tmp_path / TREE / "g" / str(queue_id)
        folder.mkdir(parents=True)
        unit = struct.pack(">qiq", offset, size, ord("a"))
        (folder / f"{0:020d}").write_bytes(unit + bytes(2000 - len(unit)))
    (tmp_path / "config").mkdir()
    (tmp_path / "config/topics.json").write_text(json.dumps({"topicConfigTable": {"g": {"topicName": "g"}}}))
    (tmp_path / "broker.conf").write_text(SIZES)
    found = {
        (one.code, one.queue_id) for one in check(tmp_path, tmp_path / "broker.conf")[1] if one.queue_id is not None
    }
    states = {(row["queue_id"], row["state"]) for row in queues_of(tmp_path)}
    boots = store_state(str(tmp_path), "5.3.3", str(tmp_path / "broker.conf"), full=True).boots
    if is_deleted:
        assert found == {("QUEUE_DELETED", 0), ("QUEUE_DELETED", 1)}
        assert states == {(0, "CAUGHT_UP")}
        assert [(boot.lost, boot.deleted) for boot in boots] == [(0, 5)]
    else:
        assert {("QUEUE_OFFSET_TWICE", 0), ("QUEUE_MISSING", 1)} <= found
        assert {(0, "DAMAGED"), (1, "LOST")} <= states


@pytest.mark.parametrize("is_deleted", [True, False])
@pytest.mark.parametrize("version", ["4.9.7", "5.3.3", "5.5.0"])
def test_what_a_crash_brings_back_of_a_deleted_topic_is_no_loss(version: str, is_deleted: bool, tmp_path: Path) -> None:
    """`g` had 6 messages, was deleted, and had 4; without a queue, these three brokers made one of the 6 and the 7th.

    If `g` is there, consumers lose the last three, and get the first of the four at a wrong queue offset.
    """
    writer = LogWriter(1 << 16)
    for number, queue_offset in enumerate([*range(6), *range(4)]):
        writer.append(NOW + number, b"body", b"g", queue_offset=queue_offset)
    writer.write(tmp_path)
    (tmp_path / "config").mkdir()
    topics = {} if is_deleted else {"g": {"topicName": "g"}}
    (tmp_path / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics}))
    (tmp_path / "broker.conf").write_text(SIZES)
    (tmp_path / "abort").touch()
    quick, full = (
        store_state(str(tmp_path), version, str(tmp_path / "broker.conf"), full=full).boots[0] for full in (False, True)
    )
    assert (full.completed, full.lost, full.shifted, full.deleted) == (6, *((0, 0, 4) if is_deleted else (3, 1, 0)))
    assert full.max_offsets == {("g", 0): 7}
    assert (quick.lost, full.is_harmless) == (0 if is_deleted else 4, is_deleted)


@pytest.mark.parametrize("topic", [b"a\0b", b"../../out", b".."])
def test_a_name_that_is_no_folder_has_no_first_unit(topic: bytes, tmp_path: Path) -> None:
    """Nothing outside of the store is read, also if a file there begins with the offset of the second message."""
    writer, folder = LogWriter(1 << 16), tmp_path / "store"
    for number in range(2):
        offset = writer.append(NOW + number, b"body", topic, queue_offset=0)
    writer.write(folder)
    (folder / TREE).mkdir()
    file = tmp_path / "out/0" / f"{0:020d}"
    file.parent.mkdir(parents=True)
    file.write_bytes(struct.pack(">qiq", offset, writer.next_offset - offset, 0))
    conf = tmp_path / "broker.conf"
    conf.write_text(SIZES)
    assert {one.code for one in check(folder, conf)[1]} == {"TOPIC_NAME", "CONFIG_MISSING"}
    (folder / "config").mkdir()
    (folder / "config/topics.json").write_text(json.dumps({"topicConfigTable": {"good": {"topicName": "good"}}}))
    assert queues_of(folder) == []


def queues_of(folder: Path) -> list[dict[str, Any]]:
    with MessageStore(str(folder)) as store:
        rows: list[dict[str, Any]] = queues(store).to_pylist()
        return rows


def test_a_lost_queue_is_not_deleted_because_others_begin_later(tmp_path: Path) -> None:
    writer, units = LogWriter(1 << 16), b""
    for number, queue_id in enumerate([0, 0, 1, 1]):
        offset = writer.append(NOW + number, b"body", b"g", queue_id)
        units += struct.pack(">qiq", offset, writer.next_offset - offset, ord("a")) if queue_id else b""
    writer.write(tmp_path)
    (tmp_path / TREE / "g/1").mkdir(parents=True)
    (tmp_path / TREE / "g/1" / f"{0:020d}").write_bytes(units.ljust(2000, b"\0"))
    (boot,) = store_state(str(tmp_path), "5.3.3", full=True).boots
    assert (boot.lost + boot.shifted, boot.deleted) == (2, 0)
    assert ("QUEUE_MISSING", 0) in {(one.code, one.queue_id) for one in check(tmp_path, None)[1]}
