"""Ranges of one file over a network: `obstore` gets them if it can (`s3_objects`), and pyarrow all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from spark_mq.io.retry import repeated
from spark_mq.io.s3_objects import S3Objects

if TYPE_CHECKING:
    from pyarrow import NativeFile

    from spark_mq.io.location import Location


class RangedReader(Protocol):
    """One file."""

    @property
    def size(self) -> int:
        """The size of the file in bytes."""

    @property
    def is_usable(self) -> bool:
        """Whether this process may use the reader; if not, it needs a new one."""

    def read(self, position: int, length: int) -> bytes:
        """The bytes of a range, by one request; fewer if the file ends before. Raises `OSError`."""


def ranged_reader(location: Location, size: int | None = None) -> RangedReader:
    """The reader of the file at a location. No request is sent for a file of S3 whose size is known.

    Args:
        location: The file.
        size: The bytes of the file that are used, if they are known; a snapshot knows the sizes that it has listed.

    Raises:
        FileNotFoundError: There is no such file.
        StorageError: The file cannot be opened.

    """
    listed = location.listed_size
    size = size if listed is None else listed
    objects = None if size is None else S3Objects.of(location.uri)
    if size is not None and objects is not None and objects.has(location.path):
        return _S3Object(objects, location.path, size)
    file = repeated(str(location), lambda: location.filesystem.open_input_file(location.path))
    return _ArrowFile(file, repeated(str(location), file.size))


@dataclass(frozen=True)
class _S3Object:
    """An object that was listed."""

    objects: S3Objects
    path: str
    size: int

    @property
    def is_usable(self) -> bool:
        """Whether this process may use the client."""
        return self.objects.is_usable

    def read(self, position: int, length: int) -> bytes:
        return self.objects.read(self.path, position, length)


@dataclass(frozen=True)
class _ArrowFile:
    """A file that pyarrow has opened."""

    file: NativeFile
    size: int
    is_usable: bool = True

    def read(self, position: int, length: int) -> bytes:
        return bytes(self.file.read_at(length, position))
