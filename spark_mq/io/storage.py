"""What a home of files does, the same for each: `Storage`, with three of them: `local`, `object_store` and `hdfs`.

A storage lists folders, tells what is at a path, reads ranges of a file, and writes a file whole. In two things
storages differ, and callers ask before they rely on them: whether it `renames`, and whether it `locks`. A file on a
storage that `is_local` can also be opened by the operating system, with its descriptors, memory maps and links.

A new storage is one module with a class that has these methods, and a line in `location.STORAGES`. If it is reached
over a network, its requests go through `NetworkStorage.asked`, which repeats those that fail, and words the errors.
Paths are those of the storage, without a slash at the end.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeVar

from pyarrow import fs

from spark_mq.errors import StorageError
from spark_mq.io.s3 import redacted, shown

if TYPE_CHECKING:
    from typing_extensions import Buffer

_T = TypeVar("_T")

_WAITS: Final = (0.1, 0.5, 2.0)
"""Seconds before the second, third and fourth try."""


class StoredFile(Protocol):
    """A file that is open for reading."""

    @property
    def size(self) -> int:
        """The size of the file in bytes."""

    def read(self, position: int, length: int) -> bytes:
        """The bytes of a range, by one request; fewer if the file ends before. Raises `OSError`."""


@dataclass(frozen=True)
class Page:
    """The first files and folders of a tree by the order of their paths, up to `end`, or all of them if that is None.

    `tells_only_zeros` says of a file, by its path and size, whether it certainly has only zeros.
    """

    infos: list[fs.FileInfo]
    end: str | None
    tells_only_zeros: Callable[[str, int], bool]


class Storage(ABC):
    """A home of files. Two storages are equal if the same path is the same file on both."""

    is_local: ClassVar[bool] = False
    """Whether the operating system can open its files."""
    renames: ClassVar[bool] = False
    """Whether it gives a file or a folder another name in one step."""
    locks: ClassVar[bool] = False
    """Whether it locks a file or a folder against other processes."""

    @abstractmethod
    def uri(self, path: str) -> str:
        """The path or URI that names a file for another process. It can contain secrets."""

    @abstractmethod
    def info(self, path: str) -> fs.FileInfo:
        """Type, size and modification time of a file or folder; type `NotFound` if neither exists."""

    @abstractmethod
    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        """The entries of a folder, sorted by name; those of the folders below, too, if `recursive`.

        There are none if the folder does not exist, or is a file.
        """

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, sorted; none if there is no such folder."""
        return sorted(info.base_name for info in self.entries(path) if info.type == fs.FileType.Directory)

    @abstractmethod
    def make_folder(self, path: str) -> None:
        """Create a folder, and those above it, if the storage has folders."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Give a file another name, or also a folder if the storage `renames`; a file of this name is replaced."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def delete_folder(self, path: str) -> None:
        """Remove a folder and everything in it. Another process can remove files of the folder at the same time."""


class NetworkStorage(Storage):
    """A home of files that is reached over a network."""

    block: ClassVar[int] = 256 << 10
    """The bytes around those of a short read that are also got, because over a network that takes as long."""
    what_to_check: ClassVar[str]
    """What a person checks if the storage cannot be reached."""
    what_denies: ClassVar[str]
    """What a person checks if the server denies the access."""

    @abstractmethod
    def open(self, path: str, size: int | None = None) -> StoredFile:
        """A file, for reading; `size` is that of its used part, if it is known. Raises `FileNotFoundError`."""

    @abstractmethod
    def write(self, path: str, content: Buffer) -> None:
        """Write a file; the folder exists. Of a file that existed, readers see the old or the new content."""

    def check(self, path: str) -> None:
        """Raise `StorageError` if the bucket of a path does not exist, as far as the user may ask."""

    def first_page(self, path: str) -> Page | None:
        """The first files of the tree at a path, if one request gives them; else None."""
        return None

    def data_end(self, path: str) -> int | None:
        """The position in a file after which there are only zeros, if no read is needed for it; else None."""
        return None

    def asked(self, path: str, request: Callable[[], _T], done: str = "read") -> _T:
        """The result of `request`, called again if it fails. Errors say `done`: `read`, `written` or `removed`."""
        name = shown(self.uri(path))
        for wait in (*_WAITS, None):
            try:
                return request()
            except (FileNotFoundError, StorageError):
                raise
            except OSError as error:
                reason = redacted(str(error).partition("\n")[0])
                if isinstance(error, PermissionError):
                    raise StorageError(
                        f"{name}: the server denies the access: {reason}; check {self.what_denies}"
                    ) from None
                if wait is None:
                    raise StorageError(
                        f"{name}: cannot be {done}, also after {len(_WAITS)} more tries: {reason}; "
                        f"check {self.what_to_check}, or run again if the server was busy"
                    ) from None
                time.sleep(wait)
        raise AssertionError("the last try returns or raises")
