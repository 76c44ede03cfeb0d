"""What disks, copies and programs do to files: a copy of a store is damaged, and put right, again and again."""

from __future__ import annotations

import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from spark_mq.errors import CorruptLogError
from spark_mq.format.index_file import HEADER_SIZE
from spark_mq.format.record import decode_record
from spark_mq.store.config.broker_conf import BrokerConf
from tests.support.rebuilt import rebuild_here
from tests.support.stores import RealStore, tree_of

PARTS = ("commitlog", "commitlog", "consumequeue", "index", "checkpoint", "config")
"""The parts of a store that are damaged; of six damages, two are in the log."""
_OTHER_PARTS = ("batchconsumequeue", "compaction")
"""The parts that only some stores have."""
_BLOCKS = (512, 4096)
_CRC_NAME = b"__CRC32#\1"
_CRC_SIZE = 11
"""Digits of the CRC of a record, and the separator after them."""


class NoPlaceError(Exception):
    """A store has no place for a damage."""


@dataclass
class DamagedStore:
    """A copy of a sound store, whose files are changed. Times of files stay as they are, as on a disk that decays.

    Attributes:
        packed: The store, with what a broker said of it.
        path: The copy.
        sound: The bytes of the sound store, by relative path.
        older: The bytes of the same store at an earlier time.
    """

    packed: RealStore
    path: Path
    sound: Mapping[str, bytes]
    older: Mapping[str, bytes]
    changed: set[str] = field(default_factory=set)
    """The files that were changed, by relative path."""

    def __post_init__(self) -> None:
        self.times = {file: (self.path / file).stat().st_mtime_ns for file in self.sound}

    @classmethod
    def of(cls, packed: RealStore, original: Path, folder: Path) -> DamagedStore:
        """A copy in `folder`, which gets the older store, too."""
        path = Path(shutil.copytree(original, folder / "store", symlinks=True, copy_function=_copy))
        return cls(packed, path, tree_of(original), tree_of(_older_store(packed, original, folder / "older")))

    @cached_property
    def parts(self) -> list[str]:
        """The parts of a store that are damaged."""
        return [*PARTS, *(part for part in _OTHER_PARTS if self.files(part))]

    def files(self, part: str) -> list[str]:
        """The files of a part of the store, or the file of this name, that have bytes now."""
        return sorted(f for f in self.sound if part in (f, f.split("/")[0]) and self.read(f))

    def read(self, file: str) -> bytes:
        """The bytes of a file; nothing if it does not exist."""
        if file not in self.changed:
            return self.sound[file]
        return (self.path / file).read_bytes() if (self.path / file).exists() else b""

    def write(self, file: str, data: bytes | bytearray | None) -> None:
        """Give a file these bytes, or remove it. It keeps its time."""
        path = self.path / file
        self.changed.add(file)
        if data is None:
            path.unlink()
            return
        _write(path, data)
        os.utime(path, ns=(self.times[file], self.times[file]))

    def put(self, file: str, at: int, data: bytes) -> None:
        """Write bytes into a file, which keeps its size."""
        content = bytearray(self.read(file))
        data = data[: len(content) - at]
        content[at : at + len(data)] = data
        self.write(file, content)

    @property
    def differences(self) -> list[str]:
        """The files that are not as in the sound store."""
        return sorted(file for file in self.changed if not self._is_sound(file))

    def _is_sound(self, file: str) -> bool:
        return (self.path / file).exists() and self.read(file) == self.sound[file]

    def restore(self) -> None:
        """Put all files right."""
        for file in list(self.changed):
            self.write(file, self.sound[file])
        self.changed.clear()

    @cached_property
    def segment_size(self) -> int:
        return len(self.sound[f"commitlog/{0:020d}"])

    @cached_property
    def records(self) -> list[tuple[int, int]]:
        """Offset and size of each record."""
        return [(fact["offset"], fact["size"]) for fact in self.packed.facts("msg")]

    def place_of(self, offset: int) -> tuple[str, int]:
        """The segment of a commit log offset, and the position in it."""
        return f"commitlog/{offset // self.segment_size * self.segment_size:020d}", offset % self.segment_size

    def record_bytes(self, offset: int, size: int) -> bytes:
        """The bytes of a record. Raises `NoPlaceError` if its segment has been cut before."""
        file, at = self.place_of(offset)
        data = self.read(file)[at : at + size]
        if len(data) < size:
            raise NoPlaceError
        return data


def _write(path: Path, data: bytes | bytearray) -> None:
    """Write a file whose last zeros are a hole, as in a broker's files."""
    with path.open("wb") as file:
        file.write(data.rstrip(b"\0"))
        file.truncate(len(data))


def _copy(source: str, target: str) -> None:
    _write(Path(target), Path(source).read_bytes())
    shutil.copystat(source, target)


def _older_store(packed: RealStore, original: Path, folder: Path) -> Path:
    """The store when it had three fifths of its messages: its log is cut, its queues and index are rebuilt."""
    facts = packed.facts("msg")
    end, size = facts[len(facts) * 3 // 5]["offset"], (original / "commitlog" / f"{0:020d}").stat().st_size
    shutil.copytree(original / "config", folder / "config")
    shutil.copytree(original / "commitlog", folder / "commitlog")
    for file in (folder / "commitlog").iterdir():
        kept = min(max(end - int(file.name), 0), size)
        file.write_bytes(file.read_bytes()[:kept] + bytes(size - kept) if kept else b"")
    for file in (folder / "commitlog").iterdir():
        if not file.stat().st_size:
            file.unlink()
    rebuild_here(folder, folder.with_name("rebuilt"), broker_conf=str(packed.broker_conf))
    shutil.copytree(folder.with_name("rebuilt"), folder, dirs_exist_ok=True)
    return folder


# The kinds of damage. Each does one, and says which.


def single_bit(store: DamagedStore, chance: random.Random, part: str) -> str:
    file, at = _place(store, chance, part)
    store.put(file, at, bytes([store.read(file)[at] ^ 1 << chance.randrange(8)]))
    return f"bit of {file} at {at}"


def some_bytes(store: DamagedStore, chance: random.Random, part: str) -> str:
    """A few random bytes."""
    file, at = _place(store, chance, part)
    length = chance.choice([1, 2, 4, 8, 20, 64])
    store.put(file, at, chance.randbytes(length))
    return f"{length} random bytes of {file} at {at}"


def zeroed_block(store: DamagedStore, chance: random.Random, part: str) -> str:
    file, at, size = _block(store, chance, part)
    store.put(file, at, bytes(size))
    return f"zeros for {size} of {file} at {at}"


def random_block(store: DamagedStore, chance: random.Random, part: str) -> str:
    file, at, size = _block(store, chance, part)
    store.put(file, at, chance.randbytes(size))
    return f"random bytes for {size} of {file} at {at}"


def block_of_another_offset(store: DamagedStore, chance: random.Random, part: str) -> str:
    file, at, size = _block(store, chance, part)
    data = store.read(file)
    source = chance.randrange(max(len(data) // size, 1)) * size
    store.put(file, at, data[source : source + size])
    return f"bytes at {source} for {size} of {file} at {at}"


def block_of_another_file(store: DamagedStore, chance: random.Random, part: str) -> str:
    """At the same offset in half of the cases, as if a copy took the wrong file."""
    file, at, size = _block(store, chance, part)
    others = store.files(part if chance.random() < 0.5 else chance.choice(store.parts))
    if not others:
        raise NoPlaceError
    other = chance.choice(others)
    data = store.read(other)
    source = at if chance.random() < 0.5 and at < len(data) else chance.randrange(len(data)) // size * size
    store.put(file, at, data[source : source + size])
    return f"bytes of {other} at {source} for {size} of {file} at {at}"


def stale_block(store: DamagedStore, chance: random.Random, part: str) -> str:
    """A block of an older time: a write that never reached the disk. A file that is newer is zeros."""
    file, at, size = _block(store, chance, part)
    data = store.older.get(file, bytes(len(store.read(file))))
    store.put(file, at, data[at : at + size])
    return f"old bytes for {size} of {file} at {at}"


def stale_file(store: DamagedStore, chance: random.Random, part: str) -> str:
    """A whole file of an older time, or of a newer time than the others: a copy that took too long."""
    file = chance.choice([file for file in store.files(part) if file in store.older] or _no_place())
    store.write(file, store.older[file])
    return f"old {file}"


def cut_file(store: DamagedStore, chance: random.Random, part: str) -> str:
    file, at = _place(store, chance, part)
    at = at // chance.choice([1, *_BLOCKS]) * chance.choice([1, 1, 1, 0])
    store.write(file, store.read(file)[:at])
    return f"{file} cut to {at}"


def lost_file(store: DamagedStore, chance: random.Random, part: str) -> str:
    file = chance.choice(store.files(part) or _no_place())
    store.write(file, None)
    return f"no {file}"


def swapped_files(store: DamagedStore, chance: random.Random, part: str) -> str:
    """Two files of a part: the same number of two queues, or two of a folder."""
    file = chance.choice(store.files(part) or _no_place())
    name, folder = file.rpartition("/")[2], file.rpartition("/")[0]
    others = [one for one in store.files(part) if one != file and (one.endswith(name) or one.startswith(folder))]
    other = chance.choice(others or _no_place())
    data = store.read(file)
    store.write(file, store.read(other))
    store.write(other, data)
    return f"{file} and {other} swapped"


def exchanged_records(store: DamagedStore, chance: random.Random, part: str) -> str:
    """Two records of the same size; with their own offsets put right in half of the cases, and their CRCs, too."""
    if part == "consumequeue" or part == "index":
        return _exchanged_units(store, chance, part)
    sizes: dict[int, list[int]] = {}
    for offset, size in store.records:
        sizes.setdefault(size, []).append(offset)
    size, offsets = chance.choice([(size, found) for size, found in sizes.items() if len(found) > 1])
    one, other = chance.sample(offsets, 2)
    moves = chance.random() < 0.5
    for source, data in ((one, store.record_bytes(other, size)), (other, store.record_bytes(one, size))):
        moved = with_right_crcs(data[:28] + struct.pack(">q", source) + data[36:]) if moves else data
        store.put(*store.place_of(source), moved)
    return f"records of {size} bytes at {one} and {other} exchanged{', with their offsets' if moves else ''}"


def _exchanged_units(store: DamagedStore, chance: random.Random, part: str) -> str:
    """Two units of a queue file, or two entries of an index file."""
    file = chance.choice(store.files(part) or _no_place())
    data = store.read(file)
    slots = int(BrokerConf.of(str(store.packed.broker_conf)).settings["maxHashSlotNum"])
    first = 0 if part == "consumequeue" else 40 + 4 * slots
    count = (len(data.rstrip(b"\0")) - first) // 20
    if count < 2:
        raise NoPlaceError
    one, other = (first + 20 * number for number in chance.sample(range(count), 2))
    store.put(file, one, data[other : other + 20])
    store.put(file, other, data[one : one + 20])
    return f"20 bytes of {file} at {one} and {other} exchanged"


def change_with_right_crcs(store: DamagedStore, chance: random.Random, part: str) -> str:
    """A change in a record, whose CRCs are then put right: a program that wrote, or a broken memory before the CRC."""
    offset, size = chance.choice(store.records)
    data = bytearray(store.record_bytes(offset, size))
    at = chance.randrange(size)
    for place in range(at, min(at + chance.choice([1, 1, 2, 8]), size)):
        data[place] = chance.choice([data[place] ^ 1 << chance.randrange(8), data[place - 1], chance.randrange(256)])
    store.put(*store.place_of(offset), with_right_crcs(bytes(data)))
    return f"record at {offset} changed at {at}, with right CRCs"


KINDS: Mapping[str, Callable[[DamagedStore, random.Random, str], str]] = {
    kind.__name__: kind
    for kind in (
        single_bit,
        some_bytes,
        zeroed_block,
        random_block,
        block_of_another_offset,
        block_of_another_file,
        stale_block,
        stale_file,
        cut_file,
        lost_file,
        swapped_files,
        exchanged_records,
        change_with_right_crcs,
    )
}


def damage_disk(store: DamagedStore, chance: random.Random) -> tuple[list[str], list[str]]:
    """Do one damage, or two at once in a fifth of the cases; returns their kinds, and what they did."""
    kinds, done = list[str](), list[str]()
    wanted = 2 if chance.random() < 0.2 else 1
    while len(done) < wanted:
        name = chance.choice(list(KINDS))
        try:
            done.append(KINDS[name](store, chance, chance.choice(store.parts)))
        except NoPlaceError:
            continue
        kinds.append(name)
    return kinds, done


def with_right_crcs(record: bytes) -> bytes:
    """A stored record with the CRCs of its body and, if it has one, of itself; as it is if it is not a record."""
    try:
        decoded = decode_record(record)
    except CorruptLogError:
        return record
    data = bytearray(record)
    data[8:12] = struct.pack(">i", zlib.crc32(decoded.body) & 0x7FFFFFFF)
    if decoded.properties[-len(_CRC_NAME) - _CRC_SIZE :].startswith(_CRC_NAME):
        crc = zlib.crc32(data[: -len(_CRC_NAME) - _CRC_SIZE]) & 0x7FFFFFFF
        data[-_CRC_SIZE:] = str(crc)[::-1].ljust(_CRC_SIZE - 1, "0").encode() + b"\2"
    return bytes(data)


def _no_place() -> list[str]:
    raise NoPlaceError


def _place(store: DamagedStore, chance: random.Random, part: str) -> tuple[str, int]:
    """A file and a position in it: three of four are where the file was written, of an index file one in the header."""
    file = chance.choice(store.files(part) or _no_place())
    data = store.read(file)
    if file.startswith("index/") and chance.random() < 0.25:
        return file, chance.randrange(min(HEADER_SIZE, len(data)))
    written = len(data.rstrip(b"\0")) or len(data)
    return file, chance.randrange(written if chance.random() < 0.75 else len(data))


def _block(store: DamagedStore, chance: random.Random, part: str) -> tuple[str, int, int]:
    """A file, and position and size of a block of it."""
    file, at = _place(store, chance, part)
    size = chance.choice(_BLOCKS)
    return file, at // size * size, size
