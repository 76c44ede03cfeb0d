"""Index files (`IndexHeader`, `IndexFile`@5.3.3; the same bytes in 4.9.0): a hash table, and which file gets an entry.

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
entries, both begin and end are the end of the file before it.

Entries fill one file after the other, `index_num` - 1 in each. When a file is full, the next dispatched message
creates the next file, even a message without keys, a rolled-back message, or one that was indexed before. So if the
last entry fills a file, it matters whether a message follows.

In this module a *run* is a range of consecutive messages of the log: those of a split, or a single message.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from spark_mq.errors import CorruptIndexError, OptionError
from spark_mq.format.java_text import decode_utf8, hash_code

Counts = npt.NDArray[np.int64]
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

Entries = npt.NDArray[Any]
"""An array of `ENTRY_DTYPE`."""

FileBytes = bytes | memoryview | mmap | npt.NDArray[np.uint8]
"""The bytes of a whole file, read or mapped."""

_MAX_FILE_SIZE = (1 << 31) - 1
"""`IndexFile.fileTotalSize`@5.3.3 is a Java int."""


@dataclass(frozen=True)
class IndexPlacement:
    """The files of all entries, as pieces in log order: `count` entries of a run, from entry `start` on, go to a file.

    `run`, `file`, `start` and `count` have one value for each piece. A file without a piece gets no entry: it is the
    store's last file, or the last file of all, which a message after the last entry created.

    Attributes:
        run: The number of the run, from 0.
        file: The number of the file, from 0.
        start: The piece's first entry, counted in its run from 0.
        count: The number of entries in the piece.
        files: The number of files.
        continues_last: Whether file 0 is the store's last file, which is not full yet.
    """

    run: Counts
    file: Counts
    start: Counts
    count: Counts
    files: int
    continues_last: bool

    def entry_before(self, file: int) -> tuple[int, int] | None:
        """The last entry before `file`, as its run and its index in that run; None if no run contains that entry.

        The header of `file` begins with the commit log offset and store time of this entry. No run contains it if it
        is the end of the store's last file, or if `file` is the first one.
        """
        piece = int(np.searchsorted(self.file, file)) - 1
        if piece < 0:
            return None
        return int(self.run[piece]), int(self.start[piece] + self.count[piece] - 1)


def place_entries(
    entry_counts: Counts, trailing_messages: Counts, layout: IndexLayout, last: IndexHeader | None = None
) -> IndexPlacement:
    """The placement of the entries of all runs.

    Args:
        entry_counts: The number of entries of each run; the runs are in log order.
        trailing_messages: The number of messages of each run after the message with its last entry; the number of all
            its messages if the run has no entry.
        layout: The layout of the index files.
        last: The header of the store's last index file; None if the store has no index file.
    """
    continues_last = last is not None and not last.is_full(layout)
    used = last.next_entry - 1 if last is not None and continues_last else 0
    capacity = layout.index_num - 1
    ends = used + np.cumsum(entry_counts, dtype=np.int64)
    total = int(ends[-1]) if ends.size else used

    file_ends = np.arange(capacity, total, capacity, dtype=np.int64)
    stops = np.union1d(ends, file_ends)
    stops = stops[stops > used]
    starts = np.concatenate((np.array([used], np.int64), stops[:-1]))[: stops.size]
    run = np.searchsorted(ends, starts, side="right").astype(np.int64)

    files = -(-total // capacity)
    if total % capacity == 0 and _is_followed(entry_counts, trailing_messages):
        files += 1
    return IndexPlacement(
        run=run,
        file=starts // capacity,
        start=starts - (ends - entry_counts)[run],
        count=stops - starts,
        files=max(files, int(continues_last)),
        continues_last=continues_last,
    )


def _is_followed(entry_counts: Counts, trailing_messages: Counts) -> bool:
    """Whether a message is dispatched after the message that puts the last entry."""
    with_entries = np.flatnonzero(entry_counts)
    last = int(with_entries[-1]) if with_entries.size else 0
    return bool(trailing_messages[last:].any())


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
