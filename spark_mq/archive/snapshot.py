"""What a store has that cannot be rebuilt from its log: `config/`, `checkpoint`, and facts of queues and index files.

The next offset of a queue whose messages all expired, and the names of index files, are in no message. A snapshot has
them as JSON, in one row for the folder `consumequeue` and one for the folder `index`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from pyarrow import fs

from spark_mq.archive.row_append import append_rows
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.tables import SNAPSHOTS
from spark_mq.errors import StoreChangedError
from spark_mq.format.message_row import Row
from spark_mq.format.timestamp import NANOS_PER_MICRO
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.derived_facts import index_facts, queue_facts
from spark_mq.store.message_store import MessageStore

_MAX_FILE_SIZE = 64 << 20


def write_snapshot(archive: StoreArchive) -> int:
    """The number of files whose present contents were appended to the snapshots table."""
    moment = datetime.now(UTC)
    files = small_files(archive.store)
    with MessageStore(archive.store.uri) as store:
        log_range = {"log_start": store.get_min_phy_offset(), "log_end": store.get_max_phy_offset()}
        facts = [
            _fact_row(CONSUME_QUEUE, lambda: queue_facts(store)),
            _fact_row(INDEX, lambda: index_facts(store.location)),
        ]
    found = [row for row in facts if row is not None]
    rows = [{"snapshot_timestamp": moment, **log_range, **row} for row in (*files, *found)]
    if rows:
        append_rows(archive, archive.tables.snapshots, SNAPSHOTS, rows)
    return len(files)


def small_files(store: Location) -> list[Row]:
    """A row for each file, with its present content; `content` is None if the file has more than 64 MiB or is gone.

    Folders in `config/` are RocksDB databases, each of several files that belong together. A running broker can change
    the database between two reads, so a snapshot of it can be inconsistent.
    """
    infos = [*store.storage.entries(f"{store.path}/{CONFIG}", recursive=True), (store / CHECKPOINT).info()]
    return [
        {
            "file": info.path[len(store.path) + 1 :],
            "file_size": info.size,
            "modification_timestamp": (info.mtime_ns or 0) // NANOS_PER_MICRO,
            "content": _content(store, info),
        }
        for info in sorted(infos, key=lambda info: info.path)
        if info.is_file
    ]


def _fact_row(name: str, facts: Callable[[], dict[str, Any] | None]) -> Row | None:
    """The row for a folder; None if there are no facts, or if a broker deletes files of it at this moment."""
    try:
        found = facts()
    except (StoreChangedError, FileNotFoundError):
        return None
    if found is None:
        return None
    content = json.dumps(found).encode()
    return {"file": name, "file_size": len(content), "modification_timestamp": None, "content": content}


def _content(store: Location, info: fs.FileInfo) -> bytes | None:
    if info.size > _MAX_FILE_SIZE:
        return None
    try:
        return Location(store.storage, info.path).read_bytes()
    except FileNotFoundError:
        return None
