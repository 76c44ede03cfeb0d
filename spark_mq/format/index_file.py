"""Index files (`IndexHeader`, `IndexFile`@5.3.3; the same bytes in 4.9.0): a hash table from keys to messages.

A file has N slots and M entries, big-endian; both numbers are settings of the broker and not in the file.

| at | width | field |
| --- | --- | --- |
| 0, 8 | i64 | begin, end timestamp: store times of the first and the last entry, milliseconds |
| 16, 24 | i64 | begin, end commit log offset: those of the same two |
| 32 | i32 | slots that have an entry |
| 36 | i32 | index count: the number of the next entry; 0 and 1 both mean that there is none yet |
| 40 + 4 s | i32 | slot s: the number of its newest entry, 0 for none |
| 40 + 4 N + 20 k | 20 | entry k; entries begin with 1, so the place of entry 0 stays zeros |

An entry:

| at | width | field |
| --- | --- | --- |
| 0 | i32 | key hash; the slot is key hash mod N |
| 4 | i64 | commit log offset |
| 12 | i32 | whole seconds from the begin timestamp to the message's store time, not below 0 |
| 16 | i32 | the slot's entry before this one, 0 for none |

So from entry to entry of a slot the numbers fall. A file that is not yet full ends with zeros. A file that has no
entry yet has, as both begin and end, the end of the file before it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Self

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

Entries = npt.NDArray[Any]
"""An array of `ENTRY_DTYPE`."""

FileBytes = bytes | memoryview | mmap | npt.NDArray[np.uint8]
"""The bytes of a whole file, read or mapped."""

_MAX_FILE_SIZE = (1 << 31) - 1
"""`IndexFile.fileTotalSize`@5.3.3 is a Java int."""


@dataclass(frozen=True)
class IndexLayout:
    """How many slots (N, `maxHashSlotNum`) and entries (M, `maxIndexNum`; entry 0 counts) a file has room for.

    Raises `OptionError` for numbers with which a broker cannot work: a file must hold an entry, and be below 2 GiB.
    """

    hash_slot_num: int = 5_000_000
    index_num: int = 20_000_000

    def __post_init__(self) -> None:
        if self.hash_slot_num < 1:
            raise OptionError(f"maxHashSlotNum={self.hash_slot_num}: an index file needs a slot")
        if self.index_num < 2:
            raise OptionError(f"maxIndexNum={self.index_num}: an index file needs two, for the first is never used")
        if self.file_size > _MAX_FILE_SIZE:
            sizes = f"maxHashSlotNum={self.hash_slot_num}, maxIndexNum={self.index_num}"
            raise OptionError(f"{sizes}: an index file of {self.file_size} bytes is more than a broker can map")

    @property
    def entries_at(self) -> int:
        """Where the place of entry 0 is."""
        return HEADER_SIZE + SLOT_SIZE * self.hash_slot_num

    @property
    def file_size(self) -> int:
        """Bytes of a file."""
        return self.entries_at + ENTRY_SIZE * self.index_num

    @classmethod
    def of_file_size(cls, file_size: int, candidates: Iterable[Self]) -> Self | None:
        """The first of the candidates whose files have this size: the size alone tells 4 N + 20 M only."""
        return next((layout for layout in candidates if layout.file_size == file_size), None)

    def check_file_size(self, file_size: int, file: str) -> None:
        """Raise `CorruptIndexError` for a file of another size: one does not know where its entries lie."""
        if file_size != self.file_size:
            raise CorruptIndexError(
                f"{file}: {file_size} bytes, but {self.hash_slot_num} slots and {self.index_num} entries take "
                f"{self.file_size}: the file is cut, or the broker has other maxHashSlotNum and maxIndexNum"
            )


@dataclass(frozen=True)
class IndexHeader:
    """The first 40 bytes of a file."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_commit_log_offset: int = 0
    end_commit_log_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 0

    @property
    def next_entry(self) -> int:
        """The number of the entry that comes next (`IndexHeader.load`@5.3.3)."""
        return max(self.index_count, 1)

    def is_full(self, layout: IndexLayout) -> bool:
        """Whether no entry goes in any more (`IndexFile.isWriteFull`@5.3.3)."""
        return self.next_entry >= layout.index_num

    def encode(self) -> bytes:
        """The 40 bytes. Raises `struct.error` where a value does not fit its field."""
        return HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_commit_log_offset,
            self.end_commit_log_offset,
            self.hash_slot_count,
            self.index_count,
        )


def decode_header(data: FileBytes, layout: IndexLayout, file: str) -> IndexHeader:
    """The header at the start of `data`, which may be more than the header.

    Raises `CorruptIndexError`, naming `file`, where `data` is shorter, or counts more than the file has room for.
    """
    head = bytes(data[:HEADER_SIZE])
    if len(head) < HEADER_SIZE:
        raise CorruptIndexError(f"{file}: {len(head)} bytes are no index file: its header alone has {HEADER_SIZE}")
    header = IndexHeader(*HEADER.unpack(head))
    if header.index_count > layout.index_num:
        raise CorruptIndexError(f"{file}: index count {header.index_count} in a file of {layout.index_num} entries")
    return header


def read_entries(data: FileBytes, layout: IndexLayout, file: str) -> Entries:
    """The entries of a whole file, from number 1 on, as a view of `data`: nothing is copied.

    What is said in the entries is not checked. Raises `CorruptIndexError`, naming `file`, where the file has another
    size than `layout`, or its header counts more entries than there is room for.
    """
    layout.check_file_size(len(data), file)
    count = decode_header(data, layout, file).next_entry - 1
    return np.frombuffer(data, ENTRY_DTYPE, count, layout.entries_at + ENTRY_SIZE)


def index_key_hash(topic: bytes, key: bytes) -> int:
    """The hash of a key of a topic (`IndexService.buildKey`, `IndexFile.indexKeyHashMethod`@5.3.3).

    It is |`String.hashCode`| of `topic#key`, and 0 for Integer.MIN_VALUE, which has no absolute value in Java.
    """
    value = abs(hash_code(f"{decode_utf8(topic)}#{decode_utf8(key)}"))
    return 0 if value == 1 << 31 else value
