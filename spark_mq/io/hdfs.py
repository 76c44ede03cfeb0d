"""HDFS: an address becomes a pyarrow filesystem by the client `hdfs-native`, which needs no Java.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import MissingPackageError, OptionError

if TYPE_CHECKING:
    from hdfs_native import Client, FileStatus
    from typing_extensions import Buffer

_SCHEMES: Final = ("hdfs://", "viewfs://")
_SITE_FILE: Final = "hdfs-site.xml"
_ONE_ATTEMPT: Final = {"dfs.client.failover.max.attempts": "1"}
"""The setting of Hadoop for one connection to the namenode: `repeated` makes the others."""
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


def is_hdfs(uri: str) -> bool:
    """Whether the text is an address of HDFS."""
    return uri.startswith(_SCHEMES)


def hdfs_filesystem(uri: str) -> tuple[fs.FileSystem, str]:
    """The filesystem of an address, and the path in it.

    Raises:
        MissingPackageError: `hdfs-native` is not installed.
        OptionError: The address has a user or settings.
        OSError: The filesystem cannot be reached.

    """
    scheme, _, place = uri.partition("://")
    place, _, settings = place.partition("?")
    authority, slash, path = place.partition("/")
    address, path = f"{scheme}://{authority}", f"{slash}{path}".rstrip("/")
    if importlib.util.find_spec("hdfs_native") is None:
        raise MissingPackageError(
            f"{address}: Python has no client for HDFS: run pip install hdfs-native, on every machine of a cluster"
        )
    if settings or "@" in authority:
        raise OptionError(
            f"{address}/...: an address of HDFS names no user and has no settings: the user is HADOOP_USER_NAME, and "
            "settings are in the files of HADOOP_CONF_DIR"
        )
    handler = HdfsHandler(address)
    with _errors():
        handler.connect()
    return fs.PyFileSystem(handler), path


class HdfsHandler(fs.FileSystemHandler):  # type: ignore[misc]
    """The operations of pyarrow on the HDFS at `address`, by `hdfs-native`.

    A process that is forked, or gets a copy, connects again.
    """

    def __init__(self, address: str) -> None:
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HdfsHandler) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def connect(self) -> Client:
        """The client of this process. It asks the namenode only when it is used."""
        return _client(self.address, os.getpid())

    def get_type_name(self) -> str:
        """The name of the kind of filesystem."""
        return "hdfs"

    def normalize_path(self, path: str) -> str:
        """The path as it is."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[fs.FileInfo]:
        """Type, size and time of each path; type `NotFound` if it does not exist."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with _errors():
                return _as_info(self.connect().get_file_info(path))
        except (FileNotFoundError, NotADirectoryError):
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """The entries of a folder; a file has none."""
        try:
            with _errors():
                found = list(self.connect().list_status(selector.base_dir, selector.recursive))
        except (FileNotFoundError, NotADirectoryError):
            if selector.allow_not_found:
                return []
            raise
        return [_as_info(status) for status in found if status.path != selector.base_dir]

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder, unless it exists."""
        with _errors():
            self.connect().mkdirs(path, 0o755, recursive)

    def delete_dir(self, path: str) -> None:
        """Remove a folder and everything in it."""
        self._delete(path, recursive=True)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Remove everything in a folder."""
        for info in self.get_file_info_selector(fs.FileSelector(path, allow_not_found=missing_dir_ok)):
            self._delete(info.path, recursive=True)

    def delete_root_dir_contents(self) -> None:
        """Remove nothing: raises `NotImplementedError`."""
        raise NotImplementedError("the root of HDFS is not emptied")

    def delete_file(self, path: str) -> None:
        """Remove a file; raises `FileNotFoundError` if it does not exist."""
        self._delete(path, recursive=False)

    def _delete(self, path: str, recursive: bool) -> None:
        with _errors():
            if not self.connect().delete(path, recursive):
                raise FileNotFoundError(path)

    def move(self, src: str, dest: str) -> None:
        """Give a file or folder another name in one step; a file, or an empty folder, of this name is replaced."""
        with _errors():
            self.connect().rename(src, dest, True)

    def copy_file(self, src: str, dest: str) -> None:
        """Copy nothing: raises `NotImplementedError`."""
        raise NotImplementedError("HDFS does not copy files")

    def open_input_stream(self, path: str) -> pa.PythonFile:
        """The file, for reading from its start."""
        return self.open_input_file(path)

    def open_input_file(self, path: str) -> pa.PythonFile:
        """The file, for reading at any place."""
        with _errors():
            return pa.PythonFile(_File(self.connect().read(path)), mode="r")

    def open_output_stream(self, path: str, metadata: object) -> pa.PythonFile:
        """A new file, for writing; a file of this name is replaced at once."""
        from hdfs_native import WriteOptions

        with _errors():
            return pa.PythonFile(_File(self.connect().create(path, WriteOptions(overwrite=True))), mode="w")

    def open_append_stream(self, path: str, metadata: object) -> pa.PythonFile:
        """The file, for writing at its end."""
        with _errors():
            return pa.PythonFile(_File(self.connect().append(path)), mode="w")


class _Stream(Protocol):
    """A file of the client: one for reading, or one for writing."""

    def read(self, size: int = -1) -> bytes: ...
    def write(self, buf: Buffer) -> int: ...
    def seek(self, offset: int, whence: int = 0) -> object: ...
    def tell(self) -> int: ...
    def close(self) -> None: ...


class _File:
    """An open file whose errors are `OSError`."""

    def __init__(self, stream: _Stream) -> None:
        self._stream = stream
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        with _errors():
            return self._stream.read(size)

    def write(self, data: Buffer) -> int:
        view = memoryview(data)
        with _errors():
            return sum(self._stream.write(bytes(view[at : at + _PIECE])) for at in range(0, len(view), _PIECE))

    def seek(self, offset: int, whence: int = 0) -> None:
        with _errors():
            self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()

    def flush(self) -> None:
        """Nothing: the client sends what is written."""

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            with _errors():
                self._stream.close()


@cache
def _client(address: str, process: int) -> Client:
    """The client for an address. A process makes it once, so all files share its connections."""
    from hdfs_native import Client

    return Client(address, None if _has_site() else _ONE_ATTEMPT)


def _has_site() -> bool:
    """Whether the settings of a site say how often a namenode is tried."""
    home = os.environ.get("HADOOP_HOME", "")
    folder = os.environ.get("HADOOP_CONF_DIR") or os.path.join(home, "etc", "hadoop")
    return os.path.isfile(os.path.join(folder, _SITE_FILE))


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
