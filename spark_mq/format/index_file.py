"""Index files (`IndexHeader`, `IndexFile`@5.3.3; the same bytes in 4.9.0): a hash table.

A file has N slots and M entries, big-endian. Both numbers are settings of the broker; the file does not contain them.

| at | width | field |
| --- | --- | --- |
| 0, 8 | i64 | begin, end timestamp: store times of the first and the last entry, milliseconds |
| 16, 24 | i64 | begin, end commit log offset: of the first and the last entry |
| 32 | i32 | slots that have an entry |
| 36 | i32 | index count: the number of the next entry; 0 and 1 both mean that the file has no entry yet |
| 40 + 4 s | i32 | slot s: the number of its newest entry, 0 if it has none |
| 40 + 4 N + 20 k | 20 | entry k; numbers start with 1, so the bytes of entry 0 stay zeros |

An entry:

| at | width | field |
| --- | --- | --- |
| 0 | i32 | key hash; the slot is key hash mod N |
| 4 | i64 | commit log offset |
| 12 | i32 | whole seconds from the begin timestamp to the message's store time, not below 0 |
| 16 | i32 | the slot's entry before this one, 0 if this one is the first |

So the numbers fall from each entry of a slot to the next. A file that is not full ends with zeros. In a file without
entries, both begin and end are the end of the file before it. `indexer.index_files` says which file gets an entry.

A key is looked up as in `IndexFile.selectPhyOffset`, `IndexService.queryOffset`@5.3.3 (the same in 4.9). A look-up
reads a file's header, one slot, and the entries of that slot, newest first: a few reads of 4 to 40 bytes.

Results are not exact. An entry stores its message's time in whole seconds after the file's begin timestamp, rounded
down, so the time is up to 999 ms too early. If a file follows another one, the time of its first entry counts from the
end of that other file. Different keys with the same hash match, too. A caller who needs exactly a key's messages has to
widen the time window and to check the messages themselves.

Damage that a look-up meets raises `CorruptIndexError`: an entry number that the file cannot have, an entry of another
slot, numbers that do not fall, a time or offset that the broker never writes. A broker would return fewer or other
messages, or loop for ever in a ring of entries. A look-up cannot notice that an entry or a slot was lost without
a trace, or that the times in a header are wrong.

This module imports no kernels: a look-up takes less time than importing numba.

The key hashes of the entries decide every slot and every pointer, and the offsets of entries never descend
(`IndexFile.putKey`, `IndexService.buildIndex`@5.3.3). `format.kernels.index_put` has the same rule as a kernel.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from mmap import mmap
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.java_text import decode_utf8, hash_code

HEADER = struct.Struct(">qqqqii")
HEADER_SIZE = HEADER.size  # 40
BEGIN_TIMESTAMP_AT = 0
END_TIMESTAMP_AT = 8
BEGIN_COMMIT_LOG_OFFSET_AT = 16
END_COMMIT_LOG_OFFSET_AT = 24
HASH_SLOT_COUNT_AT = 32
INDEX_COUNT_AT = 36

SLOT = struct.Struct(">i")
SLOT_SIZE = SLOT.size  # 4

ENTRY = struct.Struct(">iqii")
ENTRY_SIZE = ENTRY.size  # 20
ENTRY_DTYPE = np.dtype(
    [("key_hash", ">i4"), ("commit_log_offset", ">i8"), ("time_difference", ">i4"), ("previous_entry", ">i4")]
)
MAX_TIME_DIFFERENCE = 0x7FFFFFFF
"""The largest time of an entry, in seconds from the begin timestamp on; a later message gets it, too."""

Entries = npt.NDArray[Any]
"""An array of `ENTRY_DTYPE`."""

FileBytes = bytes | memoryview | mmap | npt.NDArray[np.uint8]
"""The bytes of a whole file, read or mapped."""

_MAX_FILE_SIZE = (1 << 31) - 1
"""`IndexFile.fileTotalSize`@5.3.3 is a Java int."""
MAX_MSGS_NUM_BATCH = 64
"""The largest number of offsets that a query returns (`MessageStoreConfig.maxMsgsNumBatch`@5.3.3)."""


@dataclass(frozen=True)
class IndexLayout:
    """The numbers of slots and entries of an index file.

    Args:
        hash_slot_num: Slots (N above; the broker's `maxHashSlotNum`).
        index_num: Entries (M above; the broker's `maxIndexNum`), entry 0 included.

    Raises:
        OptionError: A broker cannot work with these numbers: a file needs at least one slot, one entry after entry 0,
            and less than 2 GiB.

    Examples:
        >>> IndexLayout().file_size
        420000040
    """

    hash_slot_num: int = 5_000_000
    index_num: int = 20_000_000

    def __post_init__(self) -> None:
        if self.hash_slot_num < 1:
            raise OptionError(f"maxHashSlotNum={self.hash_slot_num}: an index file needs at least 1")
        if self.index_num < 2:
            raise OptionError(f"maxIndexNum={self.index_num}: an index file needs at least 2, as entry 0 is never used")
        if self.file_size > _MAX_FILE_SIZE:
            sizes = f"maxHashSlotNum={self.hash_slot_num}, maxIndexNum={self.index_num}"
            raise OptionError(
                f"{sizes}: an index file of {self.file_size} bytes is too large, a broker maps at most {_MAX_FILE_SIZE}"
            )

    @property
    def entries_at(self) -> int:
        """The position of entry 0 in the file."""
        return HEADER_SIZE + SLOT_SIZE * self.hash_slot_num

    @property
    def file_size(self) -> int:
        """Bytes of a whole file."""
        return self.entries_at + ENTRY_SIZE * self.index_num

    @classmethod
    def of_full_file(cls, file_size: int, header: FileBytes) -> Self | None:
        """The layout of a file without room for another entry; None if the header contradicts the size.

        The index count of such a file is the number of entries (`IndexFile.isWriteFull`@5.3.3); the rest are slots.

        Args:
            file_size: Bytes of the file.
            header: The beginning of the file, 40 bytes or more.

        Examples:
            >>> IndexLayout.of_full_file(420000040, IndexHeader(index_count=20_000_000).encode())
            IndexLayout(hash_slot_num=5000000, index_num=20000000)
        """
        if len(header) < HEADER_SIZE:
            return None
        index_num = IndexHeader(*HEADER.unpack(bytes(header[:HEADER_SIZE]))).index_count
        slots, rest = divmod(file_size - HEADER_SIZE - ENTRY_SIZE * index_num, SLOT_SIZE)
        if rest or slots < 1 or index_num < 2:
            return None
        return cls(slots, index_num)

    def check_file_size(self, file_size: int, file: str) -> None:
        """Check that `file_size` is the size of this layout, so that the positions of the entries are known.

        Raises:
            CorruptIndexError: The file, named `file` in the message, has another size.
        """
        if file_size != self.file_size:
            raise CorruptIndexError(
                f"{file}: {file_size} bytes, but {self.hash_slot_num} slots and {self.index_num} entries take "
                f"{self.file_size}: the file is cut, or the broker's maxHashSlotNum and maxIndexNum are others"
            )


@dataclass(frozen=True)
class IndexHeader:
    """The header of an index file: its first 40 bytes."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_commit_log_offset: int = 0
    end_commit_log_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 0

    @property
    def next_entry(self) -> int:
        """The number that the next entry gets, 1 for the first entry (`IndexHeader.load`@5.3.3)."""
        return max(self.index_count, 1)

    def is_full(self, layout: IndexLayout) -> bool:
        """Whether the file has no room for another entry (`IndexFile.isWriteFull`@5.3.3)."""
        return self.next_entry >= layout.index_num

    def encode(self) -> bytes:
        """The 40 bytes. Raises `struct.error` if a value does not fit its field."""
        return HEADER.pack(*vars(self).values())


def decode_header(data: FileBytes, layout: IndexLayout, file: str) -> IndexHeader:
    """The header at the start of `data`.

    Args:
        data: The beginning of an index file, 40 bytes or more.
        layout: The layout of the file.
        file: The file's name, for error messages.

    Raises:
        CorruptIndexError: `data` is shorter, or the header counts more entries than `layout` has.
    """
    head = bytes(data[:HEADER_SIZE])
    if len(head) < HEADER_SIZE:
        raise CorruptIndexError(f"{file}: {len(head)} bytes, but an index file's header alone has {HEADER_SIZE}")
    header = IndexHeader(*HEADER.unpack(head))
    if header.index_count > layout.index_num:
        raise CorruptIndexError(f"{file}: index count {header.index_count}, but maxIndexNum is {layout.index_num}")
    return header


def read_entries(data: FileBytes, layout: IndexLayout, file: str) -> Entries:
    """The entries that the header counts, from entry 1 on, as a view of `data` without a copy.

    The values in the entries are not checked.

    Args:
        data: A whole index file.
        layout: The layout of the file.
        file: The file's name, for error messages.

    Raises:
        CorruptIndexError: The file's size is not that of `layout`, or the header counts more entries than `layout` has.
    """
    layout.check_file_size(len(data), file)
    count = decode_header(data, layout, file).next_entry - 1
    return np.frombuffer(data, ENTRY_DTYPE, count, layout.entries_at + ENTRY_SIZE)


def index_key_hash(topic: bytes, key: bytes) -> int:
    """The hash of a topic's key in an index file (`IndexService.buildKey`, `IndexFile.indexKeyHashMethod`@5.3.3).

    The hash is |`String.hashCode`| of `topic#key`; 0 instead of Integer.MIN_VALUE, which has no absolute value in Java.

    Examples:
        >>> index_key_hash(b"TopicTest", b"order-1")
        1829193424
    """
    value = abs(hash_code(f"{decode_utf8(topic)}#{decode_utf8(key)}"))
    return 0 if value == 1 << 31 else value


class Entry(NamedTuple):
    """An entry and its number in the file. `time_difference` is in whole seconds."""

    number: int
    key_hash: int
    commit_log_offset: int
    time_difference: int
    previous_entry: int


@dataclass(frozen=True)
class IndexFile:
    """One index file to read.

    Attributes:
        name: The file's name, for error messages.
        layout: The layout of the file.
        read: `read(position, length)` returns the `length` bytes from `position` on, fewer only at the file's end.
            For bytes or a mapped file: `lambda position, length: data[position : position + length]`.
    """

    name: str
    layout: IndexLayout
    read: Callable[[int, int], bytes]

    def header(self) -> IndexHeader:
        """The header of the file. Raises `CorruptIndexError`, see `decode_header`."""
        return decode_header(self.read(0, HEADER_SIZE), self.layout, self.name)

    def newest_entry(self, key_hash: int) -> int:
        """The number of the newest entry in the slot of `key_hash`. Raises `CorruptIndexError` if the file is cut."""
        slot = key_hash % self.layout.hash_slot_num
        (entry,) = SLOT.unpack(self.read_exactly(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE))
        return int(entry)

    def entry(self, number: int) -> Entry:
        """Entry `number`. Raises `CorruptIndexError` if the file ends before."""
        data = self.read_exactly(self.layout.entries_at + ENTRY_SIZE * number, ENTRY_SIZE)
        return Entry(number, *ENTRY.unpack(data))

    def read_exactly(self, position: int, length: int) -> bytes:
        """The `length` bytes from `position` on. Raises `CorruptIndexError` if the file ends before."""
        data = self.read(position, length)
        if len(data) < length:
            raise CorruptIndexError(f"{self.name}: the file ends before the {length} bytes at {position}")
        return data


@dataclass(frozen=True)
class QueryOffsetResult:
    """The commit log offsets that a query found, newest first and with repetitions; and the end of the newest file."""

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
    """The commit log offsets that `IndexService.queryOffset`@5.3.3 finds for a key in a window of store times.

    Args:
        files: The index files of a store, oldest first, as their names sort.
        topic: The topic, as stored.
        key: The key, as stored.
        max_num: The largest number of offsets to return.
        begin: The start of the window in milliseconds since the epoch, included.
        end: The end of the window in milliseconds since the epoch, included.
        max_msgs_num_batch: The broker's own limit for `max_num`.

    Raises:
        CorruptIndexError: A file, named in the message, is damaged in a part that the look-up reads.
    """
    limit = min(max_num, max_msgs_num_batch)
    key_hash = index_key_hash(topic, key)
    offsets: list[int] = []
    newest = IndexHeader()
    for number, file in enumerate(reversed(files)):
        header = file.header()
        if number == 0:
            newest = header
        if is_time_matched(header, begin, end):
            offsets += select_offsets(file, header, key_hash, limit - len(offsets), begin, end)
        if header.begin_timestamp < begin or len(offsets) >= limit:
            break
    return QueryOffsetResult(tuple(offsets), newest.end_timestamp, newest.end_commit_log_offset)


def is_time_matched(header: IndexHeader, begin: int, end: int) -> bool:
    """Whether a file can have entries in the window `begin` to `end` (`IndexFile.isTimeMatched`@5.3.3)."""
    first, last = header.begin_timestamp, header.end_timestamp
    return (begin < first and end > last) or first <= begin <= last or first <= end <= last


def select_offsets(
    file: IndexFile, header: IndexHeader, key_hash: int, max_num: int, begin: int, end: int
) -> list[int]:
    """At most `max_num` offsets of one file (`IndexFile.selectPhyOffset`@5.3.3). Raises `CorruptIndexError`."""
    offsets: list[int] = []
    if max_num <= 0:
        return offsets
    for entry in walk_slot(file, header, key_hash, file.newest_entry(key_hash)):
        store_timestamp = header.begin_timestamp + entry.time_difference * 1000
        if entry.key_hash == key_hash and begin <= store_timestamp <= end:
            offsets.append(entry.commit_log_offset)
        if len(offsets) >= max_num or store_timestamp < begin:
            break
    return offsets


def walk_slot(file: IndexFile, header: IndexHeader, key_hash: int, newest: int) -> Iterator[Entry]:
    """The entries in the slot of `key_hash`, newest first, from entry `newest` on.

    The walk ends whatever the bytes are, because the numbers must fall. The entry whose number is the index count is
    one that the broker is writing at this moment: `IndexFile.putKey`@5.3.3 counts an entry last, and a broker's own
    look-up reads that entry, too.

    Raises:
        CorruptIndexError: The slot or an entry is damaged.
    """
    slot = key_hash % file.layout.hash_slot_num
    number = newest
    highest = min(header.next_entry, file.layout.index_num - 1)
    if not 0 <= number <= highest:
        raise CorruptIndexError(f"{file.name}: slot {slot} points to entry {number}, but the last one is {highest}")
    if header.next_entry <= 1:
        return
    while number > 0:
        entry = file.entry(number)
        if entry.key_hash < 0 or entry.key_hash % file.layout.hash_slot_num != slot:
            raise CorruptIndexError(
                f"{file.name}: slot {slot} leads to entry {number}, whose key hash {entry.key_hash} is not of that slot"
            )
        if entry.commit_log_offset < 0 or entry.time_difference < 0:
            raise CorruptIndexError(
                f"{file.name}: entry {number} has commit log offset {entry.commit_log_offset} "
                f"and time difference {entry.time_difference}; neither can be negative"
            )
        if not 0 <= entry.previous_entry < number:
            raise CorruptIndexError(
                f"{file.name}: entry {number} points to entry {entry.previous_entry}, which cannot be before it"
            )
        yield entry
        number = entry.previous_entry
