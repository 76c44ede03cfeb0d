"""Soundness of one index file: entries against those of the log; header, slots and chains against the entries.

`IndexFile.putKey`@5.3.3 makes a file out of nothing but its entries, in their order, and the end of the file before it.
So everything in a file has one right value. A file is read block by block, and only its slots are kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Int32s
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
    SLOT_SIZE,
    Entries,
    IndexHeader,
    IndexLayout,
)
from spark_mq.format.kernels.index_put import follow_slots
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.verifier.entry_match import NONE, EntryMatch, ExpectedEntries, Numbers, match_entries
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.log_bounds import LiveLog, LogBounds
from spark_mq.verifier.sink import FindingSink

BLOCK_ENTRIES = 1 << 18
_WINDOW = 1 << 22
"""Expected entries that are read together."""
_MAX_SECONDS = 0x7FFFFFFF


@dataclass(frozen=True)
class IndexFileCheck:
    """The check of one index file.

    Attributes:
        before: The file before it; None if it is the first one.
        layout: The numbers of slots and entries.
        entries: The list of the entries that the log has (`ExpectedEntries.save`).
        bounds: Start and end of the log.
        log: The log as it was when the check began.
    """

    file: Location
    before: Location | None
    is_last: bool
    layout: IndexLayout
    entries: Location
    staged: Location
    bounds: LogBounds
    log: LiveLog

    def __call__(self, sink: FindingSink) -> None:
        """Put what is wrong into `sink`."""
        expected = ExpectedEntries.load(self.entries, self.staged)
        tail = NO_FILE_BEFORE
        if self.before is not None:
            tail = IndexFileChecker(self.before, self.layout, expected, self.bounds).tail()
        checker = IndexFileChecker(self.file, self.layout, expected, self.bounds)
        sink.add(checker.findings(tail, self.is_last, self.log.has_grown))


@dataclass(frozen=True)
class IndexTail:
    """The end of the file before a file.

    Attributes:
        next_number: The number of the expected entry that comes after it; None if that is not known.
        end_timestamp: The store time of its last entry, in milliseconds, from which the next file counts; None if that
            is not known.
    """

    next_number: int | None
    end_timestamp: int | None


NO_FILE_BEFORE = IndexTail(0, None)


class IndexFileChecker:
    """The check of one index file, whose size is that of its layout.

    Args:
        layout: The numbers of slots and entries.
        bounds: Start and end of the log.
    """

    def __init__(self, location: Location, layout: IndexLayout, expected: ExpectedEntries, bounds: LogBounds) -> None:
        self.location, self.layout, self.expected, self.bounds = location, layout, expected, bounds
        self.path = f"index/{location.name}"
        self._uncounted_slot = -1
        """The slot of the one entry that a killed broker wrote and did not count; -1 without such an entry."""

    def tail(self) -> IndexTail:
        """The end of this file, for the check of the next one."""
        with FileReader(self.location) as file:
            header = self._header(file)
            stop = self._count(file, header)[0]
            start = max(1, stop - 256)
            entries = self._entries(file, start, stop)
            if not entries.size:
                return IndexTail(None, header.end_timestamp)
            match = self._match(entries, None)
            good = np.flatnonzero((match.number != NONE) & match.is_same)
            if not good.size:
                return IndexTail(self._number_after(int(entries["commit_log_offset"][-1])), header.end_timestamp)
            last = int(good[-1])
            time = int(match.store_timestamps[last])
            after = entries.size - 1 - last
            return IndexTail(int(match.number[good].max()) + 1 + after, time if not after else header.end_timestamp)

    def _number_after(self, offset: int) -> int | None:
        """The number of the expected entry after an entry that the log does not have: an expired or a lost one."""
        if 0 <= offset < self.bounds.start:
            return 0
        return self.expected.position_of(offset + 1) if self.bounds.start <= offset < self.bounds.end else None

    def findings(self, before: IndexTail, is_last: bool, has_newer: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
        """What is wrong with the file.

        Args:
            is_last: Whether it is the newest file of the index.
            has_newer: Says whether a broker is appending: entries of later messages are left out then.

        Yields:
            Findings.
        """
        with FileReader(self.location) as file:
            header = self._header(file)
            stop, problems = self._count(file, header)
            if problems and not has_newer():
                yield from problems
            slots = np.zeros(self.layout.hash_slot_num, np.int32)
            used, next_number = 0, before.next_number
            begin: tuple[int, int] | None = None  # store time and offset of the first entry
            end = (-1, -1)
            for first in range(1, stop, BLOCK_ENTRIES):
                entries = self._entries(file, first, min(first + BLOCK_ENTRIES, stop))
                match = self._match(entries, next_number)
                next_number = match.next_number
                offsets = self._right_offsets(entries, match)
                if begin is None:
                    begin = int(match.store_timestamps[0]), int(offsets[0])
                end = int(match.store_timestamps[-1]), int(offsets[-1])
                yield from self._entry_findings(entries, match, first, has_newer)
                base = begin[0] if begin[0] >= 0 else header.begin_timestamp
                yield from self._time_findings(entries, match, first, base, before)
                previous = np.empty(entries.size, np.int32)
                used += follow_slots(match.key_hashes, first, slots, previous)
                wrong = entries["previous_entry"] != previous
                yield from self._batch(
                    "INDEX_CHAIN",
                    np.flatnonzero(wrong),
                    first,
                    entries,
                    expected=text("entry ", previous[wrong], " before it") if wrong.any() else None,
                    found=text("entry ", entries["previous_entry"][wrong]) if wrong.any() else None,
                )
            yield from self._slot_findings(file, slots, stop, has_newer)
            wrong_fields = list(self._header_findings(header, used, stop, begin, end))
            if wrong_fields and not has_newer():
                yield from wrong_fields
        if is_last and next_number is not None and next_number < self.expected.count and not has_newer():
            yield self._lag(next_number)

    def _header(self, file: FileReader) -> IndexHeader:
        return IndexHeader(*HEADER.unpack(file.read(0, HEADER_SIZE)))

    def _entries(self, file: FileReader, start: int, stop: int) -> Entries:
        data = file.read(self.layout.entries_at + ENTRY_SIZE * start, ENTRY_SIZE * max(stop - start, 0))
        return np.frombuffer(data, ENTRY_DTYPE)

    def _match(self, entries: Entries, next_number: int | None) -> EntryMatch:
        hashes = entries["key_hash"].astype(np.int32)
        offsets = entries["commit_log_offset"].astype(np.int64)
        return match_entries(hashes, offsets, self.expected, next_number, self.bounds)

    def _count(self, file: FileReader, header: IndexHeader) -> tuple[int, list[pa.RecordBatch]]:
        """The number after the last entry, and findings about the header's count and the bytes after the entries.

        A broker that is killed leaves at most one entry that it did not count.
        """
        data_end = find_data_end(self.location, self.layout.file_size)
        written = max(-(-(data_end - self.layout.entries_at) // ENTRY_SIZE), 1)
        counted = header.next_entry
        if counted > self.layout.index_num or counted > written or header.index_count < 0:
            # A last entry of zeros is possible, but no key of a sound store is so rare.
            return written, [self._count_finding(header.index_count, written)]
        if counted == written:
            return counted, []
        rest = self._entries(file, counted, written)
        slot = int(rest["key_hash"][0]) % self.layout.hash_slot_num
        (newest,) = np.frombuffer(file.read(HEADER_SIZE + SLOT_SIZE * slot, SLOT_SIZE), ">i4").tolist()
        if rest.size == 1 and newest in (counted, int(rest["previous_entry"][0])):
            self._uncounted_slot = slot
            return counted, []
        match = self._match(rest, None)
        if 2 * int(match.is_same.sum()) > rest.size:
            return written, [self._count_finding(header.index_count, written)]
        position = self.layout.entries_at + ENTRY_SIZE * counted
        return counted, [
            findings(
                "INDEX_AFTER_END",
                file=self.path,
                position=position,
                expected="zeros",
                found=f"bytes up to {data_end}",
            )
        ]

    def _count_finding(self, counted: int, written: int) -> pa.RecordBatch:
        return findings(
            "INDEX_COUNT",
            file=self.path,
            position=INDEX_COUNT_AT,
            expected=f"index count {written}",
            found=f"index count {counted}",
        )

    def _right_offsets(self, entries: Entries, match: EntryMatch) -> Numbers:
        """The commit log offsets that the entries should have, as far as that is known: of the first and the last."""
        offsets = entries["commit_log_offset"].astype(np.int64)
        for index in {0, entries.size - 1}:
            number = int(match.number[index])
            if number != NONE and not match.is_same[index]:
                offsets[index] = self.expected.read(number, number + 1).commit_log_offsets[0]
        return offsets

    def _entry_findings(
        self, entries: Entries, match: EntryMatch, first: int, has_newer: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        offsets = entries["commit_log_offset"].astype(np.int64)
        wrong = np.flatnonzero((match.number != NONE) & ~match.is_same)
        if wrong.size:
            hashes, should = match.key_hashes[wrong], self._offsets_of(match.number[wrong])
            yield from self._batch(
                "INDEX_ENTRY_WRONG",
                wrong,
                first,
                entries,
                expected=text("key hash ", hashes, ", offset ", should),
                found=self._entry_text(entries, wrong),
                commit_log_offset=should,
            )
        unknown = (match.number == NONE) & (offsets >= self.bounds.start) & (offsets < self.bounds.end)
        lost = unknown & self.bounds.is_lost(offsets)
        at = np.flatnonzero(lost)
        yield from self._batch(
            "INDEX_NO_MESSAGE",
            at,
            first,
            entries,
            expected="a message in the log",
            found=self._entry_text(entries, at),
        )
        unknown |= (match.number == NONE) & (offsets < 0)
        at = np.flatnonzero(unknown & ~lost)
        yield from self._batch(
            "INDEX_ENTRY_WRONG",
            at,
            first,
            entries,
            expected="a message of the log with such a key",
            found=self._entry_text(entries, at),
        )
        at = np.flatnonzero((match.number == NONE) & (offsets >= self.bounds.end))
        if at.size and not has_newer():
            yield from self._batch(
                "INDEX_ENTRY_STALE",
                at,
                first,
                entries,
                expected=f"an offset before the live end {self.bounds.end}",
                found=self._entry_text(entries, at),
            )
        at = np.flatnonzero(match.is_double)
        yield from self._batch(
            "INDEX_ENTRY_TWICE", at, first, entries, expected="one entry for the key", found="another one"
        )
        yield from self._missing(match, first)

    def _offsets_of(self, numbers: Numbers) -> Numbers:
        low = int(numbers.min())
        window = self.expected.read(low, int(numbers.max()) + 1)
        offsets: Numbers = window.commit_log_offsets[numbers - low]
        return offsets

    def _missing(self, match: EntryMatch, first: int) -> Iterator[pa.RecordBatch]:
        """A finding for each run of entries that the file lacks, at the entry that comes instead."""
        numbers = match.missing
        if not numbers.size:
            return
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 2) != 1)
        lengths = np.diff(np.append(starts, numbers.size))
        firsts = numbers[starts]
        there = np.flatnonzero((match.number != NONE) & ~match.is_double)
        instead = there[np.searchsorted(np.maximum.accumulate(match.number[there]), firsts)]
        offsets = np.empty(starts.size, np.int64)
        for block in range(0, int(firsts[-1] - firsts[0]) + 1, _WINDOW):
            low = int(firsts[0]) + block
            here = (firsts >= low) & (firsts < low + _WINDOW)
            if here.any():
                at = firsts[here]
                window = self.expected.read(int(at[0]), int(at[-1]) + 1)
                offsets[here] = window.commit_log_offsets[at - at[0]]
        yield findings(
            "INDEX_ENTRY_MISSING",
            starts.size,
            file=self.path,
            position=self.layout.entries_at + ENTRY_SIZE * (first + instead),
            commit_log_offset=offsets,
            expected=text(lengths, " entries, from the message at offset ", offsets, " on"),
            found="entries of later messages",
        )

    def _time_findings(
        self, entries: Entries, match: EntryMatch, first: int, begin: int, before: IndexTail
    ) -> Iterator[pa.RecordBatch]:
        base = np.full(entries.size, begin, np.int64)
        known = match.store_timestamps >= 0
        if first == 1:
            is_very_first = before is NO_FILE_BEFORE and self.bounds.start == 0 and match.number[0] == 0
            base[0] = 0 if is_very_first or before.end_timestamp is None else before.end_timestamp
            known[0] &= is_very_first or before.end_timestamp is not None
        seconds = np.clip((match.store_timestamps - base) // 1000, 0, _MAX_SECONDS)
        seconds[base <= 0] = 0
        wrong = np.flatnonzero(known & (entries["time_difference"] != seconds))
        yield from self._batch(
            "INDEX_TIME",
            wrong,
            first,
            entries,
            expected=text(seconds[wrong], " seconds") if wrong.size else None,
            found=text(entries["time_difference"][wrong], " seconds") if wrong.size else None,
        )

    def _slot_findings(
        self, file: FileReader, slots: Int32s, stop: int, has_newer: Callable[[], bool]
    ) -> Iterator[pa.RecordBatch]:
        for start in range(0, slots.size, BLOCK_ENTRIES):
            want = slots[start : start + BLOCK_ENTRIES]
            have = np.frombuffer(file.read(HEADER_SIZE + SLOT_SIZE * start, SLOT_SIZE * want.size), ">i4")
            wrong = np.flatnonzero(have != want)
            wrong = wrong[(have[wrong] != stop) | (start + wrong != self._uncounted_slot)]
            if wrong.size and not has_newer():
                yield findings(
                    "INDEX_SLOT",
                    wrong.size,
                    file=self.path,
                    position=HEADER_SIZE + SLOT_SIZE * (start + wrong),
                    expected=text("entry ", want[wrong]),
                    found=text("entry ", have[wrong]),
                )

    def _header_findings(
        self, header: IndexHeader, used: int, stop: int, begin: tuple[int, int] | None, end: tuple[int, int]
    ) -> Iterator[pa.RecordBatch]:
        if begin is None:
            return
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
                yield findings(
                    "INDEX_HEADER",
                    file=self.path,
                    position=position,
                    expected=f"{name} {expected}",
                    found=f"{name} {found}",
                )

    def _lag(self, next_number: int) -> pa.RecordBatch:
        first = self.expected.read(next_number, next_number + 1)
        return findings(
            "INDEX_LAGS",
            file=self.path,
            commit_log_offset=int(first.commit_log_offsets[0]),
            expected=f"{self.expected.count - next_number} more entries",
            found="the end of the index",
        )

    def _batch(self, code: str, at: Numbers, first: int, entries: Entries, **columns: Any) -> Iterator[pa.RecordBatch]:
        if not at.size:
            return
        columns.setdefault("commit_log_offset", entries["commit_log_offset"][at].astype(np.int64))
        position = self.layout.entries_at + ENTRY_SIZE * (first + at)
        yield findings(code, at.size, file=self.path, position=position, **columns)

    def _entry_text(self, entries: Entries, at: Numbers) -> pa.Array | None:
        if not at.size:
            return None
        return text("key hash ", entries["key_hash"][at], ", offset ", entries["commit_log_offset"][at])
