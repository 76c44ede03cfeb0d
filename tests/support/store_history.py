"""Stores as they were earlier, and as they are when old segments expired. No Spark here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.support.stores import RealStore

TREES = ("consumequeue", "index", "checkpoint", "abort")


def settings_of(store: RealStore) -> dict[str, Any]:
    """What a job must be told of the broker."""
    return {"broker_conf": str(store.broker_conf), "broker_version": store.broker_version}


def identities(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """What shows that a file was left alone, by path: its inode, its time, its bytes."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != "checkpoint")
    return {str(p.relative_to(folder)): (p.stat().st_ino, p.stat().st_mtime_ns, p.read_bytes()) for p in files}


def record_ends(store: RealStore) -> list[int]:
    """The commit log offset behind each live record, in order."""
    return sorted(fact["offset"] + fact["size"] for fact in store.facts("msg"))


def cut_log(folder: Path, target: Path, end: int) -> Path:
    """The store `folder` without its derived files, when its log ended at `end`: zeros follow."""
    shutil.copytree(folder, target, ignore=shutil.ignore_patterns(*TREES))
    for segment in sorted((target / "commitlog").iterdir()):
        kept = end - int(segment.name)
        if kept <= 0:
            segment.unlink()
        elif kept < segment.stat().st_size:
            size = segment.stat().st_size
            with segment.open("r+b") as file:
                file.truncate(kept)
                file.truncate(size)
    return target


def grow_log(folder: Path, target: Path, end: int | None = None) -> None:
    """Let the log of `target` grow to that of `folder`, or to `end`; segments that stay the same are not touched."""
    for segment in sorted((folder / "commitlog").iterdir()):
        place, base = target / "commitlog" / segment.name, int(segment.name)
        size = segment.stat().st_size
        kept = size if end is None else min(max(end - base, 0), size)
        if kept <= 0:
            continue
        content = segment.read_bytes()[:kept].ljust(size, b"\0")
        if not place.exists() or place.read_bytes() != content:
            place.write_bytes(content)


def expire(folder: Path, segments: int) -> None:
    """Delete the first segments, as a broker does when their time has come."""
    for segment in sorted((folder / "commitlog").iterdir())[:segments]:
        segment.unlink()
