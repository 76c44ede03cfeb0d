"""How far consumer groups are, against consumerOffset.json and what the brokers said of their queues."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from spark_mq import MessageStore
from spark_mq.errors import ConfigError
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.tables.lifecycle import CONSUMER_PROGRESS
from tests.support.stores import STORES, RealStore, Unpack

WORKLOADS = [STORES["workload-533"], STORES["workload-49x"]]
AT = 1_900_000_000_000


def rows_of(path: Path, **arguments: Any) -> dict[tuple[str, str], dict[str, Any]]:
    with MessageStore(str(path)) as store:
        table = consumer_progress_rows(store, at=AT, **arguments)
    assert table.schema == CONSUMER_PROGRESS.schema
    return {(row["consumer_group"], row["topic"]): row for row in table.to_pylist()}


def committed(path: Path) -> dict[tuple[str, str], dict[int, int]]:
    """The offsets of the file, by group and topic."""
    text = (path / "config" / "consumerOffset.json").read_text()
    return {
        (group, topic): {int(queue): int(offset) for queue, offset in re.findall(r'"?(\d+)"?:(\d+)', offsets)}
        for topic, group, offsets in re.findall(r'"([^"]+)@([^"]+)":\{([^}]*)\}', text)
    }


def commit(path: Path, offsets: dict[str, dict[int, int]]) -> None:
    """Replace the offsets of the file; keys are TOPIC@GROUP."""
    (path / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}))
    (path / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)


@pytest.mark.parametrize("packed", WORKLOADS, ids=str)
def test_the_rows_are_those_of_the_offsets_and_queues(packed: RealStore, unpacked: Unpack) -> None:
    path = unpacked(packed)
    rows, offsets = rows_of(path), committed(path)
    assert rows.keys() == offsets.keys()
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in packed.facts("queue")}
    messages = {(fact["topic"], fact["queueId"], fact["queueOffset"]): fact for fact in packed.facts("msg")}
    for (group, topic), queues in offsets.items():
        row = rows[group, topic]
        (queue_id, offset), *others = queues.items()
        assert not others
        assert row["lag"] == ends[topic, queue_id] - offset
        assert row["state"] == ("LAGGING" if row["lag"] else "CAUGHT_UP")
        last = messages[topic, queue_id, offset - 1]["storeTimestamp"]
        assert round(row["last_consumed_timestamp"].timestamp() * 1000) == last
        if row["lag"]:
            oldest = messages[topic, queue_id, offset]
            assert row["oldest_commit_log_offset"] == oldest["offset"]
            assert row["lag_millis"] == AT - oldest["storeTimestamp"]
        dead = [fact for fact in packed.facts("msg") if fact["topic"] == f"%DLQ%{group}"]
        assert (row["group_retries"], row["group_dead_letters"]) == (0, len(dead))
    assert rows["GID_failing", "RetryDemo"]["group_dead_letters"] > 0
    assert rows_of(path, topic="RetryDemo").keys() == {("GID_failing", "RetryDemo")}
    assert rows_of(path, consumer_group="nobody") == {}


def test_a_group_has_no_offset_in_some_queues(unpacked: Unpack, tmp_path: Path) -> None:
    packed = STORES["workload-533"]
    path = Path(shutil.copytree(unpacked(packed), tmp_path / "copy"))
    ends = {fact["queueId"]: fact["max"] for fact in packed.facts("queue") if fact["topic"] == "OrderEvents"}
    commit(path, {"OrderEvents@g": {0: ends[0], 1: 5}, "OrderEvents@h": {3: 1}})
    rows = rows_of(path)
    assert rows["g", "OrderEvents"]["lag"] == ends[1] - 5 + ends[2] + ends[3]
    assert (rows["g", "OrderEvents"]["queue_count"], rows["g", "OrderEvents"]["queues_without_offset"]) == (4, 2)
    assert rows["h", "OrderEvents"]["lag"] == sum(ends.values()) - 1
    # The group of the retry topic has no offset any more, and none is known to be consumed.
    retry = rows["GID_failing", "%RETRY%GID_failing"]
    assert (retry["state"], retry["lag"], retry["group_retries"]) == ("NO_OFFSET", 10, 10)


def test_offsets_that_are_out_of_range(unpacked: Unpack, tmp_path: Path) -> None:
    packed = STORES["deleted-533"]
    path = Path(shutil.copytree(unpacked(packed), tmp_path / "copy"))
    queue = max(packed.facts("queue"), key=lambda fact: (fact["topic"] == "SequenceDemo", fact["min"]))
    assert queue["min"] > 1
    name, queue_id = queue["topic"], queue["queueId"]
    commit(path, {f"{name}@slow": {queue_id: 1}})
    slow = rows_of(path)["slow", name]
    assert slow["too_small_offsets"] == 1
    others = [fact for fact in packed.facts("queue") if fact["topic"] == name and fact["queueId"] != queue_id]
    assert slow["lag"] == queue["max"] - 1 + sum(fact["max"] for fact in others)
    assert slow["expired_messages"] == queue["min"] - 1 + sum(fact["min"] for fact in others)
    commit(path, {f"{name}@fast": {queue_id: 1 << 61}})
    fast = rows_of(path)["fast", name]
    assert (fast["state"], fast["lag"], fast["too_large_offsets"]) == ("UNKNOWN", None, 1)
    assert f"the queue ends at {queue['max']}" in fast["reason"]


def test_hostile_files_are_rows_or_errors(unpacked: Unpack, tmp_path: Path) -> None:
    path = Path(shutil.copytree(unpacked(STORES["workload-533"]), tmp_path / "copy"))
    commit(path, {"@": {0: 1}, "a@b@c": {2**31 - 1: 2**62 - 1}, "../x@g": {0: 0}, "OrderEvents@g": {-1: 5, 99: 5}})
    topics = path / "config" / "topics.json"
    content = json.loads(topics.read_text())
    content["topicConfigTable"]["OrderEvents"]["readQueueNums"] = 2**31 - 1
    topics.write_text(json.dumps(content))
    rows = rows_of(path)
    assert rows["g", "OrderEvents"]["queue_count"] == 2**31 - 1
    assert rows["g", "../x"]["state"] == "UNKNOWN"
    content["topicConfigTable"]["OrderEvents"]["readQueueNums"] = "many"
    topics.write_text(json.dumps(content))
    topics.with_name("topics.json.bak").unlink(missing_ok=True)
    with pytest.raises(ConfigError):
        rows_of(path)
