"""The files of a store that a snapshot has, as rows; and the files of a snapshot as a folder. No Spark.

The next offset of a queue whose messages all expired, and the names of index files, are in no message. A snapshot has
them as JSON, in one row for the folder `consumequeue` and one for the folder `index`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from pyarrow import fs

from spark_mq.errors import StoreChangedError
from spark_mq.format.message_row import Row
from spark_mq.format.timestamp import NANOS_PER_MICRO
from spark_mq.io.location import Location
from spark_mq.io.storage import NetworkStorage, StoredFile
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import CONFIG

_MAX_FILE_SIZE = 64 << 20


def snapshot_location(files: Mapping[str, bytes], name: str) -> Location:
    """A folder with these files."""
    return Location(_Files(name, files), "")


@dataclass(frozen=True)
class _Files(NetworkStorage):
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


def fact_row(name: str, facts: Callable[[], dict[str, Any] | None]) -> Row | None:
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
