"""The broker's index in plain Python, line by line after the Java, to compare with. No Spark here.

Keys are their hashes already; everything else is as in `IndexFile` and `IndexService`@5.3.3.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_mq.format.index_file import IndexLayout

INT_MAX = (1 << 31) - 1


def as_long(value: int) -> int:
    """What a Java long holds after an operation."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def divided(value: int, by: int) -> int:
    """Java's `/`: toward zero."""
    return -(-value // by) if value < 0 else value // by


@dataclass
class PlainIndexFile:
    """`IndexFile`."""

    layout: IndexLayout
    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1
    slots: dict[int, int] = field(default_factory=dict)
    entries: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)

    @classmethod
    def after(cls, layout: IndexLayout, end_offset: int, end_timestamp: int) -> PlainIndexFile:
        """The constructor."""
        file = cls(layout)
        if end_offset > 0:
            file.begin_offset = file.end_offset = end_offset
        if end_timestamp > 0:
            file.begin_timestamp = file.end_timestamp = end_timestamp
        return file

    def is_write_full(self) -> bool:
        return self.index_count >= self.layout.index_num

    def put_key(self, key_hash: int, offset: int, store_timestamp: int) -> bool:
        if self.index_count >= self.layout.index_num:
            return False
        slot = key_hash % self.layout.hash_slot_num
        slot_value = self.slots.get(slot, 0)
        if slot_value <= 0 or slot_value > self.index_count:
            slot_value = 0
        time_diff = divided(as_long(store_timestamp - self.begin_timestamp), 1000)
        if self.begin_timestamp <= 0:
            time_diff = 0
        elif time_diff > INT_MAX:
            time_diff = INT_MAX
        elif time_diff < 0:
            time_diff = 0
        self.entries[self.index_count] = (key_hash, offset, time_diff, slot_value)
        self.slots[slot] = self.index_count
        if self.index_count <= 1:
            self.begin_offset = offset
            self.begin_timestamp = store_timestamp
        if slot_value == 0:
            self.hash_slot_count += 1
        self.index_count += 1
        self.end_offset = offset
        self.end_timestamp = store_timestamp
        return True

    def is_time_matched(self, begin: int, end: int) -> bool:
        result = begin < self.begin_timestamp and end > self.end_timestamp
        result = result or (begin >= self.begin_timestamp and begin <= self.end_timestamp)
        return result or (end >= self.begin_timestamp and end <= self.end_timestamp)

    def select_phy_offset(self, found: list[int], key_hash: int, max_num: int, begin: int, end: int) -> None:
        slot_value = self.slots.get(key_hash % self.layout.hash_slot_num, 0)
        if slot_value <= 0 or slot_value > self.index_count or self.index_count <= 1:
            return
        next_index = slot_value
        while True:
            if len(found) >= max_num:
                break
            key_hash_read, offset_read, time_diff, previous = self.entries[next_index]
            if time_diff < 0:
                break
            time_read = self.begin_timestamp + time_diff * 1000
            if key_hash == key_hash_read and begin <= time_read <= end:
                found.append(offset_read)
            if previous <= 0 or previous > self.index_count or previous == next_index or time_read < begin:
                break
            next_index = previous

    def encode(self) -> bytes:
        """The file, every byte."""
        layout = self.layout
        data = bytearray(40 + 4 * layout.hash_slot_num + 20 * layout.index_num)
        header = self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset
        struct.pack_into(">qqqqii", data, 0, *header, self.hash_slot_count, self.index_count)
        for slot, entry in self.slots.items():
            struct.pack_into(">i", data, 40 + 4 * slot, entry)
        for number, values in self.entries.items():
            struct.pack_into(">iqii", data, 40 + 4 * layout.hash_slot_num + 20 * number, *values)
        return bytes(data)


@dataclass(frozen=True)
class PlainMessage:
    """What is dispatched of a message: `key_hashes` are those of its unique key and its keys."""

    offset: int
    store_timestamp: int
    key_hashes: Sequence[int]
    is_rolled_back: bool = False


@dataclass
class PlainIndexService:
    """`IndexService`."""

    layout: IndexLayout
    files: list[PlainIndexFile] = field(default_factory=list)

    def get_and_create_last_index_file(self) -> PlainIndexFile:
        end_offset = end_timestamp = 0
        if self.files:
            last = self.files[-1]
            if not last.is_write_full():
                return last
            end_offset, end_timestamp = last.end_offset, last.end_timestamp
        self.files.append(PlainIndexFile.after(self.layout, end_offset, end_timestamp))
        return self.files[-1]

    def build_index(self, message: PlainMessage) -> None:
        file = self.get_and_create_last_index_file()
        if message.offset < file.end_offset or message.is_rolled_back:
            return
        for key_hash in message.key_hashes:
            while not file.put_key(key_hash, message.offset, message.store_timestamp):
                file = self.get_and_create_last_index_file()

    def query_offset(self, key_hash: int, max_num: int, begin: int, end: int) -> tuple[list[int], int, int]:
        """Offsets, and the last update's time and offset; `maxMsgsNumBatch` is 64."""
        max_num = min(max_num, 64)
        found: list[int] = []
        last_timestamp = last_offset = 0
        for number in range(len(self.files), 0, -1):
            file = self.files[number - 1]
            if number == len(self.files):
                last_timestamp, last_offset = file.end_timestamp, file.end_offset
            if file.is_time_matched(begin, end):
                file.select_phy_offset(found, key_hash, max_num, begin, end)
            if file.begin_timestamp < begin or len(found) >= max_num:
                break
        return found, last_timestamp, last_offset
