"""Rows that were in no store, placed as a broker does: in queues of their topics, or in that of delayed messages."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import InvalidMessageError, OptionError
from spark_mq.format.java_text import hash_code
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import decode_record
from spark_mq.restorer.encode_messages import encode_messages
from spark_mq.restorer.queue_choice import QueueSelector, StoreQueues
from spark_mq.restorer.source_columns import EncodingRules, check_columns
from tests.support.in_process import read_rows
from tests.support.message_rows import encoded_records
from tests.support.verified import check, grave
from tests.support.written import CONF, save

RULES = EncodingRules(is_faithful=False, now=1_700_000_000_000, queues=StoreQueues(QueueSelector.QUEUE_ID, 3, {"T": 4}))
WAITING = "SCHEDULE_TOPIC_XXXX"
LEVELS = st.sampled_from(["-1", "0", "1", "3", "+2", "4", "2147483647"])
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "DELAY": LEVELS,
        "REAL_TOPIC": st.sampled_from(["T", "U", "V"]),
        "REAL_QID": st.sampled_from(["7", "8"]),
        "a": st.just("b"),
        "TIMER_OUT_MS": st.just("5"),
        "__CRC32#": st.just("1234567890"),
    },
)
ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "U", "%RETRY%g", WAITING, "RMQ_SYS_TRANS_HALF_TOPIC"]),
        "queue_id": st.none() | st.integers(0, 9),
        "sys_flag": st.sampled_from([0, 0, 4, 8, 12]),
        "properties": VALUES,
        "sharding_key": st.none() | st.sampled_from(["k", "ключ", ""]),
        "delay_level": st.none() | st.integers(-1, 9),
        "commit_log_offset": st.sampled_from([None, None, 7]),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    types = {
        **dict.fromkeys(("topic", "sharding_key"), pa.string()),
        **dict.fromkeys(("queue_id", "sys_flag", "delay_level"), pa.int32()),
        **dict.fromkeys(("commit_log_offset", "deliver_timestamp"), pa.int64()),
        "properties": pa.map_(pa.string(), pa.string()),
        "properties_bytes": pa.binary(),
    }
    names = dict.fromkeys(name for row in rows for name in row)
    schema = pa.schema([(name, types[name]) for name in names])
    return pa.RecordBatch.from_pylist([{name: row.get(name) for name in names} for row in rows], schema)


def placed(rows: list[dict[str, Any]], rules: EncodingRules = RULES) -> list[tuple[str, int, dict[str, str]]]:
    """Topic, queue id and properties of the records of rows."""
    encoded = encode_messages(batch_of(rows), rules)
    found = []
    for data, number in zip(encoded_records(encoded), encoded.rows.queue_number.tolist(), strict=True):
        record = decode_record(data)
        assert encoded.queues[number] == (record.topic.decode(), record.queue_id)
        pairs = parse_properties(record.properties).items()
        found.append((record.topic.decode(), record.queue_id, {key.decode(): one.decode() for key, one in pairs}))
    return found


def expected_place(row: dict[str, Any], turn: int) -> tuple[str, int, dict[str, str]]:
    """What a broker of 3 delay levels does with a message (`HookUtils.handleScheduleMessage`@5.3.3)."""
    properties, topic, queue_id = dict(row["properties"]), row["topic"], row["queue_id"]
    for name, column in (("__SHARDINGKEY", "sharding_key"), ("DELAY", "delay_level")):
        if row[column] not in (None, ""):
            properties[name] = str(row[column])
    is_own = topic in (WAITING, "RMQ_SYS_TRANS_HALF_TOPIC")
    if queue_id is None:
        count = 1 if topic.startswith("%") else 4 if topic == "T" else 8
        key = properties.get("__SHARDINGKEY")
        queue_id = 0 if is_own else turn % count if key is None else abs(hash_code(key)) % count
    level = int(properties.get("DELAY", "0"))
    is_sent = not is_own and row["commit_log_offset"] is None and row["sys_flag"] in (0, 8)
    if is_sent and level > 0 and properties.get("REAL_TOPIC") != topic:
        properties |= {"REAL_TOPIC": topic, "REAL_QID": str(queue_id), "DELAY": str(min(level, 3))}
        return WAITING, min(level, 3) - 1, properties
    return topic, queue_id, properties


@given(st.lists(ROWS, min_size=1, max_size=12))
def test_rows_are_placed_as_a_broker_places_messages(rows: list[dict[str, Any]]) -> None:
    turns: Counter[str] = Counter()
    found = placed(rows)
    for row, (topic, queue_id, properties) in zip(rows, found, strict=True):
        wanted = expected_place(row, turns[row["topic"]])
        turns[row["topic"]] += 1
        for changing in ("UNIQ_KEY", "__CRC32#"):
            properties.pop(changing, None)
            wanted[2].pop(changing, None)
        assert (topic, queue_id, properties) == wanted


def test_properties_that_are_given_as_bytes_keep_their_form() -> None:
    stored = b"x\1y\2DELAY\0019\2z\1"
    (one, other) = placed([{"topic": "T", "queue_id": 2, "properties_bytes": data} for data in (stored, b"x\1y\2")])
    assert one == (WAITING, 2, {"REAL_TOPIC": "T", "REAL_QID": "2", "x": "y", "DELAY": "3"})
    assert other == ("T", 2, {"x": "y"})


def test_a_broker_that_gets_the_rows_places_them_itself() -> None:
    rows: list[dict[str, Any]] = [{"topic": "T", "delay_level": 2}, {"topic": "T", "queue_id": 3}]
    assert [one[:2] for one in placed(rows, replace(RULES, queues=None))] == [("T", 0), ("T", 3)]


def test_queues_to_which_messages_will_be_delivered_are_named() -> None:
    rows: list[dict[str, Any]] = [{"topic": "T", "delay_level": 1, "queue_id": 3}, {"topic": "U", "queue_id": 1}]
    assert encode_messages(batch_of(rows), RULES).queues == ((WAITING, 0), ("U", 1), ("T", 3))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"properties": {"DELAY": "soon"}},
            r"row 1 \(topic 'T'\): delay level 'soon' \(property DELAY\) is not an INT",
        ),
        ({"properties": {"TIMER_DELAY_SEC": "5"}}, "row 1 .* property TIMER_DELAY_SEC asks .* by a broker's timer"),
        ({"deliver_timestamp": 1_900_000_000_000, "delay_level": 3}, "property TIMER_DELIVER_MS asks"),
        ({"sharding_key": "a\2b"}, "the character 1 or 2"),
    ],
)
def test_rows_that_a_store_cannot_have_are_errors(row: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidMessageError, match=message):
        placed([{"topic": "T"}, {"topic": "T"} | row])


def test_columns_of_new_messages_have_no_place_in_messages_that_keep_their_bytes() -> None:
    columns = [("topic", pa.string()), ("commit_log_offset", pa.int64()), ("queue_offset", pa.int64())]
    with pytest.raises(InvalidMessageError, match="'delay_level' changes messages"):
        check_columns(pa.schema([*columns, ("delay_level", pa.int32())]), is_faithful=True)
    with pytest.raises(InvalidMessageError, match="'deliver_timestamp' has type string"):
        check_columns(pa.schema([*columns, ("deliver_timestamp", pa.string())]))


def rows_of(topic: str, count: int, **columns: pa.Array) -> pa.RecordBatch:
    bodies = [f"{topic} {number}" for number in range(count)]
    return pa.RecordBatch.from_pydict({"topic": [topic] * count, "body": bodies, **columns})


def queues_of(store: Path, topic: str) -> dict[int, int]:
    return dict(sorted(Counter(row["queue_id"] for row in read_rows(path=str(store)) if row["topic"] == topic).items()))


def queue_nums(store: Path, topic: str) -> tuple[int, int]:
    entry = json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"][topic]
    return entry["readQueueNums"], entry["writeQueueNums"]


def test_rows_are_spread_over_the_queues_of_their_topics(tmp_path: Path) -> None:
    """In a new store over 8 queues; then over those that the topic has."""
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text(CONF)
    save(store, [rows_of("orders", 408), rows_of("orders", 392)], brokerConf=str(conf))
    assert queues_of(store, "orders") == dict.fromkeys(range(8), 100)
    topics = json.loads((store / "config" / "topics.json").read_text())
    topics["topicConfigTable"]["orders"] |= {"writeQueueNums": 3, "readQueueNums": 3}
    (store / "config" / "topics.json").write_text(json.dumps(topics))
    ids = pa.array([7] * 30, pa.int32())
    save(store, [rows_of("orders", 30, queue_id=ids)], brokerConf=str(conf), queueSelector="round_robin")
    assert queues_of(store, "orders") == dict.fromkeys(range(3), 110) | dict.fromkeys(range(3, 8), 100)
    keys = pa.array([str(number % 5) for number in range(30)])
    keyed = [rows_of("keyed", 30, queue_id=ids, sharding_key=keys)]
    save(store, keyed, brokerConf=str(conf), queueSelector="sharding_key")
    assert queues_of(store, "keyed") == {hash_code(str(number)) % 8: 6 for number in range(5)}
    assert queue_nums(store, "orders") == (3, 3)
    save(store, [rows_of("orders", 2, queue_id=pa.array([5, 5]))], brokerConf=str(conf))
    assert queue_nums(store, "orders") == (6, 3)  # consumers get messages of queues that can be read
    assert grave(check(store, conf)[1]) == []
    with pytest.raises(OptionError, match="queueSelector"):
        save(store, keyed, queueSelector="hash")


def test_delayed_rows_wait_in_the_store(tmp_path: Path) -> None:
    conf, store = tmp_path / "broker.conf", tmp_path / "store"
    conf.write_text(f"{CONF}messageDelayLevel=1s 5m\n")
    time = datetime(2026, 11, 21, tzinfo=UTC)
    delays = pa.array([None, 1, 2, 9], pa.int32())
    times = pa.array([time] * 4, pa.timestamp("us", "UTC"))
    save(store, [rows_of("later", 4, delay_level=delays, store_timestamp=times)], brokerConf=str(conf))
    found = [(row["topic"], row["queue_id"], row["body"]) for row in read_rows(path=str(store))]
    assert found == [
        ("later", 0, b"later 0"),
        (WAITING, 0, b"later 1"),
        (WAITING, 1, b"later 2"),
        (WAITING, 1, b"later 3"),
    ]
    waiting = read_rows(path=str(store), table="delayed", brokerConf=str(conf))
    due = {row["body"] if "body" in row else row["delay_level"]: row["due_timestamp"] - time for row in waiting}
    assert sorted(one.total_seconds() for one in due.values()) == [1, 300]
    assert "later" in json.loads((store / "config" / "topics.json").read_text())["topicConfigTable"]
    assert grave(check(store, conf)[1]) == []
