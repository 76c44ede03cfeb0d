"""The entries of a DLedger log, segment by segment, and the end of the log.

A leader that changes can make a node cut its log and go on with other entries; the bytes after the cut are not cleared
(`DLedgerMmapFileStore.truncate`@dledger-0.3.1). The entries of a log have indexes without gaps, and terms that never
fall. So the log ends before an entry whose index does not follow, or whose term is lower (as in
`DLedgerMmapFileStore.recover`). A boot also cuts the log at damage in its last three segments. The reader here goes on
after damage, at the next entry whose index is higher and whose term is not lower: those entries are not lost yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Flags, Int64s, OutInt64s, leading
from spark_mq.format.dledger import BLANK_MAGIC, HEAD, HEAD_SIZE, MAGIC_NORMAL, MAX_ENTRY_SIZE, is_head
from spark_mq.format.kernels.entries import FIELDS, find_entry, scan_entries
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import DLEDGER_INDEX, mapped_files
from spark_mq.store.log.segment_files import SegmentFile, find_data_end

_CHUNK = 4 << 20
_UNIT_DTYPE = np.dtype([("magic", ">i4"), ("offset", ">i8"), ("size", ">i4"), ("index", ">i8"), ("term", ">i8")])
_LOOK = 1024
_FILES_BACK = 3
NONE_COMMITTED = -1
"""Instead of the offset after the last committed entry: it is not known."""
_BLANK = Struct(">i")
_UNIT_SIZE = _UNIT_DTYPE.itemsize
"""Bytes of a unit of DLedger's index (`DLedgerEntryCoder.encodeIndex`@dledger-0.3.1)."""


@dataclass(frozen=True)
class Entries:
    """Entries that follow one another in a segment; `offset` is that of the head in the log."""

    offset: Int64s
    size: Int64s
    magic: Int64s
    index: Int64s
    term: Int64s

    @property
    def end(self) -> int:
        """The offset after the last entry."""
        return int(self.offset[-1] + self.size[-1])

    def take(self, count: int) -> Entries:
        """The first entries."""
        return Entries(*(values[:count] for values in vars(self).values()))


def read_entries(segment: SegmentFile, data_end: int, position: int = 0) -> Iterator[Entries]:
    """The entries of a segment from a position on, whose data end at another one, also those after damage."""
    found: OutInt64s = np.empty(FIELDS * (_CHUNK // HEAD_SIZE + 1), np.int64)
    with FileReader(segment.location) as file:
        while position < data_end:
            buffer = np.frombuffer(file.read(position, min(_CHUNK, segment.size - position)), np.uint8)
            base, stop = segment.base + position, data_end - position
            count, reached, is_blank = scan_entries(buffer, 0, stop, base, segment.size - position, found)
            if count:
                fields = found[: FIELDS * count].reshape(count, FIELDS).T.copy()
                fields[0] += base
                yield Entries(*fields)
            if is_blank:
                return
            if not count:
                reached = find_entry(buffer, 1, base)
                if position + reached + HEAD_SIZE > segment.size:
                    return
            position += reached


def live_entries(segment: SegmentFile, start: int = 0) -> Iterator[Entries]:
    """The entries of a segment from a live one on, up to the end of the log, if that is in the segment."""
    index, term, end = -1, -1, segment.base + start
    for entries in read_entries(segment, find_data_end(segment.location, segment.size), start):
        indexes = np.append(index, entries.index)
        terms = np.append(term, entries.term)
        follows = (np.diff(indexes) == 1) & (np.diff(terms) >= 0)
        if index < 0 or entries.offset[0] > end:  # the first entry, or one after damage
            follows[0] = entries.index[0] > index and entries.term[0] >= term
        count = leading(follows)
        if count:
            kept = entries.take(count)
            index, term, end = int(kept.index[-1]), int(kept.term[-1]), kept.end
            yield kept
        if count < follows.size:
            return


def index_units(node: Location, first: int, stop: int) -> npt.NDArray[np.void]:
    """The units of entries from index `first` to `stop` in the index of a node; zeros for those that no file has."""
    units = np.zeros(stop - first, _UNIT_DTYPE)
    for info in mapped_files((node / DLEDGER_INDEX).entries()):
        base = int(info.base_name) // _UNIT_SIZE
        start, end = max(first, base), min(stop, base + info.size // _UNIT_SIZE)
        if start < end:
            with FileReader(node / DLEDGER_INDEX / info.base_name) as file:
                data = file.read((start - base) * _UNIT_SIZE, (end - start) * _UNIT_SIZE)
            units[start - first : end - first] = np.frombuffer(data, _UNIT_DTYPE)
    return units


def find_entries_end(segments: Sequence[SegmentFile]) -> int:
    """The offset after the last live entry; the start of the DLedger log if it has none, 0 for no segment."""
    end = 0
    for segment in reversed(segments):
        end = segment.base if segment.has_entries else segment.end_offset
        if not segment.has_entries:
            return end
        for entries in live_entries(segment, _committed_position(segment)):
            end = entries.end
        if end > segment.base:
            return end
    return end


def _committed_position(segment: SegmentFile) -> int:
    """The position of the last entry that the node knows as committed; 0 if it is not in the segment.

    A majority of the group has such an entry, so no leader removes it: nothing before it can be stale. The checkpoint
    names it, and the index and the log must have it at one place.
    """
    node = segment.location.parent.parent
    index = _stated(node, "committedIndex")
    if index < 0 or index > _stated(node, "endIndex"):
        return 0
    unit = index_units(node, index, index + 1)[0]
    position = int(unit["offset"]) - segment.base
    if unit["index"] != index or not 0 <= position <= segment.size - HEAD_SIZE:
        return 0
    with FileReader(segment.location) as file:
        head = file.read(position, HEAD_SIZE)
    stated = HEAD.unpack(head)[1:5] if is_head(head, int(unit["offset"])) else ()
    return position if stated == tuple(int(unit[name]) for name in ("size", "index", "term", "offset")) else 0


@dataclass(frozen=True)
class RecoveredEntries:
    """What DLedger finds when it starts (`DLedgerMmapFileStore.recover`@dledger-0.3.1).

    Attributes:
        start: The first offset of the file from which on it checks the entries.
        end: The offset after the last entry that it accepts: there it cuts the log.
        count: The number of entries that it accepts.
        reason: Why the log ends there.
        committed: The offset after the last entry that is known as committed, or `NONE_COMMITTED`.
        index_from: The first entry of which DLedger writes the index again; None if its index has all of them.
    """

    start: int
    end: int
    count: int
    reason: str
    committed: int
    index_from: int | None


def recover_entries(node: Location, files: Sequence[SegmentFile]) -> RecoveredEntries:
    """What DLedger finds when it starts with these files, of which there must be one at least."""
    first = next((at for at in range(max(len(files) - _FILES_BACK, 0), -1, -1) if _is_indexed(node, files[at])), 0)
    wanted, committed, index_from = _stated(node, "committedIndex"), NONE_COMMITTED, None
    index, term, count = -1, -1, 0
    for file in files[first:]:
        end = file.base
        for entries in read_entries(file, find_data_end(file.location, file.size)):
            follows = (np.diff(entries.index, prepend=index) == 1) & (np.diff(entries.term, prepend=term) >= 0)
            follows[0] |= index < 0
            follows &= entries.magic == MAGIC_NORMAL
            kept = entries.take(0 if entries.offset[0] != end else leading(follows))
            if not kept.offset.size:
                break
            if index_from is None:
                units = index_units(node, int(kept.index[0]), int(kept.index[-1]) + 1)
                differs = np.flatnonzero(_differ(units, kept))
                index_from = int(kept.index[differs[0]]) if differs.size else None
            at = min(wanted, int(kept.index[-1])) - int(kept.index[0])
            if at >= 0:
                committed = int(kept.offset[at] + kept.size[at])
            index, term, end, count = int(kept.index[-1]), int(kept.term[-1]), kept.end, count + kept.offset.size
            if kept.offset.size < entries.offset.size:
                break
        with FileReader(file.location) as reader:
            head = reader.read(end - file.base, HEAD_SIZE)
        if head[: _BLANK.size] != _BLANK.pack(BLANK_MAGIC):
            found = "what is there is not the next entry" if any(head) else "nothing was written there"
            return RecoveredEntries(files[first].base, end, count, found, committed, index_from)
        end = file.end_offset
    reason = "the blank that ends the last file is there, and no file follows"
    return RecoveredEntries(files[first].base, end, count, reason, committed, index_from)


def _is_indexed(node: Location, file: SegmentFile) -> bool:
    """Whether the first entry of a file is sound, and DLedger's index has it."""
    for entries in read_entries(file, min(file.size, MAX_ENTRY_SIZE)):
        entry = entries.take(1)
        units = index_units(node, int(entry.index[0]), int(entry.index[0]) + 1)
        return int(entry.offset[0]) == file.base and not _differ(units, entry).any()
    return False


def _differ(units: npt.NDArray[np.void], entries: Entries) -> Flags:
    """Which units are not those of the entries."""
    differs: Flags = np.zeros(units.size, np.bool_)
    for name, values in vars(entries).items():
        differs |= units[name] != values
    return differs


def lost_entries(node: Location, segments: Sequence[SegmentFile]) -> tuple[int, int] | None:
    """The indexes of the first and the last entry that the node had, and that its log has no more; None for none.

    The node writes down the index of its last entry (`checkpoint`), and its own index has a unit of each.
    """
    last, term = -1, 0
    for segment in reversed([one for one in segments if one.has_entries]):
        for entries in live_entries(segment):
            last, term = int(entries.index[-1]), int(entries.term[-1])
        if last >= 0:
            break
    end = max(last, _stated(node, "endIndex"))
    while True:
        units = index_units(node, end + 1, end + 1 + _LOOK)
        is_entry = (units["magic"] > 0) & (units["index"] == end + 1 + np.arange(_LOOK)) & (units["term"] >= term)
        end += _LOOK if is_entry.all() else int(is_entry.argmin())
        if not is_entry.all():
            break
    return (last + 1, end) if end > last else None


def _stated(node: Location, name: str) -> int:
    """A number of the node's checkpoint; -1 if it does not say it."""
    file = node / "checkpoint"
    lines = file.read_bytes().decode("utf-8", "replace").splitlines() if file.is_file else []
    values = dict(line.strip().split("=", 1) for line in lines if "=" in line)
    text = values.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
