"""The commits of a local Delta table, from the JSON files in `_delta_log`, for what can be decided without Spark."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Sequence
from typing import Any

from spark_mq.archive.archive_tables import ArchiveTable
from spark_mq.io.location import Location

_COMMIT = re.compile(r"(\d{20})\.json")
_OF_A_VERSION = re.compile(r"(\d{20})\..+")
_MERGE_ACTIONS = {
    "matchedPredicates": '[{"actionType":"update"}]',
    "notMatchedPredicates": '[{"actionType":"insert"}]',
    "notMatchedBySourcePredicates": "[]",
}
"""In Delta's commit, the actions of the merge in `write_segments`."""
_MERGED_BY = tuple(re.compile(rf"\b{name}#\d+L? = {name}#\d+") for name in ("cluster", "broker", "store"))
_MAX_COMMITS = 500
"""Commits of other runs that are read; after more of them Spark starts."""


def newest_commit(table: ArchiveTable) -> Location | None:
    """The file of the newest version of a local Delta table; None if there is none, or it is not a plain commit."""
    log = _log_of(table)
    names = [info.base_name for info in log.entries()]
    versions = [int(match[1]) for match in map(_OF_A_VERSION.fullmatch, names) if match]
    if not versions or f"{max(versions):020}.json" not in names:
        return None
    return log / f"{max(versions):020}.json"


def version_of(table: ArchiveTable) -> int:
    """The newest version of a Delta table; -1 if it is unknown, because the table is not local."""
    commit = newest_commit(table) if table.is_local else None
    return -1 if commit is None else _number(commit.name)


def rows_added_by(table: ArchiveTable, version: int, query_ids: Collection[str]) -> int:
    """The number of rows that a version added, if one of these streaming queries wrote it; else 0."""
    actions = _actions(table, version)
    if not any(action["txn"]["appId"] in query_ids for action in actions if "txn" in action):
        return 0
    return sum(int(json.loads(action["add"]["stats"])["numRecords"]) for action in actions if "add" in action)


def is_empty(table: ArchiveTable) -> bool:
    """Whether a local Delta table is as it was created, without a row; False if that is unknown without Spark."""
    return version_of(table) == 0 and not any("add" in action for action in _actions(table, 0))


def query_ids_of(table: ArchiveTable, version: int) -> set[str]:
    """The streaming queries that wrote a version."""
    return {action["txn"]["appId"] for action in _actions(table, version) if "txn" in action}


def changes_no_row(
    table: ArchiveTable, before: Sequence[str], after: Sequence[str], *, reads_rows: bool, allows_merges: bool
) -> bool:
    """Whether the commits between two others change neither columns nor rows that were there.

    Args:
        table: A local Delta table.
        before: The name and the digest of a commit, which must still be there.
        after: The name and the digest of the newest commit.
        reads_rows: False if rows do not matter, only columns.
        allows_merges: Whether a merge as in `write_segments` is allowed: it changes rows of the store that it is for.

    Raises:
        ValueError: A name is not that of a commit, or a commit is not JSON.
        LookupError: A commit is not one of Delta Lake.
        OSError: A commit cannot be read.

    """
    (name, digest), last = before, _number(after[0])
    first = _number(name)
    if not first < last <= first + _MAX_COMMITS or digest_of((_log_of(table) / name).read_bytes()) != digest:
        return False
    commits = [_actions(table, version) for version in range(first + 1, last + 1)]
    if any("metaData" in action or "protocol" in action for commit in commits for action in commit):
        return False
    return not reads_rows or all(_keeps_rows(commit) or (allows_merges and _is_merge(commit)) for commit in commits)


def digest_of(content: bytes) -> str:
    """The SHA-256 of the content of a file."""
    return hashlib.sha256(content).hexdigest()


def _keeps_rows(commit: Sequence[dict[str, Any]]) -> bool:
    """Whether a commit removes no row; one that only joins files has `dataChange` false."""
    return not any(action["remove"]["dataChange"] for action in commit if "remove" in action)


def _is_merge(commit: Sequence[dict[str, Any]]) -> bool:
    """Whether a commit is one of `write_segments`, which updates and inserts rows of one store."""
    for action in commit:
        info = action.get("commitInfo", {})
        parameters = info.get("operationParameters", {})
        actions = {name: parameters.get(name) for name in _MERGE_ACTIONS}
        if info.get("operation") == "MERGE" and actions == _MERGE_ACTIONS:
            return all(pattern.search(parameters.get("predicate", "")) for pattern in _MERGED_BY)
    return False


def _actions(table: ArchiveTable, version: int) -> list[dict[str, Any]]:
    commit = _log_of(table) / f"{version:020}.json"
    return [json.loads(line) for line in commit.read_bytes().splitlines()]


def _number(name: str) -> int:
    """The version that a commit file made. Raises `ValueError` for another name."""
    match = _COMMIT.fullmatch(name)
    if match is None:
        raise ValueError(f"{name} is not a commit")
    return int(match[1])


def _log_of(table: ArchiveTable) -> Location:
    return Location.resolve(table.name) / "_delta_log"
