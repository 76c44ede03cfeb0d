"""Two replicas of one log, compared: where they part, what is damaged in one of them, and what only one has.

A slave appends the bytes of its master (`DefaultHAClient`, `AutoSwitchHAClient`@5.3.3), so at each commit log offset
both logs have the same bytes. The segments are compared byte by byte. Only around bytes that differ, both logs are read
as records. Offsets at which something starts in both logs divide a segment into cells, mostly of one record. What both
logs have in a cell decides:

| in one log | in the other | state |
| --- | --- | --- |
| damage, and no sound record | only sound records, or a blank | damaged: the other log can give these bytes |
| damage, and no sound record | damage | damaged in both |
| only a blank | only a blank | nothing: no broker reads the bytes after its head |
| anything else | | the logs are different |

A record is sound if its framing, its CRCs, its properties and the form of its body are right. If the last cell of a
segment is different, the logs have parted there, and nothing after it is compared.

The members of a DLedger group have the same bytes, too: a follower appends each entry at the position that its leader
gave it (`DLedgerMmapFileStore.appendAsFollower`@dledger-0.3.1). There, a cell is an entry with its head. An entry is
sound if its record is, and if its index and its term fit between those of its neighbours.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, partial
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow.compute as pc

from spark_mq.errors import OptionError
from spark_mq.format.amounts import counted
from spark_mq.format.array_types import Bytes, Flags, Int64s
from spark_mq.format.dledger import BLANK, BLANK_MAGIC, HEAD_SIZE
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.properties import checked_pieces
from spark_mq.format.message_row import Row, message_row
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.job import Report
from spark_mq.store.config.config_file import read_config
from spark_mq.store.config.epochs import EpochFile, consistent_offset
from spark_mq.store.config.store_kind import Door, check_form, dledger_node
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog, Segment, SegmentSource
from spark_mq.store.log.dledger_log import NONE_COMMITTED, read_entries, recover_entries
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_files import SegmentFiles, list_segment_files, segment_files, usual_size
from spark_mq.store.log.split_reader import next_boundary, read_chunks
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.records import TIME_CODES, record_findings

_BLOCK = 4 << 20
_NEAR = 64
"""Bytes between two differences that are joined: fewer than any record has, so each cell between them differs, too."""
_THREADS = 4
_NAMES = ("commit_log_offset", "store_size", "topic", "queue_id", "queue_offset", "offset_message_id", "unique_key")


class PartState(StrEnum):
    """What is the matter with a part of two logs."""

    STORE_DAMAGED = "damaged in STORE"
    REPLICA_DAMAGED = "damaged in REPLICA"
    BOTH_DAMAGED = "damaged in both"
    DIFFERENT = "different"


_STATES = tuple(PartState)
_STORE, _REPLICA, _BOTH, _DIFFERENT = range(len(_STATES))


@dataclass(frozen=True)
class Part:
    """A part of the log in which two replicas differ: mostly one record.

    Attributes:
        start: The commit log offset of its first byte; `stop` is the one after its last byte.
        file: The segment, as a path in the first store.
        records: The sound records in the part, of the log that has more of them.
        of_store: The record at its start in the first log: offsets, topic, queue and ids. None if none is there.
        of_replica: The same of the second log.
    """

    start: int
    stop: int
    file: str
    state: PartState
    records: int
    of_store: Row | None
    of_replica: Row | None

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.stop - self.start

    @property
    def name(self) -> str:
        """Its place in the log, and its first record, for a person."""
        row = self.of_replica or self.of_store
        what = f"{self.file}, commit log offset {self.start}, {self.size:,} bytes"
        if row is None:
            return f"{what}, {counted(self.records, 'record')}"
        more = f", and {counted(self.records - 1, 'more record')}" if self.records > 1 else ""
        ids = f"message id {row['offset_message_id']}, unique key {row['unique_key'] or '-'}"
        ids += f", entry {row['entry']} of term {row['term']}" if "entry" in row else ""
        return f"{what}: topic {row['topic']} queue {row['queue_id']} queue offset {row['queue_offset']}, {ids}{more}"


@dataclass(frozen=True)
class OneSided:
    """Commit log offsets from `start` to `stop` that only one log has, and the number of its messages by topic."""

    start: int
    stop: int
    topics: dict[str, int]

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(self.topics.values())


@dataclass(frozen=True)
class Side:
    """One of the two logs: its commit log offsets from `start` to `end`, and what only this log has.

    A DLedger node knows that the entries before `committed` are committed: a majority of its group has them. None if it
    is not known, or if the log is a plain one.
    """

    store: str
    start: int
    end: int
    only: tuple[OneSided, ...] = ()
    committed: int | None = None


@dataclass(frozen=True)
class Comparison(Report):
    """How two replicas of one log differ.

    Attributes:
        compared_bytes: Bytes that both logs have, and that were compared.
        parts: The parts that differ, in order. After the last one, nothing was compared if the logs parted there.
        has_parted: Whether the logs parted at the first different part: from there on, each has other messages.
        consistent_offset: Where a slave would cut its log by the epochs of both stores; None if they have none in
            common.
    """

    shown = ("verdict", "is_same")

    store: Side
    replica: Side
    segment_size: int
    compared_bytes: int
    parts: tuple[Part, ...]
    has_parted: bool
    consistent_offset: int | None
    seconds: float = 0.0

    def of(self, state: PartState) -> list[Part]:
        """The parts with a state."""
        return [part for part in self.parts if part.state == state]

    @property
    def is_same(self) -> bool:
        """Whether the logs are the same wherever both have bytes."""
        return not self.parts

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        if not self.compared_bytes and self.is_same:
            return "the logs have no commit log offset in common"
        first = next(iter(self.of(PartState.DIFFERENT)), None)
        said = [f"{counted(len(parts), 'part')} {state}" for state in _STATES if (parts := self.of(state))]
        if first is not None and self.has_parted:
            said[-1] = f"the logs part at commit log offset {first.start}"
        return "; ".join(said) or "the same, wherever both logs have bytes"


def compare(store: str, replica: str) -> Comparison:
    """Compare the commit logs of two replicas; no Spark. Brokers can run on both, and nothing is changed.

    Bytes that both logs have alike are not checked: `verify` says whether they are sound. A log is read once, except
    segments that differ, which are read again.

    Args:
        store: The store directory of one replica, a path or a URI.
        replica: That of the other one.

    Returns:
        The parts that differ, what only one of the logs has, and whether and where they part.

    Raises:
        OptionError: The segments of the two logs have different sizes.
        StoreNotFoundError: A path is not a message store.
        CorruptLogError: A segment was removed while it was read.
        StorageError: A file cannot be read.

    >>> from spark_mq import compare
    >>> print(compare("/data/master", "/data/slave").verdict)
    the same, wherever both logs have bytes
    """
    return compare_logs(Location.resolve(store), Location.resolve(replica))


def compare_logs(store: Location, replica: Location, *, has_lock: bool = False) -> Comparison:
    """As `compare`; if this job has the lock of the first store, no broker appends to it."""
    started = time.monotonic()
    one, other = _Log.of(store, has_lock), _Log.of(replica, False)
    if one.size < other.size:  # of one segment, or of two, one can be cut
        one = _Log.of(store, has_lock, other.size)
    elif other.size < one.size:
        other = _Log.of(replica, False, one.size)
    if any((base - other.start) % one.size for base in (*one.segments, *other.segments)):
        raise OptionError(
            f"{store} has segments of {one.size} bytes from {one.start} on, and {replica} of {other.size} bytes from "
            f"{other.start} on: they are not replicas of one log"
        )
    common = one.segments.keys() & other.segments.keys()
    if any(one.segments[base].has_entries != other.segments[base].has_entries for base in common):
        raise OptionError(f"only one of {store} and {replica} is a DLedger log there: they are not replicas of one log")
    pair = _Pair(one, other)
    parts, has_parted = pair.compare()
    stop = next((part.start for part in parts if part.state == PartState.DIFFERENT), None) if has_parted else None
    epochs = [read_config(partial(EpochFile.of, log.location))[0] or EpochFile() for log in (one, other)]
    return Comparison(
        one.side(other, stop),
        other.side(one, stop),
        one.size,
        pair.common_bytes(pair.stop if stop is None else stop),
        tuple(parts),
        has_parted,
        consistent_offset(epochs[0].epochs, one.end, epochs[1].epochs, other.end),
        round(time.monotonic() - started, 3),
    )


@dataclass(frozen=True)
class _Log:
    """The log of one replica, as it is now.

    `written` is the offset after which its files have only zeros; a file that was cut should have more. While a broker
    runs, it is `end`: the broker is perhaps writing after it.
    """

    location: Location
    segments: dict[int, Segment]
    size: int
    start: int
    end: int
    written: int
    committed: int | None

    @classmethod
    def of(cls, store: Location, has_lock: bool, size: int | None = None) -> Self:
        log = CommitLog.open(store)
        check_form(store, Door.FILES)
        size = size or usual_size(segment_files(store))
        start = log.segments[0].base if log.segments else 0
        end = max(LiveEndFinder(store).find_end_now().offset, start)
        written = end
        if log.segments and (has_lock or not is_locked(store)):
            last = log.segments[-1]
            written = max(end, last.base + (last.data_end if last.size == size else size))
        node, entries = dledger_node(store), [segment for segment in log.segments if segment.has_entries]
        committed = recover_entries(node, entries).committed if node is not None and entries else NONE_COMMITTED
        segments = {segment.base: segment for segment in log.segments}
        return cls(store, segments, size, start, end, written, None if committed == NONE_COMMITTED else committed)

    def entries_at(self, offset: int) -> Segment | None:
        """The segment of DLedger that has an offset."""
        base = self.start + (offset - self.start) // self.size * self.size
        segment = self.segments.get(base)
        return segment if segment is not None and segment.has_entries else None

    def next_boundary(self, offset: int) -> int:
        """The first boundary from an offset on; in a log of DLedger, the first end of an entry."""
        segment = self.entries_at(offset)
        if segment is None:
            return next_boundary(self.location, offset, self.end)
        found = read_entries(segment, segment.size)
        ends = (end for entries in found for end in (entries.offset + entries.size).tolist() if end >= offset)
        return min(next(ends, self.end), self.end)

    def side(self, other: _Log, parted_at: int | None) -> Side:
        """The log, and what the other one does not have."""
        stop = other.end if parted_at is None else parted_at
        ranges = [(self.start, min(other.start, self.end)), (max(stop, self.start), self.end)]
        only = [OneSided(start, stop, self._topics(start, stop)) for start, stop in ranges if start < stop]
        return Side(str(self.location), self.start, self.end, tuple(only), self.committed)

    def _topics(self, start: int, stop: int) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for chunk in read_chunks(self.location, start, stop):
            for pair in pc.value_counts(MessageColumns(chunk.buffer, chunk.frames).column("topic")):
                counts[pair["values"].as_py()] += pair["counts"].as_py()
        return dict(sorted(counts.items()))


@dataclass(frozen=True)
class _Ranges:
    """Ranges of the log, in order."""

    starts: Int64s
    stops: Int64s

    @classmethod
    def of(cls, ranges: Sequence[tuple[int, int]]) -> Self:
        pairs = np.array(ranges, np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1])

    def overlap(self, starts: Int64s, stops: Int64s) -> Flags:
        """Which of other ranges have a byte of these."""
        found: Flags = np.searchsorted(self.starts, stops) > np.searchsorted(self.stops, starts, "right")
        return found


@dataclass(frozen=True)
class _Walk:
    """What one log has in a segment: sound records, damage, and the offset that the walk reached."""

    records: _Ranges
    damage: _Ranges
    reached: int

    @cached_property
    def boundaries(self) -> Int64s:
        parts = (self.records.starts, self.records.stops, self.damage.starts, self.damage.stops, [self.reached])
        return np.unique(np.concatenate(parts))


@dataclass(frozen=True)
class _Pair:
    """Two logs; from `start` to `stop`, both have bytes, or one has damage where the other one has records."""

    one: _Log
    other: _Log

    @property
    def start(self) -> int:
        return max(self.one.start, self.other.start)

    @cached_property
    def stop(self) -> int:
        shorter, longer = sorted((self.one, self.other), key=lambda log: log.end)
        stop = min(longer.end, shorter.written)
        return stop if stop == shorter.end else longer.next_boundary(stop)

    def common_bytes(self, stop: int) -> int:
        """The bytes before an offset that both logs have."""
        bases = [base for base in self.one.segments.keys() & self.other.segments.keys() if self.start <= base < stop]
        ends = (base + min(self.one.segments[base].size, self.other.segments[base].size) for base in bases)
        return sum(min(end, stop) - base for base, end in zip(bases, ends, strict=True))

    def compare(self) -> tuple[list[Part], bool]:
        """The parts that differ, and whether the logs part at the first different one."""
        bases = sorted({*self.one.segments, *self.other.segments})
        bases = [base for base in bases if self.start <= base < self.stop]
        parts: list[Part] = []
        with ThreadPoolExecutor(_THREADS) as threads:
            for base, differences in zip(bases, threads.map(self._differences, bases), strict=True):
                found, is_last = self._parts(base, differences) if differences.starts.size else ([], False)
                parts += found
                if is_last:
                    threads.shutdown(cancel_futures=True)
                    return parts, True
        gaps = [(before + self.one.size, after) for before, after in pairwise(bases) if after > before + self.one.size]
        for start, stop in gaps:
            parts.append(Part(start, stop, self._path(start), PartState.BOTH_DAMAGED, 0, None, None))
        return sorted(parts, key=lambda part: part.start), False

    def _differences(self, base: int) -> _Ranges:
        """The bytes of a segment that differ."""
        stop = min(self.stop, base + self.one.size)
        first, second = self.one.segments.get(base), self.other.segments.get(base)
        both = min(stop, *(base + (0 if segment is None else segment.size) for segment in (first, second)))
        found = []
        if first is not None and second is not None:
            with SegmentSource(first) as source, SegmentSource(second) as of_other:
                for start in range(base, both, _BLOCK):
                    length = min(_BLOCK, both - start)
                    runs = _runs(source.read(start - base, length), of_other.read(start - base, length))
                    found += [(start + begin, start + end) for begin, end in runs]
        return _Ranges.of(found if both == stop else [*found, (both, stop)])

    def _parts(self, base: int, differences: _Ranges) -> tuple[list[Part], bool]:
        """The parts of a segment that differ, and whether the logs part in it, at the first different one."""
        is_shorter = self.one.end < self.other.end
        end = min(self.one.end, self.other.end)
        walks = [_walk(log, base, self.stop, differences) for log in (self.one, self.other)]
        limit = walks[is_shorter].reached
        common = np.intersect1d(walks[0].boundaries, walks[1].boundaries)
        cells = np.unique(np.concatenate(([base], common[common < limit], [limit])))
        differs = _cells_of(cells, differences)
        damaged = [_cells_of(cells, walk.damage) for walk in walks]
        sound = [_cells_of(cells, walk.records) for walk in walks]
        here, there = (damaged[number] & ~sound[number] for number in (0, 1))
        both = (here & damaged[1]) | (there & damaged[0])
        states = np.select([both, here, there], [_BOTH, _STORE, _REPLICA], _DIFFERENT)
        is_filler = ~(damaged[0] | damaged[1] | sound[0] | sound[1])
        chosen = np.flatnonzero(differs & ~is_filler)
        if (states[chosen[cells[chosen] >= end]] != (_STORE if is_shorter else _REPLICA)).any():
            # After its end, the shorter log has old records, which are not of this log.
            chosen = chosen[cells[chosen] < end]
        is_different = states[chosen] == _DIFFERENT
        has_parted = bool(is_different.any()) and bool(is_different[-1]) and chosen[-1] == differs.size - 1
        if has_parted:
            chosen = chosen[: np.argmax(is_different) + 1]
        return list(self._named(base, cells, chosen, states, walks)), has_parted

    def _named(
        self, base: int, cells: Int64s, chosen: Int64s, states: Int64s, walks: Sequence[_Walk]
    ) -> Iterator[Part]:
        counts = [np.diff(np.searchsorted(walk.records.starts, cells)) for walk in walks]
        with closing(FileReaders()) as files:
            lookups = [RecordLookup(log.location, files) for log in (self.one, self.other)]
            for cell in chosen.tolist():
                start, stop = int(cells[cell]), int(cells[cell + 1])
                rows = [
                    _name_of(log, lookup, start) if count[cell] else None
                    for log, lookup, count in zip((self.one, self.other), lookups, counts, strict=True)
                ]
                records = int(max(count[cell] for count in counts))
                yield Part(start, stop, self._path(base), _STATES[states[cell]], records, *rows)

    def _path(self, base: int) -> str:
        return self._files.at(base, self.one.size).path

    @cached_property
    def _files(self) -> SegmentFiles:
        return list_segment_files(self.one.location)


def _name_of(log: _Log, records: RecordLookup, offset: int) -> Row | None:
    """The record at an offset, or in the entry there, whose index and term have names, too."""
    entry: Row = {}
    if (segment := log.entries_at(offset)) is not None:
        entries = next(read_entries(segment, segment.size, offset - segment.base))
        entry = {"entry": int(entries.index[0]), "term": int(entries.term[0])}
        offset = int(entries.offset[0]) + HEAD_SIZE
    record = records.find(offset)
    if record is None:
        return None
    row = message_row(record)
    return {name: row[name] for name in _NAMES} | entry


def _cells_of(cells: Int64s, ranges: _Ranges) -> Flags:
    """Which cells have a byte of the ranges; `cells` are their starts, and the last stop."""
    return ranges.overlap(cells[:-1], cells[1:])


def _runs(one: Bytes, other: Bytes) -> list[tuple[int, int]]:
    """The bytes that differ, as ranges; near ones are joined."""
    words = one.size // 8 * 8
    if np.array_equal(one[:words].view(np.int64), other[:words].view(np.int64)) and np.array_equal(
        one[words:], other[words:]
    ):
        return []
    edges = np.flatnonzero(np.diff(one != other, prepend=False, append=False))
    starts, stops = edges[::2], edges[1::2]
    is_far = starts[1:] - stops[:-1] >= _NEAR
    kept = np.concatenate(([True], is_far)), np.concatenate((is_far, [True]))
    return list(zip(starts[kept[0]].tolist(), stops[kept[1]].tolist(), strict=True))


def _walk(log: _Log, base: int, stop: int, differences: _Ranges) -> _Walk:
    """What a log has in a segment, up to the first boundary from `stop` on. Records that agree count as sound."""
    stop, segment = min(stop, base + log.size), log.segments.get(base)
    records, damage = [_Ranges.of([])], list[tuple[int, int]]()
    reached = base
    if segment is not None:
        with SegmentSource(replace(segment, data_end=min(segment.size, stop - base), is_last=False)) as source:
            reader = RecordReader(source, 0)
            for part in reader.read(stop - base):
                if isinstance(part, RecordChunk):
                    starts = part.base + part.frames.position
                    found = _Ranges(starts, starts + part.frames.store_size)
                    differs = differences.overlap(found.starts, found.stops)
                    wrong = np.isin(starts, _unsound(part.buffer, part.frames[differs]))
                    damage += zip(found.starts[wrong].tolist(), found.stops[wrong].tolist(), strict=True)
                    records.append(_Ranges(found.starts[~wrong], found.stops[~wrong]))
                else:
                    damage.append((part.commit_log_offset, part.commit_log_offset + part.length))
            reached = base + reader.position
    if reached < stop:  # the file is missing, or was cut
        damage.append((reached, stop))
    starts, stops = (np.concatenate([getattr(part, name) for part in records]) for name in ("starts", "stops"))
    walk = _Walk(_Ranges(starts, stops), _Ranges.of(damage), max(reached, stop))
    return _with_heads(walk, segment, stop) if segment is not None and segment.has_entries else walk


def _with_heads(walk: _Walk, segment: Segment, stop: int) -> _Walk:
    """The walk by entries: the sound ones, and what is between them."""
    parts = [list(vars(part).values()) for part in read_entries(segment, stop - segment.base)]
    offset, size, _, index, term = np.concatenate([np.zeros((5, 0), np.int64), *parts], axis=1)
    is_sound = np.isin(offset + HEAD_SIZE, walk.records.starts) | (size == HEAD_SIZE)
    for values, least in ((index, 1), (term, 0)):
        # A value is wrong if those of its neighbours fit together, and it is not between them.
        before, own, after = values[:-2], values[1:-1], values[2:]
        is_sound[1:-1] &= (before > after) | ((own - before >= least) & (after - own >= least))
    records = _Ranges(offset[is_sound], offset[is_sound] + size[is_sound])
    edges = np.array([segment.base, *np.ravel((records.starts, records.stops), "F").tolist(), stop])
    starts, stops = edges[::2], edges[1::2]
    is_damage = starts < stops
    with FileReader(segment.location) as file:
        head = file.read(int(starts[-1]) - segment.base, BLANK.size)
    is_damage[-1] &= head != BLANK.pack(BLANK_MAGIC, segment.end_offset - int(starts[-1]))
    return _Walk(records, _Ranges(starts[is_damage], stops[is_damage]), walk.reached)


def _unsound(buffer: Bytes, frames: Frames) -> Int64s:
    """The commit log offsets of records that are not sound by themselves."""
    if not frames.size:
        return np.zeros(0, np.int64)
    wrong_pieces, _ = checked_pieces(buffer, frames)
    found = record_findings(buffer, frames, wrong_pieces, "", 0)
    batches = [batch for batch in found if batch["code"][0].as_py() not in TIME_CODES]
    return np.concatenate([np.zeros(0, np.int64), *(batch["commit_log_offset"].to_numpy() for batch in batches)])
