"""A plain model of the index: a broker's `IndexFile` and `IndexService`@5.3.3, line by line after the Java.

Examples:
    >>> index_of(records_of(store / "commitlog"), IndexLayout(hash_slot_num=100, index_num=400)).files[0].encode()
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from spark_mq.format.index_file import IndexLayout
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.format.properties import parse_properties
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, Record

_INT_MAX = (1 << 31) - 1


def plain_key_hash(topic: str, key: str) -> int:
    """The hash of a topic and key (`IndexFile.indexKeyHashMethod`)."""
    value = hash_code(f"{topic}#{key}")
    return 0 if value == -(1 << 31) else abs(value)


def key_hashes(record: Record, has_tags: bool = False) -> list[int]:
    """The hashes of a record's entries: the unique key, the pieces of KEYS, and the tags if `has_tags`."""
    if record.transaction_type == TRANSACTION_ROLLBACK_TYPE:
        return []
    parsed = parse_properties(record.properties)
    keys = [parsed.get(b"UNIQ_KEY", b""), *parsed.get(b"KEYS", b"").split(b" ")]
    if has_tags and b"TAGS" in parsed:
        keys.append(b"T#" + parsed[b"TAGS"])
    return [plain_key_hash(decode_utf8(record.topic), decode_utf8(key)) for key in keys if key]


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
    def after(cls, layout: IndexLayout, end_offset: int, end_timestamp: int) -> Self:
        """The constructor."""
        file = cls(layout)
        if end_offset > 0:
            file.begin_offset = file.end_offset = end_offset
        if end_timestamp > 0:
            file.begin_timestamp = file.end_timestamp = end_timestamp
        return file

    def is_write_full(self) -> bool:
        """Whether it has no room for an entry."""
        return self.index_count >= self.layout.index_num

    def put_key(self, key_hash: int, offset: int, store_timestamp: int) -> bool:
        """Put one entry; False if the file is full."""
        if self.index_count >= self.layout.index_num:
            return False
        slot = key_hash % self.layout.hash_slot_num
        slot_value = self.slots.get(slot, 0)
        if slot_value <= 0 or slot_value > self.index_count:
            slot_value = 0
        time_diff = _divided(_as_long(store_timestamp - self.begin_timestamp), 1000)
        if self.begin_timestamp <= 0:
            time_diff = 0
        elif time_diff > _INT_MAX:
            time_diff = _INT_MAX
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
        """Whether the file can have a message that was stored from `begin` to `end`, in milliseconds."""
        result = begin < self.begin_timestamp and end > self.end_timestamp
        result = result or (begin >= self.begin_timestamp and begin <= self.end_timestamp)
        return result or (end >= self.begin_timestamp and end <= self.end_timestamp)

    def select_phy_offset(self, found: list[int], key_hash: int, max_num: int, begin: int, end: int) -> None:
        """Add the commit log offsets of the entries with this hash to `found`, the newest first."""
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
        """The last file, or a new one if the last one is full."""
        end_offset = end_timestamp = 0
        if self.files:
            last = self.files[-1]
            if not last.is_write_full():
                return last
            end_offset, end_timestamp = last.end_offset, last.end_timestamp
        self.files.append(PlainIndexFile.after(self.layout, end_offset, end_timestamp))
        return self.files[-1]

    def build_index(self, message: PlainMessage) -> None:
        """Put all keys of a message."""
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


def index_of(
    records: Iterable[Record], layout: IndexLayout, has_tags: Callable[[int], bool] = lambda number: False
) -> PlainIndexService:
    """The index that a broker makes of the records of a log, in its order.

    Args:
        records: The records.
        layout: The broker's `maxHashSlotNum` and `maxIndexNum`.
        has_tags: Whether the record with this number, from 0, was put by a broker of 5.4.0 or later: then its tags have
            an entry, too.
    """
    service = PlainIndexService(layout)
    for number, record in enumerate(records):
        is_rolled_back = record.transaction_type == TRANSACTION_ROLLBACK_TYPE
        hashes = key_hashes(record, has_tags(number))
        service.build_index(PlainMessage(record.commit_log_offset, record.store_timestamp, hashes, is_rolled_back))
    return service


def _as_long(value: int) -> int:
    """What a Java long holds after an operation."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def _divided(value: int, by: int) -> int:
    """Java's `/`: toward zero."""
    return -(-value // by) if value < 0 else value // by
