"""Looking a key up in index files (`IndexFile.selectPhyOffset`, `IndexService.queryOffset`@5.3.3; the same in 4.9).

A look-up reads a file's header, one slot, and the entries of that slot, newest first: some reads of 4 to 40 bytes.

An entry knows its message's time only in whole seconds after the file's begin timestamp, cut off: up to 999 ms too
early; the first entry of a file that follows another was timed against that one's end. Hits are hits of a hash. So a
caller who wants what a key's messages really are widens the window, and looks at the messages themselves.

Damage raises `CorruptIndexError`, where the broker goes on with less, or with something else, or (a ring of entries)
for ever. Looked for is what a look-up meets: a number where no entry can be, entries of another slot, numbers that do
not fall, times and offsets that no put makes. A look-up cannot know that an entry or a slot was lost without
a trace, or that a header's times are wrong.

No module of kernels is imported here: a look-up takes less time than importing numba.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    IndexHeader,
    IndexLayout,
    decode_header,
    index_key_hash,
)

MAX_MSGS_NUM_BATCH = 64
"""`MessageStoreConfig.maxMsgsNumBatch`@5.3.3: no query gets more."""


class Entry(NamedTuple):
    """An entry and its number in the file; `time_difference` in whole seconds."""

    number: int
    key_hash: int
    commit_log_offset: int
    time_difference: int
    previous_entry: int


@dataclass(frozen=True)
class IndexFile:
    """One file to look into: its name for messages, and how its bytes are read.

    `read(position, length)` gives the file's bytes from `position` on, fewer than `length` only at its end. For bytes,
    or a mapped file, that is `lambda position, length: data[position : position + length]`.
    """

    name: str
    layout: IndexLayout
    read: Callable[[int, int], bytes]

    def header(self) -> IndexHeader:
        """The header. Raises `CorruptIndexError`."""
        return decode_header(self.read(0, HEADER_SIZE), self.layout, self.name)

    def newest_entry(self, key_hash: int) -> int:
        """The number of the newest entry in the slot of the hash. Raises `CorruptIndexError`."""
        slot = key_hash % self.layout.hash_slot_num
        (entry,) = SLOT.unpack(self.read_exactly(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE))
        return int(entry)

    def entry(self, number: int) -> Entry:
        """An entry. Raises `CorruptIndexError`."""
        data = self.read_exactly(self.layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE)
        return Entry(number, *ENTRY.unpack(data))

    def read_exactly(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on. Raises `CorruptIndexError` where the file ends before."""
        data = self.read(position, length)
        if len(data) < length:
            raise CorruptIndexError(f"{self.name}: ends before the {length} bytes at {position}")
        return data


@dataclass(frozen=True)
class QueryOffsetResult:
    """Commit log offsets as they were found, newest first, doubles as they are; and the newest file's end."""

    commit_log_offsets: tuple[int, ...]
    index_last_update_timestamp: int
    index_last_update_commit_log_offset: int


def query_offset(
    files: Sequence[IndexFile],
    topic: bytes,
    key: bytes,
    max_num: int,
    begin: int,
    end: int,
    max_msgs_num_batch: int = MAX_MSGS_NUM_BATCH,
) -> QueryOffsetResult:
    """What `IndexService.queryOffset` finds for a key in a window of store times (milliseconds, both ends included).

    `files` are oldest first, as their names sort. `max_num` and `max_msgs_num_batch` both limit how many offsets are
    wanted. Raises `CorruptIndexError`, naming the file, for damage that the look-up meets.
    """
    wanted = min(max_num, max_msgs_num_batch)
    key_hash = index_key_hash(topic, key)
    found: list[int] = []
    newest = IndexHeader()
    for number, file in enumerate(reversed(files)):
        header = file.header()
        if number == 0:
            newest = header
        if is_time_matched(header, begin, end):
            found += select_offsets(file, header, key_hash, wanted - len(found), begin, end)
        if header.begin_timestamp < begin or len(found) >= wanted:
            break
    return QueryOffsetResult(tuple(found), newest.end_timestamp, newest.end_commit_log_offset)


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Whether a file can have entries of the window (`IndexFile.isTimeMatched`@5.3.3)."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def select_offsets(
    file: IndexFile, header: IndexHeader, key_hash: int, max_num: int, begin: int, end: int
) -> list[int]:
    """At most `max_num` offsets of one file (`IndexFile.selectPhyOffset`@5.3.3). Raises `CorruptIndexError`."""
    found: list[int] = []
    if max_num <= 0:
        return found
    for entry in walk_slot(file, header, key_hash, file.newest_entry(key_hash)):
        store_timestamp = header.begin_timestamp + entry.time_difference * 1000
        if entry.key_hash == key_hash and begin <= store_timestamp <= end:
            found.append(entry.commit_log_offset)
        if len(found) >= max_num or store_timestamp < begin:
            break
    return found


def walk_slot(file: IndexFile, header: IndexHeader, key_hash: int, newest: int) -> Iterator[Entry]:
    """The entries in the slot of `key_hash`, newest first, from entry `newest` on.

    Ends, whatever the bytes are: the numbers fall. An entry at the index count is one that the broker is putting just
    now, as `IndexFile.putKey` counts it last; the broker reads it too. Raises `CorruptIndexError`.
    """
    slot = key_hash % file.layout.hash_slot_num
    number = newest
    highest = min(header.next_entry, file.layout.index_num - 1)
    if not 0 <= number <= highest:
        raise CorruptIndexError(f"{file.name}: slot {slot} has entry {number} of {highest}")
    if header.next_entry <= 1:
        return
    while number > 0:
        entry = file.entry(number)
        if entry.key_hash < 0 or entry.key_hash % file.layout.hash_slot_num != slot:
            raise CorruptIndexError(f"{file.name}: entry {number} is not of the slot {slot} that has it")
        if entry.commit_log_offset < 0 or entry.time_difference < 0:
            raise CorruptIndexError(
                f"{file.name}: entry {number} has offset {entry.commit_log_offset}, "
                f"time difference {entry.time_difference}"
            )
        if not 0 <= entry.previous_entry < number:
            raise CorruptIndexError(f"{file.name}: entry {number} says that entry {entry.previous_entry} is before it")
        yield entry
        number = entry.previous_entry
