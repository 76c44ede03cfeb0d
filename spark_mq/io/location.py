"""Paths and URIs: where a file or folder is, on any filesystem that pyarrow supports.

A path without a scheme is local. `s3:`, `gs:`, `hdfs:`, ... are URIs that pyarrow resolves. `file:` is a local path.
Databricks' `dbfs:/x` is its local mount `/dbfs/x`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, StorageError


@dataclass(frozen=True)
class Location:
    """A path on a filesystem. `uri` names the same file for another process, which can resolve it there.

    Example:
        >>> (Location.resolve("/data/store") / "commitlog").path
        '/data/store/commitlog'
    """

    filesystem: fs.FileSystem
    path: str
    uri: str

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
        try:
            filesystem, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError) as error:
            raise OptionError(f"{uri!r} is not a path or URI that pyarrow can open: {error}") from error
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise StorageError(
                f"{uri}: its filesystem cannot be reached: {reason}; check the address, the region and the credentials"
            ) from error
        if not path:
            raise OptionError(f"{uri!r} names no bucket and no path")
        return cls(filesystem, path.rstrip("/"), uri.rstrip("/"))

    def __truediv__(self, name: str) -> Location:
        if "://" not in self.uri:
            return Location(self.filesystem, f"{self.path}/{name}", f"{self.uri}/{name}")
        path, mark, settings = self.uri.partition("?")
        return Location(self.filesystem, f"{self.path}/{name}", f"{path}/{name}{mark}{settings}")

    @property
    def parent(self) -> Location:
        """The folder that contains the file or folder."""
        path, mark, settings = self.uri.partition("?")
        return Location(self.filesystem, self.path.rpartition("/")[0], f"{path.rpartition('/')[0]}{mark}{settings}")

    @property
    def is_local(self) -> bool:
        """Whether the path is on the local filesystem, so that the operating system can open it."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def info(self) -> fs.FileInfo:
        """Type, size and modification time of the file or folder; type `NotFound` if neither exists."""
        return self.filesystem.get_file_info(self.path)

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
        if self.is_local and not os.path.isdir(self.path):
            return []
        entries = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(entries, key=lambda info: info.base_name)

    def read_bytes(self) -> bytes:
        """The whole content of a file, for small files."""
        with self.filesystem.open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def __str__(self) -> str:
        return self.uri


def local_path(uri: str) -> str | None:
    """The absolute path that a path or URI names on the local filesystem; None if it names another filesystem."""
    if uri.startswith("dbfs:/"):
        uri = "/dbfs/" + uri.removeprefix("dbfs:").lstrip("/")
    if uri.startswith("file:"):
        uri = "/" + unquote(uri.removeprefix("file:")).lstrip("/")
    return os.path.abspath(uri) if "://" not in uri else None
