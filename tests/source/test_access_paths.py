"""Every access path gives the rows of a full scan that pass the filter, whatever the path and whatever the door.

The judge is a scan of the whole log, whose rows are compared with the facts of real brokers elsewhere, filtered here as
SQL filters: a comparison with NULL passes nothing.
"""

from __future__ import annotations

import operator
import shutil
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_mq.errors import CorruptLogError
from spark_mq.source.lookup_function import RocketMQLookup
from spark_mq.source.options import parse_options
from spark_mq.source.planner import plan_messages
from spark_mq.source.predicate import Condition, Operator, Predicate, decode_conditions, encode_conditions
from spark_mq.source.read_plan import AccessPath, ReadPlan
from spark_mq.store.message_store import MessageStore
from tests.support.in_process import read_rows
from tests.support.kernels import examples
from tests.support.stores import OWN_STORES, WORKLOAD, stores_in

Row = dict[str, Any]
Store = tuple[Path, Path]
"""A store's folder, and the settings of its broker."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STORES = stores_in(OWN_STORES)
COMPARISONS: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.LESS: operator.lt,
    Operator.LESS_OR_EQUAL: operator.le,
    Operator.GREATER: operator.gt,
    Operator.GREATER_OR_EQUAL: operator.ge,
}


def read(store: Store, **options: str) -> list[Row]:
    """All rows, read as Spark's planning and task processes would."""
    folder, conf = store
    given_options = {"path": str(folder), "brokerConf": str(conf), "splitSize": "64k"} | options
    return read_rows(**given_options)


def plan(store: Store, **options: str) -> ReadPlan:
    folder, conf = store
    given_options = {"path": str(folder), "brokerConf": str(conf), "splitSize": "64k"} | options
    with MessageStore(str(folder), broker_conf=str(conf)) as opened:
        return plan_messages(parse_options(given_options), opened)


@cache
def all_rows(store: Store, table: str) -> list[Row]:
    return read(store, table=table)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[Store]:
    """Every own store as it is; without index and queues; with parts of them; and with damage in its log."""
    found: list[Store] = []
    for store in STORES:
        folder = store.unpack(tmp_path_factory.mktemp(store.name))
        found.append((folder, store.broker_conf))
    plain = found[[store.name for store in STORES].index("workload-533")]
    for name in ("bare", "parts", "damaged", "expired"):
        folder = shutil.copytree(plain[0], tmp_path_factory.mktemp(name) / "store")
        change(folder, name)
        found.append((folder, plain[1]))
    return found


def change(folder: Path, name: str) -> None:
    segments, index = sorted((folder / "commitlog").iterdir()), sorted((folder / "index").iterdir())
    queues = sorted((folder / "consumequeue").glob("*/*"))
    if name == "bare":
        shutil.rmtree(folder / "index")
        shutil.rmtree(folder / "consumequeue")
    elif name == "parts":
        index[1].unlink()
        index[-1].unlink()
        for number, queue in enumerate(queues):
            files = sorted(queue.iterdir())
            if number % 3 == 0:
                files[-1].unlink()
            elif number % 3 == 1:
                data = bytearray(files[0].read_bytes())
                data[20:60] = bytes(40)
                data[7] ^= 3
                files[0].write_bytes(data)
    elif name == "damaged":
        for segment in segments[:-1]:
            data = bytearray(segment.read_bytes())
            data[20_000:20_050] = b"\xa5" * 50
            data[90_000:90_050] = bytes(50)
            segment.write_bytes(data)
    elif name == "expired":
        segments[0].unlink()


def passes(row: Mapping[str, Any], condition: Condition) -> bool:
    value = row[condition.column]
    if value is None:
        return False
    if condition.operator == Operator.IN:
        return value in condition.values
    return COMPARISONS[condition.operator](value, condition.values[0])


TEXT_COLUMNS = ["topic", "tags", "unique_key", "offset_message_id", "transaction_type"]
INTEGER_COLUMNS = ["commit_log_offset", "queue_offset", "queue_id"]


@st.composite
def conditions(draw: st.DrawFn, rows: list[Row], columns: list[str]) -> list[Condition]:
    """Conditions about one row, so that they often hold together."""
    base = draw(st.sampled_from(rows))
    found = []
    for column in draw(st.lists(st.sampled_from(columns), min_size=1, max_size=5, unique=True)):
        value = base[column]
        near = [row[column] for row in draw(st.lists(st.sampled_from(rows), max_size=3)) if row[column] is not None]
        if column in [*TEXT_COLUMNS, "key"]:
            values = [value if value is not None else "none", *near]
            found.append(Condition(column, Operator.IN, tuple(values[: draw(st.integers(1, 4))])))
            continue
        compare = draw(st.sampled_from([Operator.IN, *Operator]))
        shift = draw(st.sampled_from([0, 0, 0, 1, -1, 1000, 1 << 70]))
        if column == "store_timestamp":
            moment = value if value is not None else EPOCH
            shifted = moment + timedelta(microseconds=min(shift, 10**9))
            values = [shifted, *near]
        else:
            values = [(0 if value is None else value) + shift, *near]
        found.append(Condition(column, compare, tuple(values) if compare == Operator.IN else tuple(values[:1])))
    return found


def identity(row: Row) -> tuple[Any, ...]:
    return row["commit_log_offset"], row.get("key") or "", row["store_size"], repr(row)


@pytest.mark.parametrize("table", ["messages", "messages_by_key"])
@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_conditions_leave_the_rows_that_pass(table: str, data: st.DataObject, stores: list[Store]) -> None:
    """What a read leaves out would not pass. What it leaves in, Spark looks at again."""
    store = data.draw(st.sampled_from(stores))
    rows = all_rows(store, table)
    columns = [*TEXT_COLUMNS, *INTEGER_COLUMNS, "store_timestamp", *(["key"] if "key" in table else [])]
    wanted = data.draw(conditions(rows, columns))
    expected = [row for row in rows if all(passes(row, condition) for condition in wanted)]
    found = read(store, table=table, conditions=encode_conditions(wanted))
    left = [row for row in found if all(passes(row, condition) for condition in wanted)]
    assert sorted(left, key=identity) == sorted(expected, key=identity)
    assert len(found) == len({identity(row) for row in found})


def options_of(row: Row) -> dict[str, str]:
    """Every option about a message that it passes."""
    moment = row["store_timestamp"]
    return {
        "topic": row["topic"],
        "queueId": str(row["queue_id"]),
        "uniqueKey": row["unique_key"],
        "key": (row["keys"] or [row["unique_key"]])[0],
        "offsetMessageId": row["offset_message_id"].lower(),
        "startOffset": str(row["commit_log_offset"]),
        "endOffset": str(row["commit_log_offset"]),
        "startQueueOffset": str(row["queue_offset"]),
        "endQueueOffset": str(row["queue_offset"]),
        "startTimestamp": moment.isoformat(),
        "endTimestamp": moment.isoformat(),
    }


def allows(row: Row, options: Mapping[str, str]) -> bool:
    """The manual's words, in Python."""
    if row["topic"] is None:
        return not set(options) - {"startOffset", "endOffset"} and (
            int(options.get("startOffset", 0)) <= row["commit_log_offset"] <= int(options.get("endOffset", 1 << 62))
        )
    keys = {*(row["keys"] or ()), row["unique_key"]}
    transaction_type = row["transaction_type"]
    millis = (row["store_timestamp"] - EPOCH) // timedelta(milliseconds=1)
    checks: dict[str, Callable[[str], bool]] = {
        "topic": lambda text: row["topic"] == text,
        "queueId": lambda text: row["queue_id"] == int(text),
        "uniqueKey": lambda text: row["unique_key"] == text and transaction_type != "ROLLBACK",
        "key": lambda text: text in keys and transaction_type != "ROLLBACK",
        "offsetMessageId": lambda text: row["offset_message_id"] == text.upper(),
        "startOffset": lambda text: row["commit_log_offset"] >= int(text),
        "endOffset": lambda text: row["commit_log_offset"] <= int(text),
        "startQueueOffset": lambda text: row["queue_offset"] >= int(text) and transaction_type in ("NONE", "COMMIT"),
        "endQueueOffset": lambda text: row["queue_offset"] <= int(text) and transaction_type in ("NONE", "COMMIT"),
        "startTimestamp": lambda text: millis >= (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1),
        "endTimestamp": lambda text: millis <= (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1),
    }
    return all(checks[name](text) for name, text in options.items())


@settings(max_examples=examples(300), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_options_leave_exactly_their_rows(data: st.DataObject, stores: list[Store]) -> None:
    store = data.draw(st.sampled_from(stores))
    rows = all_rows(store, "messages")
    one, other = (data.draw(st.sampled_from([row for row in rows if row["topic"]])) for _ in range(2))
    names = data.draw(st.lists(st.sampled_from(list(options_of(one))), min_size=1, max_size=5, unique=True))
    options = {name: options_of(one)[name] for name in names}
    for name in data.draw(st.lists(st.sampled_from(names), max_size=1)):
        options[name] = options_of(other)[name]
    options = {name: value for name, value in options.items() if value is not None}
    expected = [row for row in rows if allows(row, options)]
    assert sorted(read(store, **options), key=identity) == sorted(expected, key=identity)


@pytest.mark.parametrize("host", ["0A0000010000AAAA", "00" * 15 + "0100002A9F"], ids=["IPv4", "IPv6"])
def test_an_id_of_another_broker_finds_nothing(host: str, stores: list[Store]) -> None:
    """Options, `WHERE` and the table function: the host of an id counts, and so does its offset."""
    store = stores[[item.name for item in STORES].index("workload-533")]
    row = next(row for row in all_rows(store, "messages") if row["topic"] == "OrderEvents")
    own, other = row["offset_message_id"], host + row["offset_message_id"][-16:]
    for text, found in ((own, [row]), (other, [])):
        where = encode_conditions([Condition("offset_message_id", Operator.IN, (text,))])
        assert read(store, offsetMessageId=text.lower()) == read(store, conditions=where) == found
        assert list(RocketMQLookup().eval(str(store[0]), "OrderEvents", text, str(store[1]))) == []  # ids are not keys


def test_keys_of_one_message_give_it_once(stores: list[Store]) -> None:
    """A message that several of the wanted keys lead to."""
    store = stores[[item.name for item in STORES].index("workload-533")]
    row = next(row for row in all_rows(store, "messages") if len(row["keys"] or ()) > 1 and row["unique_key"])
    keys = (*row["keys"], row["unique_key"])
    wanted = [Condition("topic", Operator.IN, (row["topic"],)), Condition("key", Operator.IN, keys)]
    text = encode_conditions(wanted)
    assert plan(store, conditions=text).path == AccessPath.INDEX
    expected = [
        other
        for other in all_rows(store, "messages")
        if other["topic"] == row["topic"] and any(_has(other, key) for key in keys)
    ]
    assert sorted(read(store, conditions=text), key=identity) == sorted(expected, key=identity)
    by_key = read(store, conditions=text, table="messages_by_key")
    pairs = {(other["commit_log_offset"], key) for other in expected for key in keys if _has(other, key)}
    assert {(found["commit_log_offset"], found["key"]) for found in by_key} == pairs
    assert len(by_key) == len(pairs)


def _has(row: Row, key: str) -> bool:
    return key in {*(row["keys"] or ()), row["unique_key"]} and row["transaction_type"] != "ROLLBACK"


class TestPaths:
    """Which path a question takes."""

    @pytest.fixture(scope="class")
    @staticmethod
    def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
        return WORKLOAD.unpack(tmp_path_factory.mktemp("paths")), WORKLOAD.broker_conf

    @pytest.mark.parametrize(
        ("options", "path"),
        [
            ({}, AccessPath.WHOLE_LOG),
            ({"topic": "OrderEvents"}, AccessPath.WHOLE_LOG),
            ({"key": "user1"}, AccessPath.WHOLE_LOG),
            ({"topic": "OrderEvents", "key": "user1"}, AccessPath.INDEX),
            ({"topic": "OrderEvents", "uniqueKey": "user1"}, AccessPath.INDEX),
            ({"topic": "OrderEvents", "key": "user1", "checkCrc": "true"}, AccessPath.WHOLE_LOG),
            ({"topic": "OrderEvents", "queueId": "1", "startQueueOffset": "5"}, AccessPath.CONSUME_QUEUE),
            ({"topic": "OrderEvents", "queueId": "1", "endQueueOffset": "5"}, AccessPath.CONSUME_QUEUE),
            ({"topic": "nope", "queueId": "1", "endQueueOffset": "5"}, AccessPath.WHOLE_LOG),
            ({"topic": "OrderEvents", "endQueueOffset": "5"}, AccessPath.WHOLE_LOG),
            ({"startOffset": "5"}, AccessPath.OFFSETS),
            ({"offsetMessageId": "0" * 32}, AccessPath.OFFSETS),
            ({"startTimestamp": "0"}, AccessPath.TIME_RANGE),
            ({"startTimestamp": "0", "endTimestamp": "-1"}, AccessPath.NOTHING),
            ({"conditions": '[["unique_key", "in", ["a"]], ["topic", "in", ["OrderEvents"]]]'}, AccessPath.WHOLE_LOG),
            (
                {"conditions": '[["queue_offset", ">=", [0]]]', "topic": "OrderEvents", "queueId": "1"},
                AccessPath.WHOLE_LOG,
            ),
            (
                {"conditions": '[["queue_offset", ">=", [1]]]', "topic": "OrderEvents", "queueId": "1"},
                AccessPath.CONSUME_QUEUE,
            ),
        ],
    )
    def test_a_question_takes_its_path(self, options: dict[str, str], path: AccessPath, store: Store) -> None:
        """A column `unique_key` or `queue_offset` alone can mean a message that index or queues do not have."""
        assert plan(store, **options).path == path

    def test_point_questions_read_little(self, store: Store) -> None:
        row = all_rows(store, "messages")[700]
        options = options_of(row)
        for names in (("topic", "key"), ("topic", "queueId", "startQueueOffset", "endQueueOffset")):
            found = plan(store, **{name: options[name] for name in names})
            assert (found.splits, found.uncovered, len(found.look_ups)) == ((), (), 1)


def test_a_unit_that_points_ahead_costs_its_own_part_of_the_log(tmp_path: Path) -> None:
    """Not the part up to where it points, and not the units after it."""
    folder = WORKLOAD.unpack(tmp_path)
    facts = [fact for fact in WORKLOAD.facts("msg") if (fact["topic"], fact["queueId"]) == ("OrderEvents", 1)]
    (file,) = (folder / "consumequeue" / "OrderEvents" / "1").iterdir()
    with file.open("r+b") as stream:
        stream.seek(20 * 30)
        stream.write(facts[50]["offset"].to_bytes(8, "big"))
    store = folder, WORKLOAD.broker_conf
    options = {"topic": "OrderEvents", "queueId": "1", "startQueueOffset": "10", "endQueueOffset": "60"}
    found = plan(store, **options)
    assert found.path == AccessPath.CONSUME_QUEUE
    assert [(part.queue.start, part.queue.stop) for part in found.look_ups if part.queue] == [(10, 30), (31, 61)]
    between = facts[29]["offset"] + facts[29]["size"], facts[31]["offset"]
    assert [(part.start, part.stop) for part in found.uncovered] == [between]
    rows = sorted(row["commit_log_offset"] for row in read(store, **options))
    assert rows == [fact["offset"] for fact in facts[10:61]]


def test_damage_that_a_look_up_by_queue_meets_fails_as_a_scan_does(tmp_path: Path) -> None:
    folder = WORKLOAD.unpack(tmp_path)
    facts = [fact for fact in WORKLOAD.facts("msg") if (fact["topic"], fact["queueId"]) == ("OrderEvents", 1)]
    segment = max(file for file in (folder / "commitlog").iterdir() if int(file.name) <= facts[30]["offset"])
    with segment.open("r+b") as stream:
        stream.seek(facts[30]["offset"] - int(segment.name) + 4)
        stream.write(b"\xa5" * 4)
    options = {"topic": "OrderEvents", "queueId": "1", "startQueueOffset": "10", "endQueueOffset": "60"}
    rows = read((folder, WORKLOAD.broker_conf), **options)
    assert sorted(row["commit_log_offset"] for row in rows) == [
        fact["offset"] for fact in facts[10:61] if fact is not facts[30]
    ]
    with pytest.raises(CorruptLogError, match=str(facts[30]["offset"])):
        read((folder, WORKLOAD.broker_conf), mode="FAILFAST", **options)


condition_texts = st.builds(
    Condition,
    st.sampled_from(["topic", "queue_offset", "store_timestamp", "nope"]),
    st.just(Operator.IN),
    st.lists(st.text() | st.integers() | st.datetimes(timezones=st.just(UTC)), max_size=3).map(tuple),
)


@given(st.lists(condition_texts))
def test_conditions_survive_their_text(wanted: list[Condition]) -> None:
    assert decode_conditions(encode_conditions(wanted)) == wanted
    assert Predicate.of(wanted) == Predicate.of(decode_conditions(encode_conditions(wanted)))
