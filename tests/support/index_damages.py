"""Damages of one index file, after which its slots and chains can agree with its entries again, or not."""

from __future__ import annotations

import random
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

Entry = tuple[int, int, int, int]
"""Key hash, commit log offset, time difference, previous entry."""


@dataclass
class EditedIndexFile:
    """An index file whose entries a test changes; `linked` then makes slots, chains and the header agree with them."""

    path: Path
    slot_num: int
    times: Mapping[int, int]
    """The store time of each message, by commit log offset."""
    entries: list[Entry] = field(init=False)

    def __post_init__(self) -> None:
        self._data = bytearray(self.path.read_bytes())
        (count,) = struct.unpack_from(">i", self._data, 36)
        part = self._data[self._at(1) : self._at(max(count, 1))]
        self.entries = list(struct.iter_unpack(">iqii", part))

    def _at(self, number: int) -> int:
        return 40 + 4 * self.slot_num + 20 * number

    def swap(self, one: int, other: int) -> None:
        """Exchange two entries, counted from 0."""
        self.entries[one], self.entries[other] = self.entries[other], self.entries[one]

    def save_linked(self) -> None:
        """Write the entries with slots, chains and a header as a broker would have put them; time differences stay."""
        slots = [0] * self.slot_num
        linked = []
        for number, (key_hash, offset, seconds, _) in enumerate(self.entries, 1):
            slot = key_hash % self.slot_num
            linked.append((key_hash, offset, seconds, slots[slot]))
            slots[slot] = number
        self._write(linked, slots)

    def save_unlinked(self) -> None:
        """Write the entries; slots and the header stay."""
        for number, entry in enumerate(self.entries, 1):
            struct.pack_into(">iqii", self._data, self._at(number), *entry)
        self.path.write_bytes(self._data)

    def set_slot(self, slot: int, number: int) -> None:
        """Let a slot lead to another entry, at once."""
        struct.pack_into(">i", self._data, 40 + 4 * slot, number)
        self.path.write_bytes(self._data)

    def slot(self, slot: int) -> int:
        (number,) = struct.unpack_from(">i", self._data, 40 + 4 * slot)
        return int(number)

    def _write(self, linked: list[Entry], slots: list[int]) -> None:
        begin, end, first, last, _, _ = struct.unpack_from(">qqqqii", self._data, 0)
        if linked:
            first, last = linked[0][1], linked[-1][1]
            begin, end = self.times[first], self.times[last]
        used = sum(1 for slot in slots if slot)
        data = bytearray(len(self._data))
        struct.pack_into(">qqqqii", data, 0, begin, end, first, last, used, len(linked) + 1)
        struct.pack_into(f">{self.slot_num}i", data, 40, *slots)
        for number, entry in enumerate(linked, 1):
            struct.pack_into(">iqii", data, self._at(number), *entry)
        self._data = data
        self.path.write_bytes(data)


def damage_index(file: EditedIndexFile, chance: random.Random) -> str:
    """Do one random damage to a file with entries; says which."""
    count = len(file.entries)
    kind = chance.choice(["swap", "swap", "remove", "pointer", "pointers", "slot", "slots", "header"])
    number = chance.randrange(count)
    if kind == "swap":
        other = chance.choice([min(number + 1, count - 1), chance.randrange(count)])
        file.swap(number, other)
        file.save_linked()
        return f"{file.path.name}: entries {number} and {other} changed places"
    if kind == "remove":
        del file.entries[number]
        file.save_linked()
        return f"{file.path.name}: entry {number} is missing"
    if kind in ("pointer", "pointers"):
        # Two pointers that change by the same number keep the sum of all pointers.
        step = chance.choice([-1, 1])
        for at, by in ((number, step), (chance.randrange(count), -step))[: 1 + (kind == "pointers")]:
            key_hash, offset, seconds, previous = file.entries[at]
            file.entries[at] = (key_hash, offset, seconds, max(previous + by, 0))
        file.save_unlinked()
        return f"{file.path.name}: {kind} of entry {number}"
    if kind in ("slot", "slots"):
        used = [slot for slot in range(file.slot_num) if file.slot(slot)]
        one, other = chance.choice(used), chance.choice(used)
        first, second = file.slot(one), file.slot(other)
        file.set_slot(one, second if kind == "slots" else chance.choice([0, first - 1]))
        if kind == "slots":
            file.set_slot(other, first)
        return f"{file.path.name}: {kind} {one}"
    at, width = chance.choice([(0, ">q"), (8, ">q"), (16, ">q"), (24, ">q"), (32, ">i")])
    data = bytearray(file.path.read_bytes())
    (value,) = struct.unpack_from(width, data, at)
    struct.pack_into(width, data, at, value + chance.choice([-1500, -1, 1, 1500]))
    file.path.write_bytes(data)
    return f"{file.path.name}: header at {at}"
