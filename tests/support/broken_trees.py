"""Random changes to a store's consume queues, index files and checkpoint: bits, units, entries, whole files."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np

from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE, IndexLayout

UNIT_SIZE = 20
_TREES = ("consumequeue", "index")
_ENTRY_FIELDS = (("hash", 0, 4), ("offset", 4, 8), ("time", 12, 4), ("previous", 16, 4))


class NothingToChangeError(Exception):
    """A store has no file, unit or entry that could be changed."""


class BrokenTrees:
    """One copy of a store that shares its commit log, and the changes made to it; `layout` is that of its index files.

    `changes` says what was changed, for a person. `queues` are the topics and queue ids of the queues that were.
    """

    def __init__(self, sound: Path, folder: Path, layout: IndexLayout, random: Random) -> None:
        self.sound, self.folder = sound, folder
        self.changes: list[str] = []
        self.queues: set[tuple[str, int]] = set()
        self._layout = layout
        self._random = random
        shutil.copytree(sound, folder, copy_function=_link_or_copy)

    def break_something(self, where: str) -> None:
        """Make one random change to the files of `where`: consumequeue, index or checkpoint."""
        makers: dict[str, list[Callable[[], str]]] = {
            "consumequeue": [
                *[self._flip_unit] * 6,
                *[self._write_unit] * 5,
                self._clear_units,
                self._shift_units,
                self._lose_file,
                self._cut_file,
                self._replace_file,
                self._add_file,
                self._lose_queue,
                self._add_queue,
                self._swap_queues,
            ],
            "index": [
                *[self._flip_entry] * 6,
                *[self._write_entry] * 3,
                self._flip_header,
                self._flip_slot,
                self._lose_file,
                self._cut_file,
                self._replace_file,
                self._add_file,
            ],
            "checkpoint": [self._change_checkpoint],
        }
        self._tree = where
        with suppress(NothingToChangeError):
            self.changes.append(self._random.choice(makers[where])())

    def has_cut_pointers(self) -> bool:
        """Whether a slot or an entry of an index file points to nothing, or skips entries of its slot.

        No look-up can see that; `check_index` can.
        """
        for file in self._files("index"):
            before = self.sound / "index" / file.name
            is_comparable = before.is_file() and before.stat().st_size == file.stat().st_size
            if is_comparable and self._is_cut(before.read_bytes(), file.read_bytes()):
                return True
        return False

    def _is_cut(self, before: bytes, after: bytes) -> bool:
        if len(before) != self._layout.file_size:
            return False
        slots, entries_at = self._layout.hash_slot_num, self._layout.entries_at
        old, new = [np.frombuffer(data, ENTRY_DTYPE, offset=entries_at) for data in (before, after)]
        chains = [np.frombuffer(data, ">i4", slots, HEADER_SIZE) for data in (before, after)]
        pointers = [
            (at, *(int(chain[at]) for chain in chains)) for at in np.flatnonzero(chains[0] != chains[1]).tolist()
        ]
        changed = np.flatnonzero(old["previous_entry"] != new["previous_entry"])
        pointers += [
            (int(old["key_hash"][at]) % slots, int(old["previous_entry"][at]), int(new["previous_entry"][at]))
            for at in changed.tolist()
        ]
        return any(
            now == 0 or (0 < now < was and int(new["key_hash"][now]) % slots == slot) for slot, was, now in pointers
        )

    def _files(self, tree: str) -> list[Path]:
        return sorted(file for file in (self.folder / tree).rglob("*") if file.is_file() and file.stat().st_size)

    def _file(self) -> Path:
        files = self._files(self._tree)
        if not files:
            raise NothingToChangeError
        file = self._random.choice(files)
        self._note(file)
        return file

    def _note(self, file: Path) -> None:
        if self._tree == "consumequeue":
            self.queues.add((file.parent.parent.name, int(file.parent.name)))

    def _unit(self) -> tuple[Path, int]:
        """A file, and the place of a unit of it that was written, or the one after the last."""
        file = self._file()
        if file.stat().st_size < UNIT_SIZE:
            raise NothingToChangeError
        data = file.read_bytes()
        written = [at for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE) if any(data[at : at + UNIT_SIZE])]
        after = (written[-1] if written else -UNIT_SIZE) + UNIT_SIZE
        at = self._random.choice([*written, *(written[-2:] * 3), *([after] if after + UNIT_SIZE <= len(data) else [])])
        return file, at

    def _flip_unit(self) -> str:
        file, at = self._unit()
        bit = self._random.randrange(12 * 8)
        return self._flip(file, at + bit // 8, bit % 8)

    def _flip(self, file: Path, place: int, bit: int) -> str:
        data = bytearray(file.read_bytes())
        data[place] ^= 1 << bit
        return self._write(file, bytes(data), f"bit {bit} of byte {place}")

    def _write_unit(self) -> str:
        file, at = self._unit()
        data = bytearray(file.read_bytes())
        offset, size, tag = struct.unpack_from(">qiq", data, at)
        other, other_at = self._unit()
        other_unit = other.read_bytes()[other_at:][:UNIT_SIZE]
        self._note(file)
        unit = self._random.choice(
            [
                struct.pack(">qiq", self._random.choice([0, 1, -1, 1 << 62, -(1 << 63), (1 << 63) - 1]), size, tag),
                struct.pack(">qiq", self._random.randrange(1 << 23), size, tag),
                struct.pack(
                    ">qiq",
                    offset,
                    self._random.choice([0, -1, 1, 0x7FFFFFFF, 0x7FFFFFFE, min(size + 1, 0x7FFFFFFF)]),
                    tag,
                ),
                struct.pack(">qiq", 0, 0x7FFFFFFF, 0),
                bytes(UNIT_SIZE),
                other_unit.ljust(UNIT_SIZE, b"\0"),
            ]
        )
        data[at : at + UNIT_SIZE] = unit
        return self._write(file, bytes(data), f"unit at {at} is {struct.unpack('>qiq', unit)}")

    def _clear_units(self) -> str:
        file, at = self._unit()
        data = bytearray(file.read_bytes())
        end = min(at + UNIT_SIZE * self._random.randint(1, 400), len(data))
        blank = self._random.choice([0, 0, 0xFF, 0x5A])
        data[at:end] = bytes([blank]) * (end - at)
        return self._write(file, bytes(data), f"{at} to {end} are {blank}")

    def _shift_units(self) -> str:
        file, at = self._unit()
        data = file.read_bytes()
        if self._random.random() < 0.5:
            moved = data[:at] + data[at + UNIT_SIZE :] + bytes(UNIT_SIZE)
        else:
            moved = (data[:at] + data[at : at + UNIT_SIZE] + data[at:])[: len(data)]
        return self._write(file, moved, f"units from {at} on moved by one")

    def _lose_file(self) -> str:
        file = self._file()
        file.unlink()
        return f"{self._name(file)} lost"

    def _cut_file(self) -> str:
        file = self._file()
        size = file.stat().st_size
        length = self._random.choice([0, 1, 19, UNIT_SIZE, self._random.randrange(size), size - UNIT_SIZE])
        data = file.read_bytes()
        if self._random.random() < 0.2:
            return self._write(file, data + bytes(self._random.choice([1, 20, 4000])), "longer")
        return self._write(file, data[:length], f"cut to {length} bytes")

    def _replace_file(self) -> str:
        file, other = self._file(), self._file()
        return self._write(file, other.read_bytes(), f"now has the bytes of {self._name(other)}")

    def _add_file(self) -> str:
        file, other = self._file(), self._file()
        size = file.stat().st_size
        last = max(int(one.name) for one in file.parent.iterdir() if one.name.isdigit())
        number = self._random.choice(
            [last + size, last + 20, 0, last + 100 * size, last - size, 10 ** len(file.name) - 1]
        )
        added = file.parent / f"{max(number, 0):0{len(file.name)}d}"
        data = self._random.choice([other.read_bytes(), self._random.randbytes(size), bytes(size)])
        return self._write(added, data, f"added with {len(data)} bytes of {self._name(other)}, or of nothing")

    def _lose_queue(self) -> str:
        file = self._file()
        queue, tree = file.parent, self.folder / self._tree
        lost = self._random.choice([queue, queue, queue, queue.parent, tree])
        for one in lost.rglob("0*"):
            if one.is_file():
                self._note(one)
        shutil.rmtree(lost)
        return f"{self._name(lost)} lost"

    def _add_queue(self) -> str:
        file = self._file()
        queue_id = self._random.choice([7, 99, -1, 2**31 - 1])
        added = file.parent.parent / str(queue_id)
        if added.exists():
            raise NothingToChangeError
        shutil.copytree(file.parent, added)
        self.queues.add((added.parent.name, queue_id))
        return f"{self._name(added)} added, a copy of {self._name(file.parent)}"

    def _swap_queues(self) -> str:
        file, other = self._file(), self._file()
        if file.parent == other.parent:
            raise NothingToChangeError
        aside = self.folder / "aside"
        file.parent.rename(aside)
        other.parent.rename(file.parent)
        aside.rename(other.parent)
        return f"{self._name(file.parent)} and {self._name(other.parent)} changed places"

    def _entry(self) -> tuple[Path, int]:
        """An index file, and the place of an entry of it that counts."""
        file = self._file()
        if file.stat().st_size != self._layout.file_size:
            raise NothingToChangeError
        count = min(int.from_bytes(file.read_bytes()[36:40], "big"), self._layout.index_num)
        if count <= 1:
            raise NothingToChangeError
        number = self._random.choice([1, count - 1, self._random.randrange(1, count)])
        return file, self._layout.entries_at + ENTRY_SIZE * number

    def _flip_entry(self) -> str:
        file, at = self._entry()
        bit = self._random.randrange(ENTRY_SIZE * 8)
        return self._flip(file, at + bit // 8, bit % 8)

    def _write_entry(self) -> str:
        """Not a hash of the same slot: no look-up and no check of pointers can tell such an entry."""
        file, at = self._entry()
        name, start, width = self._random.choice(_ENTRY_FIELDS[1:])
        data = bytearray(file.read_bytes())
        value = self._random.choice([bytes(width), b"\xff" * width, self._random.randbytes(width)])
        data[at + start : at + start + width] = value
        return self._write(file, bytes(data), f"{name} of the entry at {at} is {value.hex()}")

    def _flip_header(self) -> str:
        file = self._file()
        if file.stat().st_size < HEADER_SIZE:
            raise NothingToChangeError
        return self._flip(file, self._random.randrange(HEADER_SIZE), self._random.randrange(8))

    def _flip_slot(self) -> str:
        file = self._file()
        if file.stat().st_size != self._layout.file_size:
            raise NothingToChangeError
        slots = np.frombuffer(file.read_bytes(), ">i4", self._layout.hash_slot_num, HEADER_SIZE)
        used = np.flatnonzero(slots).tolist()
        slot = self._random.choice(used) if used else 0
        return self._flip(file, HEADER_SIZE + SLOT_SIZE * slot + self._random.randrange(4), self._random.randrange(8))

    def _change_checkpoint(self) -> str:
        file = self.folder / "checkpoint"
        data = bytearray(file.read_bytes() if file.is_file() else bytes(4096))
        kind = self._random.choice(["bit", "bit", "bit", "early", "late", "lost", "cut"])
        if kind == "lost":
            file.unlink(missing_ok=True)
            return "checkpoint lost"
        if kind == "bit" and len(data) >= 8:
            data[self._random.randrange(8)] ^= 1 << self._random.randrange(8)
        elif kind in ("early", "late") and len(data) >= 8:
            data[:8] = struct.pack(">q", 1 if kind == "early" else (1 << 63) - 1)
        else:
            data = data[: self._random.randrange(41)]
        return self._write(file, bytes(data), f"{kind}: {bytes(data[:8]).hex()}")

    def _write(self, file: Path, data: bytes, what: str) -> str:
        """Write a file anew: its links to the sound store, if it has any, end here."""
        file.unlink(missing_ok=True)
        file.write_bytes(data)
        return f"{self._name(file)}: {what}"

    def _name(self, file: Path) -> str:
        return str(file.relative_to(self.folder))


def _link_or_copy(source: str, target: str) -> None:
    """A link is enough, and keeps the time of the last change: files that are changed are replaced."""
    os.link(source, target)
