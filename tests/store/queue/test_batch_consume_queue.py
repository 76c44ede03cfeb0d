"""Batch consume queues answer as a broker: judged by the answers of the Java store, and by the log itself."""

from __future__ import annotations

import json
import shutil
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.expirer import expire
from spark_mq.format.consume_queue import BATCH_UNIT_SIZE
from spark_mq.format.message_row import consumer_rows
from spark_mq.format.record import Record, decode_record
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.disk_use import topic_bytes
from spark_mq.store.file_tables import plan_queue_splits, unit_batches
from spark_mq.store.message_store import MessageStore
from spark_mq.store.metadata_tables import consumer_offsets, queues, topics
from spark_mq.store.queue.get_message import GetMessageStatus
from spark_mq.tables.store_files import CONSUME_QUEUE
from spark_mq.verifier.quick import quick_check
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, Fact, RealStore, Unpack

STORE = RealStore("fBatchcq533", OWN_STORES / "forms")
TOPIC = "b1bcq"
SEGMENT = 302765


@pytest.fixture(scope="module")
def facts() -> list[Fact]:
    """The records of the topic, in the order of the log."""
    return [fact for fact in STORE.facts("msg") if fact["topic"] == TOPIC]


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


def count(fact: Fact) -> int:
    return int(fact["properties"].get("INNER_NUM", 1))


def bodies(store: Path, fact: Fact) -> list[bytes]:
    """The bodies of the messages of an inner batch, by their sizes alone."""
    segment, position = divmod(fact["offset"], SEGMENT)
    body, found = decode_record((store / f"commitlog/{segment * SEGMENT:020d}").read_bytes(), position).body, []
    while body:
        size, length = struct.unpack(">i", body[:4])[0], struct.unpack(">i", body[16:20])[0]
        found.append(body[20 : 20 + length])
        body = body[size:]
    return found


def make_small_files(store: Path) -> None:
    """Give the store files of 7 units."""
    conf, rebuilt = store.parent / "broker.conf", store.parent / "rebuilt"
    size = f"mapperFileSizeBatchConsumeQueue={7 * BATCH_UNIT_SIZE}\n"
    conf.write_text(STORE.broker_conf.read_text() + size)
    shutil.rmtree(store / "batchconsumequeue")
    rebuild_here(store, rebuilt, only="consumequeue", broker_conf=str(conf))
    shutil.move(rebuilt / "batchconsumequeue", store / "batchconsumequeue")


@pytest.mark.parametrize("small", [False, True])
def test_each_message_is_at_its_queue_offset(store: Path, facts: list[Fact], small: bool) -> None:
    if small:
        make_small_files(store)
    with MessageStore(str(store)) as opened:
        for queue_id in (0, 1):
            own = [fact for fact in facts if fact["queueId"] == queue_id]
            ends = opened.get_min_offset_in_queue(TOPIC, queue_id), opened.get_max_offset_in_queue(TOPIC, queue_id)
            assert ends == (0, sum(map(count, own)))
            rows = opened.get_message(TOPIC, queue_id, 0, 10_000).to_pylist()
            assert [row["queue_offset"] for row in rows] == list(range(ends[1]))
            offsets = [fact["offset"] for fact in own for _ in range(count(fact))]
            assert [row["commit_log_offset"] for row in rows] == offsets
            assert {row["sys_flag"] & 0xC0 for row in rows} == {0}
            for fact in own:
                of_record = [row for row in rows if row["commit_log_offset"] == fact["offset"]]
                assert {row["store_size"] for row in of_record} == {fact["size"]}
                if count(fact) > 1:
                    assert [row["body"] for row in of_record] == bodies(store, fact)
                    assert len({row["unique_key"] for row in of_record}) == count(fact)
                else:
                    assert of_record[0]["unique_key"] == fact["uniqKey"]
            for offset in range(ends[1]):
                assert opened.get_message(TOPIC, queue_id, offset, 1).to_pylist() == [rows[offset]]


def test_the_offset_of_a_time_is_that_of_a_record(store: Path, facts: list[Fact]) -> None:
    """`BatchConsumeQueue.getOffsetInQueueByTime`@5.3.3, in one file: no judge but the rule."""
    own = [fact for fact in facts if fact["queueId"] == 0]
    times = [fact["storeTimestamp"] for fact in own]
    assert all(first < second for first, second in pairwise(times))
    with MessageStore(str(store), broker_version="5.3.3") as opened:
        for time in {moment + step for moment in times for step in (-1, 0, 1)}:
            later = [fact["queueOffset"] for fact in own if fact["storeTimestamp"] >= time]
            expected = later[0] if later else own[-1]["queueOffset"]
            assert opened.get_offset_in_queue_by_time(TOPIC, 0, time) == expected
        for fact in own:
            found = opened.get_offset_in_queue_by_time(TOPIC, 0, fact["storeTimestamp"], "UPPER")
            assert found == fact["queueOffset"]


def test_expired_records_are_not_offered(store: Path, facts: list[Fact]) -> None:
    (store / f"commitlog/{0:020d}").unlink()
    own = [fact for fact in facts if fact["queueId"] == 0]
    expired = sum(count(fact) for fact in own if fact["offset"] < SEGMENT)
    with MessageStore(str(store)) as opened:
        assert opened.get_min_offset_in_queue(TOPIC, 0) == expired
        result = opened.get_message_result(TOPIC, 0, 0)
        assert (result.status, result.next_begin_offset) == (GetMessageStatus.OFFSET_TOO_SMALL, expired)
        first = opened.get_message(TOPIC, 0, expired, 1).to_pylist()
        live = [fact["offset"] for fact in own if fact["offset"] > SEGMENT]
        assert [row["commit_log_offset"] for row in first] == live[:1]


def test_a_damaged_unit_is_said(store: Path) -> None:
    file = store / f"batchconsumequeue/{TOPIC}/0/{0:020d}"
    data = bytearray(file.read_bytes())
    data[3 * BATCH_UNIT_SIZE + 7] ^= 1
    file.write_bytes(data)
    with MessageStore(str(store)) as opened:
        (row,) = opened.get_message(TOPIC, 0, 3, 1).to_pylist()
        assert row["_corrupt_record"].startswith("BAD_UNIT: the unit at queue offset 3 leads to no record")
        assert opened.get_message(TOPIC, 0, 2, 1)["queue_offset"].to_pylist() == [2]


def test_a_file_of_zeros_has_no_message(store: Path) -> None:
    """As a broker makes it in advance."""
    for queue_id in (0, 1):
        file = store / f"batchconsumequeue/{TOPIC}/{queue_id}/{0:020d}"
        file.write_bytes(bytes(10 * BATCH_UNIT_SIZE))
    with MessageStore(str(store)) as opened:
        assert opened.get_max_offset_in_queue(TOPIC, 0) == 0
        assert opened.get_message_result(TOPIC, 0, 0).status == GetMessageStatus.NO_MESSAGE_IN_QUEUE


def test_the_command_prints_one_message_of_a_batch(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query-by-offset", str(store), TOPIC, "0", "7", "--json"]) == 0
    assert '"queue_offset": 7' in capsys.readouterr().out.replace('":', '": ').replace(":  ", ": ")
    assert main(["query-by-offset", str(store), TOPIC, "0", "67"]) == 3
    assert "b1bcq/0 has offsets 0 to 66" in capsys.readouterr().err


def frame(body: bytes, properties: bytes) -> bytes:
    head = struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 9, len(body))
    return head + body + struct.pack(">h", len(properties)) + properties


@pytest.mark.parametrize("cut", [None, 1, 21, 25, 30])
def test_a_body_that_is_not_a_batch_is_said(cut: int | None) -> None:
    body = frame(b"one", b"KEYS\1a\2") + frame(b"", b"")
    record = Record(b"T", queue_offset=5, body=body[:cut], sys_flag=0xC0)
    rows: list[dict[str, Any]] = consumer_rows(record)
    if cut is None:
        found = [(row["queue_offset"], row["body"], row["flag"], row["keys"], row["sys_flag"]) for row in rows]
        assert found == [(5, b"one", 9, ["a"], 0), (6, b"", 9, None, 0)]
    else:
        (row,) = rows
        assert row["_corrupt_record"].startswith("BAD_INNER_BATCH")
        assert row["sys_flag"] == 0xC0


def test_only_a_batch_to_be_unwrapped_has_several_messages() -> None:
    """`PullAPIWrapper.processPullResult`@5.3.3: both bits are needed."""
    for sys_flag in (0, 0x40, 0x80):
        assert len(consumer_rows(Record(b"T", body=frame(b"x", b"") * 2, sys_flag=sys_flag))) == 1


def test_tables_about_all_queues_have_batch_queues(store: Path, facts: list[Fact]) -> None:
    """By the records of the log, as the Java store read them, and offsets of a group that the test writes."""
    read = len(facts) // 2
    group = {"offsetTable": {f"{TOPIC}@group": {"0": 5, "1": 0}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(group))
    with MessageStore(str(store)) as opened:
        found = {row["queue_id"]: row for row in queues(opened, TOPIC).to_pylist()}
        lags = {row["queue_id"]: row for row in consumer_offsets(opened, TOPIC).to_pylist()}
        (topic,) = [row for row in topics(opened).to_pylist() if row["topic"] == TOPIC]
        sizes = {one.topic: (one.messages, one.log_bytes) for one in topic_bytes(opened, facts[read]["offset"])}
        units = {
            (row["queue_id"], row["queue_offset"]): row["commit_log_offset"]
            for shares in plan_queue_splits([opened.queues[TOPIC, queue_id].folder for queue_id in (0, 1)])
            for share in shares
            for batch in unit_batches(share, opened.records, opened.get_max_phy_offset(), CONSUME_QUEUE.schema.names)
            for row in batch.to_pylist()
            if row["state"] == "LIVE"
        }
    for queue_id in (0, 1):
        own = [fact for fact in facts if fact["queueId"] == queue_id]
        row, last = found[queue_id], own[-1]
        assert (row["state"], row["min_offset"], row["max_offset"]) == ("CAUGHT_UP", 0, sum(map(count, own)))
        ends = own[0]["offset"], last["offset"]
        assert (row["first_commit_log_offset"], row["last_commit_log_offset"]) == ends
        assert lags[queue_id]["lag"] == row["max_offset"] - (5 if queue_id == 0 else 0)
    assert topic["message_count"] == sum(map(count, facts))
    assert sizes[TOPIC] == (sum(map(count, facts)), sum(fact["size"] for fact in facts))
    assert units == {
        (fact["queueId"], fact["queueOffset"] + number): fact["offset"]
        for fact in facts
        for number in range(count(fact))
    }


def test_a_batch_queue_without_its_last_units_lags(store: Path, facts: list[Fact]) -> None:
    own = [fact for fact in facts if fact["queueId"] == 0]
    file = store / f"batchconsumequeue/{TOPIC}/0/{0:020d}"
    with file.open("r+b") as opened:
        opened.seek((len(own) - 2) * BATCH_UNIT_SIZE)
        opened.write(bytes(2 * BATCH_UNIT_SIZE))
    with MessageStore(str(store)) as read:
        (row,) = [row for row in queues(read, TOPIC).to_pylist() if row["queue_id"] == 0]
    assert (row["state"], row["max_offset"]) == ("BEHIND", own[-2]["queueOffset"])
    assert row["problem"].startswith("it lacks at least 2 messages")
    report = quick_check(str(store), BrokerConf.of(str(STORE.broker_conf)))[0]
    assert report.counts["QUEUE_LAGS_CLEAN"] == 1


def test_old_files_of_a_batch_queue_expire(store: Path, facts: list[Fact]) -> None:
    """`MappedFileQueue.deleteExpiredFileByOffset`@5.3.3, with the size of a batch unit."""
    make_small_files(store)
    expected = set()
    for queue_id in (0, 1):
        own = [fact["offset"] for fact in facts if fact["queueId"] == queue_id]
        for number in range((len(own) - 1) // 7):
            if own[7 * number + 6] < SEGMENT:
                expected.add(f"batchconsumequeue/{TOPIC}/{queue_id}/{number * 7 * BATCH_UNIT_SIZE:020d}")
    assert len(expected) > 4
    report = expire(str(store), min_offset=SEGMENT, apply=True)
    assert {file.path for file in report.files if file.tree == "batchconsumequeue"} == expected
    assert "batch queue files" in report.to_text()
    with MessageStore(str(store)) as opened:
        for queue_id in (0, 1):
            live = [fact for fact in facts if fact["queueId"] == queue_id and fact["offset"] >= SEGMENT]
            assert opened.get_min_offset_in_queue(TOPIC, queue_id) == live[0]["queueOffset"]
            rows = opened.get_message(TOPIC, queue_id, live[0]["queueOffset"], 1000)
            assert rows.num_rows == sum(map(count, live))
