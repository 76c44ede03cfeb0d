"""A real broker boots from light and batch consume queues that were made here, and serves each message once."""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_mq.cli.exit_status import NOT_FOUND
from spark_mq.cli.main import main
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from spark_mq.format.record import Record, decode_record
from spark_mq.io.location import Location
from spark_mq.remoting.client import ClientSettings, RemotingClient, parse_name_servers
from spark_mq.remoting.pull import QueueRange, pull
from spark_mq.remoting.writes import send_message
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.queue_database import QueueDatabase, database_tree
from spark_mq.store.recovery import next_recovery
from tests.broker import harness
from tests.broker.lite_topics import LiteTopics
from tests.support.light_queues import dispatched, fail_dispatch, without_units
from tests.support.rebuilt import rebuild_here
from tests.support.repaired import repair_here
from tests.support.restored import restore_here, restored_plain
from tests.support.rocksdb import lose_units, next_offsets
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, Fact, RealStore
from tests.support.verified import check, grave

pytestmark = pytest.mark.broker


def with_our_files(name: str, folder: Path) -> tuple[RealStore, Path]:
    """The store, with queues and index made here."""
    packed = RealStore(name, OWN_STORES / "forms")
    store = packed.unpack(folder)
    for tree in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(store / tree, ignore_errors=True)
    rebuild_here(store, broker_conf=str(packed.broker_conf))
    return packed, store


def settings_of(broker: harness.Broker) -> ClientSettings:
    return ClientSettings(parse_name_servers(broker.name_server))


def served(broker: harness.Broker, topic: str, queue_id: int, stop: int) -> Iterator[Record]:
    """The records that the broker hands out of a queue from offset 0 to `stop`."""
    with RemotingClient(settings_of(broker)) as client:
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


def live_rows(broker: harness.Broker, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """The rows that a command prints about a running broker."""
    command, *others = words
    assert main([command, f"rocketmq://{broker.name_server}", *others, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_light_queues(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    packed, store = with_our_files("fLmq533", tmp_path)
    wanted = dispatched(packed)
    assert {name: len(offsets) for name, offsets in wanted.items()} == {
        fact["topic"]: fact["max"] for fact in packed.facts("queue") if fact["topic"].startswith("%LMQ%")
    }
    with harness.Broker("5.3.3", store, packed.broker_conf) as broker:
        for name, offsets in wanted.items():
            records = list(served(broker, name, 0, len(offsets)))
            assert [record.commit_log_offset for record in records] == offsets
            rows = live_rows(broker, capsys, "print-message", name)
            assert [row["commit_log_offset"] for row in rows] == offsets
            for queue_offset in {0, len(offsets) // 2, len(offsets) - 1}:
                (row,) = live_rows(broker, capsys, "query-by-offset", name, "0", str(queue_offset))
                assert row["commit_log_offset"] == offsets[queue_offset]
        words = "query-by-offset", f"rocketmq://{broker.name_server}", "%LMQ%none", "0", "0"
        assert main(words) == NOT_FOUND
        assert "queue %LMQ%none/0 of broker broker has no message" in capsys.readouterr().err


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
            rows = {row["topic"]: row for row in live_rows(broker, capsys, command)}
            for fact in packed.facts("liteLag"):
                row = rows[fact["topic"]]
                assert row.get("lag", fact["lag"]) == fact["lag"]
                assert row.get("max_offset", ends[fact["topic"]]) == ends[fact["topic"]]
        lite.send("a", 60)
        lite.await_ends({"a": ends["%LMQ%$Sensors$a"] + 1})


@pytest.mark.parametrize(
    ("made_by", "folder", "version"),
    cases(
        [(rebuild_here, "consumequeue", "5.5.0")],
        [
            (make, folder, version)
            for make in (rebuild_here, repair_here)
            for folder in ("consumequeue", "consumequeue_rocksdb")
            for version in ("5.5.0", "5.5.1")
        ],
    ),
)
def test_lite_topics_in_a_database_beside_files(
    made_by: Callable[..., object], folder: str, version: str, tmp_path: Path
) -> None:
    """A broker serves them from the database that a rebuild or a repair made, and goes on in it."""
    packed = RealStore("fLite550", OWN_STORES / "forms")
    store, conf = packed.unpack(tmp_path), tmp_path / "broker.conf"
    shutil.rmtree(store / "consumequeue")
    is_apart = folder != "consumequeue"
    conf.write_text(f"{packed.broker_conf.read_text()}useSeparateStorePathForRocksdbCQ={str(is_apart).lower()}\n")
    if made_by == repair_here:  # it makes files and database
        repair_here(store, conf, apply=True)
    else:
        rebuild_here(store, broker_conf=str(conf), only="consumequeue")
    assert (store / folder / "CURRENT").is_file()
    assert not list((store / "consumequeue").glob("%LMQ%*"))
    ends = {fact["topic"]: fact["max"] for fact in packed.facts("lite")}
    with harness.Broker(version, store, conf) as broker, LiteTopics(broker, "Sensors") as lite:
        for name, offsets in dispatched(packed).items():
            records = list(served(broker, name, 0, ends[name] or 1))
            assert [record.commit_log_offset for record in records] == offsets[-len(records) :]
        lite.send("a", 60)
        lite.await_ends({"a": ends["%LMQ%$Sensors$a"] + 1})
        *_, record = served(broker, "%LMQ%$Sensors$a", 0, ends["%LMQ%$Sensors$a"] + 1)
        assert record.body == b"a 60"


@pytest.mark.parametrize("version", cases(["5.3.3"], ["4.9.7", "5.3.3", "5.5.0"]))
def test_a_broker_does_not_start_if_a_dispatch_fails(version: str, tmp_path: Path) -> None:
    """It does so, as the obstacle says, when it does not dispatch to light message queues."""
    packed = RealStore("fLmq533", OWN_STORES / "forms")
    store, conf = packed.unpack(tmp_path), tmp_path / "broker.conf"
    fail_dispatch(store, packed)
    (store / "abort").touch()
    (store / "checkpoint").unlink()
    (obstacle,) = next_recovery(str(store), version, str(packed.broker_conf)).obstacles
    assert "enableMultiDispatch=false" in obstacle
    with (
        pytest.raises(harness.HarnessError, match="does not start"),
        harness.Broker(version, store, packed.broker_conf),
    ):
        pass
    conf.write_text(packed.broker_conf.read_text().replace("enableMultiDispatch=true", "enableMultiDispatch=false"))
    assert not next_recovery(str(store), version, str(conf)).obstacles
    for settings in (conf, packed.broker_conf):
        with harness.Broker(version, store, settings):
            pass
        assert not (store / "abort").exists()


def test_topics_named_as_light_queues_are_sound_without_enable_lmq(tmp_path: Path) -> None:
    """4.9 has their units in the queue with the message's queue id, and offsets of any topics."""
    packed = RealStore("fLmq533", OWN_STORES / "forms")
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(packed.broker_conf.read_text().replace("enableLmq=true", "enableLmq=false"))
    conf.write_text(conf.read_text().replace("autoCreateTopicEnable=false", "autoCreateTopicEnable=true"))
    names = "%LMQ%a", "plain,%LMQ%a", "%LMQ%a,%LMQ%b"
    with harness.Broker("4.9.7", store, conf) as broker, RemotingClient(settings_of(broker)) as client:
        for number in range(24):
            properties = f"KEYS\1k{number}\2INNER_MULTI_DISPATCH\1{names[number % 3]}\2"
            to = broker.address, "broker", "producers", "TopicTest", number % 4
            send_message(client, *to, b"%d" % number, properties)
    for settings in (conf, None):
        report, found = check(store, settings)
        assert grave(found) == []
        assert report.units == 24
        topics = {one.topic for one in found if one.code == "NOT_CHECKED" and one.topic}
        assert topics == {"%LMQ%a", "%LMQ%b", "plain"}
    recovery = next_recovery(str(store), "4.9.7", str(conf))
    assert (recovery.loses_nothing, recovery.queues) == (True, ())


@pytest.mark.parametrize("version", cases(["5.3.3"], ["5.0.0", "5.3.3", "5.5.0"]))
def test_a_plain_topic_at_the_end_of_a_list_keeps_a_message_out_of_light_queues(version: str, tmp_path: Path) -> None:
    """But it gets an offset there: the units of later messages are before the offsets that the messages have."""
    packed = RealStore("fLmq533", OWN_STORES / "forms")
    store, conf = tmp_path / "store", tmp_path / "broker.conf"
    conf.write_text(packed.broker_conf.read_text().replace("autoCreateTopicEnable=false", "autoCreateTopicEnable=true"))
    names = "%LMQ%a", "%LMQ%a,plain", "%LMQ%a,%LMQ%b"
    with harness.Broker(version, store, conf) as broker, RemotingClient(settings_of(broker)) as client:
        for number in range(6):
            properties = f"KEYS\1k{number}\2INNER_MULTI_DISPATCH\1{names[number % 3]}\2"
            to = broker.address, "broker", "producers", "TopicTest", 0
            send_message(client, *to, b"%d" % number, properties)
    report, found = check(store, conf)
    assert report.units == 6 + 4 + 2
    assert {one.topic for one in grave(found)} == {"%LMQ%a"}
    assert "QUEUE_UNIT_MISPLACED" in {one.code for one in found}
    left_out = [one for one in found if one.code == "LIGHT_QUEUE_LEFT_OUT"]
    with MessageStore(str(store)) as opened:
        rows = [opened.find_record(one.commit_log_offset or 0) for one in left_out]
        assert [row.body for row in rows if isinstance(row, Record)] == [b"1", b"4"]
        assert opened.get_max_offset_in_queue("%LMQ%a", 0) == 4


@pytest.mark.parametrize("what", cases(["killed"], ["sound", "lags", "killed", "cut"]))
def test_a_boot_does_to_light_queues_in_a_database_what_was_said(what: str, tmp_path: Path) -> None:
    """The database lags after a clean stop, or after a kill, or the log has lost its end."""
    packed = RealStore("fLite550", OWN_STORES / "forms")
    store, wanted = packed.unpack(tmp_path), dispatched(packed)
    at = [fact["offset"] for fact in packed.facts("msg")][40]
    if what in ("lags", "killed"):
        assert lose_units(store, at) > 0
    if what == "killed":
        (store / "abort").touch()
    if what == "cut":
        (segment,) = (store / "commitlog").iterdir()
        data = segment.read_bytes()
        segment.write_bytes(data[:at].ljust(len(data), b"\0"))
    recovery = next_recovery(str(store), "5.5.0", str(packed.broker_conf))
    assert recovery.is_full
    lost = {outcome.topic: outcome.lost for outcome in recovery.queues}
    assert bool(recovery.lost) == (what == "lags")  # the message right after what was dispatched
    names = [name for name in wanted if "$Sensors$" in name]
    live = {name: [offset for offset in wanted[name] if offset < (recovery.log_end or 0)] for name in names}
    with harness.Broker("5.5.0", store, packed.broker_conf) as broker:
        for name in names:
            if name not in lost:  # a broker answers no pull at a queue offset without a unit: NullPointerException
                stop = recovery.max_offsets[name, 0]
                assert [record.commit_log_offset for record in served(broker, name, 0, stop)] == live[name]
    ends = next_offsets(store / "consumequeue")
    tree = database_tree(Location.resolve(str(store / "consumequeue")))
    assert isinstance(tree.storage, QueueDatabase)
    for name in names:
        assert ends[name, 0] == recovery.max_offsets[name, 0]
        found = {tree.storage.commit_log_offset((name, 0), offset) for offset in range(ends[name, 0])}
        assert len(set(live[name]) - found) == lost.get(name, 0), name


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


BATCHED = RealStore("fBatchcq533", OWN_STORES / "forms")


def batch_of(*bodies: bytes) -> bytes:
    """The body of a producer's batch (`MessageDecoder.encodeMessages`@5.3.3)."""
    return b"".join(struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + bytes(2) for body in bodies)


@pytest.mark.parametrize("version", cases(["5.3.3"], ["5.3.3", "5.5.0"]))
def test_batch_queues_with_new_offsets(version: str, tmp_path: Path) -> None:
    """Restored without one batch, then all messages appended once more: each is served once, and the queues go on."""
    packed, facts = BATCHED, [fact for fact in BATCHED.facts("msg") if fact["topic"] == "b1bcq"]
    store, restored = packed.unpack(tmp_path), tmp_path / "restored"
    lost = next(fact for fact in facts if fact["queueId"] == 0 and "INNER_NUM" in fact["properties"])

    def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.filter(pc.not_equal(batch["commit_log_offset"], lost["offset"]))

    restore_here(store, restored, packed.broker_conf, kept, renumber=True)
    restored_plain(store, restored, packed.broker_conf, append=True, offset_map=str(tmp_path / "offsets"))
    with harness.Broker(version, restored, packed.broker_conf) as broker:
        ends = []
        for queue_id in (0, 1):
            own = [fact for fact in facts if fact["queueId"] == queue_id]
            expected = [fact for fact in own if fact is not lost] + own
            counts = [int(fact["properties"].get("INNER_NUM", 1)) for fact in expected]
            ends.append(sum(counts))
            records = list(served(broker, "b1bcq", queue_id, ends[-1]))
            properties = [record.text_properties for record in records]
            assert [one.get("UNIQ_KEY") for one in properties] == [fact.get("uniqKey") for fact in expected]
            places = [sum(counts[:number]) for number in range(len(counts))]
            assert [record.queue_offset for record in records] == places
            for one, place in zip(properties, places, strict=True):
                assert ("INNER_BASE" in one) == ("INNER_NUM" in one)
                assert one.get("INNER_BASE", str(place)) == str(place)
        with RemotingClient(settings_of(broker)) as client:
            unique_key = "UNIQ_KEY\1FD0000000000000000000000000000023A034E0E2F2A695C97210FFF\2"
            to, body = (broker.address, "broker", "producers", "b1bcq", 1), batch_of(b"one", b"two", b"three")
            send_message(client, *to, body, unique_key, is_batch=True)
        *_, record = served(broker, "b1bcq", 1, ends[1] + 3)
        assert (record.queue_offset, record.text_properties["INNER_NUM"]) == (ends[1], "3")
        with harness.PullConsumer(broker, "b1bcq", 32) as consumer:
            assert consumer.read()[0] == sum(ends) + 3


def test_a_batch_queue_without_a_message_goes_on_at_its_offset(tmp_path: Path) -> None:
    """Its messages were left out of an archived log that begins above 0."""
    store, restored = BATCHED.unpack(tmp_path), tmp_path / "restored"
    segment = int(sorted((store / "commitlog").iterdir())[1].name)
    own = [fact for fact in BATCHED.facts("msg") if (fact["topic"], fact["queueId"]) == ("b1bcq", 1)]
    end = sum(int(fact["properties"].get("INNER_NUM", 1)) for fact in own)

    def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
        is_other = pc.or_(pc.not_equal(batch["topic"], "b1bcq"), pc.equal(batch["queue_id"], 0))
        return batch.filter(pc.and_(pc.greater_equal(batch["commit_log_offset"], segment), is_other))

    restore_here(store, restored, BATCHED.broker_conf, kept, archived=True)
    with harness.Broker("5.3.3", restored, BATCHED.broker_conf) as broker:
        queue = QueueRange("broker", broker.address, "b1bcq", 1, 0, 0)
        with RemotingClient(settings_of(broker)) as client:
            before = pull(client, queue, end)
            assert (before.min_offset, before.max_offset, before.records) == (end, end, b"")
            send_message(client, broker.address, "broker", "producers", "b1bcq", 1, b"one", "")
            after = pull(client, queue, end)
            assert decode_record(after.records).queue_offset == end
            assert (after.min_offset, after.max_offset) == (end, end + 1)


def without_batch_units(store: Path, queue_id: int, first: int) -> None:
    """Lose the units of a batch consume queue from a number on."""
    (file,) = (store / "batchconsumequeue" / "b1bcq" / str(queue_id)).iterdir()
    data = file.read_bytes()[: first * BATCH_UNIT_SIZE]
    file.write_bytes(data.ljust(file.stat().st_size, b"\0"))


@pytest.mark.parametrize("version", cases(["5.3.3"], ["5.3.3", "5.5.0"]))
@pytest.mark.parametrize("is_killed", cases([True], [True, False]))
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
@pytest.mark.parametrize("is_killed", cases([False], [True, False]))
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
