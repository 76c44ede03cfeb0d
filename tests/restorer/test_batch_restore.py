"""A store with batch consume queues is restored whole: its log, its queues and its index are those of the broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import FAILED
from spark_mq.cli.main import main
from spark_mq.store.message_store import MessageStore
from tests.support.rebuilt import rebuild_here
from tests.support.restored import restored_plain
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
TREES = ("commitlog", "consumequeue", "batchconsumequeue", "index")
UNIT_SIZE, IN_FILE = 46, 10


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


def test_all_files_are_those_of_the_broker(store: Path, tmp_path: Path) -> None:
    report = restored_plain(store, tmp_path / "new", STORE.broker_conf)
    assert report.messages == 326
    for tree in TREES:
        assert tree_of(tmp_path / "new" / tree) == tree_of(store / tree), tree
    topics = json.loads((tmp_path / "new/config/topics.json").read_text())["topicConfigTable"]
    assert topics["b1bcq"]["attributes"] == {"queue.type": "BatchCQ"}


def test_an_expired_log_keeps_its_start_its_file_sizes_and_the_end_of_an_expired_queue(
    store: Path, tmp_path: Path
) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(STORE.broker_conf.read_text() + f"mapperFileSizeBatchConsumeQueue={IN_FILE * UNIT_SIZE}\n")
    rebuild_here(store, tmp_path / "rebuilt", broker_conf=str(conf))
    shutil.rmtree(store / "batchconsumequeue")
    shutil.move(tmp_path / "rebuilt" / "batchconsumequeue", store / "batchconsumequeue")
    (store / "commitlog" / f"{0:020d}").unlink()
    expired = Path(shutil.copytree(store / "batchconsumequeue/b1bcq/1", store / "batchconsumequeue/b1bcq/7"))
    for number in (2, 3):  # the last units are of live records
        (expired / f"{number * IN_FILE * UNIT_SIZE:020d}").unlink()
    restored_plain(store, tmp_path / "new", STORE.broker_conf)
    assert tree_of(tmp_path / "new/commitlog") == tree_of(store / "commitlog")
    assert tree_of(tmp_path / "new/batchconsumequeue/b1bcq/7") == tree_of(expired)
    with MessageStore(str(store)) as before, MessageStore(str(tmp_path / "new")) as after:
        for queue in (("b1bcq", 0), ("b1bcq", 1), ("b1bcq", 7)):
            assert after.get_max_offset_in_queue(*queue) == before.get_max_offset_in_queue(*queue) > 0
            assert after.get_min_offset_in_queue(*queue) == before.get_min_offset_in_queue(*queue) > 0
    assert {file.stat().st_size for file in (tmp_path / "new/batchconsumequeue").rglob("0" * 20)} == {460}


@pytest.mark.parametrize("option", ["--renumber", "--only-delivered"])
def test_a_part_of_the_store_or_new_offsets_are_refused(
    option: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["restore", str(store), str(tmp_path / "new"), option, "--broker-conf", str(STORE.broker_conf)]
    assert main([*words, "--engine", "local"]) == FAILED
    assert "Only the whole store is restored" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_queues_that_the_settings_of_topics_do_not_tell_are_refused(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "config/topics.json").unlink()
    (store / "config/topics.json.bak").unlink()
    words = ["restore", str(store), str(tmp_path / "new"), "--broker-conf", str(STORE.broker_conf)]
    assert main([*words, "--engine", "local"]) == FAILED
    assert "batch consume queues of topic b1bcq" in capsys.readouterr().err
