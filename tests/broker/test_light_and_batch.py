"""A real broker boots from light and batch consume queues that were made here, and serves each message once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from spark_mq.format.record import Record, decode_record
from spark_mq.remoting.client import ClientSettings, RemotingClient, parse_name_servers
from spark_mq.remoting.pull import QueueRange, pull
from spark_mq.store.recovery import next_recovery
from tests.broker import harness
from tests.broker.lite_topics import LiteTopics
from tests.support.light_queues import dispatched, without_units
from tests.support.rebuilt import rebuild_here
from tests.support.restored import restore_here
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, Fact, RealStore

pytestmark = pytest.mark.broker


def with_our_files(name: str, folder: Path) -> tuple[RealStore, Path]:
    """The store, with queues and index made here."""
    packed = RealStore(name, OWN_STORES / "forms")
    store = packed.unpack(folder)
    for tree in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(store / tree, ignore_errors=True)
    rebuild_here(store, broker_conf=str(packed.broker_conf))
    return packed, store


def served(broker: harness.Broker, topic: str, queue_id: int, stop: int) -> Iterator[Record]:
    """The records that the broker hands out of a queue from offset 0 to `stop`."""
    settings = ClientSettings(parse_name_servers(broker.name_server))
    with RemotingClient(settings) as client:
        queue, offset = QueueRange("broker", broker.address, topic, queue_id, 0, stop), 0
        while offset < stop:
            answer = pull(client, queue, offset)
            assert answer.next_offset > offset
            assert (answer.min_offset, answer.max_offset) == (0, stop)
            offset, position = answer.next_offset, 0
            while position < len(answer.records):
                record = decode_record(answer.records, position)
                position += record.size
                yield record


def test_light_queues(tmp_path: Path) -> None:
    packed, store = with_our_files("fLmq533", tmp_path)
    wanted = dispatched(packed)
    assert {name: len(offsets) for name, offsets in wanted.items()} == {
        fact["topic"]: fact["max"] for fact in packed.facts("queue") if fact["topic"].startswith("%LMQ%")
    }
    with harness.Broker("5.3.3", store, packed.broker_conf) as broker:
        for name, offsets in wanted.items():
            records = list(served(broker, name, 0, len(offsets)))
            assert [record.commit_log_offset for record in records] == offsets


def test_lite_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker serves the queues that a restore made as files; of a topic that was used again, the newer messages."""
    packed = RealStore("fLite550", OWN_STORES / "forms")
    settings = [line for line in packed.broker_conf.read_text().splitlines() if "rocksdb" not in line.lower()]
    conf = tmp_path / "broker.conf"
    conf.write_text("\n".join(settings))
    restore_here(packed.unpack(tmp_path), tmp_path / "restored", conf)
    ends = {fact["topic"]: fact["max"] for fact in packed.facts("lite")}
    with harness.Broker("5.5.0", tmp_path / "restored", conf) as broker, LiteTopics(broker, "Sensors") as lite:
        for name, offsets in dispatched(packed).items():
            records = list(served(broker, name, 0, ends[name] or 1))
            assert [record.commit_log_offset for record in records] == offsets[-len(records) :]
        for command in ("lag", "consumer-progress", "queues"):
            assert main([command, f"rocketmq://{broker.name_server}", "--json"]) == 0
            rows = {row["topic"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
            for fact in packed.facts("liteLag"):
                row = rows[fact["topic"]]
                assert row.get("lag", fact["lag"]) == fact["lag"]
                assert row.get("max_offset", ends[fact["topic"]]) == ends[fact["topic"]]
        lite.send("a", 60)
        assert lite.info("a")["topicOffset"]["maxOffset"] == ends["%LMQ%$Sensors$a"] + 1


def test_batch_queues(tmp_path: Path) -> None:
    """The Java client unwraps inner batches."""
    packed, store = with_our_files("fBatchcq533", tmp_path)
    facts = [fact for fact in packed.facts("msg") if fact["topic"] == "b1bcq"]

    def count(facts: list[Fact]) -> int:
        return sum(int(fact["properties"].get("INNER_NUM", 1)) for fact in facts)

    with harness.Broker("5.3.3", store, packed.broker_conf) as broker:
        for queue_id in (0, 1):
            own = [fact for fact in facts if fact["queueId"] == queue_id]
            records = list(served(broker, "b1bcq", queue_id, count(own)))
            assert [record.commit_log_offset for record in records] == [fact["offset"] for fact in own]
        with harness.PullConsumer(broker, "b1bcq", 32) as consumer:
            messages, _ = consumer.read()
        assert messages == count(facts)


def without_batch_units(store: Path, queue_id: int, first: int) -> None:
    """Lose the units of a batch consume queue from a number on."""
    (file,) = (store / "batchconsumequeue" / "b1bcq" / str(queue_id)).iterdir()
    data = file.read_bytes()[: first * BATCH_UNIT_SIZE]
    file.write_bytes(data.ljust(file.stat().st_size, b"\0"))


@pytest.mark.parametrize("version", cases(["5.3.3"], ["5.3.3", "5.5.0"]))
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_boot_does_to_batch_queues_what_was_said(version: str, is_killed: bool, tmp_path: Path) -> None:
    """A killed broker had flushed not all units; one that was stopped cleanly, and lags, lost the end of its log."""
    packed = RealStore("fBatchcq533", OWN_STORES / "forms")
    store = packed.unpack(tmp_path)
    without_batch_units(store, 0, 30)
    records = [fact for fact in packed.facts("msg") if fact["topic"] == "b1bcq"]
    if is_killed:
        (store / "abort").touch()
    else:
        without_batch_units(store, 1, 20)
        log_end = records[-9]["offset"]
        *_, segment = sorted((store / "commitlog").iterdir())
        data = segment.read_bytes()
        segment.write_bytes(data[: log_end - int(segment.name)].ljust(len(data), b"\0"))
    recovery = next_recovery(str(store), version, str(packed.broker_conf))
    assert recovery.is_full
    assert recovery.lost > 0 or recovery.completed > 0
    with harness.Broker(version, store, packed.broker_conf) as broker:
        found = {
            record.commit_log_offset
            for queue_id in (0, 1)
            for record in served(broker, "b1bcq", queue_id, recovery.max_offsets["b1bcq", queue_id])
        }
    live = {fact["offset"] for fact in records if fact["offset"] < recovery.log_end}
    assert found <= live
    assert len(live - found) == recovery.lost


@pytest.mark.parametrize("version", cases(["5.3.3"], ["4.9.7", "5.3.3", "5.4.0", "5.5.0"]))
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_boot_does_to_light_queues_what_was_said(version: str, is_killed: bool, tmp_path: Path) -> None:
    """Of one queue the last units are lost, and of another one more of them than the boot dispatches again."""
    packed = RealStore("fLmq533", OWN_STORES / "forms")
    store, wanted = packed.unpack(tmp_path), dispatched(packed)
    (store / "abort").unlink(missing_ok=True)
    if is_killed:
        (store / "abort").touch()
    without_units(store, "%LMQ%a", len(wanted["%LMQ%a"]) - 2)
    without_units(store, "%LMQ%b", 20)
    recovery = next_recovery(str(store), version, str(packed.broker_conf))
    assert recovery.is_full
    lost = {outcome.topic: outcome.lost for outcome in recovery.queues}
    assert lost["%LMQ%b"] > 0
    with harness.Broker(version, store, packed.broker_conf) as broker:
        for name, offsets in wanted.items():
            found = {record.commit_log_offset for record in served(broker, name, 0, recovery.max_offsets[name, 0])}
            assert len(set(offsets) - found) == lost.get(name, 0), name
