"""What has the name of a file of a store, and is none: a named pipe, a device, a socket, a folder, a broken link."""

from __future__ import annotations

import os
from collections.abc import Iterator

from spark_mq.io.local import kind_of
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_paths import ABORT, COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.queue.folders import queue_folders
from spark_mq.store.store_lock import LOCK

_CONFIG_FILES = ("timercheck", "timermetrics", "transactionMetrics")
"""The files of `config/` without an ending."""


def irregular_files(store: Location) -> Iterator[tuple[str, str]]:
    """The path in the store, and the kind, of each entry that is not a regular file although a broker opens it as one.

    Folders among segments and queue files are left out: brokers skip them from 5.1.0 on. Only a local store has such
    entries.
    """
    if not store.is_local:
        return
    for name in (ABORT, CHECKPOINT, LOCK):
        kind = kind_of((store / name).path)
        if kind is not None:
            yield name, kind
    yield from _irregular(store, COMMIT_LOG, has_folders=True)
    for queue in queue_folders(store / CONSUME_QUEUE, with_empty=True):
        yield from _irregular(store, queue.location.path.removeprefix(f"{store.path}/"), has_folders=True)
    yield from _irregular(store, INDEX)
    for path, kind in _irregular(store, CONFIG):
        name = path.rpartition("/")[2].removesuffix(".bak")
        if not os.path.isdir((store / path).path) or name.endswith(".json") or name in _CONFIG_FILES:
            yield path, kind


def _irregular(store: Location, folder: str, has_folders: bool = False) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir((store / folder).path) as found:
            entries = sorted(found, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        kind = None if _is_regular(entry, has_folders) else kind_of(entry.path)
        if kind is not None:
            yield f"{folder}/{entry.name}", kind


def _is_regular(entry: os.DirEntry[str], has_folders: bool) -> bool:
    try:
        return entry.is_file() or (has_folders and entry.is_dir())
    except OSError:  # a link that leads to itself
        return False
