"""The records that a broker reads when it starts: first to find the end of the log, then to dispatch them.

`CommitLog.recoverNormally` and `recoverAbnormally` go from file to file, in the order of their names, and do not notice
a gap between two of them. `ReputMessageService.doReput` finds each file by an offset.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.big_endian import read_i32
from spark_mq.format.kernels.frames import Frame, Frames, new_frames
from spark_mq.format.kernels.recovery import (
    ACCEPTS_V2,
    CHECKS_BATCH,
    CHECKS_BODY_CRC,
    CHECKS_PROPERTY_CRC,
    CHECKS_SIZE_FIRST,
    RULES_OF_VERSIONS,
    SKIPS_BODY,
    RecordCheck,
    check_records,
)
from spark_mq.format.record import BLANK_SIZE, MAGIC_AT, MAGIC_V2, MIN_RECORD_SIZE, is_blank
from spark_mq.store.log.commit_log import Segment, SegmentSource
from spark_mq.store.log.record_reader import CHUNK_SIZE, RecordChunk
from spark_mq.store.log.segment_files import SegmentFile

_MAGIC_V2 = MAGIC_V2.to_bytes(4, "big", signed=True)
_FIRST_LOOK = 64 << 10
"""Bytes that are read to look at one record."""
END_REASONS = {
    RecordCheck.BLANK: "the blank that ends the last file is there, and no file follows",
    RecordCheck.ZEROS: "size and magic number are 0, nothing was written there",
    RecordCheck.SHORT: "the file ends before a record does",
    RecordCheck.BAD_SIZE: "a record's size is negative, or points past the end of the file",
    RecordCheck.BAD_MAGIC: "the magic number is not a record's",
    RecordCheck.BAD_CRC: "the CRC of a record is wrong",
    RecordCheck.BAD_LENGTH: "a length in a record is impossible",
    RecordCheck.BAD_SUM: "the lengths in a record do not add up to its size",
    RecordCheck.TOO_NEW: "a record of format V2 (a long topic) is there, which brokers before 5.1 reject",
    RecordCheck.BAD_OFFSET: "a record states a commit log offset of another segment (checkCommitLogOffsetOnRecover)",
    RecordCheck.BAD_PROPERTY: "a property of a record is not a number (DELAY, INNER_NUM or INNER_BASE)",
}
"""Why the check of the log ends at a position."""


@dataclass(frozen=True)
class WalkEnd:
    """The end of the log as a recovery finds it: a position in a file, and what is there."""

    file: SegmentFile
    position: int
    found: RecordCheck

    @property
    def commit_log_offset(self) -> int:
        """The offset at which the log ends."""
        return self.file.base + self.position


class _Reader:
    """Reads one file, up to `limit`."""

    def __init__(self, file: SegmentFile, limit: int, rules: int) -> None:
        self.source = SegmentSource(Segment.whole(file))
        self._file = file
        self._limit = limit
        self._rules = rules
        self._frames: Frames = new_frames(0)

    def check(self, position: int) -> Iterator[tuple[RecordChunk, int, RecordCheck]]:
        """Chunks of records, each with the position after it, and what is there; the last one is not MORE or FULL."""
        length = CHUNK_SIZE
        while True:
            buffer = self.source.read(position, min(length, self._limit - position))
            if self._frames.size < buffer.size // MIN_RECORD_SIZE + 1:
                self._frames = new_frames(buffer.size // MIN_RECORD_SIZE + 1)
            count, reached, found = check_records(buffer, self._limit - position, self._rules, self._frames)
            chunk = RecordChunk(buffer, self._frames[:count], self._file.base + position)
            position += int(reached)
            yield chunk, position, RecordCheck(int(found))
            if found not in (RecordCheck.MORE, RecordCheck.FULL):
                return
            length = CHUNK_SIZE if reached else 2 * length

    def length_at(self, position: int) -> tuple[int, int]:
        """The size that the record at `position` states, and the sum of its lengths, if that is another number."""
        buffer, frame, _ = self._first(position)
        start = int(frame.position)  # after the head of a DLedger entry, which the sum contains, too
        return start + int(read_i32(buffer, start)), int(frame.properties_start) + int(frame.properties_length)

    def accepts(self, position: int) -> bool:
        """Whether there is a record at `position` that is accepted."""
        return self._first(position)[2] == RecordCheck.FULL

    def _first(self, position: int) -> tuple[Bytes, Frame, int]:
        """What is at `position`: the bytes, the frame, and FULL if it is a record that is accepted."""
        frames, length = new_frames(1), _FIRST_LOOK
        while True:
            buffer = self.source.read(position, min(length, self._limit - position))
            _, _, found = check_records(buffer, self._limit - position, self._rules, frames)
            if found != RecordCheck.MORE:
                return buffer, frames[0], found
            length *= 2


def accepts_record(file: SegmentFile, rules: int, position: int = 0) -> bool:
    """Whether a recovery accepts the record at a position in a file, by `rules` of `kernels.recovery`."""
    reader = _Reader(file, file.size, rules)
    with reader.source:
        return reader.accepts(position)


class FileCheck:
    """The check of one file from a position on. After the iteration, `end` is where it ends."""

    def __init__(self, file: SegmentFile, rules: int, position: int = 0) -> None:
        """A check by `rules` of `kernels.recovery`."""
        self.end = WalkEnd(file, position, RecordCheck.ZEROS)
        self._rules = rules
        self._has_v2 = False
        self._head_at_end = b""

    def read(self) -> Iterator[RecordChunk]:
        """The records that are accepted. A chunk is valid until the next one is read."""
        file = self.end.file
        reader = _Reader(file, file.size, self._rules)
        with reader.source:
            for chunk, position, found in reader.check(self.end.position):
                frames, at_end = chunk.frames, position + file.base - chunk.base
                self.end = WalkEnd(file, position, found)
                self._head_at_end = chunk.buffer[at_end : at_end + BLANK_SIZE].tobytes()
                widths = frames.topic_start - frames.body_start - frames.body_length
                self._has_v2 |= bool((widths > 1).any()) or self._head_at_end[MAGIC_AT:] == _MAGIC_V2
                if frames.size:
                    yield chunk

    def reaches(self, stop: int) -> bool:
        """Whether all before commit log offset `stop` that is in the file are records, and the blank that ends it."""
        end = self.end
        return end.commit_log_offset >= stop or is_blank(self._head_at_end, end.file.size - end.position)

    def holds_for(self, rules: int) -> bool:
        """Whether a check by `rules`, which are some of the rules of this one, has the same result."""
        missing, found = self._rules & ~rules, self.end.found
        return not (
            missing & ~RULES_OF_VERSIONS
            or (missing & ACCEPTS_V2 and self._has_v2)
            or (missing & CHECKS_SIZE_FIRST and found == RecordCheck.BAD_SIZE)
            or (missing & CHECKS_BATCH and found == RecordCheck.BAD_PROPERTY)
        )


class DispatchWalk:
    """The records that a broker dispatches after the recovery, from an offset to the end of the log.

    `stuck_at` is None, or the offset at which it finds nothing to read: then it waits forever, and does not start.
    """

    def __init__(self, files: Sequence[SegmentFile], log_end: int, rules: int, checks_end: bool) -> None:
        """Prepare. With `checks_end`, a record that reaches past the end is not read, as of 5.0.0."""
        self.stuck_at: int | None = None
        self._files = files
        self._log_end = log_end
        self._rules = (rules | SKIPS_BODY) & ~(CHECKS_BODY_CRC | CHECKS_PROPERTY_CRC)
        self._checks_end = checks_end

    def read(self, offset: int) -> Iterator[RecordChunk]:
        """The records that are dispatched from `offset` on. A chunk is valid until the next one is read."""
        while offset < self._log_end:
            file = next((file for file in self._files if file.base <= offset < file.base + file.size), None)
            limit = 0 if file is None else min(self._log_end - file.base, file.size)
            if file is None or offset - file.base >= limit:
                self.stuck_at = offset
                return
            reader = _Reader(file, limit, self._rules)
            with reader.source:
                offset = yield from self._read_file(reader, file, limit, offset)
            if self.stuck_at is not None:
                return

    def _read_file(
        self, reader: _Reader, file: SegmentFile, limit: int, offset: int
    ) -> Generator[RecordChunk, None, int]:
        """The records of one file; returns the offset at which the broker goes on.

        `position` is that of the buffer. After a record whose lengths do not add up, it differs from `offset`.
        """
        position = offset - file.base
        size, done = limit - position, 0
        while done < size and (not self._checks_end or offset < self._log_end):
            before, found = position, RecordCheck.SHORT
            for chunk, reached, reason in reader.check(position):
                found = reason
                offset, done, position = offset + reached - position, done + reached - position, reached
                if chunk.frames.size:
                    yield chunk
            if found == RecordCheck.BLANK:
                return offset + file.size - offset % file.size
            stated, length = reader.length_at(position) if found == RecordCheck.BAD_SUM else (0, 0)
            if stated <= 0:
                return offset + size - done
            if self._checks_end and offset + stated > self._log_end:
                self.stuck_at = offset
                return offset
            offset, position = offset + stated, position + length
            assert position > before
        return offset
