"""A run is skipped only if nothing has changed since the last complete run, whatever the change is. Without Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.delta_log import check_newest_commits
from spark_mq.archive.last_run import (
    MESSAGES_STREAM,
    Checkpoint,
    archive_state,
    end_if_nothing_is_new,
    store_state,
    write_note,
)
from spark_mq.archive.report import ArchiveReport
from spark_mq.cli.exit_status import FAILED, FOUND
from spark_mq.cli.main import main
from spark_mq.errors import SparkMqError, StorageError
from spark_mq.io.location import Location
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.testing import LogWriter
from tests.support.stores import segment_files

IDENTITY = StoreIdentity("c", "b", "s")
SUFFIXES = ("", "_keys", "_segments", "_snapshots")
COUNT = 60
SCHEMA = {"type": "struct", "fields": [{"name": "x", "type": "long", "nullable": True, "metadata": {}}]}
METADATA = {
    "metaData": {
        "id": "00000000-0000-0000-0000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(SCHEMA),
        "partitionColumns": [],
        "configuration": {},
    }
}
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}


def file_action(action: str, name: str = "0", data_change: bool = True) -> dict[str, Any]:
    """A file that a commit adds or removes."""
    values = {"path": name, "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": data_change}
    return {action: values}


def put_log(store: Path, count: int = COUNT, kept: int = COUNT) -> int:
    """Make `count` messages the log of a store; those from `kept` on have a later store time, and the same sizes."""
    log = LogWriter(4096)
    for number in range(count):
        log.append(1_795_000_000_000 + 10 * number + (60_000 if number >= kept else 0), bytes([1 + number]) * 90)
    shutil.rmtree(store / "commitlog", ignore_errors=True)
    log.write(store)
    return log.offsets[-1]


@dataclass(frozen=True)
class Archived:
    """A store, the files of its archive that a complete run leaves, and the end of its log."""

    store: Path
    folder: Path
    end: int

    @property
    def tables(self) -> ArchiveTables:
        return ArchiveTables.of(str(self.folder / "messages"))

    def stream(self, name: str) -> Path:
        return Path(self.tables.checkpoint(IDENTITY, name))

    def table(self, suffix: str) -> Path:
        return self.folder / f"messages{suffix}"

    def commit(self, suffix: str, version: int, query: str = "q", *more: dict[str, Any], **info: object) -> None:
        log = self.table(suffix) / "_delta_log"
        log.mkdir(parents=True, exist_ok=True)
        known = {"timestamp": 1_795_000_000_000, "operation": "WRITE", "isBlindAppend": True, "operationParameters": {}}
        actions: list[dict[str, Any]] = [{"commitInfo": {"txnId": f"{suffix}-{version}-{query}", **known, **info}}]
        actions += [PROTOCOL, METADATA] if version == 0 else []
        actions += [{"txn": {"appId": query, "version": version}}, file_action("add", str(version)), *more]
        (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))

    def batch(self, stream: str, number: int, offset: object, is_finished: bool = True) -> None:
        for folder in ("offsets", "commits"):
            (self.stream(stream) / folder).mkdir(parents=True, exist_ok=True)
        (self.stream(stream) / "metadata").write_text('{"id":"q"}')
        (self.stream(stream) / "offsets" / str(number)).write_text(f"v1\n{{}}\n{json.dumps(offset)}")
        if is_finished:
            (self.stream(stream) / "commits" / str(number)).write_text("v1\n{}")

    def note(self) -> None:
        after = archive_state(self.tables, IDENTITY)
        assert after is not None
        write_note(self.tables, IDENTITY, store_state(Location.resolve(str(self.store))), after, self.end)

    def end_if_nothing_is_new(self, identity: StoreIdentity = IDENTITY, store: Path | None = None) -> int | None:
        return end_if_nothing_is_new(Location.resolve(str(store or self.store)), self.tables, identity)


def stream_end(store: Path) -> dict[str, Any]:
    reader = MessagesStreamReader(parse_stream_options({"path": str(store)}), [])
    return reader.latestOffset(reader.initialOffset())


@pytest.fixture
def archived(tmp_path: Path) -> Archived:
    store = tmp_path / "store"
    put_log(store)
    (store / "config").mkdir()
    (store / "config" / "topics.json").write_text("{}")
    offset = stream_end(store)
    archived = Archived(store, tmp_path / "lake", offset["commit_log_offset"])
    for suffix in SUFFIXES:
        archived.commit(suffix, 0)
        archived.commit(suffix, 1)
    archived.batch("messages", 0, offset)
    archived.batch("keys", 0, {"reservoirVersion": 2})
    archived.note()
    return archived


def test_an_unchanged_archive_has_the_end_of_the_log(archived: Archived) -> None:
    # The end of the log that was written, before zeros.
    assert put_log(archived.store) < archived.end <= sum(file.stat().st_size for file in segment_files(archived.store))
    assert archived.end_if_nothing_is_new() == archived.end


def change_note(archived: Archived, change: Callable[[dict[str, Any]], object]) -> None:
    file = archived.stream("last_run.json")
    note = json.loads(file.read_text())
    change(note)
    file.write_text(json.dumps(note))


def killed_before_the_keys(archived: Archived) -> None:
    put_log(archived.store, COUNT + 1)
    archived.commit("", 2)
    archived.batch("messages", 1, stream_end(archived.store))


def without_marks(archived: Archived) -> None:
    offset = {"version": 1, "commit_log_offset": archived.end, "lost_bytes": 0}
    archived.batch("messages", 0, offset)
    archived.note()


REMOVE = file_action("remove")
JOINED = file_action("remove", data_change=False)
CHANGED = {"operation": "DELETE", "isBlindAppend": False}


def merge(matched: str = "update", key: str = "store") -> dict[str, Any]:
    """The information of a commit of MERGE, as Delta Lake 4.4 writes it."""
    pairs = " AND ".join(f"({name}#42 = {name}#75)" for name in ("cluster", "broker", key, "commit_log_offset"))
    parameters = {
        "predicate": f'["({pairs})"]',
        "matchedPredicates": f'[{{"actionType":"{matched}"}}]',
        "notMatchedPredicates": '[{"actionType":"insert"}]',
        "notMatchedBySourcePredicates": "[]",
    }
    return {"operation": "MERGE", "operationParameters": parameters, "isBlindAppend": False}


def table_removed(suffix: str) -> Callable[[Archived], object]:
    return lambda archived: shutil.rmtree(archived.table(suffix))


def committed(suffix: str, version: int, query: str, *more: dict[str, Any], **info: object) -> Callable[..., object]:
    def change(archived: Archived) -> None:
        archived.commit(suffix, version, query, *more, **info)

    return change


def commit_missing(archived: Archived) -> None:
    archived.commit("_keys", 2)
    archived.commit("_keys", 4)


def made_again_with_more_commits(archived: Archived) -> None:
    archived.commit("_keys", 1, "other")
    archived.commit("_keys", 2)


def noted_commit_missing(archived: Archived) -> None:
    archived.commit("_keys", 2)
    (archived.table("_keys") / "_delta_log" / f"{1:020}.json").unlink()


CHANGES: dict[str, Callable[[Archived], object]] = {
    "a new message": lambda a: put_log(a.store, COUNT + 1),
    "a lost end": lambda a: put_log(a.store, COUNT - 1),
    "another end of the same size": lambda a: put_log(a.store, kept=COUNT - 1),
    "an expired segment": lambda a: segment_files(a.store)[0].unlink(),
    "a segment made in advance": lambda a: (a.store / "commitlog" / f"{1 << 20:020}").write_bytes(bytes(4096)),
    "a longer segment": lambda a: segment_files(a.store)[-1].write_bytes(
        segment_files(a.store)[-1].read_bytes() + b"\0"
    ),
    "a changed file of config/": lambda a: (a.store / "config" / "topics.json").write_text("[]"),
    "a new file of config/": lambda a: (a.store / "config" / "new.json").touch(),
    "a checkpoint of the broker": lambda a: (a.store / "checkpoint").write_bytes(bytes(4096)),
    "no store": lambda a: shutil.rmtree(a.store),
    "killed before the keys": killed_before_the_keys,
    "a batch of messages that is not finished": lambda a: a.batch("messages", 1, {}, is_finished=False),
    "a batch of keys that is not finished": lambda a: a.batch("keys", 1, {}, is_finished=False),
    "another batch of keys": lambda a: a.batch("keys", 1, {}),
    "no checkpoint of messages": lambda a: shutil.rmtree(a.stream("messages")),
    "no checkpoint of keys": lambda a: shutil.rmtree(a.stream("keys")),
    "no commits of messages": lambda a: shutil.rmtree(a.stream("messages") / "commits"),
    "a retired checkpoint": lambda a: Checkpoint(a.tables, IDENTITY, MESSAGES_STREAM).retire(),
    "an offset without marks": without_marks,
    "no note": lambda a: a.stream("last_run.json").unlink(),
    "a note that is not JSON": lambda a: a.stream("last_run.json").write_text("{"),
    "a note without an end": lambda a: change_note(a, lambda note: note.pop("archived_to")),
    "a note of another version": lambda a: change_note(a, lambda note: note.update(version=1)),
    "other columns": lambda a: change_note(a, lambda note: note["archive"].update(layout="")),
    **{f"no table messages{suffix}": table_removed(suffix) for suffix in SUFFIXES},
    "a new commit of messages": lambda a: a.commit("", 2),
    **{
        f"a column of messages{suffix}": committed(suffix, 2, "q", METADATA, operation="ADD COLUMNS")
        for suffix in SUFFIXES
    },
    "rows of segments deleted": lambda a: a.commit("_segments", 2, "q", REMOVE, **CHANGED),
    "rows of segments deleted by a merge": lambda a: a.commit("_segments", 2, "q", REMOVE, **merge(matched="delete")),
    "rows of segments merged by another key": lambda a: a.commit("_segments", 2, "q", REMOVE, **merge(key="x")),
    "rows of snapshots deleted": lambda a: a.commit("_snapshots", 2, "q", REMOVE, **CHANGED),
    "snapshots merged": lambda a: a.commit("_snapshots", 2, "q", REMOVE, **merge()),
    "a commit is missing": commit_missing,
    "the noted commit is missing": noted_commit_missing,
    "keys made again with more commits": made_again_with_more_commits,
    **{f"messages{suffix} made again": committed(suffix, 1, "other") for suffix in SUFFIXES},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_run_must_look_for_itself_after(change: Callable[[Archived], object], archived: Archived) -> None:
    assert archived.end_if_nothing_is_new() == archived.end
    change(archived)
    assert archived.end_if_nothing_is_new() is None


def test_runs_of_other_stores_change_nothing_for_this_one(archived: Archived) -> None:
    archived.commit("_keys", 2, "of another broker", REMOVE, **CHANGED)
    archived.commit("_segments", 2, "of another broker", REMOVE, **merge())
    archived.commit("_segments", 3, "maintenance", JOINED, operation="OPTIMIZE", isBlindAppend=False)
    archived.commit("_snapshots", 2, "of another broker", engineInfo="Kernel-4.4.0/spark-mq", isBlindAppend=False)
    assert archived.end_if_nothing_is_new() == archived.end


def test_another_name_or_path_is_another_run(archived: Archived, tmp_path: Path) -> None:
    for other in (StoreIdentity("x", "b", "s"), StoreIdentity("c", "x", "s"), StoreIdentity("c", "b", "x")):
        assert archived.end_if_nothing_is_new(other) is None
    assert archived.end_if_nothing_is_new(store=Path(shutil.copytree(archived.store, tmp_path / "copy"))) is None
    catalog = ArchiveTables.of("lake.messages", str(tmp_path / "lake" / "messages_checkpoints"))
    assert end_if_nothing_is_new(Location.resolve(str(archived.store)), catalog, IDENTITY) is None
    assert archive_state(ArchiveTables.of("s3a://lake/messages"), IDENTITY) is None


def test_the_command_starts_spark_only_if_it_must(
    archived: Archived, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(*_: object, **_how: object) -> None:
        raise SparkMqError("a JVM would start")

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session)
    names = ["--cluster", "c", "--broker", "b", "--store-name", "s"]
    words = ["archive", str(archived.store), archived.tables.name, *names]
    assert main([*words, "--json"]) == FOUND
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["segments"], report["archived_to"]) == (0, 0, archived.end)
    assert main(words) == FOUND
    assert "nothing new" in capsys.readouterr().out
    for more in (["--rename"], ["--follow", "1"], ["--spark-conf", "spark.hadoop.fs.defaultFS=x"], ["--broker", "x"]):
        assert main([*words, *more]) == FAILED
        assert "a JVM would start" in capsys.readouterr().err
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")  # TABLE is a path over there
    assert main(words) == FAILED


def test_a_report_has_no_line_for_what_did_not_happen() -> None:
    report = ArchiveReport("/store", "/lake/messages", "c", "b", archived_to=1200, seconds=0.04)
    assert report.to_text().splitlines() == [
        "/store archived in /lake/messages as c/b",
        "  rows appended   0: nothing new",
        "  log             up to commit log offset 1,200",
        "  seconds         0.0",
    ]
    report = ArchiveReport(
        "/store", "/lake/messages", "c", "b", 10, 4, 1200, 7, segments=2, snapshot_files=3, seconds=2
    )
    assert report.to_text().splitlines()[1:] == [
        "  rows appended   10 with 4 keys",
        "  log             up to commit log offset 1,200",
        "  segments        2",
        "  snapshot        3 files of config/ and checkpoint",
        "  seconds         2.0 (5 rows a second)",
        "  lost            7 bytes of the log were gone before they were archived",
    ]


@pytest.mark.parametrize("is_torn", [False, True])
def test_a_stream_without_its_id_begins_again(is_torn: bool, archived: Archived) -> None:
    checkpoint = Checkpoint(archived.tables, IDENTITY, MESSAGES_STREAM)
    before = checkpoint.folder
    (Path(before) / "metadata").unlink()
    if is_torn:
        (Path(before) / "metadata").write_bytes(bytes(45))
    checkpoint.mend(lambda _: False)
    assert checkpoint.folder != before
    checkpoint.mend(lambda _: False)  # nothing is there
    assert not checkpoint.has_begun


@pytest.mark.parametrize("left", [b"", bytes(29), b"v1"], ids=["empty", "zeros", "cut"])
@pytest.mark.parametrize("folder", ["commits", "offsets"])
@pytest.mark.parametrize("has_batch", [False, True])
def test_what_a_power_loss_left_of_a_checkpoint_is_removed(
    folder: str, left: bytes, has_batch: bool, archived: Archived
) -> None:
    """Only if the table has the batch whose offset is lost, the stream begins again, in another folder."""
    checkpoint = Checkpoint(archived.tables, IDENTITY, MESSAGES_STREAM)
    before, kept = checkpoint.folder, checkpoint.last_offset
    checkpoint.mend(lambda _: True)
    assert (checkpoint.folder, checkpoint.last_offset) == (before, kept)
    newest = max((Path(before) / "offsets").iterdir(), key=lambda file: int(file.name)).name
    if folder == "offsets":
        (Path(before) / "commits" / newest).unlink()
    (Path(before) / folder / newest).write_bytes(left)
    checkpoint.mend(lambda batch: has_batch and batch == int(newest))
    begins_again = folder == "offsets" and has_batch
    assert (checkpoint.folder == before) != begins_again
    assert (Path(before) / folder / newest).exists() == begins_again


@pytest.mark.parametrize(
    ("name", "left", "said"),
    [
        ("00000000000000000002.json", b"", r"2.json is empty.* Move the files of version 2 .*_keys/_delta_log"),
        ("00000000000000000002.json", bytes(99), "2.json is not a commit"),
        ("00000000000000000002.checkpoint.parquet", bytes(9), "checkpoint.parquet is not complete.* move it and _last"),
        ("../1", b"\0", r"/1, which 0+1.json adds, is not complete"),
        ("../1", b"PAR1", r"/1, which 0+1.json adds, is not complete"),
    ],
)
def test_an_incomplete_file_of_a_table_is_named(name: str, left: bytes, said: str, archived: Archived) -> None:
    log = archived.table("_keys") / "_delta_log"
    for version in (1, 2):
        archived.commit("_keys", version)
        pq.write_table(pa.table({"x": [version]}), log / f"../{version}")
        commit, size = log / f"{version:020}.json", (log / f"../{version}").stat().st_size
        commit.write_text(commit.read_text().replace('"size": 1', f'"size": {size}'))
    shutil.copy(log / "../2", log / f"{2:020}.checkpoint.parquet")
    check_newest_commits(archived.tables)
    (log / name).write_bytes(left)
    with pytest.raises(StorageError, match=said):
        check_newest_commits(archived.tables)
