"""Stores before and after boots: their units and entries, a byte that is flipped, and rows of a recovery."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spark_mq.store.boot import Boot
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.testing import LogWriter
from tests.support.index_stores import index_files, layout_of
from tests.support.stores import RealStore, all_stores

RECOVERED = [store for store in all_stores() if store.name.startswith(("killed", "abort"))]
CLEAN = [store for store in all_stores() if not store.name.startswith(("killed", "abort", "lagging"))]
_UNIT = struct.Struct(">qiq")
_ENTRY = struct.Struct(">iqii")


def units_of(store: Path) -> dict[tuple[str, int], int]:
    """The number of units of each queue."""
    counts: Counter[tuple[str, int]] = Counter()
    for file in (store / "consumequeue").rglob("0*"):
        if file.is_file() and len(file.name) == 20:
            queue = file.parent.parent.name, int(file.parent.name)
            counts[queue] += sum(size > 0 for _, size, _ in _UNIT.iter_unpack(file.read_bytes()))
    return counts


def entries_of(store: RealStore, folder: Path) -> Iterator[int]:
    """The commit log offset of each entry of the index files."""
    layout = layout_of(store)
    for file in index_files(folder):
        data = file.read_bytes()
        (count,) = struct.unpack_from(">i", data, 36)
        for number in range(1, max(count, 1)):
            yield _ENTRY.unpack_from(data, layout.entries_at + number * _ENTRY.size)[1]


def body_at(store: RealStore, folder: Path, commit_log_offset: int) -> tuple[Path, int]:
    """The file and the position of the first byte of a message's body."""
    fact = next(fact for fact in store.facts("msg") if fact["offset"] == commit_log_offset)
    size = store.facts("store")[0]["mappedFileSizeCommitLog"]
    base = commit_log_offset - commit_log_offset % size
    file = folder / "commitlog" / f"{base:020d}"
    assert fact["bodyLenRaw"] > 0
    data = file.read_bytes()[commit_log_offset - base :]
    at = 84 + 12 * bool(fact["sysFlag"] & 0x10) + 12 * bool(fact["sysFlag"] & 0x20) + 4
    assert struct.unpack_from(">i", data, at - 4)[0] == fact["bodyLenRaw"]
    return file, commit_log_offset - base + at


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


def some_message(store: RealStore, after: int) -> int:
    """The first message with a body at or after an offset."""
    return int(min(fact["offset"] for fact in store.facts("msg") if fact["offset"] >= after and fact["bodyLenRaw"] > 0))


def rows(recovery: Boot, action: str, target: str | None = None) -> list[dict[str, Any]]:
    found = [row for row in recovery.rows.to_pylist() if row["action"] == action]
    return [row for row in found if target in (None, row["target"])]


def store_with_old_records(folder: Path) -> tuple[int, int]:
    """A store of 12 messages, after whose live end are 8 old ones without a gap; both ends of the log.

    The sizes and queues of the old records are those that the next ones would have had.
    """
    now = 1_700_000_000_000
    lost, writer = LogWriter(64 << 10), LogWriter(64 << 10)
    for number in range(20):
        lost.append(now + number, b"order %04d" % number, queue_id=number % 3)
    for number in range(12):
        writer.append(now + number + (3_600_000 if number >= 10 else 0), b"order %04d" % number, queue_id=number % 3)
    written = len(writer.segments[0])
    writer.segments[0] += lost.segments[0][written:]
    writer.write(folder)
    (folder / "checkpoint").write_bytes(Checkpoint(now + 3_600_011, now + 3_600_011).encode())
    return written, len(lost.segments[0])
