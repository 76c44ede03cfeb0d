"""The commits of a local Delta table (read by the package `deltalake`), and tries after a conflict."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from spark_mq._compat import SPARK_ERRORS
from spark_mq.archive.archive_tables import IDENTITY, ArchiveTable
from spark_mq.io.location import Location

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
    return all(_keeps_rows(info, reads_rows) or (allows_merges and _is_merge(info)) for info in found[:count])


def _keeps_rows(info: dict[str, Any], reads_rows: bool) -> bool:
    """Whether a commit only adds rows, or changes rows that nobody reads."""
    operation = info.get("operation")
    if operation in _KEEP_ROWS or info.get("engineInfo", "").endswith(f"/{ENGINE_INFO}"):
        return True
    if not reads_rows and operation in _CHANGE_ROWS:
        return True
    return operation in _APPENDS and info.get("isBlindAppend") is True


def _is_merge(info: dict[str, Any]) -> bool:
    """Whether a commit is one of `write_segments`, which updates and inserts rows of one store."""
    parameters = info.get("operationParameters", {})
    merged_by = _MERGED_BY.findall(parameters.get("predicate", ""))
    is_same = info.get("operation") == "MERGE" and parameters.items() >= _MERGE_ACTIONS.items()
    return is_same and set(merged_by) >= set(IDENTITY)


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
