"""Paths and URIs: where a file or folder is.

A path without a scheme is local. `s3:` is an object store, and `hdfs:` and `viewfs:` are HDFS. `file:` is a local path.
Databricks' `dbfs:/x` is its local mount `/dbfs/x`.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, StorageError
from spark_mq.io.local import LocalStorage, open_regular
from spark_mq.io.remote_file import RemoteFile, Snapshot
from spark_mq.io.s3 import redacted, shown
from spark_mq.io.storage import NetworkStorage, Storage

if TYPE_CHECKING:
    from typing_extensions import Buffer


def _on_s3(uri: str) -> tuple[Storage, str]:
    from spark_mq.io.object_store import ObjectStore

    return ObjectStore.of(uri)


def _on_hdfs(uri: str) -> tuple[Storage, str]:
    from spark_mq.io.hdfs import HdfsStorage

    return HdfsStorage.of(uri)


STORAGES: Final[dict[str, Callable[[str], tuple[Storage, str]]]] = {
    **dict.fromkeys(("s3", "s3a", "s3n"), _on_s3),
    **dict.fromkeys(("hdfs", "viewfs"), _on_hdfs),
}
"""By scheme of a URI: the function that returns the storage and the path in it."""

_LOCAL: Final = LocalStorage()
_MAX_IN_MEMORY: Final = 64 << 20
"""The most bytes of a new file that are assembled in memory, and not in a temporary file."""


@dataclass(frozen=True, repr=False)
class Location:
    """A path on a storage. `str` gives it for a person: without settings and without secrets."""

    storage: Storage
    path: str
    _snapshot: Snapshot | None = field(default=None, compare=False)

    @classmethod
    def resolve(cls, uri: str) -> Self:
        """The location that `uri` names."""
        if not uri:
            raise OptionError("the path is empty")
        path = local_path(uri)
        if path is not None:
            return cls(_LOCAL, path)
        scheme = uri.partition(":")[0]
        if scheme not in STORAGES:
            raise OptionError(
                f"{redacted(uri)!r} is not a path, and not a URI that can be opened: those begin with "
                f"{', '.join(f'{known}://' for known in STORAGES)} or file:"
            )
        try:
            storage, path = STORAGES[scheme](uri)
        except OSError as error:
            reason = redacted(str(error).partition("\n")[0])
            raise StorageError(
                f"{redacted(uri)}: its filesystem cannot be reached: {reason}; check the address"
            ) from None
        if not path:
            raise OptionError(f"{redacted(uri)!r} names no bucket and no path")
        return cls(storage, path.rstrip("/"))

    @property
    def uri(self) -> str:
        """The path or URI by which another process can resolve the file. It can contain secrets."""
        return self.storage.uri(self.path)

    def __truediv__(self, name: str) -> Location:
        return Location(self.storage, f"{self.path}/{name}", self._snapshot)

    @property
    def parent(self) -> Location:
        """The folder that contains the file or folder."""
        return Location(self.storage, self.path.rpartition("/")[0], self._snapshot)

    def snapshot(self) -> Location:
        """The same folder, whose files and sizes are from now on those of the first question about them (`Snapshot`).

        A local folder, and a folder of a snapshot, is returned as it is: the local filesystem is asked each time.
        """
        if self._snapshot is not None or not isinstance(self.storage, NetworkStorage):
            return self
        return replace(self, _snapshot=Snapshot(self.storage, self.path))

    def now(self) -> Location:
        """The same file or folder, about which its storage is asked each time."""
        return self if self._snapshot is None else replace(self, _snapshot=None)

    @property
    def stays_open(self) -> bool:
        """Whether a file is opened once for all reads, because it belongs to a snapshot."""
        return self._snapshot is not None

    def tells_only_zeros(self, size: int) -> bool:
        """Whether the listing of its snapshot tells that the file has this size, and certainly only zeros."""
        return self._snapshot is not None and self._snapshot.tells_only_zeros(self.path, size)

    @property
    def is_local(self) -> bool:
        """Whether the operating system can open the file."""
        return self.storage.is_local

    @property
    def renames(self) -> bool:
        """Whether its storage gives a file or a folder another name in one step."""
        return self.storage.renames

    @property
    def locks(self) -> bool:
        """Whether its storage locks a file or a folder against other processes."""
        return self.storage.locks

    @property
    def is_bucket(self) -> bool:
        """Whether the path is that of a bucket, and not of something in it."""
        return "/" not in self.path

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def info(self) -> fs.FileInfo:
        """Type, size and modification time of the file or folder; type `NotFound` if neither exists."""
        info = None if self._snapshot is None else self._snapshot.info(self.path)
        return info or self.storage.info(self.path)

    @property
    def is_directory(self) -> bool:
        """Whether the path is a folder that exists."""
        return bool(self.info().type == fs.FileType.Directory)

    @property
    def is_file(self) -> bool:
        """Whether the path is a file that exists."""
        return bool(self.info().type == fs.FileType.File)

    def entries(self) -> list[fs.FileInfo]:
        """The entries of the folder, sorted by name; an empty list if the folder does not exist, or is a file."""
        listed = None if self._snapshot is None else self._snapshot.entries(self.path)
        return self.storage.entries(self.path) if listed is None else list(listed)

    def folders(self) -> list[str]:
        """The names of the folders in the folder, sorted; an empty list if the folder does not exist, or is a file."""
        if self._snapshot is None:
            return self.storage.folders(self.path)
        return [info.base_name for info in self.entries() if info.type == fs.FileType.Directory]

    def files_below(self) -> dict[str, int]:
        """The sizes of all files in the folder and the folders in it, by their paths in the folder.

        There are none if the folder does not exist.
        """
        infos = self.storage.entries(self.path, recursive=True)
        start = len(self.path) + 1
        return {info.path[start:]: info.size for info in infos if info.type == fs.FileType.File}

    def make_folder(self) -> None:
        """Create the folder, and the folders above it, unless the storage has no folders: S3 has only files."""
        if self.path:
            self.storage.make_folder(self.path)

    def read_bytes(self) -> bytes:
        """The whole content of a file, for small files. Raises `StorageError` if it is not a regular file."""
        if self.is_local:
            with open(open_regular(self.path), "rb") as stream:
                return stream.read()
        file = self.open_remote()  # not a stream, which would read 256 KiB with each request
        return file.read(0, file.size)

    def open_remote(self, size: int | None = None) -> RemoteFile:
        """The file, for reading, if it is not local; a snapshot opens each file once."""
        if self._snapshot is None:
            return RemoteFile(self.over_network(), self.path, size)
        return self._snapshot.file(self.path, size)

    def over_network(self) -> NetworkStorage:
        """Its storage, which is not local."""
        assert isinstance(self.storage, NetworkStorage), f"{self} is local"
        return self.storage

    def check_bucket(self) -> None:
        """Raise `StorageError` if its bucket does not exist, as far as the user may ask; other storages have none."""
        if isinstance(self.storage, NetworkStorage):
            self.storage.check(self.path)

    def copy_to(self, target: Location) -> None:
        """Copy the file to another place of its object store: the server does it."""
        from spark_mq.io.object_store import ObjectStore

        assert isinstance(self.storage, ObjectStore), f"{self} is renamed, not copied"
        self.storage.copy(self.path, target.path)

    def open_input(self) -> pa.NativeFile:
        """The file, for Arrow, which reads it at any place."""
        if self.is_local:
            return pa.OSFile(self.path)
        return pa.PythonFile(_Reader(self.open_remote()), mode="r")

    def open_output(self) -> pa.NativeFile:
        """A new file, for writing from its start. A crash can leave a local one incomplete (else: `publish`)."""
        if isinstance(self.storage, NetworkStorage):
            return pa.PythonFile(_Writer(self.storage, self.path), mode="w")
        return pa.OSFile(self.path, mode="w")

    def delete(self) -> None:
        """Remove the file."""
        self.storage.delete(self.path)

    def __str__(self) -> str:
        return self.path if self.is_local else shown(self.uri)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"


class _Reader(io.RawIOBase):
    """A file over a network as a file of Python."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._position = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, memory: memoryview) -> int:  # type: ignore[override]
        data = self._file.read(self._position, len(memory))
        memory[: len(data)] = data
        self._position += len(data)
        return len(data)


class _Writer:
    """A new file over a network, which is assembled here, and written when it is closed."""

    def __init__(self, storage: NetworkStorage, path: str) -> None:
        import tempfile

        self._storage, self._path = storage, path
        self._file = tempfile.SpooledTemporaryFile(_MAX_IN_MEMORY)  # noqa: SIM115
        self.closed = False

    def write(self, data: Buffer) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        """Nothing: the file is not there yet."""

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with self._file as file:
            is_large = file.tell() > _MAX_IN_MEMORY
            file.seek(0)
            self._storage.write(self._path, mmap.mmap(file.fileno(), 0) if is_large else file.read())


def local_path(uri: str) -> str | None:
    """The absolute path that a path or URI names on the local filesystem; None if it names another filesystem."""
    if uri.startswith("dbfs:/"):
        uri = "/dbfs/" + uri.removeprefix("dbfs:").lstrip("/")
    if uri.startswith("file:"):
        uri = "/" + unquote(uri.removeprefix("file:")).lstrip("/")
    return os.path.abspath(uri) if "://" not in uri else None
