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

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
from spark_mq.archive.delta_log import changes_no_row, newest_commit, version_of
from spark_mq.archive.snapshot_files import small_files
from spark_mq.errors import SparkMqError
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.options import parse_stream_options
from spark_mq.source.stream_offset import StreamOffset, is_lost
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
from spark_mq.store.config.store_kind import log_folders
from spark_mq.store.message_store import MessageStore

MESSAGES_STREAM, KEYS_STREAM = "messages", "keys"
"""The two streams of a store."""
_OFFSET_LOG_VERSION = "v1"
_METADATA = "metadata"
_FILES = {_METADATA: 1, "commits": 2, "offsets": 3}
"""The file of a checkpoint, and its folders of one file for each batch: the least number of lines of each."""
_VERSION = 2
State = dict[str, Any]
"""What a note has of a store or an archive, as JSON can express it."""


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of one stream of a store, which it uses until a rename retires it."""

    tables: ArchiveTables
    identity: StoreIdentity
    stream: str

    @property
    def folder(self) -> str:
        """The folder that the stream uses now."""
        retired = self._retired
        return self.tables.checkpoint(self.identity, f"{self.stream}-{retired}" if retired else self.stream)

    @property
    def has_begun(self) -> bool:
        """Whether the stream has written an offset; it then starts at that offset."""
        return bool(self._numbers("offsets"))

    @property
    def stream_id(self) -> str:
        """The id of the stream, which Spark writes before the first batch."""
        return str(json.loads((self.tables.location(self.folder) / _METADATA).read_bytes())["id"])

    @property
    def finished_batch(self) -> Location | None:
        """The file with the offset of the stream's last batch; None if there is none, or the batch is not finished."""
        folder, newest = self.tables.location(self.folder), max(self._numbers("offsets"), default=-1)
        return folder / "offsets" / str(newest) if (folder / "commits" / str(newest)).is_file else None

    def sync(self, batch: int) -> None:
        """Flush to the disk what says which rows a batch has, before a table has the batch.

        Spark leaves that to the operating system. After a power loss, the stream would else give the number of the
        batch to other rows, which the table then would not take.
        """
        place = self.tables.location(self.folder)
        if not place.is_local:
            return
        folder = place.path
        files = [f"{folder}/offsets/{batch}", f"{folder}/metadata", f"{folder}/commits/{batch - 1}"]
        for path in (*filter(os.path.exists, files), f"{folder}/offsets", f"{folder}/commits", folder):
            flush_to_disk(path)
        for _ in range(3):  # the folder of the store, that of all checkpoints, and the one that has its name
            folder = os.path.dirname(folder)
            flush_to_disk(folder)

    def mend(self, has_batch: Callable[[int], bool]) -> None:
        """Remove files that a power loss left incomplete: Spark would not start the stream.

        Without its last note in `commits`, the stream repeats the batch. Without the offset of a batch, it makes the
        batch again; but if the table has the batch (`has_batch`), the stream begins again.
        """
        place = self.tables.location(self.folder)
        if not place.is_local:
            return
        for name, lines in _FILES.items():
            file = place / name if name == _METADATA else place / name / str(max(self._numbers(name), default=-1))
            if _is_whole(file, lines) if file.is_file else name != _METADATA or not self.has_begun:
                continue
            if name == "commits" or not self.has_begun or (name == "offsets" and not has_batch(int(file.name))):
                for path in (file, file.parent / f".{file.name}.crc"):
                    if path.is_file:
                        path.delete()
            else:
                self.retire()

    def retire(self) -> None:
        """Make the stream start with a new checkpoint, if it has used its present one."""
        if self.has_begun:
            publish(self._retired_file, str(self._retired + 1).encode())

    @property
    def last_offset(self) -> dict[str, Any] | None:
        """The offset after the last batch; None if the batch is not finished, or of another form."""
        batch = self.finished_batch
        lines = [] if batch is None else batch.read_bytes().decode().splitlines()
        if len(lines) != 3 or lines[0] != _OFFSET_LOG_VERSION:
            return None
        values = json.loads(lines[2])
        return values if isinstance(values, dict) else None

    def _numbers(self, name: str) -> list[int]:
        """The batches that have a file in `offsets` or `commits`."""
        entries = (self.tables.location(self.folder) / name).entries()
        return [int(entry.base_name) for entry in entries if entry.base_name.isdigit()]

    @property
    def _retired_file(self) -> Location:
        return self.tables.location(self.tables.checkpoint(self.identity, f"{self.stream}.retired"))

    @property
    def _retired(self) -> int:
        return int(self._retired_file.read_bytes()) if self._retired_file.is_file else 0


def _is_whole(file: Location, lines: int) -> bool:
    """Whether a file of a checkpoint has at least so many lines, each of which is JSON, a version, or no offset."""
    found = file.read_bytes().splitlines()
    try:
        for line in found:
            if line not in (b"v1", b"v2", b"-"):
                json.loads(line)
    except ValueError:
        return False
    return len(found) >= lines


def store_state(store: Location) -> State:
    """The files of a store that a run archives: those of `commitlog/` with sizes, small files with digests."""
    folders = [store / folder for folder in log_folders(store)]
    segments = [[info.base_name, info.size] for folder in folders for info in folder.entries()]
    files = []
    for row in small_files(store):
        content = row["content"]
        # Of a large file, a snapshot has only size and time.
        part = str(row["modification_timestamp"]).encode() if content is None else content
        files.append([row["file"], row["file_size"], _digest(part)])
    return {"path": str(store), "segments": segments, "small_files": files}


def archive_state(tables: ArchiveTables, identity: StoreIdentity) -> State | None:
    """The tables and checkpoints of one store now; None if they are unknown.

    A table is not local or not there, or a batch is not finished. `layout` is a digest of the statements that create
    the tables: this spark-mq may add columns. `streams` has the folder, the last batch and the digest of its offset, of
    each stream's checkpoint.
    """
    if not tables.is_local:
        return None
    commits = [newest_commit(table) for table in tables.all]
    batches = [Checkpoint(tables, identity, stream).finished_batch for stream in (MESSAGES_STREAM, KEYS_STREAM)]
    streams = [[file.parent.parent.path, file.name, _digest(file.read_bytes())] for file in batches if file is not None]
    if None in commits or len(streams) < len(batches):
        return None
    created = "\n".join(table.create_sql() for table in tables.all)
    return {"table": tables.name, "layout": _digest(created.encode()), "commits": commits, "streams": streams}


def versions(tables: ArchiveTables) -> tuple[int, int]:
    """The versions of the two tables that a run reads, messages and segments; -1 if they are unknown."""
    return version_of(tables.messages), version_of(tables.segments)


def write_note(tables: ArchiveTables, identity: StoreIdentity, store: State, archive: State, archived_to: int) -> None:
    """Write the note of a complete run; `store` is the state before the run read it."""
    note = {"version": _VERSION, "archived_to": archived_to, "store": store, "archive": archive}
    publish(_note(tables, identity), json.dumps(note).encode())


def end_if_nothing_is_new(store: Location, tables: ArchiveTables, identity: StoreIdentity) -> int | None:
    """The commit log offset up to which all messages are archived, if a run would change nothing; else None.

    A run would change nothing if the last complete run of this store, under this name, left a note, and all of this is
    as the note says, or is true:

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
        note, archive = json.loads(_note(tables, identity).read_bytes()), archive_state(tables, identity)
        if note["version"] != _VERSION or archive is None:
            return None
        if not _has_only_harmless_commits(tables, note["archive"], archive) or note["store"] != store_state(store):
            return None
        # The messages stream would find no new message, and its last message is still in the log.
        values = Checkpoint(tables, identity, MESSAGES_STREAM).last_offset
        if values is None or not StreamOffset.of_json(values).marks:
            return None
        options = parse_stream_options({"path": store.uri, "failOnLogCut": "true"})
        return int(note["archived_to"]) if MessagesStreamReader(options, []).latestOffset(values) == values else None
    except (SparkMqError, OSError, ValueError, LookupError, TypeError, AttributeError):
        return None  # files with other contents than expected: a run finds out what is wrong


def archived_to(store: MessageStore, tables: ArchiveTables, identity: StoreIdentity) -> int | None:
    """The commit log offset up to which the messages of a store are archived; None if that is unknown without Spark.

    It is unknown if the archive is not local, if no batch of this store under this name is finished, or if the archive
    has other messages than the log at the same offsets.
    """
    if not tables.is_local:
        return None
    try:
        values = Checkpoint(tables, identity, MESSAGES_STREAM).last_offset
        offset = None if values is None else StreamOffset.of_json(values)
    except (SparkMqError, OSError, ValueError):
        return None
    if offset is None or any(is_lost(store.records, mark, store.get_max_phy_offset()) for mark in offset.marks):
        return None
    return offset.commit_log_offset


def archived_end(store: MessageStore, table: str, conf: BrokerConf) -> int | None:
    """The same for the archive of this table, and the names of the broker's settings."""
    cluster = conf.text("brokerClusterName", DEFAULT_CLUSTER)
    identity = StoreIdentity(cluster, conf.text("brokerName", DEFAULT_BROKER), str(store.location))
    return archived_to(store, ArchiveTables.of(table), identity)


def _has_only_harmless_commits(tables: ArchiveTables, noted: dict[str, Any], now: State) -> bool:
    """Whether the archive is as noted, or other runs have only added rows of other stores to its smaller tables."""
    if {**noted, "commits": None} != {**now, "commits": None}:
        return False
    messages, *others = zip(tables.all, noted["commits"], now["commits"], strict=True)
    # A run never reads the keys table.
    return messages[1] == messages[2] and all(
        before == after
        or changes_no_row(table, before, after, reads_rows=table != tables.keys, allows_merges=table == tables.segments)
        for table, before, after in others
    )


def _note(tables: ArchiveTables, identity: StoreIdentity) -> Location:
    return Location.resolve(tables.checkpoint(identity, "last_run.json"))


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
