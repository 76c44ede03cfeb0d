"""The kind of store in a directory, recognised by the names of its files, before any file is opened.

| names in the directory | kind |
| --- | --- |
| `commitlog/`, empty or with files whose names are 20 digits | a plain store, which this package reads |
| `dledger-<selfId>/data/` with such files | a DLedger log: records wrapped in entries (`DLedgerCommitLog`@5.3.3) |
| `commitlog/` with every second (third, ...) file | one of several folders (`MultiPathMappedFileQueue`@5.3.3) |
| such files and no `commitlog/` | a commit log's own folder |
| `CURRENT` and `MANIFEST-*` | a RocksDB database, such as `consumequeue/` with `storeType=defaultRocksDB` |
"""

from __future__ import annotations

from itertools import pairwise

from pyarrow import fs

from spark_mq.errors import (
    SparkMqError,
    StoreNotFoundError,
    UnfinishedAppendError,
    UnfinishedRestoreError,
    UnsupportedStoreError,
)
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import (
    APPEND_UNFINISHED,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    MAPPED_FILE_NAME,
    RESTORE_UNFINISHED,
)

_DLEDGER = "dledger-"
_MIN_FILES = 3
"""A gap between two files may be a deleted file. Two gaps of the same size are not a coincidence."""


def check_plain_log(store: Location) -> list[fs.FileInfo]:
    """The entries of the commit log folder of `store`, sorted by name.

    Raises:
        StoreNotFoundError: `store` has no commit log; the message names what the path is instead.
        UnsupportedStoreError: The store is a DLedger log, or its log is spread over several folders.
        UnfinishedAppendError: The files of an append are not all in place.
        UnfinishedRestoreError: The files of a new store are not all in place.
    """
    if not store.is_directory:
        what = "is a file" if store.is_file else "does not exist"
        raise StoreNotFoundError(f"{store} {what}: give the broker's store directory (storePathRootDir)")
    location = store / COMMIT_LOG
    has_log = location.is_directory
    for entry in store.entries():
        if entry.base_name.startswith(_DLEDGER) and _mapped_files((store / entry.base_name / "data").entries()):
            raise _dledger_error(store / entry.base_name, has_log)
    if not has_log:
        raise _no_log_error(store)
    entries = location.entries()
    if any(info.base_name == APPEND_UNFINISHED for info in entries):
        raise unfinished_append(store)
    if any(info.base_name == RESTORE_UNFINISHED for info in entries):
        raise UnfinishedRestoreError(
            f"{location / RESTORE_UNFINISHED}: the files of a restore are being put in place, or the restore was "
            "interrupted. If no `spark-mq restore` to this store runs, run it again: it begins anew"
        )
    files = _mapped_files(entries)
    others = [info.base_name for info in entries if not info.base_name.startswith(".")]
    if others and not files:
        raise StoreNotFoundError(
            f"{location} contains {others[0]}, but no segments: segments are files whose names are 20 digits"
        )
    _check_one_of_several(location, files)
    return entries


def unfinished_append(store: Location) -> UnfinishedAppendError:
    """The error for a store in which only some of the files of an append are in place."""
    return UnfinishedAppendError(
        f"{store / COMMIT_LOG / APPEND_UNFINISHED}: messages are being appended to this store, or the append was "
        "interrupted while its files were put in place. Until it is finished, the store cannot be read, and no broker "
        "starts on it. If no `spark-mq restore --append` runs on this store, run it again: it finishes the interrupted "
        "one first. Do not remove the file"
    )


def _no_log_error(store: Location) -> SparkMqError:
    if any(part.startswith(_DLEDGER) for part in store.path.rsplit("/", 2)[1:]):
        return _dledger_error(store, has_log=False)
    if _mapped_files(store.entries()):
        return StoreNotFoundError(
            f"{store} is itself a folder of segments, like commitlog/: give the folder that contains commitlog/ "
            "(storePathRootDir); if the log is in another folder, link it there under that name"
        )
    return StoreNotFoundError(f"{store} has no commitlog folder: give the broker's store directory (storePathRootDir)")


def _dledger_error(folder: Location, has_log: bool) -> UnsupportedStoreError:
    older = (
        "; to read only the older log in commitlog/, give a folder that contains only a link to it" if has_log else ""
    )
    return UnsupportedStoreError(
        f"{folder} is a DLedger log (enableDLegerCommitLog): its records are wrapped in DLedger entries, which are not "
        f"supported. Other brokers, including those in controller mode, have a plain commitlog/{older}"
    )


def _check_one_of_several(location: Location, files: list[fs.FileInfo]) -> None:
    bases = [int(info.base_name) for info in files]
    steps = {after - before for before, after in pairwise(bases)}
    sizes = {info.size for info in files}
    if len(bases) < _MIN_FILES or len(steps) > 1 or len(sizes) > 1:
        return
    (step,), (size,) = steps, sizes
    if size and step >= 2 * size and step % size == 0:
        raise UnsupportedStoreError(
            f"{location} contains only one of every {step // size} segments: if storePathCommitLog names several "
            "folders, each contains a part of the log. Link the segments of all of them into the commitlog/ of one "
            "folder"
        )


def _mapped_files(entries: list[fs.FileInfo]) -> list[fs.FileInfo]:
    return [info for info in entries if info.type == fs.FileType.File and MAPPED_FILE_NAME.fullmatch(info.base_name)]


def is_rocksdb(folder: Location) -> bool:
    """Whether the folder contains a RocksDB database."""
    names = [info.base_name for info in folder.entries()] if folder.is_directory else []
    return "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names)


def refuse_rocksdb(consume_queue: Location) -> None:
    """Check that queue files can be written to `consume_queue`.

    Raises:
        UnsupportedStoreError: The folder is a RocksDB database, which queue files would replace.
    """
    if is_rocksdb(consume_queue):
        raise UnsupportedStoreError(
            f"{consume_queue} is a RocksDB database (storeType=defaultRocksDB), which queue files must not replace: "
            "give another --output"
        )


def rocksdb_notes(store: Location) -> list[str]:
    """Notes for a rebuild of the queues of `store`: what it cannot read because it is in a RocksDB database."""
    notes = []
    if is_rocksdb(store / CONSUME_QUEUE):
        notes.append("consumequeue is a RocksDB database: queues without a live message were not carried over from it")
    if any(is_rocksdb(store / CONFIG / name) for name in ("consumerOffsets", "rdb")):
        notes.append("consumers' offsets are in a RocksDB database: they were not compared with the rebuilt queues")
    return notes
