"""How far the streams of an archive are, and whether a run would find nothing new.

A run over an idle store starts Spark, and a dozen of its jobs, only to learn that there is nothing to do. A complete
run therefore writes a note: everything that decides what the next run would do, as sizes and digests. If all of it is
still the same, and the log still ends where the messages stream ended, the next run would change nothing. All checks
read small local files, and need no Spark session. If anything is unknown or different, Spark must run.

A checkpoint is retired when a rename changes rows that its stream wrote: the stream then starts with a new checkpoint,
at the end of the archived messages. A file contains the number of retired checkpoints. The file is published whole, so
a killed run leaves the old state or the new one. The folders stay, because removing a folder takes many steps.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Self

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.delta_log import Commit, changes_no_row, newest_commit, version_of
from spark_mq.archive.snapshot import small_files
from spark_mq.archive.tables import layouts
from spark_mq.errors import SparkMqError
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.source.stream_offset import StreamOffset
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.log_range import is_lost
from spark_mq.store.message_store import MessageStore

MESSAGES, KEYS = "messages", "keys"
"""The two streams of a store."""
_OFFSET_LOG_VERSION = "v1"
_VERSION = 2


def checkpoint_of(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> str:
    """The folder of the checkpoint that a stream uses now."""
    retired = _retired(tables, identity, stream)
    return tables.checkpoint(identity, f"{stream}-{retired}" if retired else stream)


def retire_checkpoint(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> None:
    """Make the stream start with a new checkpoint, if it has used its present one."""
    if has_begun(tables, checkpoint_of(tables, identity, stream)):
        content = str(_retired(tables, identity, stream) + 1).encode()
        publish(_retired_file(tables, identity, stream), content, len(content))


def has_begun(tables: ArchiveTables, checkpoint: str) -> bool:
    """Whether a stream has written an offset to this checkpoint; the stream then starts at that offset."""
    return any(entry.base_name.isdigit() for entry in (tables.location(checkpoint) / "offsets").entries())


def stream_id(tables: ArchiveTables, checkpoint: str) -> str:
    """The id of the stream, which Spark writes before the first batch."""
    return str(json.loads((tables.location(checkpoint) / "metadata").read_bytes())["id"])


def finished_batch(tables: ArchiveTables, checkpoint: str) -> Location | None:
    """The file with the offset of a stream's last batch; None if there is none, or the batch is not finished."""
    folder = tables.location(checkpoint)
    numbers = [int(entry.base_name) for entry in (folder / "offsets").entries() if entry.base_name.isdigit()]
    if not numbers or not (folder / "commits" / str(max(numbers))).is_file:
        return None
    return folder / "offsets" / str(max(numbers))


def source_offset(batch: Location) -> dict[str, Any] | None:
    """The offset of the only source in a file of Spark's offset log; None for another form."""
    lines = batch.read_bytes().decode().splitlines()
    if len(lines) != 3 or lines[0] != _OFFSET_LOG_VERSION:
        return None
    values = json.loads(lines[2])
    return values if isinstance(values, dict) else None


def _retired(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> int:
    file = _retired_file(tables, identity, stream)
    return int(file.read_bytes()) if file.is_file else 0


def _retired_file(tables: ArchiveTables, identity: StoreIdentity, stream: str) -> Location:
    return tables.location(tables.checkpoint(identity, f"{stream}.retired"))


@dataclass(frozen=True)
class StoreState:
    """The files of a store that a run archives.

    Attributes:
        segments: Name and size of each file of `commitlog/`.
        small_files: Name and digest of each file that a snapshot contains.
    """

    path: str
    segments: list[list[Any]]
    small_files: list[list[Any]]

    @classmethod
    def of(cls, store: Location) -> Self:
        """The files as they are now."""
        segments = [[info.base_name, info.size] for info in (store / COMMIT_LOG).entries()]
        files = []
        for row in small_files(store):
            content = row["content"]
            # Of a large file, a snapshot has only size and time.
            part = str(row["modification_timestamp"]).encode() if content is None else content
            files.append([row["file"], row["file_size"], _digest(part)])
        return cls(str(store), segments, files)


@dataclass(frozen=True)
class ArchiveState:
    """The tables and checkpoints of one store in an archive.

    Attributes:
        layout: A digest of the statements that create the tables: this spark-mq may add columns.
        streams: The folder, the last batch and the digest of its offset, of each stream's checkpoint.
    """

    table: str
    layout: str
    commits: list[Commit]
    streams: list[list[str]]

    @classmethod
    def of(cls, tables: ArchiveTables, identity: StoreIdentity) -> Self | None:
        """The state now; None if it is unknown: a table is not local or not there, or a batch is not finished."""
        if not tables.is_local:
            return None
        commits = [newest_commit(table) for table in layouts(tables)]
        batches = [finished_batch(tables, checkpoint_of(tables, identity, stream)) for stream in (MESSAGES, KEYS)]
        known_commits = [commit for commit in commits if commit is not None]
        known_batches = [file for file in batches if file is not None]
        if len(known_commits) < len(commits) or len(known_batches) < len(batches):
            return None
        created = "\n".join(layout.create_sql(table) for table, layout in layouts(tables).items())
        return cls(
            tables.name,
            _digest(created.encode()),
            known_commits,
            [[file.parent.parent.path, file.name, _digest(file.read_bytes())] for file in known_batches],
        )


def versions(tables: ArchiveTables) -> tuple[int, int]:
    """The versions of the two tables that a run reads, messages and segments; -1 if they are unknown."""
    return version_of(tables.messages), version_of(tables.segments)


def write_note(
    tables: ArchiveTables, identity: StoreIdentity, store: StoreState, archive: ArchiveState, archived_to: int
) -> None:
    """Write the note of a complete run.

    Args:
        identity: The name of the store in the archive.
        store: The store as it was before the run read it.
        archived_to: The commit log offset of the end of the last archived message.
    """
    states = {"store": dataclasses.asdict(store), "archive": dataclasses.asdict(archive)}
    content = json.dumps({"version": _VERSION, "archived_to": archived_to, **states}).encode()
    publish(_note(tables, identity), content, len(content))


def end_if_nothing_is_new(store: Location, tables: ArchiveTables, identity: StoreIdentity) -> int | None:
    """The commit log offset up to which all messages are archived, if a run would change nothing; else None.

    A run would change nothing if the last complete run of this store, under this name, left a note, and all of this is
    as the note says, or holds:

    - the path of the store, and names and sizes of the files in `commitlog/`: no segment came or expired, so the
      segments table is complete;
    - the files of a snapshot (`config/` and `checkpoint`), by content: no snapshot is due;
    - the newest commit of the messages table: the table was not deleted, made again, changed or maintained, and no
      other run appended to it, so no other name for the log has come. The note is written only if all commits to the
      table during the run were its own, so the keys stream has read all of them;
    - the commit of each of the other three tables that was the newest, and after it only commits that leave the store's
      rows and the columns as they are: other runs may append snapshots and keys, and merge segments. Whatever else a
      run may have to write again, such as rows that were deleted, is a change;
    - the checkpoints of both streams: their folders, which change with a rename, and the last batch, which is finished;
    - the end of the log: the stream over the store, given the offset in its checkpoint, has no later end, and the log
      still has the last record that was read.

    Spark's options that decide only how a run works (`--max-bytes`) do not matter. The contents of Parquet files are
    not read: a run that finds nothing new does not check them either.
    """
    if not tables.is_local:
        return None
    try:
        note = _read_note(tables, identity)
        if note is None:
            return None
        archive = ArchiveState.of(tables, identity)
        if archive is None or not _has_only_harmless_commits(tables, note["archive"], archive):
            return None
        if note["store"] != dataclasses.asdict(StoreState.of(store)) or not _is_at_end(store, tables, identity):
            return None
        return int(note["archived_to"])
    except (SparkMqError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # files with other contents than expected: a run finds out what is wrong


def archived_to(store: MessageStore, tables: ArchiveTables, identity: StoreIdentity) -> int | None:
    """The commit log offset up to which the messages of a store are archived; None if that is unknown without Spark.

    It is unknown if the archive is not local, if no batch of this store under this name is finished, or if the archive
    has other messages than the log at the same offsets.

    Args:
        identity: The name of the store in the archive.
    """
    if not tables.is_local:
        return None
    try:
        batch = finished_batch(tables, checkpoint_of(tables, identity, MESSAGES))
        values = None if batch is None else source_offset(batch)
        offset = None if values is None else StreamOffset.of_json(values)
    except (SparkMqError, OSError, ValueError):
        return None
    if offset is None or any(is_lost(store.records, mark, store.get_max_phy_offset()) for mark in offset.marks):
        return None
    return offset.commit_log_offset


def _has_only_harmless_commits(tables: ArchiveTables, noted: dict[str, Any], now: ArchiveState) -> bool:
    """Whether the archive is as noted, or other runs have only added rows of other stores to its smaller tables."""
    if {**noted, "commits": None} != {**dataclasses.asdict(now), "commits": None}:
        return False
    messages, *others = zip(layouts(tables), noted["commits"], now.commits, strict=True)
    # A run never reads the keys table.
    return messages[1] == messages[2] and all(
        before == after
        or changes_no_row(table, before, after, reads_rows=table != tables.keys, allows_merges=table == tables.segments)
        for table, before, after in others
    )


def _is_at_end(store: Location, tables: ArchiveTables, identity: StoreIdentity) -> bool:
    """Whether the messages stream would find no new message, and its last message is still in the log."""
    batch = finished_batch(tables, checkpoint_of(tables, identity, MESSAGES))
    values = None if batch is None else source_offset(batch)
    if values is None or not StreamOffset.of_json(values).marks:
        return False
    options = parse_stream_options({"path": store.uri, "failOnLogCut": "true"})
    return MessagesStreamReader(options, []).latestOffset(values) == values


def _read_note(tables: ArchiveTables, identity: StoreIdentity) -> dict[str, Any] | None:
    file = _note(tables, identity)
    if not file.is_file:
        return None
    note = json.loads(file.read_bytes())
    return note if isinstance(note, dict) and note.get("version") == _VERSION else None


def _note(tables: ArchiveTables, identity: StoreIdentity) -> Location:
    return Location.resolve(tables.checkpoint(identity, "last_run.json"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
