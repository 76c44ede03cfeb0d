"""One segment of the new log, written by one task.

The task sorts the places of its records, and assembles the file in parts of about 32 MiB. So it needs some 40 bytes for
each message, and not the whole segment. Bytes between two records that no message has become left-out records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Self

import numpy as np

from spark_mq.errors import InvalidMessageError
from spark_mq.format.array_types import Int64s
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, encode_blank
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import FileInParts, copy_bytes, published
from spark_mq.restorer.offset_map import OffsetMap
from spark_mq.restorer.placement import Piece, SegmentPlan, WrittenSegment
from spark_mq.restorer.record_columns import ChunkRows

PART_SIZE = 32 << 20
"""Bytes of a segment that are assembled at once; a part ends before a record, so it can be longer."""

_LARGE_GAP = 1 << 20
"""A gap of more bytes ends a part."""

_EDGE = 4 << 10
"""Bytes at both ends of a left-out record that have all of its fields."""


@dataclass(frozen=True)
class SegmentWriter:
    """Writes segments into `folder`.

    `blanks` are those of `Source`. A log that is continued has a file `previous`, with the bytes before
    `SegmentPlan.start`, and no store time before `earliest`.
    """

    folder: Location
    blanks: Mapping[int, bytes]
    previous: Location | None
    earliest: int | None
    offset_map: OffsetMap | None

    def write(self, plan: SegmentPlan) -> WrittenSegment:
        """Write one segment."""
        pieces = [_PieceRows.of(piece, self.earliest) for piece in plan.pieces]
        places = _Places.of(plan, pieces)
        with published(self.folder / f"{plan.base:020d}", plan.size) as file:
            segment = _File(file, plan.base)
            if self.previous is not None and plan.start > plan.base:
                with FileReader(self.previous) as reader:
                    copy_bytes(reader, file, 0, plan.start - plan.base)
            with ExitStack() as stack:
                readers = [stack.enter_context(FileReader(piece.chunk.records)) for piece in plan.pieces]
                for first, stop in places.parts():
                    segment.write_part(places, first, stop, list(zip(pieces, readers, strict=True)))
            end = self._write_end(plan, places, segment)
        if self.offset_map is not None:
            for piece in pieces:
                self.offset_map.write(piece.piece.chunk.queues(), piece.rows, piece.offsets, piece.queue_offsets)
        last = int(places.times[-1]) if places.times.size else plan.store_timestamp
        raised = sum(piece.raised for piece in pieces)
        return WrittenSegment(places.offsets.size, end, segment.gaps, segment.gap_bytes, last, raised)

    def _write_end(self, plan: SegmentPlan, places: _Places, segment: _File) -> int:
        """Write the blank, if the segment has one; returns the end of the log in this segment."""
        if not plan.has_blank:
            return places.end
        start, stop = places.end, plan.base + plan.size
        if stop - start > MAX_BLANK_SIZE:
            segment.fill(start, stop - BLANK_SIZE, int(places.times[-1]) if places.times.size else plan.store_timestamp)
            start = stop - BLANK_SIZE
        blank = encode_blank(stop - start)[:BLANK_SIZE]
        known = self.blanks.get(start, b"")
        segment.file.write(start - plan.base, known if known[:BLANK_SIZE] == blank else blank)
        return stop


@dataclass(frozen=True)
class _PieceRows:
    piece: Piece
    rows: ChunkRows
    starts: Int64s
    offsets: Int64s
    queue_offsets: Int64s | None
    raised: int

    @classmethod
    def of(cls, piece: Piece, earliest: int | None) -> Self:
        of_chunk, own = piece.chunk.rows(), slice(piece.first_row, piece.stop_row)
        rows = of_chunk.take(np.arange(piece.first_row, piece.stop_row))
        starts = of_chunk.starts[piece.first_row : piece.stop_row + 1]
        if piece.offset is None:
            return cls(piece, rows, starts, rows.commit_log_offset, None, 0)
        raised = 0
        if earliest is not None:
            raised = int((rows.store_timestamp < earliest).sum())
            rows.store_timestamp[:] = np.maximum(rows.store_timestamp, earliest)
        queue_offsets = piece.chunk.new_queue_offsets(of_chunk)[own]
        return cls(piece, rows, starts, starts[:-1] - starts[0] + piece.offset, queue_offsets, raised)


@dataclass(frozen=True)
class _Places:
    start: int
    offsets: Int64s
    ends: Int64s
    times: Int64s

    @classmethod
    def of(cls, plan: SegmentPlan, pieces: Sequence[_PieceRows]) -> Self:
        if not pieces:
            nothing = np.zeros(0, np.int64)
            return cls(plan.start, nothing, nothing, nothing)
        offsets = np.concatenate([piece.offsets for piece in pieces])
        order = np.argsort(offsets, kind="stable")
        offsets = offsets[order]
        ends = offsets + np.concatenate([piece.rows.store_size for piece in pieces])[order]
        overlaps = np.flatnonzero(offsets[1:] < ends[:-1])
        if overlaps.size:
            first, second = int(offsets[overlaps[0]]), int(offsets[overlaps[0] + 1])
            what = f"offset {first}" if first == second else f"the bytes before {int(ends[overlaps[0]])}"
            raise InvalidMessageError(
                f"the messages at commit log offsets {first} and {second} both claim {what}: the rows are of two "
                "stores, or twice in the source; choose one store, remove the doubles, or give new offsets (--renumber)"
            )
        limit = plan.base + plan.size - BLANK_SIZE
        if ends[-1] > limit:
            raise InvalidMessageError(
                f"the message at commit log offset {int(offsets[-1])} ends at {int(ends[-1])}, but in a segment of "
                f"{plan.size} bytes it has to end before {limit}: the source had segments of another size "
                "(mappedFileSizeCommitLog): give its settings (--broker-conf), or --renumber"
            )
        return cls(plan.start, offsets, ends, np.concatenate([piece.rows.store_timestamp for piece in pieces])[order])

    @property
    def end(self) -> int:
        return int(self.ends[-1]) if self.ends.size else self.start

    @property
    def gaps(self) -> Int64s:
        """The bytes before each record that no record has."""
        gaps: Int64s = self.offsets - np.concatenate((np.array([self.start]), self.ends[:-1]))
        return gaps

    def parts(self) -> list[tuple[int, int]]:
        """The records in parts: the number of the first one, and the number after the last one."""
        if not self.offsets.size:
            return []
        steps = (self.offsets - self.start) // PART_SIZE
        breaks = np.flatnonzero((np.diff(steps) != 0) | (self.gaps[1:] > _LARGE_GAP)) + 1
        return list(zip([0, *breaks.tolist()], [*breaks.tolist(), self.offsets.size], strict=True))


class _File:
    def __init__(self, file: FileInParts, base: int) -> None:
        self.file = file
        self.gaps = 0
        self.gap_bytes = 0
        self._base = base

    def write_part(
        self, places: _Places, first: int, stop: int, pieces: Sequence[tuple[_PieceRows, FileReader]]
    ) -> None:
        """Write the records `first` to `stop` of all places, and the gaps before each of them."""
        from spark_mq.format.kernels.encode import fill_gaps, renumber
        from spark_mq.format.kernels.gather import scatter_bytes

        start, end = int(places.offsets[first]), int(places.ends[stop - 1])
        before = int(places.ends[first - 1]) if first else places.start
        self.fill(before, start, int(places.times[first]))
        part = np.zeros(end - start, np.uint8)
        for piece, reader in pieces:
            low, high = np.searchsorted(piece.offsets, (start, end)).tolist()
            if low == high:
                continue
            at, till = int(piece.starts[low]), int(piece.starts[high])
            data = np.frombuffer(reader.read(at, till - at), np.uint8).copy()
            offsets, positions = piece.offsets[low:high], piece.starts[low:high] - at
            if piece.queue_offsets is not None:
                times = piece.rows.store_timestamp[low:high]
                renumber(data, positions, offsets, piece.queue_offsets[low:high], times)
            scatter_bytes(data, positions, piece.rows.store_size[low:high], offsets - start, part)
        inner = slice(first + 1, stop)
        gaps = places.gaps[inner]
        if gaps.any():
            has_gap = gaps != 0
            stops = places.offsets[inner][has_gap]
            starts = stops - gaps[has_gap]
            fill_gaps(part, start, starts, stops, places.times[inner][has_gap])
            self.gaps += int(has_gap.sum())
            self.gap_bytes += int(gaps.sum())
        self.file.write(start - self._base, part.data)

    def fill(self, start: int, stop: int, store_timestamp: int) -> None:
        """Fill a gap with left-out records, of which each is written by itself."""
        from spark_mq.format.kernels.encode import MAX_LEFT_OUT_SIZE, MIN_GAP_SIZE, fill_gaps

        if start == stop:
            return
        self.gaps += 1
        self.gap_bytes += stop - start
        while start < stop:
            # The rest is as large as a gap must be.
            rest = stop - start
            end = stop if rest <= MAX_LEFT_OUT_SIZE else min(start + MAX_LEFT_OUT_SIZE, stop - MIN_GAP_SIZE)
            records = np.zeros(end - start, np.uint8)
            fill_gaps(records, start, np.array([start]), np.array([end]), np.array([store_timestamp]))
            # Zeros are between the first and the last fields of a large record, where the file can have a hole.
            edges = [records] if records.size < _LARGE_GAP else [records[:_EDGE], records[-_EDGE:]]
            for edge, at in zip(edges, (start, end - _EDGE), strict=False):
                self.file.write(at - self._base, edge.data)
            start = end
