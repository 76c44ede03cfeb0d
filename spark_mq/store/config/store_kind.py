"""What a folder is that was given as a store: told from the names in it, before any file is opened.

| names | what it is |
| --- | --- |
| `commitlog/` with files of 20 digits, or empty | a plain store, which this package reads |
| `dledger-<selfId>/data/` with such files | a DLedger log: records wrapped in entries (`DLedgerCommitLog`@5.3.3) |
| `commitlog/` with every second (third, ...) file | one of several folders (`MultiPathMappedFileQueue`@5.3.3) |
| such files and no `commitlog/` | a commit log's own folder |
| `CURRENT` and `MANIFEST-*` | a RocksDB database: what `storeType=defaultRocksDB` makes of `consumequeue/` |
"""

from __future__ import annotations

from itertools import pairwise

from pyarrow import fs

from spark_mq.errors import SparkMqError, StoreNotFoundError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.names import MAPPED_FILE_NAME

_DLEDGER = "dledger-"
_FEWEST_FILES = 3
"""Two files that are apart are a gap; three that are apart alike are no accident."""


def check_plain_log(store: Location) -> list[fs.FileInfo]:
    """The entries of the commit log of `store`, by name.

    Raises `StoreNotFoundError` where there is none, which says what was given instead, and `UnsupportedStoreError` for
    one that cannot be read as it lies there.
    """
    if not store.is_directory:
        what = "is a file" if store.is_file else "does not exist"
        raise StoreNotFoundError(f"{store} {what}: give the broker's store directory (storePathRootDir)")
    location = store / "commitlog"
    has_log = location.is_directory
    for entry in store.entries():
        if entry.base_name.startswith(_DLEDGER) and _mapped_files((store / entry.base_name / "data").entries()):
            raise _dledger_error(store / entry.base_name, has_log)
    if not has_log:
        raise _no_log_error(store)
    entries = location.entries()
    files = _mapped_files(entries)
    others = [info.base_name for info in entries if not info.base_name.startswith(".")]
    if others and not files:
        raise StoreNotFoundError(
            f"{location} holds {others[0]}, but no file with 20 digits for a name: those are what a commit log is of"
        )
    _check_one_of_several(location, files)
    return entries


def _no_log_error(store: Location) -> SparkMqError:
    if any(part.startswith(_DLEDGER) for part in store.path.rsplit("/", 2)[1:]):
        return _dledger_error(store, has_log=False)
    if _mapped_files(store.entries()):
        return StoreNotFoundError(
            f"{store} is itself a folder of segments, as commitlog/ is: give the folder that holds commitlog/ "
            "(storePathRootDir); a log that lies elsewhere can be linked there under that name"
        )
    return StoreNotFoundError(f"{store} has no commitlog folder: give the broker's store directory (storePathRootDir)")


def _dledger_error(folder: Location, has_log: bool) -> UnsupportedStoreError:
    older = (
        "; to read the older log in commitlog/ alone, give a folder with nothing but a link to it" if has_log else ""
    )
    return UnsupportedStoreError(
        f"{folder} is a DLedger log (enableDLegerCommitLog): its records are wrapped in DLedger entries, which are not "
        f"read here. Brokers of other kinds, in controller mode too, have a plain commitlog/{older}"
    )


def _check_one_of_several(location: Location, files: list[fs.FileInfo]) -> None:
    bases = [int(info.base_name) for info in files]
    steps = {after - before for before, after in pairwise(bases)}
    sizes = {info.size for info in files}
    if len(bases) < _FEWEST_FILES or len(steps) > 1 or len(sizes) > 1:
        return
    (step,), (size,) = steps, sizes
    if size and step >= 2 * size and step % size == 0:
        raise UnsupportedStoreError(
            f"{location} holds one of every {step // size} segments only: where storePathCommitLog names several "
            "folders, each holds a part of the log. Link the segments of all of them into the commitlog/ of one folder"
        )


def _mapped_files(entries: list[fs.FileInfo]) -> list[fs.FileInfo]:
    return [info for info in entries if info.type == fs.FileType.File and MAPPED_FILE_NAME.fullmatch(info.base_name)]


def is_rocksdb(folder: Location) -> bool:
    """Whether a RocksDB database lies in the folder."""
    names = [info.base_name for info in folder.entries()] if folder.is_directory else []
    return "CURRENT" in names and any(name.startswith("MANIFEST-") for name in names)


def refuse_rocksdb(consume_queue: Location) -> None:
    """Raise `UnsupportedStoreError` where queue files would take the place of a RocksDB database."""
    if is_rocksdb(consume_queue):
        raise UnsupportedStoreError(
            f"{consume_queue} is a RocksDB database (storeType=defaultRocksDB), in whose place no queue files belong: "
            "give another --output"
        )


def rocksdb_notes(store: Location) -> list[str]:
    """What a rebuild of the queues of `store` does not know, because a RocksDB database holds it."""
    notes = []
    if is_rocksdb(store / "consumequeue"):
        notes.append("consumequeue is a RocksDB database: queues without a live message were not carried over from it")
    if any(is_rocksdb(store / "config" / name) for name in ("consumerOffsets", "rdb")):
        notes.append("consumers' offsets are in a RocksDB database: they were not compared with the rebuilt queues")
    return notes
