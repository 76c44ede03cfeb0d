"""The index files that a store has, `index/<17 digits>`, by name (`IndexService.load`@5.3.3); and where they end.

An index can have only some keys of its last message, if the broker was killed between two of them. Or it has them
twice: a recovery puts the keys of the last message again (`IndexService.buildIndex`@5.3.3 compares with <).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from pyarrow import fs

from spark_mq.errors import CorruptIndexError, OptionError, SparkMqError
from spark_mq.format.index_file import (
    ENTRY,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    SLOT,
    SLOT_SIZE,
    Entries,
    IndexFile,
    IndexHeader,
    IndexLayout,
    decode_header,
)
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import NOTHING_TELLS, BrokerConf, Sourced
from spark_mq.store.config.store_paths import INDEX

_NAME_LENGTH = len("yyyyMMddHHmmssSSS")
NO_ENTRIES: Entries = np.empty(0, ENTRY_DTYPE)
_BLOCK = 1024
MOST_KEYS = 64 << 10
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
        if others.size or len(hashes) >= MOST_KEYS:
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


@dataclass(frozen=True)
class IndexFileInfo:
    """One file; `size` in bytes, `modified` in nanoseconds since the epoch."""

    name: str
    location: Location
    size: int
    modified: int = 0

    def header(self, layout: IndexLayout) -> IndexHeader:
        """The file's header. Raises `CorruptIndexError` if it is cut, or counts more than `layout` has room for."""
        with FileReader(self.location) as file:
            return decode_header(file.read(0, HEADER_SIZE), layout, str(self.location))

    def check_size(self, layout: IndexLayout) -> None:
        """Raise `CorruptIndexError` if a broker with this layout does not find the entries where they are.

        A broker maps old files with its new maxIndexNum (`IndexFile`@5.3.3): it makes shorter ones longer, and reads
        longer ones as far as it has room, which is enough if they do not count more entries.
        """
        if self.size == layout.file_size:
            return
        with FileReader(self.location) as reader:
            head = reader.read(0, HEADER_SIZE)
            if len(head) < HEADER_SIZE or not _has_newest_entry(reader, head, self.size, layout):
                layout.check_file_size(self.size, str(self.location))

    def opened(self, layout: IndexLayout, files: FileReaders) -> IndexFile:
        """The file for look-ups, which is not checked."""
        return IndexFile(str(self.location), layout, partial(files.read, self.location))

    def stored_header(self) -> IndexHeader:
        """The file's header as it is stored, without a check; zeros if the file is too short for one."""
        with FileReader(self.location) as file:
            head = file.read(0, HEADER_SIZE)
        return IndexHeader(*HEADER.unpack(head)) if len(head) == HEADER_SIZE else IndexHeader()


def read_entries(file: IndexFileInfo, layout: IndexLayout, most: int | None = None) -> Entries:
    """The entries that the header of a file counts, at most `most`, as far as it has them; they are not checked."""
    count = min(file.stored_header().next_entry, layout.index_num) - 1
    count = count if most is None else min(count, most)
    with FileReader(file.location) as reader:
        data = reader.read(layout.entries_at + ENTRY_SIZE, ENTRY_SIZE * count)
    return np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY_SIZE)


def found_entries(file: IndexFileInfo, layout: IndexLayout) -> Entries:
    """The entries of a file that a query can find, as far as a broker with this layout maps the file.

    A file from before maxIndexNum was lowered can count more entries than that. A slot that leads to one of them ends a
    query in this file (`IndexFile.selectPhyOffset`@5.3.3 catches the exception).
    """
    entries = read_entries(file, layout)
    if file.stored_header().next_entry <= layout.index_num:
        return entries
    with FileReader(file.location) as reader:
        slots = np.frombuffer(reader.read(HEADER_SIZE, SLOT_SIZE * layout.hash_slot_num), ">i4")
    found: Entries = entries[slots[entries["key_hash"] % slots.size] < layout.index_num]
    return found


def entries_from(start: int, file: IndexFileInfo, header: IndexHeader, layout: IndexLayout) -> Entries:
    """The last entries of a file, as far back as they lead to `start` or later; perhaps a few more."""
    found = [NO_ENTRIES]
    for block in _blocks_back([file], [header], layout):
        found.append(block)
        if block["commit_log_offset"][0] < start:
            break
    return np.concatenate(found)


def index_files(store: Location) -> list[IndexFileInfo]:
    """The files of `index/`, by name; a file whose name is not a number is skipped, as in the broker."""
    folder = store / INDEX
    return [
        IndexFileInfo(info.base_name, folder / info.base_name, info.size, info.mtime_ns or 0)
        for info in folder.entries()
        if info.type == fs.FileType.File and info.base_name.isascii() and info.base_name.isdigit()
    ]


def index_layout(store: Location, conf: BrokerConf, files: Sequence[IndexFileInfo] | None = None) -> IndexLayout:
    """The numbers of slots and entries of the store's index files; see `find_index_layout`."""
    return find_index_layout(store, conf, files).value


def find_index_layout(
    store: Location, conf: BrokerConf, files: Sequence[IndexFileInfo] | None = None
) -> Sourced[IndexLayout]:
    """The numbers of slots and entries of the store's index files, from the broker's settings or the files.

    A size alone (4 bytes per slot and 20 per entry) shows only that a file has the broker's default numbers. A file
    that is followed by another one is full (`IndexFile.isWriteFull`@5.3.3), so its index count is the number of
    entries. Without files the result is the default. `files` are those of the index, if they were listed before.
    """
    if conf.index_layout is not None:
        return Sourced(conf.index_layout, conf.source)
    files = index_files(store) if files is None else files
    if not files:
        return Sourced(IndexLayout(), conf.source_of_defaults)
    if all(file.size == IndexLayout().file_size for file in files):
        return Sourced(IndexLayout(), "the default; the index files have its size")
    layout = _layout_of_full_files(files)
    if layout is None:
        raise OptionError(
            f"{files[0].location} has {files[0].size} bytes, which does not show how many slots and entries it has: "
            "give the broker's settings (--broker-conf, option brokerConf) with maxHashSlotNum and maxIndexNum"
        )
    return Sourced(layout, f"the full index files before {files[-1].name}")


def check_layout_is_known(store: Location, conf: BrokerConf) -> None:
    """Raise `OptionError` if neither the broker's settings nor a file tell the slots and entries of index files."""
    if find_index_layout(store, conf).source == NOTHING_TELLS:
        raise OptionError(
            f"{store / INDEX}: no file there shows the slots and entries of the broker's index files: give "
            "--broker-conf with the broker's settings, or --assume-defaults if the broker has the defaults of "
            "maxHashSlotNum and maxIndexNum"
        )


def _layout_of_full_files(files: Sequence[IndexFileInfo]) -> IndexLayout | None:
    """The layout that the files before the last one show; None if none of them shows one, or if they differ.

    A file that is damaged, or that cannot be read, shows none; neither does one that a repair made without messages
    that the log has lost, because it is not full. Raises `PermissionError` if this user may not read it.
    """
    layouts = set()
    for file in files[:-1]:
        try:
            layouts.add(layout_of_full_file(file))
        except PermissionError:
            raise
        except (SparkMqError, OSError):
            continue
    layouts.discard(None)
    (layout,) = layouts if len(layouts) == 1 else (None,)
    return layout if layout is not None and files[-1].size == layout.file_size else None


def newest_layout(files: Sequence[IndexFileInfo]) -> IndexLayout | None:
    """The layout of the newest file, as its size or the file before it shows; None if they do not show it."""
    newest = files[-1]
    if newest.size == IndexLayout().file_size:
        return IndexLayout()
    return _layout_of_full_files(files[-2:])


def layout_of_full_file(file: IndexFileInfo) -> IndexLayout | None:
    """The layout of a full file; None if its header is damaged.

    A layout with other numbers can have the same size, also because a broker with a larger maxIndexNum makes old files
    longer. So the newest entry must be that with which the header ends, and its slot must have its number: an entry
    becomes the newest of its slot when it is put (`IndexFile.putKey`@5.3.3).
    """
    with FileReader(file.location) as reader:
        head = reader.read(0, HEADER_SIZE)
        layout = IndexLayout.of_full_file(file.size, head)
        return layout if layout is not None and _has_newest_entry(reader, head, file.size, layout) else None


def _has_newest_entry(reader: FileReader, head: bytes, size: int, layout: IndexLayout) -> bool:
    """Whether the newest entry that the header counts is where the layout has it, and a query finds it."""
    header = IndexHeader(*HEADER.unpack(head))
    newest = header.index_count - 1
    position = layout.entries_at + ENTRY_SIZE * newest
    if not (0 < newest < layout.index_num and position + ENTRY_SIZE <= size):
        return False
    key_hash, offset, *_ = ENTRY.unpack(reader.read(position, ENTRY_SIZE))
    (number,) = SLOT.unpack(reader.read(HEADER_SIZE + SLOT_SIZE * (key_hash % layout.hash_slot_num), SLOT_SIZE))
    return (number, offset) == (newest, header.end_commit_log_offset)
