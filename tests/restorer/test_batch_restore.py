"""Restores and appends of batch consume queues: log, queues and index are those of the broker, byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq.cli.exit_status import FAILED
from spark_mq.cli.main import main
from spark_mq.errors import InvalidMessageError
from spark_mq.store.message_store import MessageStore
from tests.support.rebuilt import rebuild_here
from tests.support.restored import restore_here, restored_plain
from tests.support.store_history import cut_log, record_ends
from tests.support.stores import OWN_STORES, RealStore, Unpack, index_of, tree_of
from tests.support.verified import check, grave

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
TREES = ("commitlog", "consumequeue", "batchconsumequeue", "index")
QUEUES = Path("batchconsumequeue/b1bcq")
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


def test_new_offsets_give_the_bytes_of_the_broker(store: Path, tmp_path: Path) -> None:
    """Nothing is left out, so each message gets the place that the broker gave it."""
    restored_plain(store, tmp_path / "new", STORE.broker_conf, renumber=True)
    for tree in TREES[:-1]:
        assert tree_of(tmp_path / "new" / tree) == tree_of(store / tree), tree
    assert index_of(tmp_path / "new") == index_of(store)


def records_from(start: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.filter(pc.greater_equal(batch["commit_log_offset"], start))


@pytest.mark.parametrize("units_in_file", [IN_FILE, 300_000])
def test_an_append_gives_the_bytes_of_the_broker(store: Path, tmp_path: Path, units_in_file: int) -> None:
    """The last messages have offsets of fewer digits in their own store; then they go back to where they were."""
    conf = tmp_path / "broker.conf"
    conf.write_text(STORE.broker_conf.read_text() + f"mapperFileSizeBatchConsumeQueue={units_in_file * UNIT_SIZE}\n")
    end = record_ends(STORE)[240]
    restore_here(store, tmp_path / "tail", conf, records_from(end), renumber=True)
    with MessageStore(str(tmp_path / "tail")) as tail:
        for queue_id in (0, 1):
            count = sum(count for offset, _, count in batches_of(queue_id) if offset >= end)
            assert tail.get_max_offset_in_queue("b1bcq", queue_id) == count > 0
    head = cut_log(store, tmp_path / "head", end)
    shutil.rmtree(head / "batchconsumequeue")
    rebuild_here(head, broker_conf=str(conf))
    report = restored_plain(tmp_path / "tail", head, conf, append=True)
    assert report.messages == 326 - 241
    rebuild_here(store, tmp_path / "whole", broker_conf=str(conf))
    assert tree_of(head / "commitlog") == tree_of(store / "commitlog")
    for tree in TREES[1:-1]:
        assert tree_of(head / tree) == tree_of(tmp_path / "whole" / tree), tree
    assert index_of(head) == index_of(store)
    assert grave(check(head, conf)[1]) == []


def test_units_that_a_recovery_cut_off_do_not_come_back(store: Path, tmp_path: Path) -> None:
    """A recovery clears neither old records nor their units, which would lead into new messages."""
    facts = sorted(STORE.facts("msg"), key=lambda fact: int(fact["offset"]))
    first = next(fact for fact in facts[240:] if fact["topic"] != "b1bcq")
    restore_here(store, tmp_path / "new", STORE.broker_conf, without_topic("b1bcq"), renumber=True)
    head = cut_log(store, tmp_path / "head", first["offset"])
    shutil.rmtree(head / "batchconsumequeue")
    rebuild_here(head, broker_conf=str(STORE.broker_conf))
    for tree in ("commitlog", "batchconsumequeue"):
        shutil.rmtree(head / tree)
        shutil.copytree(store / tree, head / tree)
    segment = sorted((head / "commitlog").iterdir())[-1]
    with segment.open("r+b") as file:
        file.seek(first["offset"] - int(segment.name))
        file.write(bytes(first["size"]))
    restored_plain(tmp_path / "new", head, STORE.broker_conf, append=True)
    rebuild_here(head, tmp_path / "rebuilt", broker_conf=str(STORE.broker_conf))
    assert tree_of(head / "batchconsumequeue") == tree_of(tmp_path / "rebuilt/batchconsumequeue")
    assert tree_of(head / "batchconsumequeue") != tree_of(store / "batchconsumequeue")
    assert grave(check(head, STORE.broker_conf)[1]) == []


def without_topic(topic: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.filter(pc.not_equal(batch["topic"], topic))


def test_a_topic_with_a_new_name_keeps_its_batch_queues(store: Path, tmp_path: Path) -> None:
    restored_plain(store, tmp_path / "new", STORE.broker_conf, renumber=True, topic_map={"b1bcq": "other"})
    assert tree_of(tmp_path / "new" / QUEUES.parent / "other").keys() == tree_of(store / QUEUES).keys()
    topics = json.loads((tmp_path / "new/config/topics.json").read_text())["topicConfigTable"]
    assert topics["other"]["attributes"] == {"queue.type": "BatchCQ"}
    assert grave(check(tmp_path / "new", STORE.broker_conf)[1]) == []


def test_a_batch_in_a_topic_of_other_queues_is_refused(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidMessageError, match="the topic has no batch consume queues"):
        restored_plain(store, tmp_path / "new", STORE.broker_conf, renumber=True, topic_map={"b1bcq": "b1_Main"})


def batches_of(queue_id: int) -> list[tuple[int, int, int]]:
    """Commit log offset, queue offset and number of messages of each record of a queue."""
    facts = [fact for fact in STORE.facts("msg") if (fact["topic"], fact["queueId"]) == ("b1bcq", queue_id)]
    return [(fact["offset"], fact["queueOffset"], int(fact["properties"].get("INNER_NUM", 1))) for fact in facts]


def without(*offsets: int) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    return lambda batch: batch.filter(pc.invert(pc.is_in(batch["commit_log_offset"], pa.array(offsets))))


def test_messages_that_are_left_out(store: Path, tmp_path: Path) -> None:
    """A consumer in the middle of a batch goes on there, at its new offset."""
    batches = batches_of(0)
    (lost_at, _, lost), (_, queue_offset, _) = batches[2], next(one for one in batches[5:] if one[2] > 2)
    offsets = {"offsetTable": {"b1bcq@readers": {0: queue_offset + 1}}}
    (store / "config/consumerOffset.json").write_text(json.dumps(offsets))
    restore_here(store, tmp_path / "new", STORE.broker_conf, without(lost_at), renumber=True)
    new = json.loads((tmp_path / "new/config/consumerOffset.json").read_text().replace("{0:", '{"0":'))
    assert new["offsetTable"]["b1bcq@readers"]["0"] == queue_offset + 1 - lost
    with MessageStore(str(store)) as before, MessageStore(str(tmp_path / "new")) as after:
        end = before.get_max_offset_in_queue("b1bcq", 0)
        assert after.get_max_offset_in_queue("b1bcq", 0) == end - lost
        old = before.get_message("b1bcq", 0, queue_offset, 1)["unique_key"]
        assert after.get_message("b1bcq", 0, queue_offset - lost, 1)["unique_key"] == old
    assert grave(check(tmp_path / "new", STORE.broker_conf)[1]) == []


def test_offsets_that_stay_can_have_no_gap(store: Path, tmp_path: Path) -> None:
    batches = batches_of(0)
    with pytest.raises(InvalidMessageError, match="b1bcq/0 would have queue offsets without a message between others"):
        restore_here(store, tmp_path / "new", STORE.broker_conf, without(batches[2][0]), archived=True)
    left_out = [offset for offset, *_ in (*batches[:2], *batches_of(1))]
    segment = int(sorted((store / "commitlog").iterdir())[1].name)

    def later(batch: pa.RecordBatch) -> pa.RecordBatch:
        return without(*left_out)(records_from(segment)(batch))

    restore_here(store, tmp_path / "new", STORE.broker_conf, later, archived=True)
    with MessageStore(str(store)) as before, MessageStore(str(tmp_path / "new")) as after:
        for queue_id in (0, 1):
            end = before.get_max_offset_in_queue("b1bcq", queue_id)
            assert after.get_max_offset_in_queue("b1bcq", queue_id) == end
        assert after.get_min_offset_in_queue("b1bcq", 1) == before.get_max_offset_in_queue("b1bcq", 1)
    assert not (tmp_path / "new/consumequeue/b1bcq").exists()


def test_queues_that_the_settings_of_topics_do_not_tell_are_refused(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (store / "config/topics.json").unlink()
    (store / "config/topics.json.bak").unlink()
    words = ["restore", str(store), str(tmp_path / "new"), "--broker-conf", str(STORE.broker_conf)]
    assert main([*words, "--engine", "local"]) == FAILED
    assert "batch consume queues of topic b1bcq" in capsys.readouterr().err
