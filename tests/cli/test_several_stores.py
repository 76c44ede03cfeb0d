"""Commands with `--stores FILE`: the answers of a 5.3.3 and a 4.9.7 broker, and where they were found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.arguments import place_stores_file
from spark_mq.cli.main import main
from spark_mq.cli.tables import sums_of_topics
from tests.support.stores import STORES, Unpack

Run = Callable[..., list[dict[str, Any]]]
BROKERS = {"broker-new": STORES["workload-533"], "broker-old": STORES["workload-49x"]}
TOPIC = "OrderEvents"


@pytest.fixture
def file(unpacked: Unpack, tmp_path: Path) -> str:
    """The file of the two stores."""
    path = tmp_path / "stores.json"
    path.write_text(
        json.dumps(
            [
                {"name": f"of {name}", "broker": name, "path": str(unpacked(store)), "broker_conf": str(conf)}
                for name, store in BROKERS.items()
                for conf in [store.broker_conf]
            ]
        )
    )
    return str(path)


@pytest.fixture
def run(file: str, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command with `--stores`; returns its rows."""

    def run_command(command: str, *words: str, status: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main([command, "--stores", file, "--json", *words]) == status
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run_command


def facts(kind: str = "msg") -> list[tuple[str, dict[str, Any]]]:
    """The facts of both stores, each after its broker."""
    return [(broker, fact) for broker, store in BROKERS.items() for fact in store.facts(kind)]


def found(rows: list[dict[str, Any]]) -> list[tuple[str, int]]:
    assert all(row["store"] == f"of {row['broker']}" and row["cluster"] == "DefaultCluster" for row in rows)
    return [(row["broker"], row["commit_log_offset"]) for row in rows]


def one_store(unpacked: Unpack, broker: str, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    """The rows of a command over one of the stores."""
    command, *rest = words
    capsys.readouterr()
    main([command, str(unpacked(BROKERS[broker])), "--json", *rest])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_the_file_takes_the_place_of_the_store() -> None:
    assert place_stores_file(["query-by-key", "T", "K", "--stores=f"]) == ["query-by-key", "f", "T", "K", "--stores=f"]
    assert place_stores_file(["lag", "--stores", "f"]) == ["lag", "f", "--stores", "f"]
    for words in (["sql", "--stores", "f"], ["lag", "S"], ["lag", "--", "--stores", "f"], ["lag", "--stores"], []):
        assert place_stores_file(words) == words


def test_an_id_is_answered_by_its_broker(run: Run) -> None:
    owners: dict[str, list[tuple[str, int]]] = {}
    for broker, fact in facts():
        owners.setdefault(fact["msgId"], []).append((broker, fact["offset"]))
    ids = [*list(owners)[:: len(owners) // 40], *(text for text, places in owners.items() if len(places) > 1)][:60]
    assert Counter(found(run("query-by-id", *ids))) == Counter(place for text in ids for place in owners[text])


def test_an_id_of_no_broker_is_not_found(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (0, 7):
        fact = BROKERS["broker-new"].facts("msg")[number]
        foreign = f"0A0A0A0A00002A9F{fact['msgId'][16:]}"
        assert main(["query-by-id", "--stores", file, foreign]) == 3
        said = capsys.readouterr().err
        assert all(f"DefaultCluster/{broker} (of {broker}): " in said for broker in BROKERS)
    assert main(["query-by-id", "--stores", file, foreign, "--any-host"]) == 2
    assert "the address in an offset message id chooses the store" in capsys.readouterr().err


def test_keys_are_found_where_they_are_and_the_newest_is_first(run: Run) -> None:
    keys = {key for _, fact in facts() if fact["topic"] == TOPIC for key in (fact["keys"] or "").split()}
    for key in sorted(keys)[:: len(keys) // 6]:
        expected = Counter(
            (broker, fact["offset"])
            for broker, fact in facts()
            if fact["topic"] == TOPIC and key in (fact["keys"] or "").split()
        )
        rows = run("query-by-key", TOPIC, key)
        assert Counter(found(rows)) == expected
        times = [row["store_timestamp"] for row in rows]
        assert times == sorted(times, reverse=True)
        assert run("query-by-key", TOPIC, key, "--max-num", "1") == rows[:1]


def test_unique_keys_and_queue_offsets(run: Run) -> None:
    for broker in BROKERS:
        fact = next(fact for one, fact in facts() if one == broker and fact["topic"] == TOPIC)
        key = fact["uniqKey"]
        expected = {(one, other["offset"]) for one, other in facts() if other["uniqKey"] == key}
        assert set(found(run("query-by-unique-key", key))) == expected
        assert (broker, fact["offset"]) in found(run("query-by-unique-key", TOPIC, key))
    place = {"topic": TOPIC, "queueId": 1, "queueOffset": 2}
    expected = {(one, fact["offset"]) for one, fact in facts() if place.items() <= fact.items()}
    assert len(expected) == 2
    assert set(found(run("query-by-offset", TOPIC, "1", "2"))) == expected


def test_messages_are_printed_by_store_time(run: Run) -> None:
    expected = Counter((broker, fact["offset"]) for broker, fact in facts() if fact["topic"] == TOPIC)
    rows = run("print-message", TOPIC, "--limit", "0")
    assert Counter(found(rows)) == expected
    times = [row["store_timestamp"] for row in rows]
    assert times == sorted(times)
    newest = run("print-message", TOPIC, "--last", "5")
    assert [row["store_timestamp"] for row in newest] == times[-5:]
    assert found(run("print-message", TOPIC, "--last", "5", "--newest-first")) == found(newest)[::-1]


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
def test_a_table_has_the_rows_of_both(
    run: Run, unpacked: Unpack, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    rows = run(*words)
    for broker, store in BROKERS.items():
        conf = ("--broker-conf", str(store.broker_conf)) if words[0] in ("transactions", "delayed") else ()
        own = one_store(unpacked, broker, capsys, *words, *conf)
        assert own
        names = {"cluster": "DefaultCluster", "broker": broker, "store": f"of {broker}"}
        assert rows[: len(own)] == [{**names, **row} for row in own]
        rows = rows[len(own) :]
    assert rows == []


def test_topics_and_lags_are_summed_over_brokers(file: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    topics = [row for row in run("topics") if row["topic"] == TOPIC]
    assert main(["topics", "--stores", file]) == 0
    *_, (name, brokers, queues, messages) = (
        line.split() for line in capsys.readouterr().out.splitlines() if line.startswith(TOPIC)
    )
    assert (name, brokers, int(queues)) == (TOPIC, "2", sum(row["queue_count"] for row in topics))
    assert int(messages) == sum(fact["topic"] == TOPIC for _, fact in facts())
    lags: dict[str, int] = {}
    for row in run("lag"):
        lags[row["consumer_group"]] = lags.get(row["consumer_group"], 0) + (row["lag"] or 0)
    assert main(["lag", "--stores", file, "--all"]) == 0
    totals = capsys.readouterr().out.split("\n\n")[1].splitlines()[1:]
    assert {line.split()[0]: int(line.split()[2]) for line in totals} == lags
    assert main(["consumer-progress", "--stores", file]) == 0
    assert "brokers" in capsys.readouterr().out.split("\n\n")[1].splitlines()[0]


def test_a_sum_is_unknown_if_the_messages_of_a_broker_are() -> None:
    rows = [{"topic": "a", "queue_count": 4, "message_count": count} for count in (3, None)]
    assert sums_of_topics([*rows, {"topic": "b", "queue_count": None, "message_count": 1}]) == [
        ("a", 2, 8, None),
        ("b", 1, 0, 1),
    ]


def test_a_life_names_the_broker(file: str, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    broker, fact = next(
        (broker, fact) for broker, fact in facts() if broker == "broker-old" and fact["topic"] == "TransactionDemo"
    )
    (life,) = run("life", fact["uniqKey"])
    stored = [event["store"] for one in life["messages"] for event in one["events"]]
    assert stored
    assert set(stored) == {f"DefaultCluster/{broker} (of {broker})"}
    assert main(["life", "a-store", fact["uniqKey"], "--stores", file]) == 2
    assert "not both" in capsys.readouterr().err


def test_a_message_that_is_nowhere_has_a_reason_for_each_store(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (
        ("query-by-key", TOPIC, "nokey"),
        ("query-by-unique-key", "nokey"),
        ("query-by-offset", TOPIC, "1", "99999"),
        ("print-message", TOPIC, "--key", "nokey"),
        ("queues", "--topic", "none"),
    ):
        assert main([words[0], "--stores", file, *words[1:]]) == 3
        said = capsys.readouterr().err
        assert all(f"{broker} (of {broker})" in said for broker in BROKERS), words


def test_text_shows_the_broker(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    fact = BROKERS["broker-old"].facts("msg")[100]
    assert main(["query-by-id", "--stores", file, fact["msgId"]]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:3]] == ["DefaultCluster", "broker-old", "of broker-old"]
    assert main(["print-message", "--stores", file, TOPIC, "--limit", "3"]) == 0
    assert capsys.readouterr().out.split()[0] == "broker"


def test_an_unreadable_store_is_an_error_or_left_out(
    unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
        assert main([words[0], "--stores", str(file), *words[1:]]) == 1
        assert f"{tmp_path}/none" in capsys.readouterr().err
        assert main([words[0], "--stores", str(file), "--skip-unreadable", *words[1:]]) == 0
        said = capsys.readouterr()
        assert "left out: DefaultCluster/gone" in said.err
        assert said.out
    file.write_text(json.dumps([{"path": "none"}]))
    assert main(["topics", "--stores", str(file), "--skip-unreadable"]) == 1


def test_columns_of_the_store_can_be_chosen_and_sorted(run: Run, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run("queues", "--columns", "broker,topic", "--sort", "-broker")
    assert rows[0].keys() == {"broker", "topic"}
    assert [row["broker"] for row in rows] == sorted((row["broker"] for row in rows), reverse=True)
    assert main(["query-by-key", "--stores", file, TOPIC, "x", "--columns", "brokr"]) == 2
    assert "similar: broker" in capsys.readouterr().err


def test_sql_explains_each_store(file: str, unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    query = "SELECT * FROM all.messages WHERE topic = 'OrderEvents' AND queue_id = 1 AND queue_offset = 2"
    assert main(["sql", query, "--stores", file, "--explain"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[1] for line in lines if line[0] == "store"] == [f"DefaultCluster/{broker}" for broker in BROKERS]
    assert [line[1:] for line in lines if line[0] == "path"] == [["consume", "queue"]] * 2
    assert main(["sql", f"{query} AND broker = 'broker-old'", "--stores", file, "--explain"]) == 0
    assert capsys.readouterr().out.count("\n  store") == 1
    pairs = [word for broker, store in BROKERS.items() for word in ("--store", f"{broker[7:]}={unpacked(store)}")]
    assert main(["sql", "DESCRIBE all.topics; SHOW TABLES IN all", *pairs]) == 0
    shown = capsys.readouterr().out
    assert shown.index("cluster") < shown.index("broker") < shown.index("topic ")
