"""The commits of a local Delta table (read by the package `deltalake`), and tries after a conflict."""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from spark_mq._compat import SPARK_ERRORS
from spark_mq.archive.archive_tables import IDENTITY, ArchiveTable, ArchiveTables
from spark_mq.errors import StorageError
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import DELTA_LOG

if TYPE_CHECKING:
    from deltalake import DeltaTable

_Answer = TypeVar("_Answer")

TRIES = 5
_WAIT_SECONDS = 1.0
CONFLICT = re.compile(
    "DELTA_(CONCURRENT_[A-Z]+|METADATA_CHANGED|PROTOCOL_CHANGED|CREATE_TABLE_WITH_NON_EMPTY_LOCATION|TABLE_NOT_FOUND)"
    "|FIELD_ALREADY_EXISTS"
)
"""Error conditions of Delta Lake 4.4 that mean only that another run committed first.

For a moment, a table that another run of the same session creates is not found, although its first commit is there:
Delta takes a list of commits that another query began before.
"""
LATE_WORKER = re.compile("Python worker failed to connect back")
"""Spark gives a new Python process ten seconds, which are not enough on a machine that is busy for a moment. A stream
that is started again continues."""
Commit = list[Any]
"""What tells one commit from all others: the version that it made, its time, and the id that Delta Lake gave it."""

ENGINE_INFO = "spark-mq"
"""How a commit of files names the program that made it (`table_file`)."""
_APPENDS = ("WRITE", "STREAMING UPDATE")
_KEEP_ROWS = ("OPTIMIZE", "VACUUM START", "VACUUM END")
_CHANGE_ROWS = ("DELETE", "UPDATE")
_MERGE_ACTIONS = {
    "matchedPredicates": '[{"actionType":"update"}]',
    "notMatchedPredicates": '[{"actionType":"insert"}]',
    "notMatchedBySourcePredicates": "[]",
}
"""In Delta's commit, the actions of the merge in `write_segments`."""
_MERGED_BY = re.compile(r"(\w+)#\d+L? = \1#\d+")
_COMMIT = re.compile(r"\d{20}\.json")
_CHECKPOINT = re.compile(r"\d{20}\.checkpoint.*\.parquet")
_LAST_CHECKPOINT = "_last_checkpoint"
_HADOOP_CHECKSUMS = b"crc\0"
"""The beginning of a file of Hadoop's checksums."""
_SMALL = 1 << 20
"""Bytes of a file that is read whole when its commit is checked; larger ones are flushed before their commit."""
_SYNCED = 4
"""Commits of a table that are flushed to the disk after one of this process: other runs commit, too."""
_CHECKED = 50
"""Commits of a table that are checked: many more than a run makes in the time in which a system writes its files."""
_MAX_COMMITS = 500
"""Commits of other runs that are read; after more of them Spark starts."""


def retry(error: re.Pattern[str], call: Callable[[], _Answer]) -> _Answer:
    """The result of `call`, which is called again, at most `TRIES` times, after such an error of Spark or Delta.

    After a `CONFLICT`, there are waits, which become longer. `call` must read the state of the table each time.
    """
    for number in range(1, TRIES):
        try:
            return call()
        except SPARK_ERRORS as raised:
            if not error.search(str(raised)):
                raise
            time.sleep(_WAIT_SECONDS * number if error is CONFLICT else 0)
    return call()


def version_of(table: ArchiveTable) -> int:
    """The newest version of a Delta table; -1 if it is unknown: no table, not a local one, or no `deltalake`."""
    opened = _opened(table)
    return -1 if opened is None else opened.version()


def sync_newest_commits(table: ArchiveTable) -> None:
    """Flush the newest commits of a local table, and the files that they add, to the disk: Spark does not do so."""
    for commit in _newest(table, _COMMIT, _SYNCED):
        for name, _ in _added(commit):
            _sync((commit.parent.parent / name).path)
        for folder in (commit.parent.parent, commit.parent.parent.parent):  # they have the names of log and table
            flush_to_disk(folder.path)
        sync_commit(commit.parent.path, int(commit.name[:20]))


def sync_commit(folder: str, version: int) -> None:
    """Flush a commit in a local folder `_delta_log` to the disk, and what Delta's checkpoint after it wrote."""
    for name in (f"{version:020}.json", f"{version:020}.checkpoint.parquet", _LAST_CHECKPOINT):
        _sync(f"{folder}/{name}")
    flush_to_disk(folder)


def _sync(path: str) -> None:
    with suppress(FileNotFoundError):  # no checkpoint, or another run has removed the file
        flush_to_disk(path)


def check_newest_commits(tables: ArchiveTables) -> None:
    """Raise `StorageError` if a power loss left files of a local table incomplete: new commits, or what they add.

    Delta Lake takes an empty commit for one that adds nothing. A file gets its name when its writer has closed it, so
    only a power loss leaves such a file. Checksums of Hadoop that are not those of their file are removed.
    """
    for table in tables.all:
        for checkpoint in _newest(table, _CHECKPOINT, 1):
            _drop_wrong_checksums(checkpoint, math.inf)
            if not _is_parquet(checkpoint, math.inf):
                raise StorageError(
                    f"{checkpoint} is not complete: a power loss left it so. It repeats what older files have: move it "
                    f"and {_LAST_CHECKPOINT} out of {checkpoint.parent}, and run again"
                )
        for commit in _newest(table, _COMMIT, _CHECKED):
            problem = _problem(commit)
            if problem is not None:
                raise StorageError(
                    f"{problem}: a power loss left it so. Move the files of version {int(commit.name[:20])} and of "
                    f"later ones, and {_LAST_CHECKPOINT}, out of {commit.parent}, move {tables.checkpoints} away, and "
                    "run again: what these versions have is archived again as far as the store still has it, and all "
                    "keys are written again"
                )


def _newest(table: ArchiveTable, name: re.Pattern[str], count: int) -> list[Location]:
    """The last files of a local table's log with such a name."""
    if not table.is_local:
        return []
    folder = Location.resolve(table.name) / DELTA_LOG
    names = [entry.base_name for entry in folder.entries() if name.fullmatch(entry.base_name)]
    return [folder / name for name in sorted(names)[-count:]]


def _added(commit: Location) -> list[tuple[str, int]]:
    """The names and sizes of the files that a commit adds. Raises `ValueError` if the commit is not whole."""
    actions = [json.loads(line) for line in commit.read_bytes().splitlines()]
    return [(unquote(action["add"]["path"]), action["add"]["size"]) for action in actions if "add" in action]


def _problem(commit: Location) -> str | None:
    """The commit, or a file that it adds, that is incomplete, and why; None if all are whole."""
    if not commit.info().size:
        return f"{commit} is empty"
    _drop_wrong_checksums(commit, math.inf)
    try:
        added = _added(commit)
    except ValueError:
        return f"{commit} is not a commit of Delta Lake"
    for name, size in added:
        file = commit.parent.parent / name
        if not file.is_file:  # a later commit, and then VACUUM, removed it
            continue
        _drop_wrong_checksums(file, _SMALL)
        if file.info().size != size or not _is_parquet(file, _SMALL):
            return f"{file}, which {commit.name} adds, is not complete"
    return None


def _drop_wrong_checksums(file: Location, most: float) -> None:
    """Remove Hadoop's checksums of a file if they are not complete: Spark would not read the file, which can be whole.

    The file of checksums has `crc`, a zero, how many bytes have one of them, and the CRC-32 of each such part
    (`org.apache.hadoop.fs.ChecksumFileSystem`, Hadoop 3.4). Of more than `most` bytes only their number is checked.
    """
    sums, size = file.parent / f".{file.name}.crc", file.info().size
    if not sums.is_file:
        return
    found = sums.read_bytes()
    length = int.from_bytes(found[4:8], "big")
    is_right = found.startswith(_HADOOP_CHECKSUMS) and length > 0 and len(found) == 8 + -(-size // length) * 4
    if is_right and size <= most:
        data = file.read_bytes()
        parts = (zlib.crc32(data[start : start + length]).to_bytes(4, "big") for start in range(0, size, length))
        is_right = found[8:] == b"".join(parts)
    if not is_right:
        sums.delete()


def _is_parquet(file: Location, most: float) -> bool:
    """Whether a Parquet file can be read, with its CRCs; of one of more than `most` bytes only the footer is read."""
    from pyarrow import ArrowException, parquet

    try:
        if file.info().size <= most:
            parquet.read_table(file.path, page_checksum_verification=True, partitioning=None)
        else:
            parquet.read_metadata(file.path)
    except (ArrowException, OSError):
        return False
    return True


def is_empty(table: ArchiveTable) -> bool:
    """Whether a local Delta table is as it was created, without a row; False if that is unknown without Spark."""
    opened = _opened(table)
    return opened is not None and opened.version() == 0 and not opened.file_uris()


def newest_commit(table: ArchiveTable) -> Commit | None:
    """The newest commit of a Delta table; None if it is unknown."""
    return next(map(_identity, _history(table, 1)), None)


def changes_no_row(
    table: ArchiveTable, before: Commit, after: Commit, *, reads_rows: bool, allows_merges: bool
) -> bool:
    """Whether the commits between two others change neither columns nor rows that were there.

    Without `reads_rows`, only columns matter. A merge as in `write_segments` changes rows of the store that it is for.
    """
    count = after[0] - before[0]
    found = _history(table, count + 1) if 0 < count <= _MAX_COMMITS else []
    if len(found) <= count or _identity(found[count]) != before:
        return False
    return all(_changes_no_row(info, reads_rows, allows_merges) for info in found[:count])


def _changes_no_row(info: dict[str, Any], reads_rows: bool, allows_merges: bool) -> bool:
    operation = info.get("operation")
    if operation == "MERGE":  # of `write_segments`, which updates and inserts rows of one store
        parameters = info.get("operationParameters", {})
        merged_by = _MERGED_BY.findall(parameters.get("predicate", ""))
        return allows_merges and parameters.items() >= _MERGE_ACTIONS.items() and set(merged_by) >= set(IDENTITY)
    if operation in _KEEP_ROWS or info.get("engineInfo", "").endswith(f"/{ENGINE_INFO}"):
        return True
    if operation in _CHANGE_ROWS:
        return not reads_rows
    return operation in _APPENDS and info.get("isBlindAppend") is True


def _identity(info: dict[str, Any]) -> Commit:
    return [info["version"], info.get("timestamp"), info.get("txnId")]


def _history(table: ArchiveTable, limit: int) -> list[dict[str, Any]]:
    """What the last `limit` commits say of themselves, newest first; nothing if that cannot be read."""
    opened = _opened(table)
    if opened is None:
        return []
    from deltalake.exceptions import DeltaError

    try:
        return opened.history(limit)
    except DeltaError:
        return []


def _opened(table: ArchiveTable) -> DeltaTable | None:
    """The table; None if it is not local, or cannot be read without Spark."""
    if not table.is_local:
        return None
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError
    except ImportError:
        return None
    try:
        return DeltaTable(Location.resolve(table.name).path)
    except (DeltaError, OSError):
        return None
