"""Commands that look messages up answer from an archive as from its store, and start neither Java nor Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_mq.archive.writer import archive
from spark_mq.cli.main import main
from tests.support.fake_server import serving
from tests.support.hostile_cluster import HostileCluster
from tests.support.stores import WORKLOAD, Unpack

pytestmark = pytest.mark.archive

FACTS = WORKLOAD.facts("msg")
MESSAGES = FACTS[:: len(FACTS) // 12]
KEYED = next(fact for fact in FACTS if fact["keys"])
TOPICS = sorted({fact["topic"] for fact in FACTS})
DOORS = [
    *(("query-by-id", fact["msgId"]) for fact in MESSAGES),
    *(("query-by-offset", fact["topic"], str(fact["queueId"]), str(fact["queueOffset"])) for fact in MESSAGES),
    *(("query-by-unique-key", fact["topic"], fact["uniqKey"]) for fact in MESSAGES if fact["uniqKey"]),
    *(("query-by-unique-key", fact["uniqKey"]) for fact in MESSAGES if fact["uniqKey"]),
    *(("query-by-key", fact["topic"], fact["keys"].split()[-1]) for fact in FACTS[::40] if fact["keys"]),
    ("query-by-key", KEYED["topic"], KEYED["keys"].split()[0], "--end", str(KEYED["storeTimestamp"])),
    ("query-by-key", KEYED["topic"], KEYED["keys"].split()[0], "--begin", str(KEYED["storeTimestamp"] + 1)),
    *(("print-message", topic, "--limit", "0") for topic in TOPICS),
    *(("print-message", topic, "--last", "3") for topic in TOPICS),
    *(("print-message", topic, "--queue-id", "1", "--newest-first") for topic in TOPICS),
    ("print-message", KEYED["topic"], "--key", KEYED["keys"].split()[0]),
    ("query-by-offset", "nothing", "0", "0"),
]
NAMES = ("cluster", "broker", "store")


@pytest.fixture(scope="module")
def table(delta: SparkSession, unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lake") / "messages"
    archive(delta, str(unpacked(WORKLOAD)), str(path), broker="broker-a")
    return path


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    status = main([*arguments, "--json"])
    return status, [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_each_door_answers_as_the_store(table: Path, unpacked: Unpack, capsys: pytest.CaptureFixture[str]) -> None:
    for command, *rest in DOORS:
        expected, found = (rows(capsys, command, str(path), *rest) for path in (unpacked(WORKLOAD), table))
        assert found[0] == expected[0], (command, rest)
        assert all(row["broker"] == "broker-a" for row in found[1])
        named = [{name: value for name, value in row.items() if name not in NAMES} for row in found[1]]
        # The settings of consumer groups are not read: the text of a retry lacks the largest number of retries.
        for row in (*named, *expected[1]):
            row.pop("situation")
        assert named == expected[1], (command, rest)


def test_a_limit_and_what_has_no_meaning_are_said(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = max(TOPICS, key=[fact["topic"] for fact in FACTS].count)
    assert main(["print-message", str(table), topic, "--limit", "2", "--json"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "there are more than --limit 2 messages" in printed.err
    assert main(["query-by-key", str(table), topic, "x", "--as-broker"]) == 2
    assert "--as-broker has no effect" in capsys.readouterr().err
    assert main(["query-by-id", str(table), "00" * 16]) == 3
    assert "no message" in capsys.readouterr().err


def test_a_resend_finds_the_messages_of_the_store(
    table: Path, unpacked: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = HostileCluster()
    with serving(cluster.answer) as cluster.address:
        for words in (
            ("--dead-letters", "GID_failing"),
            ("--dead-letters", "GID_failing", "--tag", "Aa"),
            *(("--topic", topic) for topic in TOPICS),
            ("--topic", KEYED["topic"], "--key", KEYED["keys"].split()[0]),
        ):
            expected, found = (
                rows(capsys, "resend", str(path), f"rocketmq://{cluster.address}", *words)
                for path in (unpacked(WORKLOAD), table)
            )
            assert found == expected, words
            assert expected[1][0]["found"] > 0
