"""HDFS as a home of files, by the client `hdfs-native`, which needs no Java.

An address is `hdfs://NAMENODE:PORT/PATH`, or `hdfs://NAMESERVICE/PATH` and `viewfs://...` with the settings of the site
(`HADOOP_CONF_DIR`). A path is taken as it is, so `%RETRY%group` in it needs no escapes.

Two other ways to HDFS are not used, because they hide errors. For pyarrow's `HadoopFileSystem` (`libhdfs.so`) a file
does not exist if the namenode cannot be reached, and a folder is empty if it must not be listed. pyarrow's wrapper of
fsspec filesystems leaves a folder out if the network fails while it is listed, and has no times of files.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from pyarrow import fs

from spark_mq.errors import MissingPackageError, OptionError
from spark_mq.io.storage import NetworkStorage, StoredFile

if TYPE_CHECKING:
    from hdfs_native import Client, FileReader, FileStatus
    from typing_extensions import Buffer

_SITE_FILE: Final = "hdfs-site.xml"
_ONE_ATTEMPT: Final = {"dfs.client.failover.max.attempts": "1"}
"""The setting of Hadoop for one connection to the namenode: `NetworkStorage.asked` makes the others."""
_JAVA_ERROR: Final = re.compile(r'^(?:Fatal)?RPCError\("([\w.$]+)", "(.*)"\)$', re.DOTALL)
"""The text of an error that a server raised: a class of Java, and its message."""
_OTHER_ERROR: Final = re.compile(r'^\w+\("(.*)"\)$', re.DOTALL)
_END_OF_LINE: Final = re.compile(r"\\n|\n")
_STRUCTURE: Final = re.compile(r":? *\[?\w+Proto \{.*", re.DOTALL)
"""What the client knows of a datanode, in its errors: a page of text."""
_PIECE: Final = 8 << 20
"""Bytes that are written at once: the client takes `bytes`, and any other buffer byte by byte."""
_NOT_A_FOLDER: Final = "(is not a directory)"
"""The end of a message of `ParentNotDirectoryException`, and of some of `AccessControlException`."""


@dataclass(frozen=True)
class HdfsStorage(NetworkStorage):
    """The HDFS at `address`. A process that is forked, or gets a copy, connects again."""

    renames: ClassVar[bool] = True
    what_to_check: ClassVar[str] = "the address and the port of the namenode, and that HDFS runs"
    what_denies: ClassVar[str] = "the rights, and the user (HADOOP_USER_NAME)"

    address: str

    @classmethod
    def of(cls, uri: str) -> tuple[Self, str]:
        """The filesystem of an address, and the path in it."""
        scheme, _, place = uri.partition("://")
        place, _, settings = place.partition("?")
        authority, slash, path = place.partition("/")
        storage, path = cls(f"{scheme}://{authority}"), f"{slash}{path}".rstrip("/")
        if importlib.util.find_spec("hdfs_native") is None:
            raise MissingPackageError(
                f"{storage.address}: Python has no client for HDFS: run pip install hdfs-native, on every machine of a "
                "cluster"
            )
        if settings or "@" in authority:
            raise OptionError(
                f"{storage.address}/...: an address of HDFS names no user and has no settings: the user is "
                "HADOOP_USER_NAME, and settings are in the files of HADOOP_CONF_DIR"
            )
        with _errors():
            _ = storage._client
        return storage, path

    def uri(self, path: str) -> str:
        return f"{self.address}{path}"

    @property
    def _client(self) -> Client:
        """The client of this process. It asks the namenode only when it is used."""
        return _client(self.address, os.getpid())

    def info(self, path: str) -> fs.FileInfo:
        try:
            return _as_info(self._request(path, lambda: self._client.get_file_info(path)))
        except FileNotFoundError:
            return fs.FileInfo(path, fs.FileType.NotFound)

    def entries(self, path: str, recursive: bool = False) -> list[fs.FileInfo]:
        try:
            found = self._request(path, lambda: list(self._client.list_status(path, recursive)))
        except FileNotFoundError:
            return []
        infos = (_as_info(status) for status in found if status.path != path)
        return sorted(infos, key=lambda info: info.base_name)

    def open(self, path: str, size: int | None = None) -> StoredFile:
        """A file, for reading; its own size counts."""
        return _File(self._request(path, lambda: self._client.read(path)))

    def write(self, path: str, content: Buffer) -> None:
        from hdfs_native import WriteOptions

        data = memoryview(content)

        def write() -> None:
            stream = self._client.create(path, WriteOptions(overwrite=True))
            for at in range(0, len(data), _PIECE):
                stream.write(bytes(data[at : at + _PIECE]))
            stream.close()

        self._request(path, write, "written")

    def make_folder(self, path: str) -> None:
        with _errors():
            self._client.mkdirs(path, 0o755, True)

    def rename(self, source: str, target: str) -> None:
        self._request(target, lambda: self._client.rename(source, target, True), "written")

    def delete(self, path: str) -> None:
        self._delete(path, recursive=False)

    def delete_folder(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._delete(path, recursive=True)

    def _delete(self, path: str, recursive: bool) -> None:
        if not self._request(path, lambda: self._client.delete(path, recursive), "removed"):
            raise FileNotFoundError(path)

    def _request(self, path: str, request: Callable[[], Any], done: str = "read") -> Any:
        def sent() -> Any:
            try:
                with _errors():
                    return request()
            except NotADirectoryError as error:
                raise FileNotFoundError(str(error)) from None

        return self.asked(path, sent, done)


@dataclass(frozen=True)
class _File:
    stream: FileReader

    @property
    def size(self) -> int:
        return len(self.stream)

    def read(self, position: int, length: int) -> bytes:
        with _errors():
            return self.stream.read_range(position, min(length, max(self.size - position, 0)))


@cache
def _client(address: str, process: int) -> Client:
    """The client for an address. A process makes it once, so all files share its connections."""
    from hdfs_native import Client

    home = os.environ.get("HADOOP_HOME", "")
    folder = os.environ.get("HADOOP_CONF_DIR") or os.path.join(home, "etc", "hadoop")
    has_site = os.path.isfile(os.path.join(folder, _SITE_FILE))  # it says how often a namenode is tried
    return Client(address, None if has_site else _ONE_ATTEMPT)


def _as_info(status: FileStatus) -> fs.FileInfo:
    time = datetime.fromtimestamp(status.modification_time / 1000, UTC)
    if status.isdir:
        return fs.FileInfo(status.path, fs.FileType.Directory, mtime=time)
    return fs.FileInfo(status.path, fs.FileType.File, size=status.length, mtime=time)


@contextmanager
def _errors() -> Iterator[None]:
    """A context in which errors of the client become `OSError`, without Java's stack."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(_first_line(str(error))) from None
    except FileExistsError as error:
        raise FileExistsError(_first_line(str(error))) from None
    except RuntimeError as error:
        raise _os_error(str(error)) from None


def _os_error(text: str) -> OSError:
    """The error for an error of the client that is neither about a missing file nor about the network."""
    java = _JAVA_ERROR.match(text)
    if java is None:
        other = _OTHER_ERROR.match(text)
        return OSError(_first_line(other[1] if other else text))
    kind, message = java[1].rpartition(".")[2], _first_line(java[2])
    if message.endswith(_NOT_A_FOLDER):
        return NotADirectoryError(message)
    if kind == "AccessControlException":
        return PermissionError(message)
    if kind.endswith("QuotaExceededException"):
        return OSError(f"{os.strerror(errno.EDQUOT)}: {message}")
    return OSError(f"{kind}: {message}")


def _first_line(text: str) -> str:
    return _STRUCTURE.sub("", _END_OF_LINE.split(text, maxsplit=1)[0].replace('\\"', '"'))
