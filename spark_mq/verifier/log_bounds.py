"""Where the log starts and ends, and its damaged parts: what queues and index are compared with, besides messages."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, Queue, Units, is_live
from spark_mq.format.record import MIN_RECORD_SIZE
from spark_mq.format.timestamp import iso_text
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.log.commit_log import CommitLog, Segment, SegmentSource
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.store_lock import is_locked
from spark_mq.verifier.finding import findings
from spark_mq.verifier.folders import IndexFolder

_DISPATCH_SECONDS = 2.0
_LOOK_SECONDS = 0.05
_LOOK = 64
"""Bytes at the end of the log that change when a broker appends."""


@dataclass(frozen=True)
class LogBounds:
    """Start and end of the log, and its parts without a readable record: in order, without overlaps."""

    start: int
    end: int
    is_clean: bool
    holes: tuple[LogRange, ...] = ()

    def is_lost(self, offsets: Int64s) -> Flags:
        """Which commit log offsets are in a part without a readable record."""
        if not self.holes:
            return np.zeros(offsets.size, np.bool_)
        starts, stops = np.array([(hole.start, hole.stop) for hole in self.holes], np.int64).T
        at = np.searchsorted(starts, offsets, "right") - 1
        lost: Flags = (at >= 0) & (offsets < stops[np.maximum(at, 0)])
        return lost

    def contain(self, offsets: Int64s) -> Flags:
        """Which commit log offsets are in the log, or in a hole of it."""
        inside: Flags = (offsets >= self.start) & (offsets < self.end)
        return inside


@dataclass
class LiveLog:
    """The log as it was when the check began; a broker may be appending to it."""

    store: Location
    last: Segment
    end: int
    last_store_timestamp: int
    _has_grown: bool = field(default=False, compare=False)
    _seen: tuple[bytes, bool] | None = field(default=None, compare=False)
    """What was at the end, and whether there was a next segment, when the log was last looked at."""

    def has_grown(self) -> bool:
        """Whether the log has live records after its end now.

        A record or a blank is written at the end itself. While nothing changes there, the log is not read again: a
        stale tail can cost the reading of a whole segment.
        """
        if not self._has_grown:
            with FileReader(self.last.location) as file:
                data = file.read(self.end - self.last.base, _LOOK)
            now = data, (self.last.location.parent / f"{self.last.base + self.last.size:020d}").is_file
            if now != self._seen:
                self._seen, self._has_grown = now, self._has_live_records()
        return self._has_grown

    def wait_for_broker(self) -> None:
        """If a broker runs, wait until the log has grown, or until the broker had time to dispatch all messages.

        A broker writes units and index entries a moment after the messages
        (`DefaultMessageStore.ReputMessageService`@5.3.3). A busy one can take longer than a check of a small store.
        """
        deadline = time.monotonic() + _DISPATCH_SECONDS
        while is_locked(self.store) and not self.has_grown() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _has_live_records(self) -> bool:
        from spark_mq.store.log.live_reader import LiveReader
        from spark_mq.store.log.record_reader import RecordChunk

        last = CommitLog.open(self.store).segments[-1]
        if last.base != self.last.base or last.has_entries:
            return last.base + last.data_end > self.end
        with SegmentSource(last) as source:
            reader = LiveReader(source, self.end - last.base, self.last_store_timestamp)
            return any(isinstance(part, RecordChunk) for part in reader.read(last.data_end))


def log_start_findings(
    file: str, start: int, folders: Iterable[QueueFolder], bounds: Mapping[Queue, range], index: IndexFolder
) -> Iterator[pa.RecordBatch]:
    """At most one finding: what the first unit of each queue and the headers of index files have before the log.

    `file` is the first segment, which starts at offset `start`.
    """
    if start <= 0:
        return
    units = [_units_before(folder, start, bounds.get((folder.topic, folder.queue_id))) for folder in folders]
    headers = [info.stored_header() for info in index.files]
    older = [one for one in headers if one.next_entry > 1 and 0 <= one.begin_commit_log_offset < start]
    if any(units) or older:
        since = f"; the oldest entry is of {iso_text(min(one.begin_timestamp for one in older))}" if older else ""
        queues = f"{sum(units)} units of {sum(map(bool, units))} queues"
        yield findings(
            "LOG_BEFORE_START",
            file,
            "the first message of queues and index",
            f"{queues}, and entries of {len(older)} index files, before it{since}",
            commit_log_offset=start,
        )


def _units_before(folder: QueueFolder, start: int, bounds: range | None) -> int:
    """The number of units before the first message of the log; of pre-blank units only those in the first file."""
    first = folder.files[0]
    count = 0 if bounds is None else bounds.start - int(first.base_name) // UNIT_SIZE
    if count <= 0:
        return 0
    with FileReader(folder.location / first.base_name) as file:
        units = _units(file, 1)
        if not is_live(units)[0]:  # a queue that does not begin with its file
            units = _units(file, min(count, first.size // UNIT_SIZE))
    live = is_live(units)
    if not live.any() or units["commit_log_offset"][live][0] >= start:
        return 0
    return count - int(np.argmax(live))


def _units(file: FileReader, count: int) -> Units:
    return np.frombuffer(file.read(0, UNIT_SIZE * count).ljust(UNIT_SIZE * count, b"\0"), UNIT_DTYPE)


def log_end_findings(last: Segment, end: int, has_grown: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """At most one finding: what is after the live end of the log; nothing is wrong if a broker is appending."""
    from spark_mq.format.kernels.recovery import ACCEPTS_V2, CHECKS_BODY_CRC
    from spark_mq.store.log.record_reader import RecordChunk, RecordReader
    from spark_mq.store.log.recovery_walk import accepts_record

    position = end - last.base
    if position >= last.data_end:
        return
    records, first, stop = 0, -1, position
    with SegmentSource(last) as source:
        reader = RecordReader(source, position)
        for part in reader.read(last.data_end) if last.data_end - position >= MIN_RECORD_SIZE else ():
            if isinstance(part, RecordChunk):
                records += part.frames.size
                first = part.base + int(part.frames[0].position) if first < 0 else first
                stop = part.base + int(part.frames[-1].position) + int(part.frames[-1].store_size)
    if has_grown():
        return
    is_clean = not (last.location.parent.parent / ABORT).is_file
    code, offset, expected = "LOG_UNFINISHED", end, f"zeros from the live end {end} on"
    # After a crash, only its time says of a record after other bytes that it is old, and a clock can be set back.
    if records and (is_clean or first == end):
        code, offset, found = "LOG_STALE_TAIL", first, f"{records} old records between {first} and {stop}"
    elif accepts_record(last, ACCEPTS_V2 | CHECKS_BODY_CRC, position):
        code, expected = "LOG_CORRUPT", f"{expected}, or a record that states this offset"
        found = "a record that states another offset: a boot takes it for a live one"
    else:
        found = f"{last.data_end - position} bytes that are not a whole record"
        found += f", with {records} records after them that are older than the end" if records else ""
    yield findings(code, last.path, expected, found, position=position, commit_log_offset=offset)


def lost_entry_findings(node: Location, segments: tuple[Segment, ...]) -> Iterator[pa.RecordBatch]:
    """At most one finding: the entries at the end of a DLedger log that it has no more."""
    from spark_mq.store.log.dledger_log import lost_entries

    lost = lost_entries(node, segments)
    if lost is not None:
        last = segments[-1]
        yield findings(
            "DLEDGER_LOST",
            last.path,
            f"entries up to index {lost[1]}",
            f"a log that ends before index {lost[0]}",
            position=last.data_end,
            commit_log_offset=last.base + last.data_end,
        )
