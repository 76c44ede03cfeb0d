"""`spark-mq allocate`: sums against the facts of the Java classes; the rules are judged in `tests/sharing`."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.said import Run
from tests.support.stores import WORKLOAD, Unpack

TOPIC = "OrderEvents"


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))


def sums() -> tuple[Counter[int], Counter[int]]:
    messages, sizes = Counter[int](), Counter[int]()
    for fact in WORKLOAD.facts("msg"):
        if fact["topic"] == TOPIC:
            messages[fact["queueId"]] += 1
            sizes[fact["queueId"]] += fact["size"]
    return messages, sizes


def report(run: Run, store: Path, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = run("allocate", store, TOPIC, *words, "--json").report
    return found


def failure(run: Run, store: Path, *words: str) -> str:
    return run("allocate", store, *words, status=2).err


def test_a_share_has_the_sums_of_its_queues(store: Path, run: Run) -> None:
    messages, sizes = sums()
    offsets = {queue_id: 3 * queue_id for queue_id in messages}
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{TOPIC}@slow": offsets}}))
    found = report(run, store, "--consumers", "3", "--group", "slow", "--strategy", "avg-by-circle")
    assert found["strategy"] == "AVG_BY_CIRCLE"
    assert [share["queue_ids"] for share in found["shares"]] == [[0, 3], [1], [2]]
    for share in found["shares"]:
        ids = share["queue_ids"]
        assert share["messages"] == sum(messages[one] for one in ids)
        assert share["log_bytes"] == sum(sizes[one] for one in ids)
        assert share["lag"] == sum(messages[one] - 3 * one for one in ids)
    measures = {one["measure"]: one for one in found["unevenness"]}
    assert (measures["queues"]["least"], measures["queues"]["most"], measures["queues"]["most_to_mean"]) == (1, 2, 1.5)
    assert measures["messages"]["mean"] == sum(messages.values()) / 3


def test_queues_move(store: Path, run: Run) -> None:
    found = report(run, store, "--consumers", "3", "--to", "4")
    assert [(move["queue_id"], move["old"], move["new"]) for move in found["moves"]] == [
        (1, ["consumer-1"], ["consumer-2"]),
        (2, ["consumer-2"], ["consumer-3"]),
        (3, ["consumer-3"], ["consumer-4"]),
    ]
    assert "0 of 4 queues move" in run("allocate", store, TOPIC, "--consumers", "4", "--to", "12").out


def test_a_file_names_consumers_rooms_and_queues(store: Path, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "consumers"
    file.write_text("# the group\n10.0.0.2@7 room=sh queues=1,1,2\n\n10.0.0.1@9 room=hz queues=2\n")
    near = ["--consumers", str(file), "--strategy", "MACHINE_ROOM_NEARBY"]
    by_room = report(run, store, *near, "--broker-name", "hz@a")
    assert {share["consumer"]: share["queue_ids"] for share in by_room["shares"]} == {
        "10.0.0.1@9": [0, 1, 2, 3],
        "10.0.0.2@7": [],
    }
    by_config = report(run, store, "--consumers", str(file), "--strategy", "config")
    assert [share["queue_ids"] for share in by_config["shares"]] == [[2], [1, 2]]
    assert by_config["nobody"] == [0, 3]
    room = ["--consumers", "2", "--strategy", "MACHINE_ROOM", "--rooms", "hz,bj"]
    assert report(run, store, *room, "--broker-name", "sh@a")["nobody"] == [0, 1, 2, 3]
    assert report(run, store, *room, "--broker-name", "bj@a")["nobody"] == []


def test_what_is_missing_is_said(store: Path, tmp_path: Path, run: Run) -> None:
    conf = ["--broker-conf", ""]
    assert "broker's name" in failure(run, store, TOPIC, "--consumers", "2", "--strategy", "CONSISTENT_HASH", *conf)
    ring = ["--consumers", "1000", "--strategy", "CONSISTENT_HASH", "--broker-name", "a", "--points", "2001"]
    assert "--points" in failure(run, store, TOPIC, *ring)
    assert "--rooms" in failure(
        run, store, TOPIC, "--consumers", "2", "--strategy", "MACHINE_ROOM", "--broker-name", "a"
    )
    near = ["--consumers", "2", "--strategy", "MACHINE_ROOM_NEARBY"]
    assert "--broker-room" in failure(run, store, TOPIC, *near, *conf)
    assert "consumer-1 has none" in failure(run, store, TOPIC, *near, *conf, "--broker-room", "hz")
    assert "there is no queue of topic Nope" in failure(run, store, "Nope", "--consumers", "2")
    assert "from 1 to 100000 consumers" in failure(run, store, TOPIC, "--consumers", "0")
    assert "no offset in topic" in failure(run, store, TOPIC, "--consumers", "2", "--group", "nobody")
    assert "needs the queues" in failure(run, store, TOPIC, "--consumers", "2", "--strategy", "config")
    for line, said in (
        ("a b", "'b' is neither"),
        ("a\na", "a is there twice"),
        ("", "names 0"),
        ("a queues=9", "no queue 9"),
    ):
        file = tmp_path / "file"
        file.write_text(line)
        assert said in failure(run, store, TOPIC, "--consumers", str(file), "--strategy", "config")
    none = run("allocate", store, TOPIC, "--consumers", tmp_path / "none", status=1)
    assert "neither a number nor a file" in none.err


def test_what_is_not_certain_is_not_a_number(store: Path, run: Run) -> None:
    (store / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {f"{TOPIC}@slow": {0: 5}}}))
    found = report(run, store, "--consumers", "2", "--group", "slow")
    assert [share["lag"] for share in found["shares"]] == [None, None]
    assert "lag" not in {one["measure"] for one in found["unevenness"]}
    for file in (store / "consumequeue" / TOPIC / "1").iterdir():
        file.write_bytes(bytes(len(file.read_bytes())))
    printed = run("allocate", store, TOPIC, "--consumers", "2")
    assert "1 of 4 queues are not certain; the first is 1:" in printed.err
    assert [line.split()[-1] for line in printed.out.splitlines()[2:3]] == ["-"]


def test_ids_that_are_made_up_are_said(store: Path, run: Run) -> None:
    words = ["--consumers", "2", "--strategy", "CONSISTENT_HASH", "--broker-name", "a"]
    assert "these are made up" in run("allocate", store, TOPIC, *words).err
