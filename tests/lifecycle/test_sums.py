"""Duplicates, hot keys and rates, against sums over the facts of the Java classes."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from spark_mq import MessageStore
from spark_mq.format.system_topic import is_system_topic
from spark_mq.lifecycle.message_arrays import MergedGroups
from spark_mq.lifecycle.selected_messages import EVERYTHING, Selection
from spark_mq.lifecycle.statistics import (
    DUPLICATES_COLUMNS,
    DUPLICATES_PROPERTIES,
    MOST_KEYS,
    duplicates,
    duplicates_rows,
    hot_keys,
    hot_keys_rows,
    rates_rows,
    skew,
    skew_rows,
    value_ranges,
)
from spark_mq.tables.lifecycle import DUPLICATES, HOT_KEYS, RATES, SKEW
from tests.support.stores import WORKLOADS, RealStore, Unpack

each = pytest.mark.parametrize("packed", WORKLOADS, ids=str)
PLAIN = ("OrderEvents", "PaymentLog", "user_activity", "SequenceDemo", "RetryDemo", "DelayDemo", "TransactionDemo")


@each
def test_duplicates_are_all_copies_of_a_key_with_their_causes(packed: RealStore, unpacked: Unpack) -> None:
    by_key = defaultdict(list)
    for fact in packed.facts("msg"):
        if fact["uniqKey"] is not None:
            by_key[fact["uniqKey"]].append(fact)
    with MessageStore(str(unpacked(packed))) as store:
        table = duplicates_rows(store)
    assert table.schema == DUPLICATES.schema
    rows = table.to_pylist()
    wanted = [
        (key, number, len(facts), fact["offset"])
        for key, facts in by_key.items()
        for number, fact in enumerate(facts)
        if len(facts) > 1
    ]
    found = [(row["unique_key"], row["copy_number"], row["copy_count"], row["commit_log_offset"]) for row in rows]
    assert found == wanted
    causes = Counter((row["topic"], row["cause"]) for row in rows)
    said = Counter[tuple[str, str]]()
    for fact in packed.facts("msg"):
        topic, properties = fact["topic"], fact["properties"]
        if topic == "RMQ_SYS_TRANS_HALF_TOPIC" and "TRANSACTION_CHECK_TIMES" in properties:
            said[topic, "CHECK"] += 1
        elif topic == "TransactionDemo":
            said[topic, "COMMIT"] += 1
        elif topic in ("DelayDemo", "%RETRY%GID_failing", "TimerDemo") and "REAL_TOPIC" in properties:
            said[topic, "DELAY_DELIVERY"] += 1
        elif topic == "SCHEDULE_TOPIC_XXXX" and fact["reconsumeTimes"]:
            said[topic, "RETRY"] += 1
        elif topic == "%DLQ%GID_failing":
            said[topic, "DEAD_LETTER"] += 1
        elif topic == "TRANS_CHECK_MAX_TIME_TOPIC":
            said[topic, "DISCARD"] += 1
    by_broker = {pair: count for pair, count in causes.items() if pair[1] not in ("SENT", "RESENT", "BATCH")}
    assert by_broker == said
    # `Append` stores messages twice; 5.3.3 gives a batch one key (`ProducerWorkload.batches`).
    assert {topic for topic, cause in causes if cause == "RESENT"} == {"DirectTopic"}
    batch = [fact for fact in packed.facts("msg") if fact["topic"] == "BatchIngest"]
    assert causes["BatchIngest", "BATCH"] == len(batch) - len({fact["uniqKey"] for fact in batch})
    assert (causes["BatchIngest", "BATCH"] > 0) == (packed.broker_version == "5")


def test_a_batch_is_one_append_to_one_queue() -> None:
    schema = Selection(EVERYTHING, DUPLICATES_COLUMNS, DUPLICATES_PROPERTIES).schema
    first = {"topic": "T", "queue_id": 1, "commit_log_offset": 100, "store_size": 50, "reconsume_times": 0}
    first |= {"unique_key": "K", "born_timestamp": 1000, "store_timestamp": 2000, "transaction_type": "NONE"}
    batch = first | {"commit_log_offset": 150}

    def cause(**differs: object) -> str:
        rows = [{name: row.get(name) for name in schema.names} for row in (first, batch | differs)]
        table = pa.Table.from_pylist(rows, schema)
        return str(duplicates(table)["cause"].to_pylist()[1])

    assert cause() == "BATCH"
    for name, value in (
        ("commit_log_offset", 151),
        ("topic", "U"),
        ("queue_id", 2),
        ("born_timestamp", 1001),
        ("store_timestamp", 2001),
    ):
        assert cause(**{name: value}) == "RESENT", name


@each
def test_rates_are_the_sums_of_the_messages(packed: RealStore, unpacked: Unpack) -> None:
    counts, sizes = Counter[tuple[str, str | None, int]](), Counter[tuple[str, str | None, int]]()
    for fact in packed.facts("msg"):
        group = fact["topic"], fact["tags"], fact["storeTimestamp"] // 60_000
        counts[group] += 1
        sizes[group] += fact["size"]
    with MessageStore(str(unpacked(packed))) as store:
        table, of_topic = rates_rows(store), rates_rows(store, "OrderEvents")
    assert table.schema == RATES.schema
    rows = table.to_pylist()
    found = {(row["topic"], row["tags"], round(row["minute"].timestamp()) // 60): row for row in rows}
    assert len(found) == len(rows)
    assert {group: row["message_count"] for group, row in found.items()} == counts
    assert {group: row["log_bytes"] for group, row in found.items()} == sizes
    assert of_topic.to_pylist() == [row for row in rows if row["topic"] == "OrderEvents"]


@each
def test_skew_is_the_sums_of_each_queue_and_minute(packed: RealStore, unpacked: Unpack) -> None:
    hosts: defaultdict[tuple[str, int, int], Counter[str]] = defaultdict(Counter)
    sizes = Counter[tuple[str, int, int]]()
    for fact in packed.facts("msg"):
        group = fact["topic"], fact["queueId"], fact["storeTimestamp"] // 60_000
        hosts[group][fact["bornHost"].rpartition("|")[0]] += 1
        sizes[group] += fact["size"]
    with MessageStore(str(unpacked(packed))) as store:
        table, of_topic = skew_rows(store), skew_rows(store, "DirectTopic")
    assert table.schema == SKEW.schema
    rows = table.to_pylist()
    found = {(row["topic"], row["queue_id"], round(row["minute"].timestamp()) // 60): row for row in rows}
    assert list(found) == sorted(found)
    assert {group: row["message_count"] for group, row in found.items()} == {one: hosts[one].total() for one in hosts}
    assert {group: row["log_bytes"] for group, row in found.items()} == sizes
    for group, row in found.items():
        assert row["born_host_count"] == len(hosts[group])
        assert row["top_born_host_messages"] == max(hosts[group].values())
    assert of_topic.to_pylist() == [row for row in rows if row["topic"] == "DirectTopic"]
    assert skew(None).num_rows == 0


def test_the_top_host_is_that_of_most_messages() -> None:
    groups = pa.table(
        {
            "topic": ["b", "a", "a", "a", "a"],
            "queue_id": pa.array([0, 1, 0, 0, 0], pa.int32()),
            "minute": pa.array([0] * 5, pa.timestamp("us", "UTC")),
            "born_host": ["h9", "h1", "h3", "h1", "h2"],
            "store_size": [1, 2, 4, 8, 16],
            "count": [1, 1, 2, 1, 2],
        }
    )
    rows = [tuple(row.values()) for row in skew(groups).drop_columns(["minute"]).to_pylist()]
    assert rows == [("a", 0, 5, 28, 3, "h2", 2), ("a", 1, 1, 2, 1, "h1", 1), ("b", 0, 1, 1, 1, "h9", 1)]


@each
def test_hot_keys_are_those_of_most_messages_and_bytes(packed: RealStore, unpacked: Unpack) -> None:
    counts, sizes = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for fact in packed.facts("msg"):
        for key in set((fact["keys"] or "").split(" ")) - {""}:
            counts[fact["topic"], key] += 1
            sizes[fact["topic"], key] += fact["size"]
    with MessageStore(str(unpacked(packed))) as store:
        table, half = hot_keys_rows(store), hot_keys_rows(store, "RMQ_SYS_TRANS_HALF_TOPIC")
    assert table.schema == HOT_KEYS.schema
    rows = table.to_pylist()
    found = {(row["topic"], row["key"]): (row["message_count"], row["log_bytes"]) for row in rows}
    assert found.items() <= {pair: (counts[pair], sizes[pair]) for pair in counts}.items()
    own = {pair for pair in counts if not is_system_topic(pair[0])}
    least = sorted((counts[pair] for pair in own), reverse=True)[MOST_KEYS - 1]
    assert {pair for pair in own if counts[pair] > least} <= found.keys()
    most = sorted((sizes[pair] for pair in own), reverse=True)[MOST_KEYS - 1]
    assert {pair for pair in own if sizes[pair] > most} <= found.keys()
    order = [(-row["message_count"], -row["log_bytes"], row["topic"], row["key"]) for row in rows]
    assert order == sorted(order)
    assert {row["topic"] for row in half.to_pylist()} == {"RMQ_SYS_TRANS_HALF_TOPIC"}


def test_groups_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spark_mq.lifecycle.message_arrays._MERGED_ROWS", 3)
    groups = MergedGroups(["topic", "key"], ["store_size"], ["store_timestamp"])
    assert groups.result() is None
    assert hot_keys(groups.result()).num_rows == 0
    for number in range(20):
        groups.add(
            pa.table(
                {
                    "topic": ["a", "a", "b"],
                    "key": ["x", None, f"y{number}"],
                    "store_size": pa.array([1, 10, 100], pa.int32()),
                    "store_timestamp": pa.array([number] * 3, pa.int64()),
                }
            )
        )
    result = groups.result()
    assert result is not None
    rows = {(row["topic"], row["key"]): row for row in result.to_pylist()}
    assert len(rows) == 22
    assert [rows["a", "x"][name] for name in ("count", "store_size", "store_timestamp_min", "store_timestamp_max")] == [
        *(20, 20, 0, 19)
    ]
    assert rows["a", None]["store_size"] == 200
    assert rows["b", "y7"]["store_timestamp_max"] == 7


@pytest.mark.parametrize("most", [1, 2, 7, 20, 59, 60, 100])
def test_the_hottest_keys_of_many_are_those_of_a_whole_sort(most: int) -> None:
    random = np.random.default_rng(most)
    counts, sizes = random.integers(1, 4, 60), random.integers(1, 5, 60)
    rows = [
        {"topic": f"T{number % 3}", "key": f"k{number % 20}", "count": int(count), "store_size": int(size)}
        | {"store_timestamp_min": 0, "store_timestamp_max": 1}
        for number, (count, size) in enumerate(zip(counts, sizes, strict=True))
    ]
    times = [(name, pa.timestamp("us", "UTC")) for name in ("store_timestamp_min", "store_timestamp_max")]
    names = [("topic", pa.string()), ("key", pa.string()), ("store_size", pa.int64()), ("count", pa.int64())]
    found = hot_keys(pa.Table.from_pylist(rows, pa.schema([*names, *times])), most).to_pylist()

    def first(*by: str) -> set[tuple[str, str]]:
        ordered = sorted(rows, key=lambda row: (*(-int(str(row[name])) for name in by), row["topic"], row["key"]))
        return {(str(row["topic"]), str(row["key"])) for row in ordered[:most]}

    assert {(row["topic"], row["key"]) for row in found} == first("count", "store_size") | first("store_size", "count")
    order = [(-row["message_count"], -row["log_bytes"], row["topic"], row["key"]) for row in found]
    assert order == sorted(order)


def test_a_quantile_is_a_value_that_a_message_has() -> None:
    rows = [("a", 1, 98), ("a", 5, 1), ("a", 900, 1), ("b", 7, 1), ("b", 8, 1)]
    names = ("topic", "value", "count")
    groups = pa.table({name: [row[number] for row in rows] for number, name in enumerate(names)})
    found = [tuple(row.values()) for row in value_ranges(groups).to_pylist()]
    assert found == [(None, 102, 1018, 1, 8, 900), ("a", 100, 1003, 1, 5, 900), ("b", 2, 15, 7, 8, 8)]
    assert value_ranges(None).num_rows == 0
