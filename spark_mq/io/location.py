"""Paths and URIs: where a file or folder is, on any filesystem that pyarrow supports.

A path without a scheme is local. `s3:` is an object store (`spark_mq.io.s3`), `hdfs:` is `spark_mq.io.hdfs`. `gs:`, ...
are URIs that pyarrow resolves. `file:` is a local path. Databricks' `dbfs:/x` is its local mount `/dbfs/x`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, SparkMqError, StorageError
from spark_mq.io.hdfs import hdfs_filesystem, is_hdfs
from spark_mq.io.regular_file import open_regular
from spark_mq.io.remote_file import RemoteFile
from spark_mq.io.retry import repeated, what_to_check
from spark_mq.io.s3 import is_s3, redacted, s3_filesystem, shown, with_settings
from spark_mq.io.snapshot import Snapshot


@dataclass(frozen=True, repr=False)
class Location:
    """A path on a filesystem. `uri` names the same file for another process, which can resolve it there.

    `uri` can contain secrets. `str` gives the path for a person: without settings and without secrets.

    Example:
        >>> (Location.resolve("/data/store") / "commitlog").path
        '/data/store/commitlog'
    """

    filesystem: fs.FileSystem
    path: str
    uri: str
    _snapshot: Snapshot | None = field(default=None, compare=False)

    @classmethod
    def resolve(cls, uri: str) -> Self:
        """The location that `uri` names.

        Args:
            uri: A path, absolute or relative to the working directory, or a URI.

        Raises:
            OptionError: `uri` is empty, or pyarrow cannot open such a URI.
            StorageError: The filesystem of `uri` cannot be reached.
        """
        if not uri:
            raise OptionError("the path is empty")
        path = local_path(uri)
        if path is not None:
            return cls(fs.LocalFileSystem(), path, path)
        place = redacted(uri)
        try:
            uri = with_settings(uri)
            filesystem, path = _opened(uri)
        except SparkMqError:
            raise
        except (pa.ArrowException, ValueError) as error:
            # Not `from error`: its text can contain the secrets of the URI.
            reason = redacted(str(error)).replace(uri, place)
            raise OptionError(f"{place!r} is not a path or URI that pyarrow can open: {reason}") from None
        except OSError as error:
            reason = redacted(str(error).partition("\n")[0])
            raise StorageError(
                f"{place}: its filesystem cannot be reached: {reason}; check {what_to_check(uri)}"
            ) from None
        if not path:
            raise OptionError(f"{place!r} names no bucket and no path")
        address, mark, settings = uri.partition("?")
        return cls(filesystem, path.rstrip("/"), f"{address.rstrip('/')}{mark}{settings}")

    def __reduce__(self) -> str | tuple[object, ...]:
        if not is_s3(self.uri) and not is_hdfs(self.uri):
            return super().__reduce__()
        return _in_another_process, (self.uri, self.path, self._snapshot)

    def __truediv__(self, name: str) -> Location:
        if "://" not in self.uri:
            return Location(self.filesystem, f"{self.path}/{name}", f"{self.uri}/{name}")
        path, mark, settings = self.uri.partition("?")
        return Location(self.filesystem, f"{self.path}/{name}", f"{path}/{name}{mark}{settings}", self._snapshot)

    @property
    def parent(self) -> Location:
        """The folder that contains the file or folder."""
        path, mark, settings = self.uri.partition("?")
        uri = f"{path.rpartition('/')[0]}{mark}{settings}"
        return Location(self.filesystem, self.path.rpartition("/")[0], uri, self._snapshot)

    def snapshot(self) -> Location:
        """The same folder, whose files and sizes are from now on those of the first question about them (`Snapshot`).

        A local folder, and a folder of a snapshot, is returned as it is: the local filesystem is asked each time.
        """
        return self if self.is_local or self._snapshot is not None else replace(self, _snapshot=Snapshot(self))

    def now(self) -> Location:
        """The same file or folder, about which its filesystem is asked each time."""
        return self if self._snapshot is None else replace(self, _snapshot=None)

    @property
    def stays_open(self) -> bool:
        """Whether a file is opened once for all reads, because it belongs to a snapshot."""
        return self._snapshot is not None

    @property
    def listed_size(self) -> int | None:
        """The size of the file, if its snapshot has listed the folder of the file; else None."""
        return None if self._snapshot is None else self._snapshot.listed_size(self.path)

    @property
    def listed_etag(self) -> str | None:
        """The ETag of the file (`spark_mq.io.etag`), if its snapshot has listed it; else None."""
        return None if self._snapshot is None else self._snapshot.listed_etag(self.path)

    @property
    def is_local(self) -> bool:
        """Whether the path is on the local filesystem, so that the operating system can open it."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def renames(self) -> bool:
        """Whether its filesystem gives a file or a folder another name in one step: a local one, and HDFS."""
        return self.is_local or is_hdfs(self.uri)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def info(self) -> fs.FileInfo:
        """Type, size and modification time of the file or folder; type `NotFound` if neither exists."""
        if self.is_local:
            return self.filesystem.get_file_info(self.path)
        info = None if self._snapshot is None else self._snapshot.info(self.path)
        return info or repeated(str(self), lambda: self.filesystem.get_file_info(self.path))

    @property
    def is_directory(self) -> bool:
        """Whether the path is a folder that exists."""
        return bool(self.info().type == fs.FileType.Directory)

    @property
    def is_file(self) -> bool:
        """Whether the path is a file that exists."""
        return bool(self.info().type == fs.FileType.File)

    def entries(self) -> list[fs.FileInfo]:
        """The entries of the folder, sorted by name; an empty list if the folder does not exist, or is a file.

        Raises:
            StorageError: A name is not UTF-8.

        """
        selector = fs.FileSelector(self.path, allow_not_found=True)
        if self.is_local:
            try:
                return sorted(self.filesystem.get_file_info(selector), key=lambda info: info.base_name)
            except NotADirectoryError:
                return []
            except UnicodeDecodeError:
                _check_names(self.path, os.listdir(self.path))
                raise
        listed = None if self._snapshot is None else self._snapshot.entries(self.path)
        if listed is not None:
            return list(listed)
        entries = repeated(str(self), lambda: self.filesystem.get_file_info(selector))
        return sorted(entries, key=lambda info: info.base_name)

    def folders(self) -> list[str]:
        """The names of the folders in the folder, sorted; an empty list if the folder does not exist, or is a file.

        Raises:
            StorageError: A name is not UTF-8.

        """
        if not self.is_local:
            return [info.base_name for info in self.entries() if info.type == fs.FileType.Directory]
        try:
            with os.scandir(self.path) as entries:
                names = sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        _check_names(self.path, names)
        return names

    def make_folder(self) -> None:
        """Create the folder, and the folders above it, unless the filesystem has no folders: S3 has only files."""
        if self.path and not isinstance(self.filesystem, fs.S3FileSystem):
            self.filesystem.create_dir(self.path, recursive=True)

    def read_bytes(self) -> bytes:
        """The whole content of a file, for small files. Raises `StorageError` if it is not a regular file."""
        if self.is_local:
            with open(open_regular(self.path), "rb") as stream:
                return stream.read()
        file = self.open_remote()  # not a stream, which would read 256 KiB with each request
        return file.read(0, file.size)

    def open_remote(self, size: int | None = None) -> RemoteFile:
        """The file, for reading, if it is not local; a snapshot opens each file once.

        Args:
            size: The bytes of the file that are used, if they are known.

        Raises:
            FileNotFoundError: There is no such file.
            StorageError: It cannot be opened.

        """
        return RemoteFile(self, size) if self._snapshot is None else self._snapshot.file(self, size)

    def __str__(self) -> str:
        return shown(self.uri)

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"


def _check_names(folder: str, names: Iterable[str]) -> None:
    """Raise `StorageError` for a name that is not UTF-8: Python puts surrogates in the place of its other bytes."""
    for name in names:
        if not name.isascii() and os.fsencode(name).decode(errors="replace") != name:
            raise StorageError(
                f"{folder}: the name {os.fsencode(name)!r} in it is not UTF-8; rename it, or move it out of the folder"
            )


def _opened(uri: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of a URI, and the path in it."""
    if is_s3(uri):
        return s3_filesystem(uri)
    filesystem, path = hdfs_filesystem(uri) if is_hdfs(uri) else fs.FileSystem.from_uri(uri)
    return filesystem, path


def _in_another_process(uri: str, path: str, snapshot: Snapshot | None) -> Location:
    """A location of another process, which made its `uri` with all settings."""
    return Location(_opened(uri)[0], path, uri, snapshot)


def local_path(uri: str) -> str | None:
    """The absolute path that a path or URI names on the local filesystem; None if it names another filesystem."""
    if uri.startswith("dbfs:/"):
        uri = "/dbfs/" + uri.removeprefix("dbfs:").lstrip("/")
    if uri.startswith("file:"):
        uri = "/" + unquote(uri.removeprefix("file:")).lstrip("/")
    return os.path.abspath(uri) if "://" not in uri else None
