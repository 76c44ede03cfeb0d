"""How much of a disk a store's folders use."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass

from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX

TREES = (COMMIT_LOG, CONSUME_QUEUE, INDEX, CONFIG)
OTHER = "other"
_BLOCK_SIZE = 512
"""Bytes of a block of `st_blocks` (POSIX systems)."""


@dataclass(frozen=True)
class DiskUse:
    """The files of one tree of a store.

    Attributes:
        tree: The name of the folder; `other` for everything else in the store's directory.
        size: The sum of their sizes in bytes.
        allocated: The bytes that they take on the disk: less than `size` if files have holes, such as `timerwheel` or
            a segment that is not full. None if the filesystem does not say.
    """

    tree: str
    files: int
    size: int
    allocated: int | None


def disk_use(store: Location) -> tuple[DiskUse, ...]:
    """The disk use of each tree of `TREES`, and of all other files. Files that vanish meanwhile are left out."""
    counts = {tree: [0, 0, 0] for tree in (*TREES, OTHER)}
    for path, size, allocated in _local_files(store.path, "") if store.is_local else _files(store):
        top, _, rest = path.partition("/")
        count = counts[top if rest and top in TREES else OTHER]
        count[0] += 1
        count[1] += size
        count[2] += allocated
    return tuple(
        DiskUse(tree, files, size, allocated if store.is_local else None)
        for tree, (files, size, allocated) in counts.items()
    )


def _local_files(folder: str, prefix: str) -> Iterator[tuple[str, int, int]]:
    """Path below the store, size and allocated bytes of each file; links in the store's directory are followed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    status = entry.stat(follow_symlinks=not prefix)
                except FileNotFoundError:
                    continue
                if stat.S_ISDIR(status.st_mode):
                    yield from _local_files(entry.path, f"{prefix}{entry.name}/")
                elif stat.S_ISREG(status.st_mode):
                    yield f"{prefix}{entry.name}", status.st_size, status.st_blocks * _BLOCK_SIZE
    except FileNotFoundError:
        return


def _files(store: Location) -> Iterator[tuple[str, int, int]]:
    for path, size in store.files_below().items():
        yield path, size, 0
