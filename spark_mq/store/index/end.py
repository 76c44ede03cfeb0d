"""The end of a store's index, for a job that continues the index there.

An index can have only some keys of its last message, if the broker was killed between two of them. Or it has them
twice: a recovery puts the keys of the last message again (`IndexService.buildIndex`@5.3.3 compares with <).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import CorruptIndexError
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, Entries, IndexHeader, IndexLayout
from spark_mq.io.file_reader import FileReader
from spark_mq.store.index.folder import IndexFileInfo

_NAME_LENGTH = len("yyyyMMddHHmmssSSS")
_BLOCK = 1024
_MOST = 64 << 10
"""Entries of one message that are read: a message has at most 16,384 keys."""


@dataclass(frozen=True)
class IndexEnd:
    """The last file, its header, and the last message that was put.

    Attributes:
        commit_log_offset: The offset of the last message; -1 if the index never had a message.
        key_hashes: The hashes in the entries of the last message, the oldest first; empty if the files that had them
            were deleted.
    """

    file: IndexFileInfo
    header: IndexHeader
    commit_log_offset: int
    key_hashes: tuple[int, ...]

    def keys_in(self, key_hashes: Sequence[int]) -> int:
        """How many of the last message's keys the index has already; `key_hashes` are all of them, in order.

        The index always has a prefix of the keys, written once or, after a recovery, twice. 0 if the keys belong to a
        different message.
        """
        keys = tuple(key_hashes)
        lengths = range(min(len(keys), len(self.key_hashes)), 0, -1)
        return next((n for n in lengths if keys[:n] in (self.key_hashes[:n], self.key_hashes[-n:])), 0)


def index_end(files: Sequence[IndexFileInfo], layout: IndexLayout) -> IndexEnd | None:
    """The end of the index with these files, by name; None if there are no files."""
    if not files:
        return None
    headers = []
    for file in files:
        layout.check_file_size(file.size, str(file.location))
        if len(file.name) != _NAME_LENGTH:
            raise _contradiction(file, f"its name is not a time of {_NAME_LENGTH} digits: new names cannot follow it")
        headers.append(file.header(layout))
    for file, header in zip(files[:-1], headers[:-1], strict=True):
        if not header.is_full(layout):
            raise _contradiction(file, f"{header.next_entry - 1} entries, and another file follows, but it is not full")
    end = headers[-1].end_commit_log_offset
    hashes: list[int] = []
    for entries in _blocks_back(files, headers, layout):
        others = np.flatnonzero(entries["commit_log_offset"] != end)
        hashes[:0] = entries["key_hash"][others[-1] + 1 if others.size else 0 :].tolist()
        if not hashes:
            last = entries["commit_log_offset"][-1]
            raise _contradiction(files[-1], f"the header ends at commit log offset {end}, the last entry is of {last}")
        if others.size or len(hashes) >= _MOST:
            break
    if end < 0:
        raise _contradiction(files[-1], f"the header ends at commit log offset {end}")
    return IndexEnd(files[-1], headers[-1], end if hashes or end else -1, tuple(hashes))


def _blocks_back(
    files: Sequence[IndexFileInfo], headers: Sequence[IndexHeader], layout: IndexLayout
) -> Iterator[Entries]:
    """The entries of all files, from the last block to the first."""
    for file, header in zip(reversed(files), reversed(headers), strict=True):
        stop = header.next_entry
        with FileReader(file.location) as reader:
            while stop > 1:
                start = max(1, stop - _BLOCK)
                data = reader.read(layout.entries_at + ENTRY_SIZE * start, ENTRY_SIZE * (stop - start))
                yield np.frombuffer(data, ENTRY_DTYPE)
                stop = start


def _contradiction(file: IndexFileInfo, what: str) -> CorruptIndexError:
    return CorruptIndexError(f"{file.location}: {what}: the index cannot be continued; --replace builds a new one")
