"""Damage of a store's queues and log that a test applies to a store in place, and takes back."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

UNIT = 20
KINDS = (
    "folder",
    "file",
    "tail",
    "zeros",
    "offset",
    "size",
    "swap",
    "exchange",
    "copy",
    "blank",
    "cut",
    "record",
    "log zeros",
)
"""`record` and `log zeros` are damage of the log; all others are damage of one queue."""

Edit = tuple[str, int, int, int]
"""A kind, which file, and two numbers that choose places in it."""

edits = st.lists(st.tuples(st.sampled_from(KINDS), *[st.integers(0, 1 << 20)] * 3), max_size=4)


@contextmanager
def damaged(folder: Path, wanted: Sequence[Edit]) -> Iterator[None]:
    """The store with the damage, for the time of the block."""
    saved = folder.parent / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    queues = sorted(path for path in (folder / "consumequeue").glob("*/*/*") if path.stat().st_size)
    segments = sorted((folder / "commitlog").iterdir())
    kept: dict[Path, tuple[bytes, os.stat_result]] = {}
    try:
        for kind, number, first, second in wanted:
            is_log = kind in ("record", "log zeros")
            file = (segments if is_log else queues)[number % len(segments if is_log else queues)] if queues else None
            if file is None or not file.exists() or not file.stat().st_size:
                continue
            for one in sorted(file.parent.iterdir()) if kind == "folder" else [file]:
                kept.setdefault(one, (one.read_bytes(), one.stat()))
            other = queues[second % len(queues)] if queues else file
            if kind == "exchange" and other.exists():
                kept.setdefault(other, (other.read_bytes(), other.stat()))
                _exchange(file, other, first)
            elif kind == "folder":
                shutil.rmtree(file.parent)
            elif kind == "file":
                file.unlink()
            else:
                file.write_bytes(_changed(kind, file.read_bytes(), queues, first, second))
        yield
    finally:
        for file, (data, status) in kept.items():
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
            os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


def _exchange(one: Path, other: Path, number: int) -> None:
    """Exchange a unit of one queue for a unit of another."""
    for file, source in ((one, other.read_bytes()), (other, one.read_bytes())):
        at, place = (number % max(len(data.rstrip(b"\0")) // UNIT, 1) * UNIT for data in (file.read_bytes(), source))
        with file.open("r+b") as stream:
            stream.seek(at)
            stream.write(source[place : place + UNIT])


def _changed(kind: str, old: bytes, queues: Sequence[Path], first: int, second: int) -> bytes:
    data = bytearray(old)
    written = max(len(old.rstrip(b"\0")) // UNIT, 1)
    one, other = first % written * UNIT, second % written * UNIT
    if kind == "tail":
        data[one:] = bytes(len(data) - one)
    elif kind == "zeros":
        data[one : one + 3 * UNIT] = bytes(len(data[one : one + 3 * UNIT]))
    elif kind == "offset":
        data[one + 6 + second % 2] ^= 1 + second % 255
    elif kind == "size":
        data[one + 10 + second % 2] ^= 1 + second % 255
    elif kind == "swap":
        data[one : one + UNIT], data[other : other + UNIT] = data[other : other + UNIT], data[one : one + UNIT]
    elif kind == "copy":
        source = queues[second % len(queues)]
        if source.exists() and (unit := source.read_bytes()[:UNIT]).strip(b"\0"):
            data[one : one + UNIT] = unit
    elif kind == "blank":
        data[one : one + UNIT] = (0x7FFFFFFF).to_bytes(12, "big").ljust(UNIT, b"\0")
    elif kind == "cut":
        del data[one:]
    elif kind == "record":
        data[(first * 131) % len(data)] ^= 1 + second % 255
    else:
        at = (first * 131) % len(data)
        data[at : at + 100] = bytes(len(data[at : at + 100]))
    return bytes(data)
