"""Putting back what the newest repair of a store replaced."""

from __future__ import annotations

from spark_mq.io.location import Location
from spark_mq.repairer.changes import Backup, Change
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.store_lock import store_lock


def undo_plan(store: str) -> tuple[str, list[Change]]:
    """The newest backup of a repair, and the changes that `undo_repair` undoes, the last one first.

    Args:
        store: The store directory, a local path.
    """
    backup = _newest(Location.resolve(store))
    return str(backup.folder), backup.made()


def undo_repair(store: str) -> tuple[str, list[Change]]:
    """Put back what the newest repair replaced; returns the backup, which is removed, and the changes.

    Args:
        store: The store directory, a local path.
    """
    location = Location.resolve(store)
    backup = _newest(location)
    with store_lock(location):
        return str(backup.folder), backup.undo()


def _newest(store: Location) -> Backup:
    CommitLog.open(store)
    return Backup.newest(store)
