"""Rows sent to a running broker: the store and a Java consumer have each message, with all that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_mq.errors import InvalidMessageError, OptionError
from spark_mq.format.java_text import hash_code
from spark_mq.producer.writer import parse_topic_write_options, topic_writer
from tests.broker import harness
from tests.support.in_process import read_rows
from tests.support.soak import cases
from tests.support.written import save

pytestmark = pytest.mark.broker
TOPIC, QUEUES = "OrderEvents", 4
SETTINGS = {"timerWheelEnable": "false", "messageDelayLevel": "1s 2s"}


@pytest.fixture(scope="module", params=cases(("5.3.3",), ("5.3.3", "4.9.7", "5.5.0")))
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Broker]:
    with harness.Broker(request.param, tmp_path_factory.mktemp("store") / "store", SETTINGS) as running:
        harness.send(running, "sequence", 1, 1)  # makes the topics
        yield running


def write(broker: harness.Broker, rows: pa.RecordBatch, **options: str) -> None:
    given = {"path": f"rocketmq://{broker.name_server}"} | options
    writer = topic_writer(parse_topic_write_options(given), rows.schema.names, overwrite=False)
    writer.write(iter([rows.slice(0, rows.num_rows // 2), rows.slice(rows.num_rows // 2)]))


def stored(store: Path, topic: str) -> list[dict[str, Any]]:
    return sorted(read_rows(path=str(store), topic=topic), key=lambda row: row["commit_log_offset"])


def test_a_message_has_all_that_its_row_has(broker: harness.Broker) -> None:
    count = 300
    names = pa.array([f"m-{number}" for number in range(count)])
    rows = pa.record_batch(
        {
            "body": pa.array([b"%d" % number * (1 + number % 50) for number in range(count)]),
            "tags": pa.array([None, "paid", "Übung"] * (count // 3)),
            "keys": pa.array([[f"k{number}", "all"] for number in range(count)]),
            "unique_key": names,
            "flag": pa.array(range(count), pa.int32()),
            "queue_id": pa.array([None, 0, 1, 2, 3] * (count // 5), pa.int32()),
            "sharding_key": pa.array([f"s{number % 7}" for number in range(count)]),
            "properties": pa.array(
                [{"a": str(number), "leer": ""} for number in range(count)], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    before = len(stored(broker.store, TOPIC))
    write(broker, rows, topic=TOPIC, batchSize="3k")
    found = {row["unique_key"]: row for row in stored(broker.store, TOPIC)[before:]}
    assert len(found) == count
    for number in range(count):
        row, properties = found[f"m-{number}"], dict(found[f"m-{number}"]["properties"])
        assert row["body"] == rows["body"][number].as_py()
        assert (row["tags"], row["flag"]) == (rows["tags"][number].as_py(), number)
        assert row["keys"] == [f"k{number}", "all"]
        assert (properties["a"], properties["__SHARDINGKEY"]) == (str(number), f"s{number % 7}")
        chosen = rows["queue_id"][number].as_py()
        assert row["queue_id"] == (abs(hash_code(f"s{number % 7}")) % QUEUES if chosen is None else chosen)
    for queue_id in range(QUEUES):  # messages of a queue are stored in the order of their rows
        flags = [row["flag"] for row in found.values() if row["queue_id"] == queue_id]
        for chosen in (None, queue_id):
            own = [flag for flag in flags if rows["queue_id"][flag].as_py() == chosen]
            assert own == sorted(own)
    consumed = harness.consume(broker, "GID_sent", TOPIC, before + count)
    assert {one["uniqKey"] for one in consumed} >= set(found)
    assert len(consumed) == before + count


def test_delayed_messages_are_delivered(broker: harness.Broker) -> None:
    rows = pa.record_batch(
        {"topic": ["DelayDemo"] * 4, "body": ["a", "b", "c", "d"], "delay_level": pa.array([1, None, 2, None])}
    )
    write(broker, rows)
    harness.consume(broker, "GID_delayed", "DelayDemo", 4)
    bodies = [row["body"] for row in stored(broker.store, "DelayDemo")]
    assert sorted(bodies) == [b"a", b"b", b"c", b"d"]
    assert bodies[:2] == [b"b", b"d"]


def test_rows_written_as_a_store_are_placed_as_the_broker_places_them(broker: harness.Broker, tmp_path: Path) -> None:
    """Also a broker that starts on the store delivers each of them, to the queue where it belongs."""
    count = 12
    rows = pa.record_batch(
        {
            "topic": [TOPIC] * count,
            "body": [f"{number}" for number in range(count)],
            "unique_key": [f"placed-{number}" for number in range(count)],
            "queue_id": pa.array([None, 1, 2, 3] * (count // 4), pa.int32()),
            "sharding_key": [f"s{number}" for number in range(count)],
            "delay_level": pa.array([None, 0, 1, 2, 99, -1] * (count // 6), pa.int32()),
        }
    )
    names = ("DELAY", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "__SHARDINGKEY")

    def places(store: Path) -> list[tuple[Any, ...]]:
        return [
            (row["topic"], row["queue_id"], *(dict(row["properties"]).get(name) for name in names))
            for topic in (TOPIC, "SCHEDULE_TOPIC_XXXX")
            for row in stored(store, topic)
            if (row["unique_key"] or "").startswith("placed-") and row["store_timestamp"] >= begin
        ]

    begin = datetime.now(UTC).replace(microsecond=0)
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
    topics = store / "config" / "topics.json"
    first = pa.record_batch({"topic": [TOPIC], "queue_id": pa.array([QUEUES - 1]), "body": ["first"]})
    save(store, [first], brokerConf=str(conf))
    topics.write_text(topics.read_text().replace('"writeQueueNums":8', f'"writeQueueNums":{QUEUES}'))
    save(store, [rows], brokerConf=str(conf))
    write(broker, rows)
    sent = places(broker.store)[: 2 * count]
    assert len(sent) >= count
    delivered = [place for place in sent if place[0] == TOPIC and place[3] is not None]
    assert sorted(map(repr, places(store))) == sorted(map(repr, set(sent) - set(delivered)))
    with harness.Broker(broker.version, store, SETTINGS) as booted:
        consumed: list[dict[str, Any]] = []
        for _ in range(5):  # a consumer stops if a busy machine brings no message for some seconds
            if missing := count + 1 - len(consumed):
                consumed += harness.consume(booted, "GID_placed", TOPIC, missing)
    real = {place[5]: int(place[4]) if place[3] else place[1] for place in map(list, places(store))}
    assert {one["uniqKey"]: one["queueId"] for one in consumed if one["uniqKey"] in real} == real
    assert len(consumed) == count + 1


def test_rows_without_a_choice_are_spread(broker: harness.Broker) -> None:
    before = len(stored(broker.store, "PaymentLog"))
    write(
        broker,
        pa.record_batch({"topic": ["PaymentLog"] * 100, "body": [b"x"] * 100, "queue_id": [0] * 100}),
        queueSelector="round_robin",
    )
    ids = [row["queue_id"] for row in stored(broker.store, "PaymentLog")[before:]]
    assert [ids.count(number) for number in range(2)] == [50, 50]


def test_what_cannot_be_sent_is_an_error(broker: harness.Broker) -> None:
    with pytest.raises(InvalidMessageError, match="NoSuchTopic"):
        write(broker, pa.record_batch({"topic": ["NoSuchTopic"], "body": ["x"]}))
    with pytest.raises(InvalidMessageError, match="queue_id 9"):
        write(broker, pa.record_batch({"topic": [TOPIC], "body": ["x"], "queue_id": pa.array([9], pa.int32())}))
    with pytest.raises(InvalidMessageError, match="column 'body_crc' cannot be sent"):
        write(broker, pa.record_batch({"topic": [TOPIC], "body_crc": [1]}))
    with pytest.raises(OptionError, match="splitSize has no effect"):
        write(broker, pa.record_batch({"topic": [TOPIC]}), splitSize="1m")
