"""Paths and URIs: where a store lies, on any filesystem that pyarrow knows.

A path without a scheme is local. `file:`, `s3:`, `gs:`, `hdfs:`, ... are pyarrow's URIs; Databricks' `dbfs:/x` is
its local mount `/dbfs/x`.
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
    """A path on a filesystem. `uri` is what it was made from: it can be sent to another process and resolved there."""

    filesystem: fs.FileSystem
    path: str
    uri: str

    @classmethod
    def resolve(cls, uri: str) -> Self:
        """The location that `uri` (a path or a URI) names.

        Raises `OptionError` for an empty path and for a scheme that pyarrow does not know, and `StorageError` for a
        filesystem that does not answer.
        """
        if not uri:
            raise OptionError("the path is empty")
        if uri.startswith("dbfs:/"):
            uri = "/dbfs/" + uri.removeprefix("dbfs:").lstrip("/")
        if uri.startswith("file:"):
            uri = "/" + unquote(uri.removeprefix("file:")).lstrip("/")
        if "://" not in uri:
            path = os.path.abspath(uri)
            return cls(fs.LocalFileSystem(), path, path)
        try:
            filesystem, path = fs.FileSystem.from_uri(uri)
        except (pa.ArrowException, ValueError) as error:
            raise OptionError(f"{uri!r} is no path that pyarrow can open: {error}") from error
        except OSError as error:
            reason = str(error).partition("\n")[0]
            raise StorageError(
                f"{uri}: its filesystem cannot be reached: {reason}; check the address, the region and the credentials"
            ) from error
        return cls(filesystem, path.rstrip("/"), uri.rstrip("/"))

    def __truediv__(self, name: str) -> Location:
        if "://" not in self.uri:
            return Location(self.filesystem, f"{self.path}/{name}", f"{self.uri}/{name}")
        place, mark, settings = self.uri.partition("?")
        return Location(self.filesystem, f"{self.path}/{name}", f"{place}/{name}{mark}{settings}")

    @property
    def is_local(self) -> bool:
        """Whether the operating system can open the path."""
        return isinstance(self.filesystem, fs.LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rsplit("/", 1)[-1]

    def info(self) -> fs.FileInfo:
        """Type and size of what is there."""
        return self.filesystem.get_file_info(self.path)

    @property
    def is_directory(self) -> bool:
        """Whether a folder is there."""
        return bool(self.info().type == fs.FileType.Directory)

    @property
    def is_file(self) -> bool:
        """Whether a file is there."""
        return bool(self.info().type == fs.FileType.File)

    def entries(self) -> list[fs.FileInfo]:
        """The entries of a folder, by name; none where there is no folder."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(found, key=lambda info: info.base_name)

    def read_bytes(self) -> bytes:
        """The content of a small file."""
        with self.filesystem.open_input_stream(self.path) as stream:
            return bytes(stream.read())

    def __str__(self) -> str:
        return self.uri
