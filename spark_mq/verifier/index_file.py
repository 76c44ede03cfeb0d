"""Soundness of one index file: entries against those of the log; header, slots and chains against the entries.

`IndexFile.putKey`@5.3.3 makes a file out of nothing but its entries, in their order, and the end of the file before it.
So everything in a file has one right value. A file is read block by block, and only its slots are kept in memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Int32s, Int64s
from spark_mq.format.index_file import (
    BEGIN_COMMIT_LOG_OFFSET_AT,
    BEGIN_TIMESTAMP_AT,
    END_COMMIT_LOG_OFFSET_AT,
    END_TIMESTAMP_AT,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HASH_SLOT_COUNT_AT,
    HEADER,
    HEADER_SIZE,
    INDEX_COUNT_AT,
    MAX_TIME_DIFFERENCE,
    SLOT_SIZE,
    Entries,
    IndexHeader,
    IndexLayout,
)
from spark_mq.format.kernels.index_put import follow_slots
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import INDEX
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.verifier.entry_match import NONE, EntryMatch, ExpectedEntries, match_entries
from spark_mq.verifier.finding import findings, postponed, text
from spark_mq.verifier.folders import IndexFolder
from spark_mq.verifier.journal import WHOLE, Since, SoundEntries
from spark_mq.verifier.log_bounds import LiveLog, LogBounds

BLOCK_ENTRIES = 1 << 18


class _Tail(NamedTuple):
    """The end of the file before a file; from its last store time (ms) the next file counts. None is not known."""

    next_number: int | None
    end_timestamp: int | None


@dataclass(frozen=True)
class IndexFileCheck:
    """The check of one index file, whose size is that of its layout; `entries` lists what the log has.

    `sound` are entries that are not read, if the slots show that they are as they were.
    """

    location: Location
    before: Location | None
    is_last: bool
    layout: IndexLayout
    entries: Location
    staged: Location
    bounds: LogBounds
    log: LiveLog
    sound: SoundEntries | None = None

    @cached_property
    def expected(self) -> ExpectedEntries:
        """The entries that the log has."""
        return ExpectedEntries.load(self.entries, self.staged)

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """What is wrong. Entries of messages that a broker appended since the check began are left out."""
        before = _Tail(0, None) if self.before is None else self._tail(self.before)
        with FileReader(self.location) as file:
            header = _header(file)
            stop, uncounted_slot, problem = self._count(self.location, file, header)
            if problem is not None and not self.log.has_grown():
                yield problem
            slots, start, found_slots = self._sound_slots(file, stop)
            used, next_number = int(np.count_nonzero(slots)), before.next_number
            begin: tuple[int, int] | None = None  # store time and offset of the first entry
            if self.sound is not None and start > 1:
                begin, next_number = self.sound.begin, 0
            end = (-1, -1)
            for first in range(start, stop, BLOCK_ENTRIES):
                block = _Block(self, self._entries(file, first, min(first + BLOCK_ENTRIES, stop)), first, next_number)
                entries, match = block.entries, block.match
                next_number = match.next_number
                offsets = block.right_offsets()
                begin = begin or (int(match.store_timestamps[0]), int(offsets[0]))
                end = int(match.store_timestamps[-1]), int(offsets[-1])
                yield from block.entry_findings()
                yield from block.missing()
                yield from block.times(begin[0] if begin[0] >= 0 else header.begin_timestamp, before)
                previous = np.empty(entries.size, np.int32)
                used += follow_slots(match.key_hashes, first, slots, previous)
                wrong = np.flatnonzero(entries["previous_entry"] != previous)
                want, have = text("entry ", previous[wrong], " before it"), entries["previous_entry"][wrong]
                yield block.batch("INDEX_CHAIN", wrong, want, text("entry ", have))
            yield from self._slot_findings(file, slots, found_slots, stop, uncounted_slot)
            wrong_fields = [] if begin is None else list(self._header_findings(header, used, stop, begin, end))
            if wrong_fields and not self.log.has_grown():
                yield from wrong_fields
        lacking = 0 if next_number is None else self.expected.count - next_number
        if self.is_last and next_number is not None and lacking > 0:
            offset = int(self.expected.read(next_number, next_number + 1).commit_log_offsets[0])
            lags = findings(
                "INDEX_LAGS", self.path, f"{lacking} more entries", "the end of the index", commit_log_offset=offset
            )
            yield postponed(lags) if self.log.has_grown() else lags

    def _sound_slots(self, file: FileReader, stop: int) -> tuple[Int32s, int, bytes]:
        """The slots before the first entry that has to be read, its number, and the slots as they are now.

        The first new entry of a slot says what the slot had before.
        """
        size = self.layout.hash_slot_num
        if self.sound is not None and self.sound.stop <= stop:
            found = file.read(HEADER_SIZE, SLOT_SIZE * size)
            slots = np.frombuffer(found, ">i4").copy()
            is_new = np.zeros(size, np.bool_)
            for first in range(self.sound.stop, stop, BLOCK_ENTRIES):
                entries = self._entries(file, first, min(first + BLOCK_ENTRIES, stop))
                touched, at = np.unique(entries["key_hash"].astype(np.int32) % size, return_index=True)
                is_first = ~is_new[touched]
                slots[touched[is_first]] = entries["previous_entry"][at[is_first]]
                is_new[touched] = True
            if zlib.crc32(slots.view(np.uint8).data) == self.sound.slots:
                return slots.astype(np.int32), self.sound.stop, found
        return np.zeros(size, np.int32), 1, b""

    @property
    def path(self) -> str:
        """The file's path in the store."""
        return f"{INDEX}/{self.location.name}"

    def position_of(self, number: Any) -> Any:
        """The position of an entry in the file, or of each in an array."""
        return self.layout.entries_at + ENTRY_SIZE * number

    def _tail(self, location: Location) -> _Tail:
        with FileReader(location) as file:
            header = _header(file)
            stop = self._count(location, file, header)[0]
            entries = self._entries(file, max(1, stop - 256), stop)
        if not entries.size:
            return _Tail(None, header.end_timestamp)
        match = self.match(entries, None)
        good = np.flatnonzero((match.number != NONE) & match.is_same)
        if not good.size:
            # An entry that the log does not have: an expired or a lost one.
            offset, number = int(entries["commit_log_offset"][-1]), None
            if 0 <= offset < self.bounds.start:
                number = 0
            elif self.bounds.start <= offset < self.bounds.end:
                number = self.expected.position_of(offset + 1)
            return _Tail(number, header.end_timestamp)
        last = int(good[-1])
        after = entries["commit_log_offset"][last + 1 :].astype(np.int64)
        time = header.end_timestamp if after.size else int(match.store_timestamps[last])
        # An entry of a lost message takes the place of no expected one.
        return _Tail(int(match.number[good].max()) + 1 + int(np.count_nonzero(~self.bounds.is_lost(after))), time)

    def _entries(self, file: FileReader, start: int, stop: int) -> Entries:
        return np.frombuffer(file.read(self.position_of(start), ENTRY_SIZE * max(stop - start, 0)), ENTRY_DTYPE)

    def match(self, entries: Entries, next_number: int | None) -> EntryMatch:
        """Which expected entries these entries of the file are."""
        hashes, offsets = entries["key_hash"].astype(np.int32), entries["commit_log_offset"].astype(np.int64)
        return match_entries(hashes, offsets, self.expected, next_number, self.bounds)

    def _count(
        self, location: Location, file: FileReader, header: IndexHeader
    ) -> tuple[int, int, pa.RecordBatch | None]:
        """The number after the last entry, the slot of an uncounted one, and what is wrong with the header's count.

        A broker that is killed leaves at most one entry that it did not count; the slot is -1 without such an entry.
        """
        data_end = find_data_end(location, min(self.layout.file_size, location.info().size))
        written = max(-(-(data_end - self.layout.entries_at) // ENTRY_SIZE), 1)
        counted = header.next_entry
        want, have = f"index count {written}", f"index count {header.index_count}"
        wrong_count = findings("INDEX_COUNT", self.path, want, have, position=INDEX_COUNT_AT)
        lacks_sound = self.sound is not None and counted < self.sound.stop
        if counted > self.layout.index_num or counted > written or header.index_count < 0 or lacks_sound:
            # A last entry of zeros is possible, but no key of a sound store is so rare.
            return written, -1, wrong_count
        if counted == written:
            return counted, -1, None
        rest = self._entries(file, counted, written)
        slot = int(rest["key_hash"][0]) % self.layout.hash_slot_num
        (newest,) = np.frombuffer(file.read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE), ">i4").tolist()
        if rest.size == 1 and newest in (counted, int(rest["previous_entry"][0])):
            return counted, slot, None
        if 2 * int(self.match(rest, None).is_same.sum()) > rest.size:
            return written, -1, wrong_count
        position, found = self.position_of(counted), f"bytes up to {data_end}"
        return counted, -1, findings("INDEX_AFTER_END", self.path, "zeros", found, position=position)

    def _slot_findings(
        self, file: FileReader, slots: Int32s, found: bytes, stop: int, uncounted_slot: int
    ) -> Iterator[pa.RecordBatch]:
        for start in range(0, slots.size, BLOCK_ENTRIES):
            want = slots[start : start + BLOCK_ENTRIES]
            at, length = SLOT_SIZE * start, SLOT_SIZE * want.size
            have = np.frombuffer(found[at : at + length] if found else file.read(HEADER_SIZE + at, length), ">i4")
            wrong = np.flatnonzero(have != want)
            wrong = wrong[(have[wrong] != stop) | (start + wrong != uncounted_slot)]
            if wrong.size and not self.log.has_grown():
                texts, position = text("entry ", want[wrong]), HEADER_SIZE + SLOT_SIZE * (start + wrong)
                yield findings("INDEX_SLOT", self.path, texts, text("entry ", have[wrong]), position=position)

    def _header_findings(
        self, header: IndexHeader, used: int, stop: int, begin: tuple[int, int], end: tuple[int, int]
    ) -> Iterator[pa.RecordBatch]:
        fields = [
            (BEGIN_TIMESTAMP_AT, "begin time", header.begin_timestamp, begin[0]),
            (END_TIMESTAMP_AT, "end time", header.end_timestamp, end[0]),
            (BEGIN_COMMIT_LOG_OFFSET_AT, "begin offset", header.begin_commit_log_offset, begin[1]),
            (END_COMMIT_LOG_OFFSET_AT, "end offset", header.end_commit_log_offset, end[1]),
        ]
        # Brokers up to 4.7.0 count every entry, not every slot.
        if header.hash_slot_count != stop - 1:
            fields.append((HASH_SLOT_COUNT_AT, "slots with entries", header.hash_slot_count, used))
        for position, name, found, expected in fields:
            if expected >= 0 and found != expected:
                yield findings("INDEX_HEADER", self.path, f"{name} {expected}", f"{name} {found}", position=position)


def index_file_checks(
    index: IndexFolder, entries: Location, staged: Location, bounds: LogBounds, log: LiveLog, since: Since = WHOLE
) -> Iterator[IndexFileCheck]:
    """The check of each index file that can be checked, except those that are unchanged since they were sound."""
    before: Location | None = None
    if index.layout is None:
        return
    for info in index.files:
        is_last = info is index.files[-1]
        sound = since.entries if since.entries is not None and since.entries.name == info.name else None
        if is_last or sound is not None or f"{INDEX}/{info.name}" not in since.unchanged:
            yield IndexFileCheck(info.location, before, is_last, index.layout, entries, staged, bounds, log, sound)
        before = info.location


def _header(file: FileReader) -> IndexHeader:
    return IndexHeader(*HEADER.unpack(file.read(0, HEADER_SIZE)))


class _Block:
    """Entries of a file from number `first` on, and which expected ones they are."""

    def __init__(self, check: IndexFileCheck, entries: Entries, first: int, next_number: int | None) -> None:
        self.check, self.entries, self.first = check, entries, first
        self.match = check.match(entries, next_number)
        self.offsets: Int64s = entries["commit_log_offset"].astype(np.int64)

    def right_offsets(self) -> Int64s:
        """The commit log offsets that the entries should have, as far as that is known: of the first and the last."""
        offsets = self.offsets.copy()
        for index in {0, offsets.size - 1}:
            if self.match.number[index] != NONE and not self.match.is_same[index]:
                (offsets[index],) = self._offsets_of(self.match.number[[index]])
        return offsets

    def entry_findings(self) -> Iterator[pa.RecordBatch]:
        match, bounds = self.match, self.check.bounds
        wrong = np.flatnonzero((match.number != NONE) & ~match.is_same)
        if wrong.size:
            hashes, offsets = match.key_hashes[wrong], self._offsets_of(match.number[wrong])
            yield self.batch("INDEX_ENTRY_WRONG", wrong, text("key hash ", hashes, ", offset ", offsets), None, offsets)
        unknown = match.number == NONE
        lost = unknown & bounds.contain(self.offsets) & bounds.is_lost(self.offsets)
        yield self.batch("INDEX_NO_MESSAGE", np.flatnonzero(lost), "a message in the log")
        no_message = unknown & ~lost & (bounds.contain(self.offsets) | (self.offsets < 0))
        yield self.batch("INDEX_ENTRY_WRONG", np.flatnonzero(no_message), "a message of the log with such a key")
        stale = np.flatnonzero(unknown & (self.offsets >= bounds.end))
        if stale.size and not self.check.log.has_grown():
            yield self.batch("INDEX_ENTRY_STALE", stale, f"an offset before the live end {bounds.end}")
        yield self.batch("INDEX_ENTRY_TWICE", np.flatnonzero(match.is_double), "one entry for the key", "another one")

    def _offsets_of(self, numbers: Int64s) -> Int64s:
        return self.check.expected.at(numbers).commit_log_offsets

    def missing(self) -> Iterator[pa.RecordBatch]:
        """A finding for each run of entries that the file lacks, at the entry that comes instead."""
        match, numbers = self.match, self.match.missing
        if not numbers.size:
            return
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
        lengths = np.diff(np.append(starts, numbers.size))
        firsts = numbers[starts]
        there = np.flatnonzero((match.number != NONE) & ~match.is_double)
        instead = there[np.searchsorted(np.maximum.accumulate(match.number[there]), firsts)]
        offsets = self._offsets_of(firsts)
        yield findings(
            "INDEX_ENTRY_MISSING",
            self.check.path,
            text(lengths, " entries, from the message at offset ", offsets, " on"),
            "entries of later messages",
            position=self.check.position_of(self.first + instead),
            commit_log_offset=offsets,
        )

    def times(self, begin: int, before: _Tail) -> Iterator[pa.RecordBatch]:
        """Wrong times of entries, which count from that of the file's first entry; its own from the file before."""
        match = self.match
        base = np.full(self.offsets.size, begin, np.int64)
        known = match.store_timestamps >= 0
        if self.first == 1:
            is_first_file = self.check.before is None
            is_very_first = is_first_file and self.check.bounds.start == 0 and match.number[0] == 0
            base[0] = 0 if is_very_first or before.end_timestamp is None else before.end_timestamp
            known[0] &= is_very_first or before.end_timestamp is not None
        seconds = np.clip((match.store_timestamps - base) // 1000, 0, MAX_TIME_DIFFERENCE)
        seconds[base <= 0] = 0
        found = self.entries["time_difference"]
        wrong = np.flatnonzero(known & (found != seconds))
        yield self.batch("INDEX_TIME", wrong, text(seconds[wrong], " seconds"), text(found[wrong], " seconds"))

    def batch(
        self,
        code: str,
        at: Int64s,
        expected: pa.Array | str,
        found: pa.Array | str | None = None,
        offsets: Int64s | None = None,
    ) -> pa.RecordBatch:
        """Findings about the entries `at`; without `found`, each has hash and offset of its entry as text."""
        hashes = self.entries["key_hash"][at]
        return findings(
            code,
            self.check.path,
            expected,
            text("key hash ", hashes, ", offset ", self.offsets[at]) if found is None else found,
            position=self.check.position_of(self.first + at),
            commit_log_offset=self.offsets[at] if offsets is None else offsets,
        )
