"""RocksDB databases, read and made through the package `rocksdict`.

A database is read a range of keys at a time, from a copy of the files, and made out of sorted tables (`*.sst`), which
several processes can write.

RocksDB writes into each folder that it opens, and `rocksdict` also into one that it only reads. So it opens a temporary
folder. Tables (`*.sst`) never change: on a local disk, the temporary folder has links to them; all other files are
copied. The database of a running broker is read as it was at one moment, with what its write-ahead log has.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import MissingPackageError, StorageError
from spark_mq.io.location import Location

if TYPE_CHECKING:
    from rocksdict import Options, Rdict

_TABLE = ".sst"
_LOCK = "LOCK"
_BATCH = 64 << 10
_TRIES = 3
"""A broker can remove tables while they are listed: then a new copy is made."""

_OF_RUNS = ("LOG", "rocksdict-config")
"""First parts of the names of files that only the process that made a database needs."""

DEFAULT = "default"
"""The column family that each database has."""
REMEDY = "run pip install 'spark-mq[rocksdb]', on every machine of a cluster"


@cache
def can_read_rocksdb() -> bool:
    """Whether the package that reads RocksDB is installed."""
    return importlib.util.find_spec("rocksdict") is not None


class RocksDatabase:
    """The database in a folder; `copied_at` is when its files were copied (nanoseconds since the epoch)."""

    def __init__(self, folder: Location) -> None:
        """Open the database: a `StorageError` if it is not whole, `MissingPackageError` if there is no `rocksdict`.

        An `OSError` means that the temporary folder has no room.
        """
        self.folder = folder
        self._copy = tempfile.mkdtemp(prefix="spark-mq-rocksdb-")
        self._remove = weakref.finalize(self, shutil.rmtree, self._copy, ignore_errors=True)
        self._families: dict[str, Any] = {}
        self._database = self._open()

    def items(self, family: str, start: bytes = b"", stop: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Keys and values of a family, by key, from `start` to `stop` (not included); damage is a `StorageError`."""
        found, last = self._range(family, start, stop), start
        if found is not None:
            for last, value in found.items(from_key=start, read_opt=_until(stop)):
                yield last, value
            self._check_end(found, last, stop)

    def batches(self, family: str) -> Iterator[tuple[pa.Array, pa.Array]]:
        """All keys and values of a column family, 65,536 at a time."""
        items = self.items(family)
        while pairs := list(islice(items, _BATCH)):
            keys, values = zip(*pairs, strict=True)
            yield pa.array(keys, pa.binary()), pa.array(values, pa.binary())

    def keys(self, family: str, start: bytes, stop: bytes | None, size: int) -> bytes:
        """The keys of a range, one after the other. Raises `StorageError` as `items`, and if one has another size."""
        found = self._range(family, start, stop)
        if found is None:
            return b""
        keys = list(found.keys(from_key=start, read_opt=_until(stop)))
        self._check_end(found, keys[-1] if keys else start, stop)
        return self._joined(keys, size)

    def values(self, family: str, start: bytes, stop: bytes | None, size: int) -> bytes:
        """The values of a range, one after the other; too few of them if a part of the database is damaged.

        Raises `StorageError` if a value has another size.
        """
        found = self._range(family, start, stop)
        return b"" if found is None else self._joined(list(found.values(from_key=start, read_opt=_until(stop))), size)

    def _joined(self, pieces: list[bytes], size: int) -> bytes:
        other = set(map(len, pieces)) - {size}
        if other:
            raise StorageError(f"{self.folder}: a key or value has {other.pop()} bytes, not {size}: it is damaged")
        return b"".join(pieces)

    def last_key(self, family: str, start: bytes, stop: bytes) -> bytes | None:
        """The last key of a range; None if there is none. Raises `StorageError` as `items`."""
        found = self._range(family, start, stop)
        if found is None:
            return None
        with self._reads():
            at = found.iter()
            at.seek_for_prev(stop)
            at.status()
            if at.valid() and at.key() == stop:
                at.prev()
                at.status()
            last: bytes | None = at.key() if at.valid() else None
        return last if last is not None and last >= start else None

    def _check_end(self, found: Any, last: bytes, stop: bytes | None) -> None:
        """Raise `StorageError` if a range ends after the key `last` because of damage: `rocksdict` does not say so."""
        with self._reads():
            at = found.iter(_until(stop))
            at.seek(last)
            at.status()
            if at.valid():
                at.next()
                at.status()

    @contextmanager
    def _reads(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # rocksdict raises `Exception`
            raise StorageError(f"{self.folder}: RocksDB does not read this database: {self._reason(error)}") from error

    def _reason(self, error: Exception) -> str:
        return str(error).replace(self._copy, str(self.folder))

    def unlisted_tables(self) -> list[str]:
        """The files of tables that the database does not name: what a damaged `MANIFEST` loses, or a broker removes."""
        listed = {file["name"].lstrip("/") for file in self._database.live_files()}
        return sorted(name for name in os.listdir(self._copy) if name.endswith(_TABLE) and name not in listed)

    def close(self) -> None:
        """Close the database, and remove its copy."""
        self._families.clear()
        self._database.close()
        self._remove()

    def _range(self, family: str, start: bytes, stop: bytes | None) -> Any:
        if family not in self._names or (stop is not None and stop <= start):
            return None
        if family not in self._families:
            self._families[family] = self._database.get_column_family(family)
        return self._families[family]

    def _open(self) -> Rdict:
        try:
            from rocksdict import AccessType, Options, Rdict
        except ImportError as error:
            raise MissingPackageError(f"{self.folder} is a RocksDB database: {REMEDY}") from error
        for tries_left in reversed(range(_TRIES)):
            try:
                self._copy_files()
                options = Options(raw_mode=True)
                self._names = Rdict.list_cf(self._copy, options)
                families = {name: Options(raw_mode=True) for name in self._names}
                return Rdict(self._copy, options, families, AccessType.read_only())
            except Exception as error:  # rocksdict raises `Exception`
                _raise_if_full(error, self._copy)  # which says nothing about the database
                if not tries_left:
                    raise StorageError(
                        f"{self.folder}: RocksDB does not open this database: {self._reason(error)}"
                    ) from error
        raise AssertionError("the last try returns or raises")

    def _copy_files(self) -> None:
        """Copy the files: the list of tables (`MANIFEST-*`) before the tables, so that none is missing."""
        self.copied_at = time.time_ns()
        for name in os.listdir(self._copy):
            os.unlink(os.path.join(self._copy, name))
        names = [info.base_name for info in self.folder.entries() if info.type == fs.FileType.File]
        for name in sorted(names, key=lambda name: name.endswith(_TABLE)):
            target, source = os.path.join(self._copy, name), self.folder / name
            if name == _LOCK:
                continue
            if name.endswith(_TABLE) and source.is_local:
                os.symlink(os.path.abspath(source.path), target)
            else:
                with open(target, "wb") as file:
                    file.write(source.read_bytes())


def write_table(file: str, records: Iterable[tuple[bytes, bytes]]) -> int:
    """Write a table of keys and values, which are in the order of the keys; returns its bytes."""
    from rocksdict import SstFileWriter

    os.makedirs(os.path.dirname(file), exist_ok=True)
    with _errors(file):
        writer = SstFileWriter(options=_made_options())
        writer.open(file)
        for key, value in records:
            writer[key] = value
        writer.finish()
    return os.path.getsize(file)


def make_database(folder: str, tables: Sequence[str], families: Mapping[str, Iterable[tuple[bytes, bytes]]]) -> None:
    """Make a database in a new folder: files of `write_table`, which are moved into it, and more column families."""
    from rocksdict import IngestExternalFileOptions, Rdict

    moved = IngestExternalFileOptions()
    moved.set_move_files(True)
    with _errors(folder):
        database = Rdict(folder, _made_options())
        if tables:
            database.ingest_external_file(list(tables), moved)
        for name, records in families.items():
            family = database.create_column_family(name, _made_options())
            for key, value in records:
                family[key] = value
            family.flush()
        database.close()
    for name in os.listdir(folder):
        if name.startswith(_OF_RUNS):
            os.unlink(os.path.join(folder, name))


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """A context in which an error of RocksDB about a file is one of this package, or that of a full disk."""
    try:
        yield
    except Exception as error:  # rocksdict raises `Exception`
        if type(error) is not Exception:
            raise
        _raise_if_full(error, path)
        raise StorageError(f"{path}: RocksDB does not write it: {error}") from error


def _raise_if_full(error: Exception, path: str) -> None:
    for code in (errno.ENOSPC, errno.EDQUOT):
        if os.strerror(code) in str(error):
            raise OSError(code, os.strerror(code), path) from error


def _made_options() -> Options:
    """The options of files that brokers read, as in `RocksDBOptionsFactory.createCQCFOptions`@5.3.3.

    Only the format version matters: RocksDB of a broker refuses a later one. All else is in the files themselves, and a
    broker gives the merge operator and the compaction filter when it opens the database.
    """
    from rocksdict import BlockBasedOptions, DBCompressionType, Options

    blocks = BlockBasedOptions()
    blocks.set_format_version(5)
    blocks.set_block_size(32 << 10)
    blocks.set_bloom_filter(16, False)
    options = Options(raw_mode=True)
    options.set_block_based_table_factory(blocks)
    options.set_compression_type(DBCompressionType.lz4())
    return options


def _until(stop: bytes | None) -> Any:
    from rocksdict import ReadOptions

    options = ReadOptions()
    if stop is not None:
        options.set_iterate_upper_bound(stop)
    return options
