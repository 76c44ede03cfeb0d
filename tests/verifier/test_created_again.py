"""A topic that was deleted and created again on a 5.3.3 broker: its queues have the newer messages, and are sound.

`gone` had 15 messages in each of its two queues, was deleted, and then got 3 and 4. `stays` has 15.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of
from tests.support.verified import check, grave

STORE = RealStore("fAgain533", OWN_STORES / "forms")
TREE = "consumequeue"


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
