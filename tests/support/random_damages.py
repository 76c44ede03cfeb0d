"""Random damages of a store of any kind: single bytes, and whole files and folders."""

from __future__ import annotations

import random
import re
import shutil
import struct
from pathlib import Path

FOLDERS = ("commitlog", "consumequeue", "index", "checkpoint")
_UNIT = struct.Struct(">qiq")


def files_of(store: Path, folder: str) -> list[Path]:
    """The files of a part of a store that have bytes; a queue file before its neighbours of the same queue."""
    part = store / folder
    files = [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file())
    return [path for path in files if path.stat().st_size]


def damage_bytes(store: Path, chance: random.Random, folders: tuple[str, ...] = FOLDERS) -> str:
    """Do one random damage to a file; says which."""
    files = files_of(store, chance.choice(folders))
    file = chance.choice(files)
    data = bytearray(file.read_bytes())
    # Most of a file can be zeros: three of four damages are where the file was written.
    written = len(bytes(data).rstrip(b"\0")) or len(data)
    at = chance.randrange(written if chance.random() < 0.75 else len(data))
    length = min(chance.choice([1, 4, 8, 20, 64, 300]), len(data) - at)
    kind = chance.choice(["flip", "flip", "zero", "copy", "cut", "swap"])
    text = f"{kind} {length} bytes of {file.relative_to(store)} at {at}"
    if kind == "flip":
        data[at] ^= 1 << chance.randrange(8)
    elif kind == "zero":
        data[at : at + length] = bytes(length)
    elif kind == "copy":
        source = chance.randrange(len(data) - length + 1)
        data[at : at + length] = data[source : source + length]
    elif kind == "cut":
        del data[at:]
    elif kind == "swap":
        other = chance.choice([path for path in files if path.parent == file.parent])
        text = f"swap {file.relative_to(store)} and {other.name}"
        data, content = bytearray(other.read_bytes()), bytes(data)
        other.write_bytes(content)
    file.write_bytes(data)
    return text


def remove_topic(folder: Path, chance: random.Random) -> None:
    """The queues of a topic are lost."""
    shutil.rmtree(chance.choice(sorted((folder / "consumequeue").iterdir())))


def remove_queue(folder: Path, chance: random.Random) -> None:
    """A queue is lost."""
    shutil.rmtree(chance.choice(sorted((folder / "consumequeue").glob("*/*"))))


def cut_queue(folder: Path, chance: random.Random) -> None:
    """The last units of a queue become zeros."""
    file = max(chance.choice(sorted((folder / "consumequeue").glob("*/*"))).iterdir())
    data = file.read_bytes()
    units = len(data.rstrip(b"\0")) // _UNIT.size
    kept = chance.randrange(units + 1) * _UNIT.size
    file.write_bytes(data[:kept] + bytes(len(data) - kept))


def zero_log_end(folder: Path, chance: random.Random) -> None:
    """The last bytes of the last segment become zeros, as in a copy that was made before the queues'."""
    file = max(file for file in (folder / "commitlog").iterdir() if file.is_file() and any(file.read_bytes()))
    data = file.read_bytes()
    starts = [found.start() - 4 for found in re.finditer(b"\xda\xa3\x20\xa7", data)]
    kept = max(chance.choice(starts[-40:] or [0]) + chance.choice([0, 4, 60]), 0)
    file.write_bytes(data[:kept] + bytes(len(data) - kept))


QUEUE_AND_LOG_ENDS = (remove_topic, remove_queue, cut_queue, zero_log_end)
"""Damages of which `spark_mq/testing/plain_queue.py` knows what a boot makes of them."""
