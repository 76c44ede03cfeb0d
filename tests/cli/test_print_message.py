"""`print-message`: the last messages, filters, forms of bodies, new messages; and what it says if there is none."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.cli.messages.message_filter import MessageFilter, Selection, why_no_match
from spark_mq.cli.output.value_text import local_time_of
from spark_mq.store.message_store import MessageStore
from spark_mq.testing import LogWriter
from tests.support.paused_process import environment, running
from tests.support.said import Run
from tests.support.stores import WORKLOAD, Fact, Unpack

TOPIC = "OrderEvents"


@pytest.fixture(scope="module")
def facts() -> list[Fact]:
    of_topic = [fact for fact in WORKLOAD.facts("msg") if fact["topic"] == TOPIC]
    return sorted(of_topic, key=lambda fact: int(fact["offset"]))


def rows(run: Run, *arguments: str) -> list[dict[str, Any]]:
    return run("print-message", *arguments, "--json").rows


def offsets(run: Run, *arguments: str) -> list[int]:
    return run("print-message", *arguments, "--json").offsets


@pytest.mark.parametrize("queue", [[], ["--queue-id", "2"]])
def test_the_last_messages(queue: list[str], store: str, facts: list[Fact], run: Run) -> None:
    expected = [fact["offset"] for fact in facts if not queue or fact["queueId"] == 2]
    arguments = [store, TOPIC, *queue]
    assert offsets(run, *arguments, "--last", "7") == expected[-7:]
    assert offsets(run, *arguments, "--last", "7", "--newest-first") == expected[-7:][::-1]
    assert offsets(run, *arguments, "--newest-first", "--limit", "3") == expected[::-1][:3]
    assert offsets(run, *arguments, "--last", "100000") == expected
    times = sorted(fact["storeTimestamp"] for fact in facts)
    window = ["--begin", str(times[20]), "--end", str(times[-20])]
    within = [
        fact["offset"]
        for fact in facts
        if fact["offset"] in expected and times[20] <= fact["storeTimestamp"] <= times[-20]
    ]
    assert offsets(run, *arguments, "--last", "9", *window) == within[-9:]


def test_filters(store: str, facts: list[Fact], run: Run) -> None:
    def of(*arguments: str) -> list[int]:
        return offsets(run, store, TOPIC, "--limit", "0", *arguments)

    name, value = next((n, v) for n, v in facts[0]["properties"].items() if n == "region")
    same = [fact for fact in facts if fact["properties"].get(name) == value]
    assert of("--property", f"{name}={value}") == [fact["offset"] for fact in same]
    assert 0 < len(same) < len(facts)
    tagged = [fact["offset"] for fact in same if fact["tags"] == "paid"]
    assert of("--property", f"{name}={value}", "--property", "TAGS=paid") == tagged
    key = next(fact["keys"] for fact in facts if fact["keys"]).split(" ")[0]
    assert of("--key", key) == [fact["offset"] for fact in facts if key in (fact["keys"] or "").split(" ")]
    assert of("--key", facts[3]["uniqKey"]) == [facts[3]["offset"]]
    bodies = {row["commit_log_offset"]: base64.b64decode(row["body"]) for row in rows(run, store, TOPIC, "--limit=0")}
    priced = [fact for fact in facts if fact["properties"].get("price", "x").lstrip("-").isdecimal()]
    cheap = [fact["offset"] for fact in priced if int(fact["properties"]["price"]) <= 50]
    assert of("--filter", "price <= 50") == cheap
    assert 0 < len(cheap) < len(priced)
    assert of("--filter", f"region = '{value}' AND TAGS = 'paid'") == tagged
    having = [offset for offset, body in bodies.items() if "上海".encode() in body]
    assert of("--body-contains", "上海") == having
    assert 0 < len(having) < len(facts)


def test_forms_of_bodies(store: str, tmp_path: Path, run: Run) -> None:
    writer = LogWriter(1 << 16)
    for body in (b'{"city": "\xe4\xb8\x8a", "n": 1.50}', b"text\x1b[2J", b"\xff\x00", b"x" * 5000):
        writer.append(1000, body)
    folder = str(writer.write(tmp_path))

    def text(*arguments: str) -> str:
        return run("print-message", folder, "T", *arguments).out

    assert [row["body"] for row in rows(run, folder, "T", "--body", "json", "--limit", "3")] == [
        {"city": "上", "n": 1.5},
        "text\x1b[2J",
        {"base64": "/wA="},
    ]
    assert all("body" not in row for row in rows(run, folder, "T", "--body", "none"))
    assert "body" not in text("--body", "none")
    assert text("--columns", "body", "--body", "hex").splitlines()[3] == "ff00"
    assert text("--columns", "body").splitlines()[2:] == [r"text\x1b[2J", "2 bytes: ff 00", "x" * 5000]
    full = text("--full", "--body", "json")
    assert '\n  "city": "上",\n  "n": 1.50\n}\n' in full
    assert full.count("OffsetID:") == 4
    assert "\x1b" not in full
    assert "x" * 5000 in full


def test_the_body_alone_on_stdout(store: str, facts: list[Fact], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["query-by-id", store, facts[0]["msgId"], "--body-file", "-"]) == 0
    shown = capfdbinary.readouterr()
    assert hashlib.md5(shown.out).hexdigest() == facts[0]["bodyMd5"]
    assert shown.err == b""


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["orderevents"], "similar topics: OrderEvents"),
        ([TOPIC, "--queue-id", "7"], "there is no queue OrderEvents/7; queues of the topic: 0, 1, 2, 3"),
        (
            [TOPIC, "--tag", "paidd"],
            "none of the 248 messages that were read has tag paidd; similar: paid; their tags: ",
        ),
        ([TOPIC, "--property", "a=b"], "248 messages were read, and none of them matches"),
        ([TOPIC, "--begin", "now"], "the messages of OrderEvents were stored from FIRST to LAST"),
    ],
)
def test_a_person_who_finds_nothing_is_told_what_there_is(
    arguments: list[str], reason: str, store: str, facts: list[Fact], run: Run
) -> None:
    said = run("print-message", store, *arguments, status=3)
    times = [fact["storeTimestamp"] for fact in facts]
    expected = reason.replace("FIRST", local_time_of(min(times))).replace("LAST", local_time_of(max(times)))
    assert expected in said.err


def test_a_time_is_the_reason_only_if_one_was_given(store: str) -> None:
    with MessageStore(store) as opened:
        for has_times, reason in ((True, "was stored in the time asked for"), (False, "of it is in the log")):
            text = why_no_match(opened, TOPIC, None, Selection(MessageFilter(), print), has_times)
            assert text.startswith(f"no message {reason}; the messages of OrderEvents were stored from ")


@pytest.mark.parametrize(("command", "status"), [("print-message", 0), ("verify", 1)])
def test_a_reader_that_leaves_early_changes_no_status(
    command: str, status: int, unpacked: Unpack, tmp_path: Path
) -> None:
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    shutil.rmtree(store / "consumequeue" / TOPIC)
    words = [TOPIC, "--limit", "0", "--json"] if command == "print-message" else ["--quiet"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "spark_mq", command, str(store), *words],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == status
    assert "roken pipe" not in done.stderr


def test_a_unique_key_without_its_topic(store: str, facts: list[Fact], run: Run) -> None:
    conf = ["--broker-conf", str(WORKLOAD.broker_conf)]
    fact = facts[7]
    for command in (
        ["query-by-unique-key", store, fact["uniqKey"], *conf],
        ["query-by-unique-key", store, *conf, TOPIC, fact["uniqKey"]],
        ["query-by-unique-key", store, fact["msgId"], *conf],
        ["query-by-id", store, fact["uniqKey"]],
    ):
        captured = run(*command, "--json", "--columns", "commit_log_offset")
        assert captured.report == {"commit_log_offset": fact["offset"]}
        assert ("is not an offset message id, but a unique key" in captured.err) == (command[0] == "query-by-id")
    unknown = "7F0000010B5F18B4AAC24C1B3B6D0000"
    for command in (["query-by-unique-key", store, unknown, *conf], ["query-by-id", store, unknown]):
        captured = run(*command, status=3)
        assert f"no message {unknown}: " in captured.err
        assert "no topic of the store has it" in captured.err
        assert "made on day 15 of a month, at 18:40:53; the store's messages were stored from" in captured.err
    assert run("query-by-unique-key", store, facts[0]["uniqKey"], *conf, "--explain").out.startswith("path   index\n")


def test_new_messages_are_followed(tmp_path: Path) -> None:
    writer = LogWriter(1 << 16)
    for number in range(3):
        writer.append(1000, b"old %d" % number)
    writer.write(tmp_path)
    command = [sys.executable, "-m", "spark_mq", "print-message", str(tmp_path), "T", "--follow", "--last", "1"]
    command += ["--json", "--columns", "body", "--body", "text"]
    with running(command, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline()) == {"body": "old 2"}
        for number in range(2):
            writer.append(2000, b"new %d" % number)
            writer.append(2000, b"other", topic=b"U")
            with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:  # a broker never makes it shorter
                file.write(writer.segments[0])
            assert json.loads(process.stdout.readline()) == {"body": f"new {number}"}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert (process.stdout.read(), process.stderr.read()) == ("", "spark-mq: interrupted\n")
