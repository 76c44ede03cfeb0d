"""The files of a snapshot as a storage, so that what reads the files of a store also reads those of a snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from pyarrow import fs

from spark_mq.io.location import Location
from spark_mq.io.storage import NetworkStorage, StoredFile


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
