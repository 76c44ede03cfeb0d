"""Where groups begin, against the facts of the Java classes. `tests/broker/test_mqadmin.py` asks mqadmin."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.errors import OptionError
from spark_mq.sharing.shares import FIRST, LAST, begin_offsets
from spark_mq.tables.config import BEGIN_OFFSETS
from tests.support.stores import STORES, WORKLOAD, RealStore, Unpack

DELETED = STORES["deleted-533"]
RETRY = "%RETRY%GID_failing"


def times(packed: RealStore, topic: str) -> dict[int, dict[int, int]]:
    """The store time of each message, by queue id and queue offset."""
    found: dict[int, dict[int, int]] = {}
    for fact in packed.facts("msg"):
        if fact["topic"] == topic:
            found.setdefault(fact["queueId"], {})[fact["queueOffset"]] = fact["storeTimestamp"]
    return found


def test_a_time_begins_in_its_second_and_a_reset_in_its_millisecond(unpacked: Unpack) -> None:
    by_queue = times(WORKLOAD, "SequenceDemo")
    stored = sorted(time for queue in by_queue.values() for time in queue.values())
    differs = 0
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        for time in (stored[0] - 5000, stored[0], stored[len(stored) // 2], stored[-1], stored[-1] + 5000):
            for row in begin_offsets(store, time, "SequenceDemo").to_pylist():
                queue = by_queue.get(row["queue_id"], {})
                exact, whole = (
                    next((offset for offset, at in sorted(queue.items()) if at >= since), len(queue))
                    for since in (time, time // 1000 * 1000)
                )
                assert (row["begin_offset"], row["reset_offset"], row["max_offset"]) == (whole, exact, len(queue))
                assert row["begin_lag"] == len(queue) - whole
                assert row["begin_in_memory"] == (0 if whole else None)
                differs += exact != whole
    assert differs


def test_the_first_and_the_last_message(unpacked: Unpack) -> None:
    topic = next(fact["topic"] for fact in DELETED.facts("msg") if min(times(DELETED, fact["topic"])[0]) > 0)
    by_queue = times(DELETED, topic)
    with MessageStore(str(unpacked(DELETED))) as store:
        first, last = (begin_offsets(store, where, topic) for where in (FIRST, LAST))
    assert first.schema == BEGIN_OFFSETS.schema
    for old, new in zip(first.to_pylist(), last.to_pylist(), strict=True):
        queue = by_queue[old["queue_id"]]
        assert (old["begin_offset"], old["reset_offset"], old["begin_lag"]) == (min(queue), min(queue), len(queue))
        assert (new["begin_offset"], new["reset_offset"], new["begin_lag"]) == (max(queue) + 1, max(queue) + 1, 0)
        assert old["begin_in_memory"] is new["begin_in_memory"] is None


def test_a_retry_topic_has_the_opposite_rule(unpacked: Unpack) -> None:
    with MessageStore(str(unpacked(WORKLOAD))) as store:
        rows = [begin_offsets(store, where, RETRY, "GID_failing").to_pylist()[0] for where in (FIRST, LAST, 10**12)]
        with pytest.raises(OptionError, match="there is no queue of topic Nope"):
            begin_offsets(store, FIRST, "Nope")
    assert [(row["begin_offset"], row["reset_offset"]) for row in rows] == [(0, 0), (0, 10), (10, 0)]
    assert {row["consumer_offset"] for row in rows} == {10}


def test_the_command_prints_it(unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    assert main(["begin-offsets", str(store), "--from-where", "LAST", "--topic", "OrderEvents", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert list(rows[0]) == BEGIN_OFFSETS.schema.names
    assert [(row["queue_id"], row["begin_offset"]) for row in rows] == [(queue_id, 62) for queue_id in range(4)]
    for file in (store / "consumequeue" / "OrderEvents" / "1").iterdir():
        file.write_bytes(bytes(len(file.read_bytes())))
    assert main(["begin-offsets", str(store), "--from-where", "-1h", "--sort", "-queue_id"]) == 0
    printed = capsys.readouterr()
    assert "queues have a problem" in printed.err or "have a problem; the first is OrderEvents/1" in printed.err
    assert main(["begin-offsets", str(store), "--from-where", "soon"]) == 2
    assert "--from-where" in capsys.readouterr().err


@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_queue_that_lost_its_folder_has_no_offset(
    is_damaged: bool, unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its last message is long before the end of the log. A queue that never had a message begins at 0."""
    folder = tmp_path / "store"
    shutil.copytree(unpacked(WORKLOAD), folder)
    (folder / "config" / "consumerOffset.json").unlink()
    (folder / "config" / "consumerOffset.json.bak").unlink(missing_ok=True)
    topics = json.loads((folder / "config" / "topics.json").read_text())
    topics["topicConfigTable"]["SequenceDemo"]["readQueueNums"] = 20
    (folder / "config" / "topics.json").write_text(json.dumps(topics))
    counts = {queue: len(offsets) for queue, offsets in times(WORKLOAD, "SequenceDemo").items()}
    lost = min(counts)
    shutil.rmtree(folder / "consumequeue" / "SequenceDemo" / str(lost))
    if is_damaged:
        shutil.rmtree(folder / "consumequeue" / "OrderEvents")
    with MessageStore(str(folder)) as store:
        rows = {row["queue_id"]: row for row in begin_offsets(store, LAST, "SequenceDemo").to_pylist()}
    assert rows[lost]["begin_offset"] is None
    assert f"the log has {counts[lost]} messages of it" in rows[lost]["problem"]
    assert {queue: row["begin_offset"] for queue, row in rows.items() if queue != lost} == {
        queue: counts.get(queue, 0) for queue in range(20) if queue != lost
    }
    assert main(["allocate", str(folder), "SequenceDemo", "--consumers", "2", "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    (queue,) = (queue for queue in out["queues"] if queue["problem"] is not None)
    assert (queue["queue_id"], queue["messages"]) == (lost, None)
