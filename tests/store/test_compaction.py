"""Compacted topics: what a broker answers to pulls, and table `compaction_states`: why it does not answer the rest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spark_mq.cli.main import main
from spark_mq.errors import CorruptLogError
from spark_mq.format.record import FRAME, MAGIC_BLANK, MAX_BLANK_SIZE
from spark_mq.store.compaction import compaction_states
from spark_mq.store.message_store import MessageStore
from spark_mq.testing import LogWriter
from tests.support.in_process import read_rows
from tests.support.stores import OWN_STORES, RealStore

STORE, TOPIC = RealStore("fCompact533", OWN_STORES / "forms"), "b1comp"
ANSWERED = ("NEWEST", "SUPERSEDED", "DELETED")
Row = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STORE.unpack(tmp_path_factory.mktemp("compacted"))


def rows_of(store: Path, topic: str | None = None) -> list[Row]:
    with MessageStore(str(store)) as opened:
        return list(compaction_states(opened, topic).to_pylist())


def copy_of(folder: Path, name: str, tree: str = "compactionLog") -> Path:
    return folder / "compaction" / tree / TOPIC / name / ("0" * 20)


def test_the_rows_are_what_the_broker_answers(store: Path) -> None:
    rows, pulls = rows_of(store), [fact for fact in STORE.facts("get") if fact["topic"] == TOPIC]
    assert {row["topic"] for row in rows} == {TOPIC}
    for pull in pulls:
        queue = [row for row in rows if row["queue_id"] == pull["queueId"] and row["state"] in ANSWERED]
        found = [row["offset_in_copy"] for row in queue if row["queue_offset"] >= max(pull["offset"], 0)]
        assert found[: len(pull["offsets"])] == pull["offsets"], pull
    assert max(len(pull["offsets"]) for pull in pulls) == 29


def test_the_rows_are_messages_of_the_log(store: Path) -> None:
    rows = rows_of(store)
    sent = {(row["queue_id"], row["queue_offset"]): row for row in read_rows(path=str(store), topic=TOPIC)}
    assert len(rows) == len(sent) == 56
    for row in rows:
        message = sent[row["queue_id"], row["queue_offset"]]
        same = ("tags", "store_timestamp", "store_size", "commit_log_offset")
        assert {name: row[name] for name in same} == {name: message[name] for name in same}
        assert row["key"].split() == message["keys"]
        newer = [one for one in sent.values() if one["queue_id"] == row["queue_id"] and one["keys"] == message["keys"]]
        is_newest = row["queue_offset"] == max(one["queue_offset"] for one in newer)
        assert row["state"] == ("NEWEST" if is_newest else "SUPERSEDED")
    assert {row["problem"] for row in rows} == {None}
    assert sum(row["state"] == "SUPERSEDED" for row in rows) == 2


def compacted(folder: Path, **options: str) -> list[Row]:
    """The rows of table `compacted_messages`."""
    return read_rows(path=str(folder), table="compacted_messages", **options)


@pytest.mark.parametrize("size", ["128m", "1k"])
def test_the_messages_of_the_copies_are_what_the_broker_answers(store: Path, size: str) -> None:
    rows, states = compacted(store, splitSize=size), rows_of(store)
    sent = {(row["queue_id"], row["queue_offset"]): row for row in read_rows(path=str(store), topic=TOPIC)}
    assert [(row["queue_id"], row["commit_log_offset"]) for row in rows] == [
        (row["queue_id"], row["offset_in_copy"]) for row in states
    ]
    for row in rows:
        message = sent[row["queue_id"], row["queue_offset"]]
        of_log = {name: message[name] for name in ("commit_log_offset", "offset_message_id")}
        assert row | of_log == message
    for pull in (fact for fact in STORE.facts("get") if fact["topic"] == TOPIC):
        queue = compacted(store, topic=TOPIC, queueId=str(pull["queueId"]))
        found = [row["commit_log_offset"] for row in queue if row["queue_offset"] >= max(pull["offset"], 0)]
        assert found[: len(pull["offsets"])] == pull["offsets"], pull


def test_damage_of_a_copy_follows_the_mode(store: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("timer*")))
    sound = compacted(folder)
    change(copy_of(folder, "0"), sound[10]["commit_log_offset"], bytes(4))
    rows = compacted(folder)
    (damage,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert [row for row in rows if row is not damage] == sound[:10] + sound[11:]
    assert damage["commit_log_offset"] == sound[10]["commit_log_offset"]
    assert str(copy_of(folder, "0")) in damage["_corrupt_record"]
    assert compacted(folder, mode="DROPMALFORMED") == sound[:10] + sound[11:]
    with pytest.raises(CorruptLogError, match=str(copy_of(folder, "0"))):
        compacted(folder, mode="FAILFAST")


def test_the_blank_of_a_copy_can_be_longer_than_one_of_the_log(tmp_path: Path) -> None:
    """If the file of units is full, the rest of a file of any size is a blank (`CompactionLog.TopicPartitionLog`)."""
    copy = LogWriter(4096)
    copy.append(1_000, b"x", properties=b"KEYS\1a\2")
    folder = Path(copy.write(tmp_path / "store").path)
    (segment,) = (folder / "commitlog").iterdir()
    queue = folder / "compaction" / "compactionLog" / "T" / "0"
    queue.mkdir(parents=True)
    data, size = segment.read_bytes().rstrip(b"\0"), MAX_BLANK_SIZE + (1 << 20)
    (queue / segment.name).write_bytes(data + FRAME.pack(size - len(data), MAGIC_BLANK))
    os.truncate(queue / segment.name, size)
    assert [row["body"] for row in compacted(folder, mode="FAILFAST")] == [b"x"]
    os.truncate(queue / segment.name, size - 1)
    assert [row["body"] for row in compacted(folder)] == [None, b"x"]


def change(file: Path, position: int, content: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        opened.write(content)


@pytest.mark.parametrize(
    ("tree", "place", "found"),
    [
        (
            "compactionLog",
            lambda row: (row["offset_in_copy"], bytes(row["store_size"])),
            [
                ("DAMAGED", None, "zeros instead of a record"),
                ("NO_RECORD", 10, "a unit leads to no record"),
                ("MISSING", 10, None),
            ],
        ),
        ("compactionCq", lambda _: (46 * 10 + 8, b"\0\0\0M"), [("NEWEST", 10, "its unit leads to another place")]),
        ("compactionCq", lambda _: (46 * 10, bytes(46)), [("NEWEST", 10, "no unit")]),
    ],
)
def test_damage_of_a_copy_is_a_row(
    tree: str,
    place: Callable[[Row], tuple[int, bytes]],
    found: Sequence[tuple[str, int | None, str | None]],
    store: Path,
    tmp_path: Path,
) -> None:
    folder = Path(shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("timer*")))
    sound = rows_of(store)
    change(copy_of(folder, "0", tree), *place(sound[10]))
    changed = [row for row in rows_of(folder) if row not in sound]
    assert sorted((row["state"], row["queue_offset"], row["problem"]) for row in changed) == sorted(found)


def test_of_records_with_one_queue_offset_the_last_one_counts(tmp_path: Path) -> None:
    """A topic that was deleted and created again: the copy is compared with the newer record."""
    log = LogWriter(4096)
    for queue_offset, key in ((0, b"a"), (1, b"b"), (0, b"c")):
        log.append(1_000, b"x", properties=b"KEYS\1" + key + b"\2", queue_offset=queue_offset)
    folder = Path(log.write(tmp_path / "store").path)
    copy = LogWriter(4096)
    copy.append(1_000, b"x", properties=b"KEYS\1a\2", queue_offset=0)
    (segment,) = (Path(copy.write(tmp_path / "copy").path) / "commitlog").iterdir()
    queue = folder / "compaction" / "compactionLog" / "T" / "0"
    queue.mkdir(parents=True)
    shutil.copy(segment, queue / segment.name)
    rows = rows_of(folder, "T")
    newer = log.offsets[2]
    assert [(row["key"], row["state"], row["problem"], row["commit_log_offset"]) for row in rows] == [
        ("a", "NEWEST", "the log has another record", newer),
        ("b", "MISSING", None, log.offsets[1]),
    ]


def test_messages_that_never_come_into_a_copy_are_rows(tmp_path: Path) -> None:
    """By the rules of `CompactionLog` and `OffsetMap`: the newest of each key, unless it has no body."""
    log = LogWriter(4096)
    for properties, body in (
        (b"KEYS\1a\2", b"old"),
        (b"", b"no key"),
        (b"KEYS\1b\2", b"x"),
        (b"KEYS\1a\2", b"new"),
        (b"KEYS\1b\2", b""),
    ):
        log.append(1_000, body, properties=properties)
    folder = Path(log.write(tmp_path / "store").path)
    (folder / "compaction" / "compactionLog" / "T" / "0").mkdir(parents=True)
    found = [(row["queue_offset"], row["key"], row["state"], row["offset_in_copy"]) for row in rows_of(folder)]
    assert found == [(1, None, "NO_KEY", None), (3, "a", "MISSING", None)]


def test_the_command_names_problems(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(shutil.copytree(store, tmp_path / "copy", ignore=shutil.ignore_patterns("timer*")))
    change(copy_of(folder, "0", "compactionCq"), 46 * 3, bytes(46))
    assert main(["compaction-states", str(folder), "--topic", TOPIC]) == 0
    captured = capsys.readouterr()
    assert "no unit" in captured.out
    assert "1 of 56 messages have a problem; the first is b1comp/0: no unit" in captured.err
    assert rows_of(folder, "b1_Main") == []
