"""The files of a log that are segments, and those that are not although their names have 20 digits.

They are in `commitlog/`, and, of a broker with `enableDLegerCommitLog`, in `dledger-*/data/`. Such a broker serves the
plain log from before that setting up to the first file of DLedger's log (`DLedgerCommitLog.getMessage`@5.3.3).

A broker names a segment by the commit log offset of its first byte, and all segments have one size. So each segment
begins where another one ends, until files are lost or foreign files arrive (a copy under another name, a name with a
wrong digit). A number in a name is not yet an offset: a stray file far away would put a gap of any length into the log,
and one inside a segment would cut that segment.

The segments that follow each other form a chain. A log with one chain has no stray file, and nothing is read. If there
are several chains, each must have a record that confirms its name: a record stores its own commit log offset. The files
of a chain without such a record are stray. Two exceptions keep harmless files: if no chain has such a record, all of
them count; and files of zeros after the last confirmed chain count (a broker makes the next files in advance).
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pyarrow import fs

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import FRAME, MAGIC_AT, MAGIC_V1, MAGIC_V2, MAX_RECORD_SIZE, MIN_RECORD_SIZE, decode_record
from spark_mq.io.file_reader import FileReader
from spark_mq.io.local import open_regular
from spark_mq.io.location import Location
from spark_mq.io.remote_file import READ_SIZE
from spark_mq.store.config.store_kind import check_log, dledger_node
from spark_mq.store.config.store_paths import COMMIT_LOG, DLEDGER_DATA, mapped_files

MISSING = "MISSING"
"""The code of a range that no segment contains. Other codes are names of `format.kernels.frames.ScanStatus`."""

STRAY = "STRAY"
"""The code of a file that has the name of a segment, but is not one: its name is not a commit log offset."""
_ZERO_BLOCK: Final = bytes(READ_SIZE)
_FIRST_BLOCK: Final = 64 << 10
_MOST_REQUESTS: Final = 8
"""Requests for parts of one remote file that are sent at the same time: zeros take long to arrive, too."""
DEFAULT_SEGMENT_SIZE = 1 << 30
"""Bytes of a segment by a broker's default (`MessageStoreConfig.mappedFileSizeCommitLog`)."""

MAX_OFFSET = (1 << 63) - 1

_FIRST_LOOK = 64 << 10
_BLOCK = 4 << 20
_MAX_LOOKS = 256
_looks: dict[tuple[str, int, int | None], bool] = {}
"""Results of `_confirms_name`, by path, size and time of the last change: a stream lists the files repeatedly."""

RECORD_MAGIC = re.compile(b"|".join(re.escape(struct.pack(">i", magic)) for magic in (MAGIC_V1, MAGIC_V2)))
"""How the magic of a record is stored."""


@dataclass(frozen=True)
class CorruptRange:
    """Bytes of the log in which no record can be read, up to the next readable record or the segment's end.

    Attributes:
        file: The segment that contains the bytes, or that would contain them. A range of length 0 is about a whole
            queue or index file: `file` is then that queue (`TOPIC/QUEUE ID`) or index file, and `reason` names offsets.
        code: `MISSING`, `STRAY` or another kind of damage.
    """

    file: str
    commit_log_offset: int
    length: int
    code: str
    reason: str

    def holds(self, commit_log_offset: int) -> bool:
        """Whether the range contains the offset."""
        return self.commit_log_offset <= commit_log_offset < self.commit_log_offset + self.length

    def __str__(self) -> str:
        return f"{self.code}: {self.reason}"

    def describe(self) -> str:
        """File, offset, length and reason, for a person."""
        if self.code == STRAY or not self.length:
            return f"{self.file}: {self.reason}"
        return f"{self.file}: {self.length} bytes from commit log offset {self.commit_log_offset}: {self.reason}"


def find_data_end(file: Location, size: int) -> int:
    """The position after which the file contains only zeros; 0 for a file of zeros.

    The holes of a sparse local file are skipped. Other zeros are read from the end, block by block. If the first block
    of a file on S3 is zeros, the file's ETag can tell that all others are zeros, too.
    """
    if not file.is_local and (known := file.over_network().data_end(file.path)) is not None:
        return known
    blocks = _local_blocks(file, size) if file.is_local else _remote_blocks(file, size)
    for start, block in blocks:
        if block != _ZERO_BLOCK[: len(block)]:
            return start + len(block.rstrip(b"\0"))
        if start and start + len(block) == size and file.tells_only_zeros(size):
            return 0
    return 0


def _local_blocks(file: Location, size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a local file with their positions, from the end on."""
    end, length = _end_of_extents(file.path, size), _FIRST_BLOCK
    with FileReader(file) as reader:
        while end > 0:
            start = max(0, end - length)
            yield start, reader.read(start, end - start)
            end, length = start, min(4 * length, READ_SIZE)


def _remote_blocks(file: Location, size: int) -> Iterator[tuple[int, bytes]]:
    """The blocks of a file over a network with their positions, from the end on. The first answer can be the last."""
    from concurrent.futures import ThreadPoolExecutor

    reader, end, count = file.open_remote(), size, 1
    with ThreadPoolExecutor(_MOST_REQUESTS) as threads:
        while end > 0:
            stops = [end - READ_SIZE * number for number in range(count) if end > READ_SIZE * number]
            starts = [max(0, stop - READ_SIZE) for stop in stops]
            lengths = [stop - start for start, stop in zip(starts, stops, strict=True)]
            yield from zip(starts, threads.map(reader.read_range, starts, lengths), strict=True)
            end, count = starts[-1], min(2 * count, _MOST_REQUESTS)


def _end_of_extents(path: str, size: int) -> int:
    """The end of the last part of a local file that is not a hole."""
    if not hasattr(os, "SEEK_DATA"):
        return size
    with open(open_regular(path), "rb") as file:
        end = 0
        while end < size:
            try:
                data = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError:  # ENXIO: only a hole is left
                return end
            end = os.lseek(file.fileno(), data, os.SEEK_HOLE)
        return end


@dataclass(frozen=True)
class SegmentFile:
    """A file of the commit log; `size` is its length in bytes, or less if the next file starts earlier.

    `has_entries` says that it is of a DLedger log: the head of an entry is before each record.
    """

    location: Location
    base: int
    size: int
    has_entries: bool = field(default=False, kw_only=True)

    @property
    def path(self) -> str:
        """The file's path in the store."""
        return "/".join(self.location.path.split("/")[-3 if self.has_entries else -2 :])

    @property
    def end_offset(self) -> int:
        """The commit log offset after the segment."""
        return self.base + self.size


@dataclass(frozen=True)
class SegmentFiles:
    """The files of a commit log, by name: those from offset `entries_from` on are in the folder of a DLedger log."""

    segments: tuple[fs.FileInfo, ...]
    stray: tuple[CorruptRange, ...]
    folder: Location
    entries: Location | None = None
    entries_from: int = MAX_OFFSET

    @property
    def files(self) -> list[SegmentFile]:
        """The segments, each used only up to the start of the next one."""
        bases = [int(info.base_name) for info in self.segments]
        files = zip(self.segments, bases, [*bases[1:], MAX_OFFSET], strict=False)
        return [self.at(base, min(info.size, stop - base)) for info, base, stop in files]

    def at(self, base: int, size: int) -> SegmentFile:
        """The segment that begins at a commit log offset, which need not exist."""
        has_entries = self.entries is not None and base >= self.entries_from
        folder = self.entries if self.entries is not None and has_entries else self.folder
        return SegmentFile(folder / f"{base:020d}", base, size, has_entries=has_entries)


def segment_files(store: Location) -> tuple[fs.FileInfo, ...]:
    """The segments of the store, by offset; see `list_segment_files`."""
    return list_segment_files(store).segments


def list_segment_files(store: Location) -> SegmentFiles:
    """The segments and the stray files of the store directory `store`."""
    store = store.snapshot()
    entries = check_log(store)
    plain = _listed(store / COMMIT_LOG, entries)
    node = dledger_node(store)
    if node is None:
        return plain
    data = node / DLEDGER_DATA
    listed = _listed(data, data.entries())
    start = min((int(info.base_name) for info in listed.segments), default=MAX_OFFSET)
    older = tuple(info for info in plain.segments if int(info.base_name) < start)
    stray = (*plain.stray, *listed.stray)
    return SegmentFiles((*older, *listed.segments), stray, store / COMMIT_LOG if older else data, data, start)


def _listed(folder: Location, entries: Sequence[fs.FileInfo]) -> SegmentFiles:
    named = [info for info in mapped_files(entries) if info.size > 0]
    infos = [info for info in named if int(info.base_name) + info.size <= MAX_OFFSET]
    too_far = "the file is not a segment: no commit log has an offset above 2^63 - 1"
    stray = [_stray(folder, info, too_far) for info in named if int(info.base_name) + info.size > MAX_OFFSET]
    chains = _chains(infos)
    if len(chains) > 1:
        unconfirmed = _unconfirmed(folder, chains)
        stray += [_stray(folder, info, _why_unconfirmed(folder / info.base_name, info.size)) for info in unconfirmed]
        infos = [info for info in infos if info not in unconfirmed]
    return SegmentFiles(tuple(infos), tuple(sorted(stray, key=lambda one: one.commit_log_offset)), folder)


def linked_segment(store: Location) -> Location | None:
    """The first segment that is a symbolic link, as in a `commitlog/` of links to several folders; None without one.

    The broker of such a store opens the files in the folders that `storePathCommitLog` names, and not the links
    (`MultiPathMappedFileQueue`@5.3.3).
    """
    files = (one.location for one in list_segment_files(store).files)
    return next((one for one in files if one.is_local and os.path.islink(one.path)), None)


def booted_folder(store: Location) -> tuple[Location, bool]:
    """The folder of the files that a boot checks, and whether they have DLedger's entries."""
    node = dledger_node(store)
    return (store / COMMIT_LOG, False) if node is None else (node / DLEDGER_DATA, True)


def usual_size(infos: Sequence[fs.FileInfo]) -> int:
    """The most frequent size of the files in bytes, the larger of two equally frequent ones; 0 if all are empty."""
    sizes = Counter(info.size for info in infos if info.size)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _chains(infos: Sequence[fs.FileInfo]) -> list[list[fs.FileInfo]]:
    """The files in chains: each file begins where the one before it ends, or where it would with the usual size."""
    usual = usual_size(infos)
    chains: list[list[fs.FileInfo]] = []
    chain_before: dict[int, list[fs.FileInfo]] = {}
    for info in infos:
        base = int(info.base_name)
        chain = chain_before.get(base)
        if chain is None:
            chain = []
            chains.append(chain)
        chain.append(info)
        chain_before[base + info.size] = chain_before[base + usual] = chain
    return chains


def _unconfirmed(folder: Location, chains: Sequence[Sequence[fs.FileInfo]]) -> list[fs.FileInfo]:
    confirmed: list[Sequence[fs.FileInfo]] = []
    others: list[Sequence[fs.FileInfo]] = []
    for chain in chains:
        (confirmed if any(_confirms_name(folder, info) for info in chain) else others).append(chain)
    end = max((int(info.base_name) + info.size for chain in confirmed for info in chain), default=0)
    return [
        info
        for chain in others
        if confirmed
        if int(chain[0].base_name) < end or any(find_data_end(folder / info.base_name, info.size) for info in chain)
        for info in chain
    ]


def _stray(folder: Location, info: fs.FileInfo, reason: str) -> CorruptRange:
    return CorruptRange(str(folder / info.base_name), int(info.base_name), info.size, STRAY, reason)


def _why_unconfirmed(file: Location, size: int) -> str:
    with FileReader(file) as reader:
        data, said = reader.read(0, min(size, MAX_RECORD_SIZE)), ""
    with suppress(CorruptLogError):
        said = f" (its first record is of commit log offset {decode_record(data).commit_log_offset})"
    return (
        "the file is not a segment of this log: it does not follow one, and no record in it is at the offset that its "
        f"name says{said}; move the file out of {file.parent.name}/"
    )


def _confirms_name(folder: Location, info: fs.FileInfo) -> bool:
    """As `_has_record_of_its_own`; a process checks a file once, until the file changes."""
    file = folder / info.base_name
    key = (str(file), info.size, info.mtime_ns)
    found = _looks.get(key)  # another thread may clear them
    if found is None:
        if len(_looks) >= _MAX_LOOKS:
            _looks.clear()
        found = _looks[key] = _has_record_of_its_own(file, info.size)
    return found


def _has_record_of_its_own(file: Location, size: int) -> bool:
    """Whether a record in the file stores the commit log offset at which it is by the file's name."""
    base, position, block_size = int(file.name), 0, _FIRST_LOOK
    data_end = find_data_end(file, size)
    with FileReader(file) as reader:
        while position < data_end:
            block = reader.read(position, min(block_size + MIN_RECORD_SIZE, size - position))
            for found in RECORD_MAGIC.finditer(block, MAGIC_AT):
                at = found.start() - MAGIC_AT
                record_size = FRAME.unpack_from(block, at)[0]
                if not MIN_RECORD_SIZE <= record_size <= MAX_RECORD_SIZE:
                    continue
                whole = block[at : at + record_size]
                if len(whole) < record_size:
                    whole = reader.read(position + at, min(record_size, size - position - at))
                with suppress(CorruptLogError):
                    decode_record(whole, 0, base + position + at)
                    return True
            position += block_size
            block_size = _BLOCK
    return False
