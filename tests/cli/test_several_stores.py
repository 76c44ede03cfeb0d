"""Commands with `--stores FILE`: the answers of a 5.3.3 and a 4.9.7 broker, and where they were found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.arguments import place_stores_file
from spark_mq.cli.tables import sums_of_topics
from tests.support.said import Run
from tests.support.stores import STORES, Unpack

Ask = Callable[..., list[dict[str, Any]]]
BROKERS = {"broker-new": STORES["workload-533"], "broker-old": STORES["workload-49x"]}
TOPIC = "OrderEvents"


@pytest.fixture
def file(unpacked: Unpack, tmp_path: Path) -> str:
    """The file of the two stores."""
    path = tmp_path / "stores.json"
    stores = [
        {"name": f"of {name}", "broker": name, "path": str(unpacked(store)), "broker_conf": str(store.broker_conf)}
        for name, store in BROKERS.items()
    ]
    path.write_text(json.dumps(stores))
    return str(path)


@pytest.fixture
def ask(file: str, run: Run) -> Ask:
    """Runs a command with `--stores`; returns its rows."""
    return lambda command, *words: run(command, "--stores", file, "--json", *words).rows


def facts(kind: str = "msg") -> list[tuple[str, dict[str, Any]]]:
    """The facts of both stores, each after its broker."""
    return [(broker, fact) for broker, store in BROKERS.items() for fact in store.facts(kind)]


def found(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    assert all(row["store"] == f"of {row['broker']}" and row["cluster"] == "DefaultCluster" for row in rows)
    return [(row["broker"], row["commit_log_offset"]) for row in rows]


def test_the_file_takes_the_place_of_the_store() -> None:
    assert place_stores_file(["query-by-key", "T", "K", "--stores=f"]) == ["query-by-key", "f", "T", "K", "--stores=f"]
    assert place_stores_file(["lag", "--stores", "f"]) == ["lag", "f", "--stores", "f"]
    for words in (["sql", "--stores", "f"], ["lag", "S"], ["lag", "--", "--stores", "f"], ["lag", "--stores"], []):
        assert place_stores_file(words) == words


def test_an_id_is_answered_by_its_broker(ask: Ask) -> None:
    owners: dict[str, list[tuple[str, int]]] = {}
    for broker, fact in facts():
        owners.setdefault(fact["msgId"], []).append((broker, fact["offset"]))
    ids = [*list(owners)[:: len(owners) // 40], *(text for text, places in owners.items() if len(places) > 1)][:60]
    assert Counter(found(ask("query-by-id", *ids))) == Counter(place for text in ids for place in owners[text])


def test_an_id_of_no_broker_is_not_found(file: str, run: Run) -> None:
    for number in (0, 7):
        fact = BROKERS["broker-new"].facts("msg")[number]
        foreign = f"0A0A0A0A00002A9F{fact['msgId'][16:]}"
        said = run("query-by-id", "--stores", file, foreign, status=3)
        assert all(f"DefaultCluster/{broker} (of {broker}): " in said.err for broker in BROKERS)
    said = run("query-by-id", "--stores", file, foreign, "--any-host", status=2)
    assert "the address in an offset message id chooses the store" in said.err


def test_keys_are_found_where_they_are_and_the_newest_is_first(ask: Ask) -> None:
    keys = {key for _, fact in facts() if fact["topic"] == TOPIC for key in (fact["keys"] or "").split()}
    for key in sorted(keys)[:: len(keys) // 6]:
        expected = Counter(
            (broker, fact["offset"])
            for broker, fact in facts()
            if fact["topic"] == TOPIC and key in (fact["keys"] or "").split()
        )
        rows = ask("query-by-key", TOPIC, key)
        assert Counter(found(rows)) == expected
        times = [row["store_timestamp"] for row in rows]
        assert times == sorted(times, reverse=True)
        assert ask("query-by-key", TOPIC, key, "--max-num", "1") == rows[:1]


def test_unique_keys_and_queue_offsets(ask: Ask) -> None:
    for broker in BROKERS:
        fact = next(fact for one, fact in facts() if one == broker and fact["topic"] == TOPIC)
        key = fact["uniqKey"]
        expected = {(one, other["offset"]) for one, other in facts() if other["uniqKey"] == key}
        assert set(found(ask("query-by-unique-key", key))) == expected
        assert (broker, fact["offset"]) in found(ask("query-by-unique-key", TOPIC, key))
    place = {"topic": TOPIC, "queueId": 1, "queueOffset": 2}
    expected = {(one, fact["offset"]) for one, fact in facts() if place.items() <= fact.items()}
    assert len(expected) == 2
    assert set(found(ask("query-by-offset", TOPIC, "1", "2"))) == expected


def test_messages_are_printed_by_store_time(ask: Ask) -> None:
    expected = Counter((broker, fact["offset"]) for broker, fact in facts() if fact["topic"] == TOPIC)
    rows = ask("print-message", TOPIC, "--limit", "0")
    assert Counter(found(rows)) == expected
    times = [row["store_timestamp"] for row in rows]
    assert times == sorted(times)
    newest = ask("print-message", TOPIC, "--last", "5")
    assert [row["store_timestamp"] for row in newest] == times[-5:]
    assert found(ask("print-message", TOPIC, "--last", "5", "--newest-first")) == found(newest)[::-1]


@pytest.mark.parametrize(
    "words",
    [
        ("segments",),
        ("queues",),
        ("topics",),
        ("lag",),
        ("subscription-groups",),
        ("delay-offsets",),
        ("checkpoint",),
        ("transactions", "--at", "1800000000000"),
        ("delayed", "--at", "1800000000000"),
        ("retries", "--at", "1800000000000"),
        ("dead-letters",),
        ("consumer-progress", "--at", "1800000000000"),
        ("rates", "--topic", TOPIC),
    ],
    ids=lambda words: words[0],
)
def test_a_table_has_the_rows_of_both(ask: Ask, run: Run, unpacked: Unpack, words: tuple[str, ...]) -> None:
    rows = ask(*words)
    for broker, store in BROKERS.items():
        conf = ("--broker-conf", str(store.broker_conf)) if words[0] in ("transactions", "delayed") else ()
        own = run(words[0], unpacked(store), "--json", *words[1:], *conf).rows
        assert own
        names = {"cluster": "DefaultCluster", "broker": broker, "store": f"of {broker}"}
        assert rows[: len(own)] == [{**names, **row} for row in own]
        rows = rows[len(own) :]
    assert rows == []


def test_topics_and_lags_are_summed_over_brokers(file: str, ask: Ask, run: Run) -> None:
    topics = [row for row in ask("topics") if row["topic"] == TOPIC]
    said = run("topics", "--stores", file)
    *_, (name, brokers, queues, messages) = (line.split() for line in said.lines if line.startswith(TOPIC))
    assert (name, brokers, int(queues)) == (TOPIC, "2", sum(row["queue_count"] for row in topics))
    assert int(messages) == sum(fact["topic"] == TOPIC for _, fact in facts())
    lags: dict[str, int] = {}
    for row in ask("lag"):
        lags[row["consumer_group"]] = lags.get(row["consumer_group"], 0) + (row["lag"] or 0)
    totals = run("lag", "--stores", file, "--all").out.split("\n\n")[1].splitlines()[1:]
    assert {line.split()[0]: int(line.split()[2]) for line in totals} == lags
    assert "brokers" in run("consumer-progress", "--stores", file).out.split("\n\n")[1].splitlines()[0]


def test_a_sum_is_unknown_if_the_messages_of_a_broker_are() -> None:
    rows = [{"topic": "a", "queue_count": 4, "message_count": count} for count in (3, None)]
    assert sums_of_topics([*rows, {"topic": "b", "queue_count": None, "message_count": 1}]) == [
        ("a", 2, 8, None),
        ("b", 1, 0, 1),
    ]


def test_a_life_names_the_broker(file: str, ask: Ask, run: Run) -> None:
    broker, fact = next(
        (broker, fact) for broker, fact in facts() if broker == "broker-old" and fact["topic"] == "TransactionDemo"
    )
    (life,) = ask("life", fact["uniqKey"])
    stored = [event["store"] for one in life["messages"] for event in one["events"]]
    assert stored
    assert set(stored) == {f"DefaultCluster/{broker} (of {broker})"}
    assert "not both" in run("life", "a-store", fact["uniqKey"], "--stores", file, status=2).err


def test_a_message_that_is_nowhere_has_a_reason_for_each_store(file: str, run: Run) -> None:
    for words in (
        ("query-by-key", TOPIC, "nokey"),
        ("query-by-unique-key", "nokey"),
        ("query-by-offset", TOPIC, "1", "99999"),
        ("print-message", TOPIC, "--key", "nokey"),
        ("queues", "--topic", "none"),
    ):
        said = run(words[0], "--stores", file, *words[1:], status=3).err
        assert all(f"{broker} (of {broker})" in said for broker in BROKERS), words


def test_text_shows_the_broker(file: str, run: Run) -> None:
    fact = BROKERS["broker-old"].facts("msg")[100]
    lines = run("query-by-id", "--stores", file, fact["msgId"]).lines
    assert [line.split(":")[1].strip() for line in lines[:3]] == ["DefaultCluster", "broker-old", "of broker-old"]
    assert run("print-message", "--stores", file, TOPIC, "--limit", "3").out.split()[0] == "broker"


def test_an_unreadable_store_is_an_error_or_left_out(unpacked: Unpack, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "stores.json"
    good = str(unpacked(BROKERS["broker-new"]))
    file.write_text(json.dumps([{"path": good, "broker": "good"}, {"path": "none", "broker": "gone"}]))
    fact = next(fact for fact in BROKERS["broker-new"].facts("msg") if fact["uniqKey"])
    for words in (
        ("query-by-id", fact["msgId"]),
        ("query-by-unique-key", fact["uniqKey"]),
        ("topics",),
        ("life", fact["uniqKey"]),
        ("dead-letters",),
    ):
        assert f"{tmp_path}/none" in run(words[0], "--stores", file, *words[1:], status=1).err
        said = run(words[0], "--stores", file, "--skip-unreadable", *words[1:])
        assert "left out: DefaultCluster/gone" in said.err
        assert said.out
    file.write_text(json.dumps([{"path": "none"}]))
    run("topics", "--stores", file, "--skip-unreadable", status=1)


def test_columns_of_the_store_can_be_chosen_and_sorted(ask: Ask, file: str, run: Run) -> None:
    rows = ask("queues", "--columns", "broker,topic", "--sort", "-broker")
    assert rows[0].keys() == {"broker", "topic"}
    assert [row["broker"] for row in rows] == sorted((row["broker"] for row in rows), reverse=True)
    assert "similar: broker" in run("query-by-key", "--stores", file, TOPIC, "x", "--columns", "brokr", status=2).err


def test_sql_explains_each_store(file: str, unpacked: Unpack, run: Run) -> None:
    query = "SELECT * FROM all.messages WHERE topic = 'OrderEvents' AND queue_id = 1 AND queue_offset = 2"
    lines = [line.split() for line in run("sql", query, "--stores", file, "--explain").lines]
    assert [line[1] for line in lines if line[0] == "store"] == [f"DefaultCluster/{broker}" for broker in BROKERS]
    assert [line[1:] for line in lines if line[0] == "path"] == [["consume", "queue"]] * 2
    assert run("sql", f"{query} AND broker = 'broker-old'", "--stores", file, "--explain").out.count("\n  store") == 1
    pairs = [word for broker, store in BROKERS.items() for word in ("--store", f"{broker[7:]}={unpacked(store)}")]
    shown = run("sql", "DESCRIBE all.topics; SHOW TABLES IN all", *pairs).out
    assert shown.index("cluster") < shown.index("broker") < shown.index("topic ")
