"""A small folder of an append, and the program that puts its files in place, which a test can kill."""

from __future__ import annotations

import sys
from pathlib import Path

from spark_mq.io.location import Location
from spark_mq.restorer.append import commit_append

OLD = {
    "commitlog/00000000000000000000": b"old log",
    "consumequeue/orders/0/00000000000000000000": b"old units",
    "consumequeue/orders/0/00000000000000002000": b"stale units",
    "consumequeue/other/0/00000000000000000000": b"other units",
    "index/20261122000000000": b"old entries",
    "config/topics.json": b"old topics",
    "checkpoint": b"old times",
}
NEW = {
    "commitlog/00000000000000000000": b"old log, new log",
    "commitlog/00000000000000131072": b"next log",
    "consumequeue/orders/0/00000000000000000000": b"old units, new units",
    "consumequeue/new topic/3/00000000000000000000": b"new units",
    "index/20261122000000000": b"old entries, new entries",
    "config/topics.json": b"new topics",
    "config/topics.json.bak": b"old topics",
    "checkpoint": b"new times",
}
REMOVED = "consumequeue/orders/0/00000000000000002000"
AFTER = {**{path: data for path, data in OLD.items() if path != REMOVED}, **NEW}
ABOUT = {"source": "archive", "log_end": 5}


def write(folder: Path, files: dict[str, bytes]) -> None:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)


def prepare(store: Path) -> Location:
    """A store, and the folder of an append with new files, and others that are no part of it."""
    write(store, OLD)
    write(store / ".spark_mq" / "append", {**NEW, "staged/1.units": b"?", "index/.20261122.tmp": b"?"})
    return Location.resolve(str(store))


if __name__ == "__main__":
    commit_append(Location.resolve(sys.argv[1]), [REMOVED], ABOUT)
