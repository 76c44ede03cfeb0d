"""What a store has that cannot be rebuilt from its log, and a snapshot of it: `config/`, `checkpoint`, and other facts.

The next offset of a queue whose messages all expired, and the names of index files, are in no message. A snapshot has
them as JSON, in one row for the folder `consumequeue` and one for the folder `index`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar, NoReturn

from pyarrow import fs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.file_commit import append_rows
from spark_mq.archive.tables import SNAPSHOTS
from spark_mq.errors import StoreChangedError
from spark_mq.format.message_row import Row
from spark_mq.format.timestamp import NANOS_PER_MICRO
from spark_mq.io.location import Location
from spark_mq.io.storage import NetworkStorage, StoredFile
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.derived_facts import index_facts, queue_facts
from spark_mq.store.message_store import MessageStore

_MAX_FILE_SIZE = 64 << 20


def snapshot_location(files: Mapping[str, bytes], name: str) -> Location:
    """A folder with these files.

    Args:
        files: The contents by path, such as `config/topics.json`.
        name: What error messages call the folder.
    """
    return Location(_Files(name, files), "")


@dataclass(frozen=True)
class _Files(NetworkStorage):
    """Files in memory, which cannot be changed."""

    what_to_check: ClassVar[str] = "the archive"
    what_denies: ClassVar[str] = "the archive"

    name: str
    files: Mapping[str, bytes] = field(hash=False)

    def uri(self, path: str) -> str:
        return f"{self.name}{path}"

    def info(self, path: str) -> fs.FileInfo:
        name = path.strip("/")
        if name in self.files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.files[name]))
        is_folder = any(file.startswith(f"{name}/" if name else "") for file in self.files)
        return fs.FileInfo(path, fs.FileType.Directory if is_folder else fs.FileType.NotFound)

    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        folder = f"{path.strip('/')}/".lstrip("/")
        below = {path[len(folder) :] for path in self.files if path.startswith(folder)}
        names = below if recursive else {path.partition("/")[0] for path in below}
        return [self.info(f"/{folder}{name}") for name in sorted(names)]

    def open(self, path: str, size: int | None = None) -> StoredFile:
        content = self.files.get(path.strip("/"))
        if content is None:
            raise FileNotFoundError(path)
        return _File(content)

    def _refuse(self, *arguments: Any, **options: Any) -> NoReturn:
        raise OSError("a snapshot cannot be changed")

    write = make_folder = rename = delete = delete_folder = _refuse


@dataclass(frozen=True)
class _File:
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, position: int, length: int) -> bytes:
        return self.content[position : position + length]


def write_snapshot(archive: StoreArchive) -> int:
    """The number of files whose present contents were appended to the snapshots table."""
    moment = datetime.now(UTC)
    files = small_files(archive.store)
    with MessageStore(archive.store.uri) as store:
        log_range = {"log_start": store.get_min_phy_offset(), "log_end": store.get_max_phy_offset()}
        facts = [
            _fact_row(CONSUME_QUEUE, lambda: queue_facts(store)),
            _fact_row(INDEX, lambda: index_facts(store.location)),
        ]
    found = [row for row in facts if row is not None]
    rows = [{"snapshot_timestamp": moment, **log_range, **row} for row in (*files, *found)]
    if rows:
        append_rows(archive, archive.tables.snapshots, SNAPSHOTS, rows)
    return len(files)


def small_files(store: Location) -> list[Row]:
    """A row for each file, with its present content; `content` is None if the file has more than 64 MiB or is gone.

    Folders in `config/` are RocksDB databases, each of several files that belong together. A running broker can change
    the database between two reads, so a snapshot of it can be inconsistent.
    """
    infos = [*store.storage.entries(f"{store.path}/{CONFIG}", recursive=True), (store / CHECKPOINT).info()]
    return [
        {
            "file": info.path[len(store.path) + 1 :],
            "file_size": info.size,
            "modification_timestamp": (info.mtime_ns or 0) // NANOS_PER_MICRO,
            "content": _content(store, info),
        }
        for info in sorted(infos, key=lambda info: info.path)
        if info.is_file
    ]


def _fact_row(name: str, facts: Callable[[], dict[str, Any] | None]) -> Row | None:
    """The row for a folder; None if there are no facts, or if a broker deletes files of it at this moment."""
    try:
        found = facts()
    except (StoreChangedError, FileNotFoundError):
        return None
    if found is None:
        return None
    content = json.dumps(found).encode()
    return {"file": name, "file_size": len(content), "modification_timestamp": None, "content": content}


def _content(store: Location, info: fs.FileInfo) -> bytes | None:
    if info.size > _MAX_FILE_SIZE:
        return None
    try:
        return Location(store.storage, info.path).read_bytes()
    except FileNotFoundError:
        return None


@dataclass(frozen=True)
class NewestSnapshot:
    """The files of a snapshot.

    Attributes:
        timestamp: When it was made, milliseconds since the epoch; None if the archive has no snapshot of the store.
        log_end: The commit log offset at which the log ended then; -1 if that is not known.
        files: The contents by path; a file that was too large for the snapshot is left out.
    """

    timestamp: int | None = None
    log_end: int = -1
    files: Mapping[str, bytes] = field(default_factory=dict)


def newest_snapshot(spark: SparkSession, tables: ArchiveTables, identity: StoreIdentity) -> NewestSnapshot:
    """The newest whole snapshot of a store; if no snapshot is whole, the newest one.

    A snapshot is whole if it has the contents of all its files.

    Args:
        spark: A session with Delta tables.
        identity: The name of the store in the archive.
    """
    rows = tables.snapshots.read(spark).where(identity.condition())
    of_snapshot = (F.count_if(F.col("content").isNull()).alias("missing"), F.max("log_end").alias("log_end"))
    snapshots = rows.groupBy("snapshot_timestamp").agg(*of_snapshot).toArrow().to_pylist()
    if not snapshots:
        return NewestSnapshot()
    whole = [row for row in snapshots if not row["missing"]] or snapshots
    newest = max(whole, key=lambda row: row["snapshot_timestamp"])
    moment = newest["snapshot_timestamp"]
    of_newest = rows.where((F.col("snapshot_timestamp") == F.lit(moment)) & F.col("content").isNotNull())
    files = {row["file"]: row["content"] for row in of_newest.select("file", "content").toArrow().to_pylist()}
    log_end = -1 if newest["log_end"] is None else newest["log_end"]
    return NewestSnapshot(int(moment.timestamp() * 1000), log_end, files)
