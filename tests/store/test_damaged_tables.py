"""The tables `segments`, `queues`, `topics` and `consumer_offsets` of stores that are damaged: none looks sound.

The judge of what is missing are the facts of brokers: what a queue's messages are.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.store import metadata_tables
from spark_mq.testing import LogWriter
from tests.support.kernels import examples
from tests.support.stores import STORES, RealStore, Unpack, segment_files, usual_stores

Described = Callable[[RealStore], MessageStore]
Row = dict[str, Any]
WORKLOAD, KILLED = STORES["workload-533"], STORES["killed-533"]
TABLES = {
    "segments": metadata_tables.segments,
    "queues": metadata_tables.queues,
    "topics": metadata_tables.topics,
    "lag": metadata_tables.consumer_offsets,
}
UNIT_SIZE = 20


def rows_of(folder: Path, command: str) -> list[Row]:
    with MessageStore(str(folder)) as store:
        return list(TABLES[command](store).to_pylist())


def queue_rows(folder: Path) -> dict[tuple[str, int], Row]:
    return {(row["topic"], row["queue_id"]): row for row in rows_of(folder, "queues")}


def copy_of(store: RealStore, unpacked: Unpack, folder: Path) -> Path:
    return Path(shutil.copytree(unpacked(store), folder / store.name))


@pytest.mark.parametrize("store", usual_stores(), ids=str)
@pytest.mark.parametrize("command", TABLES)
def test_a_sound_store_has_no_problem(command: str, store: RealStore, described: Described) -> None:
    rows = TABLES[command](described(store)).to_pylist()
    assert [row for row in rows if row["problem"] is not None] == []
    if command == "queues":
        assert {row["state"] for row in rows} == {"CAUGHT_UP"}


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_queues_that_a_broker_s_recovery_completes_are_behind(store: RealStore, unpacked: Unpack) -> None:
    """The facts of killed stores are those after recovery, and those of `lagging` those before units were lost."""
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
    lacks = {queue: row for queue, row in queue_rows(unpacked(store)).items() if row["max_offset"] != ends[queue]}
    assert bool(lacks) == store.name.startswith(("killed", "abort", "lagging"))
    for queue, row in queue_rows(unpacked(store)).items():
        assert row["state"] == ("BEHIND" if queue in lacks else "CAUGHT_UP")
        count = ends[queue] - row["max_offset"]
        messages = f"{count} message{'' if count == 1 else 's'}"
        expected = f"it lacks at least {messages}, up to queue offset {ends[queue] - 1}, which the log has"
        assert row["problem"] == (expected if queue in lacks else None)
    behind = {topic for topic, _ in lacks}
    assert {row["topic"] for row in rows_of(unpacked(store), "topics") if row["problem"] is not None} == behind


def test_a_lost_queue_is_a_row_and_its_lag_is_not_known(unpacked: Unpack, tmp_path: Path) -> None:
    offsets = {(row["topic"], row["queue_id"]): row for row in rows_of(unpacked(WORKLOAD), "lag")}
    queues = [(topic, number) for topic, number in offsets if offsets[topic, number]["consumer_offset"] > 0]
    assert len(queues) > 1
    for topic, number in queues:
        folder = copy_of(WORKLOAD, unpacked, tmp_path / f"{topic}-{number}")
        shutil.rmtree(folder / "consumequeue" / topic / str(number))
        row = queue_rows(folder)[topic, number]
        assert (row["state"], row["file_count"], row["min_offset"], row["max_offset"]) == ("LOST", 0, None, None)
        assert "it has no files that can be read, but" in row["problem"]
        for lag in rows_of(folder, "lag"):
            is_lost = (lag["topic"], lag["queue_id"]) == (topic, number)
            assert (lag["lag"] is None) == (lag["problem"] is not None) == is_lost
            assert not is_lost or "there is no such queue" in lag["problem"]
        (found,) = [row for row in rows_of(folder, "topics") if row["topic"] == topic]
        assert f"queue {number} is LOST" in found["problem"]


def test_with_all_queues_lost_no_topic_looks_empty(unpacked: Unpack, tmp_path: Path) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    shutil.rmtree(folder / "consumequeue")
    rows = queue_rows(folder)
    with_messages = {(fact["topic"], fact["queueId"]) for fact in WORKLOAD.facts("queue") if fact["max"] > fact["min"]}
    assert rows
    assert set(rows) <= with_messages
    assert {row["state"] for row in rows.values()} == {"LOST"}
    assert None not in {row["problem"] for row in rows_of(folder, "topics")}
    assert {row["lag"] for row in rows_of(folder, "lag")} == {None}


def queue_files(folder: Path, topic: str, queue_id: int) -> list[Path]:
    return sorted((folder / "consumequeue" / topic / str(queue_id)).iterdir())


def test_units_lost_at_the_end_leave_a_queue_behind(unpacked: Unpack, tmp_path: Path) -> None:
    """Also those of a queue whose messages are far from the end of the log, if a group has consumed them."""
    fact = max((fact for fact in WORKLOAD.facts("queue")), key=lambda fact: int(fact["lastPhy"]))
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    topic, number, end = fact["topic"], fact["queueId"], fact["max"]
    last = queue_files(folder, topic, number)[-1]
    data = bytearray(last.read_bytes())
    first = int(last.name) // UNIT_SIZE
    data[(end - 1 - first) * UNIT_SIZE :] = bytes(len(data) - (end - 1 - first) * UNIT_SIZE)
    last.write_bytes(data)
    row = queue_rows(folder)[topic, number]
    assert (row["state"], row["max_offset"]) == ("BEHIND", end - 1)
    assert row["problem"] == f"it lacks at least 1 message, up to queue offset {end - 1}, which the log has"


def test_a_group_past_the_end_of_a_queue_shows_that_it_lost_its_end(unpacked: Unpack, tmp_path: Path) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    fact = next(fact for fact in WORKLOAD.facts("queue") if fact["topic"] == "OrderEvents")
    content = {"offsetTable": {"OrderEvents@group": {str(fact["queueId"]): fact["max"] + 7}}}
    (folder / "config" / "consumerOffset.json").write_text(json.dumps(content))
    (lag,) = rows_of(folder, "lag")
    assert (lag["state"], lag["lag"]) == ("TOO_LARGE", None)
    assert f"ends at queue offset {fact['max']}" in lag["problem"]
    assert queue_rows(folder)["OrderEvents", fact["queueId"]]["state"] == "AHEAD"


@pytest.mark.parametrize("change", ["first unit", "last unit", "a file is missing", "a file is cut"])
def test_a_damaged_queue_is_not_caught_up(change: str, unpacked: Unpack, tmp_path: Path) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    counts = Counter({queue: row["file_count"] for queue, row in queue_rows(folder).items()})
    ((topic, number), count) = counts.most_common(1)[0]
    assert count > 2
    row = queue_rows(folder)[topic, number]
    files = queue_files(folder, topic, number)
    if change == "a file is missing":
        files[1].unlink()
    elif change == "a file is cut":
        files[1].write_bytes(files[1].read_bytes()[:-UNIT_SIZE])
    else:
        queue_offset = row["min_offset"] if change == "first unit" else row["max_offset"] - 1
        file = max(file for file in files if int(file.name) <= queue_offset * UNIT_SIZE)
        data = bytearray(file.read_bytes())
        data[queue_offset * UNIT_SIZE - int(file.name) + 7] ^= 8
        file.write_bytes(data)
    found = queue_rows(folder)[topic, number]
    assert found["problem"] is not None
    assert found["state"] == (
        "BEHIND" if change == "last unit" and found["max_offset"] < row["max_offset"] else "DAMAGED"
    )
    (in_topics,) = [row for row in rows_of(folder, "topics") if row["topic"] == topic]
    assert found["problem"] in in_topics["problem"]


def damage_segment(change: str, file: Path) -> None:
    data = bytearray(file.read_bytes())
    if change == "first bytes":
        data[4] ^= 0xFF
    elif change == "blank":
        at = data.rfind(struct.pack(">i", -875286124))
        data[at] ^= 0xFF
    elif change == "cut":
        del data[-100:]
    elif change == "zeros":
        data = bytearray(len(data))
    file.unlink() if change == "missing" else file.write_bytes(data)


@pytest.mark.parametrize(
    ("change", "state", "problem"),
    [
        ("first bytes", "DAMAGED", "it does not begin with a record"),
        ("blank", "DAMAGED", "there is no blank at its end"),
        ("cut", "WRONG_SIZE", "the file has 130972 bytes, most segments have 131072"),
        ("zeros", "DAMAGED", "it does not begin with a record"),
        ("missing", "FULL", "no file has the 131072 bytes before it, from commit log offset 131072 on"),
    ],
)
def test_a_damaged_segment_does_not_look_full(
    change: str, state: str, problem: str, unpacked: Unpack, tmp_path: Path
) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    damage_segment(change, segment_files(folder)[1])
    rows = rows_of(folder, "segments")
    row = rows[1]
    assert row["state"] == state
    assert problem in row["problem"]
    others = [other["problem"] for other in rows if other is not row]
    if change == "cut":
        assert others.pop(1) == "no file has the 100 bytes before it, from commit log offset 262044 on"
    assert set(others) == {None}


def test_a_stray_file_has_a_state_and_no_offset(unpacked: Unpack, tmp_path: Path) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    sound = rows_of(folder, "segments")
    shutil.copy(segment_files(folder)[0], folder / "commitlog" / f"{1 << 50:020d}")
    rows = rows_of(folder, "segments")
    assert rows[:-1] == sound
    row = rows[-1]
    assert (row["file"], row["state"]) == (f"{1 << 50:020d}", "STRAY")
    assert (row["commit_log_offset"], row["end_offset"]) == (None, None)
    assert "its first record is of commit log offset 0" in row["problem"]


@pytest.mark.parametrize("command", TABLES)
def test_a_command_says_it_on_stderr_and_names_what_to_do(
    command: str, unpacked: Unpack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy_of(WORKLOAD, unpacked, tmp_path)
    everything = [command, str(folder), *(["--all"] if command != "segments" else [])]
    assert main(everything) == 0
    assert capsys.readouterr().err == ""
    damage_segment("first bytes", segment_files(folder)[1])
    shutil.rmtree(folder / "consumequeue" / "%RETRY%GID_failing")
    for arguments in (everything, [command, str(folder), "--json"]):
        assert main(arguments) == 0
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("spark-mq: 1 of ")
        assert ("`spark-mq verify` reads" if command == "segments" else "`spark-mq repair` plans") in captured.err
        assert "problem" in captured.out


def test_a_store_that_is_open_can_complete_its_queues_itself(
    unpacked: Unpack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["queues", str(unpacked(KILLED))]) == 0
    assert "a broker that runs, or starts again, may complete them itself" in capsys.readouterr().err


small_damage = st.tuples(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.binary(min_size=1, max_size=40))


@settings(max_examples=examples(60))
@given(st.lists(small_damage, min_size=1, max_size=6))
def test_whatever_the_bytes_the_tables_give_an_answer(
    described: Described, damages: list[tuple[int, int, bytes]]
) -> None:
    """A row for every file and queue, and no lag below 0."""
    source = Path(described(KILLED).location.path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(shutil.copytree(source, Path(name) / "store"))
        files = sorted(file for tree in ("commitlog", "consumequeue") for file in (folder / tree).rglob("*[0-9]"))
        files = [file for file in files if file.is_file()]
        for number, place, data in damages:
            file = files[number % len(files)]
            with file.open("r+b") as stream:
                stream.seek(place % file.stat().st_size)
                stream.write(data)
        assert [row["file"] for row in rows_of(folder, "segments")] == [file.name for file in segment_files(folder)]
        assert set(queue_rows(folder)) >= {(fact["topic"], fact["queueId"]) for fact in KILLED.facts("queue")}
        assert all(row["lag"] is None or row["lag"] >= 0 for row in rows_of(folder, "lag"))
        assert rows_of(folder, "topics")


def test_a_topic_that_is_no_folder_name_is_a_lost_queue(tmp_path: Path) -> None:
    writer = LogWriter(4096)
    for topic in (b"../../etc", b"a\0b", b"\xff\xfe"):
        writer.append(1_700_000_000_000, b"x", topic=topic)
    writer.write(tmp_path)
    assert sorted(queue_rows(tmp_path)) == [("../../etc", 0), ("a\0b", 0), ("\ufffd\ufffd", 0)]
