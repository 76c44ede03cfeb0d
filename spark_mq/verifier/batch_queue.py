"""Soundness of the files of one batch consume queue: its units against those that the log says.

A unit has its place because of the units before it. So the first unit of the log that a file has says where the others
belong; after a damaged part of the log, the first one after it does, because the queue has units of lost records, too.

| place | a sound queue has |
| --- | --- |
| before the first record of the log | units of expired records in the order of the log |
| of a record | the unit of the record |
| between two records, after a damaged part of the log | units that lead into that part |
| after the last record | zeros, or units of records that a recovery cut off the log |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.consume_queue import BATCH_UNIT_DTYPE, BATCH_UNIT_SIZE, BatchUnits, Queue, is_written
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.indexer.batch_queues import BatchPart, read_parts, staged_parts
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE
from spark_mq.store.log.segment_files import find_data_end
from spark_mq.store.queue.folders import QueueFileInfo, queue_folders, queue_path
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.log_bounds import LiveLog, LogBounds
from spark_mq.verifier.queue_file import bytes_of
from spark_mq.verifier.queue_task import unless_appended

_ZEROS = np.zeros(1, BATCH_UNIT_DTYPE)


@dataclass(frozen=True)
class BatchQueueCheck:
    """The check of one queue, a task. `parts` are its staged units.

    `far` are files after a gap that is larger than all units of the log: their names are wrong, and nobody reads them.
    """

    store: Location
    topic: str
    queue_id: int
    files: tuple[QueueFileInfo, ...]
    far: tuple[QueueFileInfo, ...]
    file_size: int
    parts: tuple[BatchPart, ...]
    bounds: LogBounds
    log: LiveLog

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """What is wrong with the files."""
        for info in self.files:
            if info.size != self.file_size or int(info.base_name) % self.file_size:
                found = f"{info.base_name} with {info.size} bytes"
                yield self._finding("QUEUE_FILE_SIZE", self.path(info.base_name), f"{self.file_size} bytes", found)
        for info in self.far:
            expected = "a name that follows the queue's other files"
            yield self._finding("QUEUE_FILE_NAME", self.path(info.base_name), expected, info.base_name)
        yield from (unless_appended(batch, self.log) for batch in _Comparison(self).findings())

    def _finding(self, code: str, file: str, expected: str, found: str) -> pa.RecordBatch:
        return findings(code, file, expected, found, queue=(self.topic, self.queue_id))

    @property
    def capacity(self) -> int:
        """The number of units in a file."""
        return self.file_size // BATCH_UNIT_SIZE

    @property
    def first(self) -> int:
        """The number of the first unit of the first file: files of expired units are deleted."""
        return min((int(info.base_name) // self.file_size for info in self.files), default=0) * self.capacity

    def path(self, name: str) -> str:
        """The path of a file in the store."""
        return queue_path(self.topic, self.queue_id, name, BATCH_CONSUME_QUEUE)

    def expected(self) -> BatchUnits:
        """The units that the log has, in its order."""
        return read_parts(self.parts)

    def existing(self) -> BatchUnits:
        """All written units of the files, from `first` on; zeros for files that are missing or have another size."""
        parts, stop = [np.zeros(0, BATCH_UNIT_DTYPE)], 0
        for info in self.files:
            if info.size == self.file_size and not int(info.base_name) % self.file_size:
                file = self.store / self.path(info.base_name)
                count = min(-(-find_data_end(file, info.size) // BATCH_UNIT_SIZE), self.capacity)
                with FileReader(file) as reader:
                    data = reader.read(0, count * BATCH_UNIT_SIZE)
                start = int(info.base_name) // self.file_size * self.capacity - self.first
                parts += np.zeros(start - stop, BATCH_UNIT_DTYPE), np.frombuffer(data, BATCH_UNIT_DTYPE)
                stop = start + count
        return np.concatenate(parts)

    def write(self, output: Location, names: Iterable[str]) -> None:
        """Write sound files with these names into the folder `output`, under their paths in the store."""
        compared = _Comparison(self)
        units = compared.sound()
        modified = {info.base_name: (info.mtime_ns or 0) // NANOS_PER_MILLI for info in self.files}
        for name in names:
            start = int(name) // self.file_size * self.capacity - compared.first
            content = np.zeros(self.capacity, BATCH_UNIT_DTYPE)
            part = units[max(start, 0) : max(start + self.capacity, 0)]
            content[: part.size] = part
            time = modified.get(name, int(content["store_timestamp"].max()))
            publish(output / self.path(name), content.view(np.uint8).data, self.file_size, time)


class _Comparison:
    """Expected and existing units side by side, each at its place in the existing files."""

    def __init__(self, check: BatchQueueCheck) -> None:
        self.check, self.bounds = check, check.bounds
        expected, existing = check.expected(), check.existing()
        places = _places(expected, existing, check.bounds)
        # Files before the first one can be lost.
        lost = min(-(int(places.min(initial=0)) // check.capacity), check.first // check.capacity) * check.capacity
        places, self.first = places + lost, check.first - lost
        existing = np.concatenate((np.zeros(lost, BATCH_UNIT_DTYPE), existing)).astype(BATCH_UNIT_DTYPE)
        written = np.flatnonzero(bytes_of(existing) != bytes_of(_ZEROS))
        self.written = int(written[-1]) + 1 if written.size else 0
        self.before = expected[places < 0]
        inside = places >= 0
        size = max(self.written, int(places.max(initial=-1)) + 1)
        self.want, self.have = np.zeros(size, BATCH_UNIT_DTYPE), np.zeros(size, BATCH_UNIT_DTYPE)
        self.want[places[inside]] = expected[inside]
        self.have[: min(size, existing.size)] = existing[:size]
        self.has_record: Flags = np.zeros(size, np.bool_)
        self.has_record[places[inside]] = True
        self.offsets: Int64s = self.have["commit_log_offset"].astype(np.int64)
        at = np.arange(size)
        first, last = int(places.min(initial=size)), int(places.max(initial=-1))
        self.is_first, self.is_after = at < first, at > last

    @cached_property
    def is_expired(self) -> Flags:
        """Which units before the first record of the log are those of expired records, in the order of the log."""
        expired = self.is_first & is_written(self.have) & (self.offsets < self.bounds.start)
        before = np.maximum.accumulate(np.concatenate(([-1], np.where(expired, self.offsets, -1)[:-1])))
        result: Flags = expired & (self.offsets > before)
        return result

    @property
    def is_of_lost(self) -> Flags:
        """Which units are between those of records, and lead into a damaged part of the log."""
        lost: Flags = ~self.has_record & ~self.is_after & self.bounds.is_lost(self.offsets)
        return lost

    def sound(self) -> BatchUnits:
        """The units of sound files: those of the log, and those of expired and of lost records that the files have."""
        result, kept = self.want.copy(), self.is_expired | self.is_of_lost
        result[kept] = self.have[kept]
        return result

    def findings(self) -> Iterator[pa.RecordBatch]:
        if self.before.size:
            expected, first = f"{self.before.size} more units", int(self.before["commit_log_offset"][0])
            path = self._path(0)
            yield findings("QUEUE_UNIT_MISSING", path, expected, "none", queue=self._queue, commit_log_offset=first)
        wrong = bytes_of(self.want) != bytes_of(self.have)
        is_zero = bytes_of(self.have) == bytes_of(_ZEROS)
        lag = wrong & self.has_record & (np.arange(wrong.size) >= self.written)
        for places in self._by_file(lag):
            yield self._lag(places)
        wrong &= ~lag
        of_record = wrong & self.has_record
        yield from self._batch("QUEUE_UNIT_MISSING", of_record & is_zero)
        yield from self._batch("QUEUE_UNIT_WRONG", of_record & ~is_zero)
        others = wrong & ~self.has_record & ~self.is_expired
        yield from self._batch("QUEUE_NO_MESSAGE", others & self.is_of_lost, "a record of the log")
        others &= ~self.is_of_lost
        stale = others & self.is_after & (self.offsets > self.bounds.end - self.have["store_size"].astype(np.int64))
        yield from self._batch("QUEUE_UNIT_STALE", stale, "zeros")
        yield from self._batch("QUEUE_UNIT_EXTRA", others & self.is_after & ~stale, "zeros")
        early = others & ~self.is_after
        yield from self._batch("QUEUE_EXPIRED_ORDER", early, "a unit of an expired record, in the order of the log")

    @property
    def _queue(self) -> Queue:
        return self.check.topic, self.check.queue_id

    def _path(self, place: int) -> str:
        number = (self.first + place) // self.check.capacity
        return self.check.path(f"{number * self.check.file_size:020d}")

    def _by_file(self, which: Flags) -> Iterator[Int64s]:
        """The places of these units, those of each file apart."""
        places = np.flatnonzero(which)
        numbers = (self.first + places) // self.check.capacity
        yield from (places[numbers == number] for number in np.unique(numbers).tolist())

    def _lag(self, lacking: Int64s) -> pa.RecordBatch:
        place, is_clean = int(lacking[0]), self.bounds.is_clean
        code = "QUEUE_MISSING" if not self.written else "QUEUE_LAGS_CLEAN" if is_clean else "QUEUE_LAGS"
        offset = int(self.want["commit_log_offset"][place])
        found = f"{self.written} units"
        expected = f"{int(lacking[-1]) + 1} units"
        position = (self.first + place) % self.check.capacity * BATCH_UNIT_SIZE
        return findings(
            code, self._path(place), expected, found, queue=self._queue, position=position, commit_log_offset=offset
        )

    def _batch(self, code: str, which: Flags, expected: str | None = None) -> Iterator[pa.RecordBatch]:
        """Findings about units, in one batch for each file."""
        for chosen in self._by_file(which):
            want, have = self.want[chosen], self.have[chosen]
            offsets = np.where(want["store_size"] != 0, want["commit_log_offset"], have["commit_log_offset"])
            yield findings(
                code,
                self._path(int(chosen[0])),
                _text(want) if expected is None else expected,
                _text(have),
                queue=self._queue,
                position=(self.first + chosen) % self.check.capacity * BATCH_UNIT_SIZE,
                commit_log_offset=offsets.astype(np.int64),
            )


def _places(expected: BatchUnits, existing: BatchUnits, bounds: LogBounds) -> Int64s:
    """The places of the expected units among the existing ones: most of those that are there say it, in each part.

    A part of the log ends at a damaged range, whose records can have units. If none is there, they follow the others.
    """
    offsets = expected["commit_log_offset"].astype(np.int64)
    places = np.arange(expected.size)
    if not expected.size:
        return places
    have = existing["commit_log_offset"].astype(np.int64)
    at = np.minimum(np.searchsorted(offsets, have), offsets.size - 1)
    found = np.flatnonzero((offsets[at] == have) & (existing["store_size"] > 0))
    shifts, parts = found - at[found], np.searchsorted([hole.start for hole in bounds.holes], offsets)
    expired = np.flatnonzero(is_written(existing) & (have < bounds.start))
    shift = int(expired[-1]) + 1 if expired.size else 0
    for part in np.unique(parts).tolist():
        of_part = shifts[parts[at[found]] == part]
        if of_part.size:
            values, counts = np.unique(of_part, return_counts=True)
            shift = int(values[np.argmax(counts)])
        places[parts == part] += shift
    result: Int64s = places
    return result


def _text(units: BatchUnits) -> pa.Array:
    names = "commit_log_offset", "store_size", "tags_code", "store_timestamp", "queue_offset", "message_count"
    values = (units[name].astype(np.int64) for name in names)
    words = "offset ", ", size ", ", tags code ", ", store time ", ", queue offset ", ", messages "
    return text(*(piece for pair in zip(words, values, strict=True) for piece in pair))


def batch_queue_checks(
    store: Location, file_size: int, staged: StagedLog, bounds: LogBounds, log: LiveLog
) -> list[BatchQueueCheck]:
    """The checks of all batch consume queues that have files, or records in the log."""
    parts = staged_parts(staged)
    folders = {(one.topic, one.queue_id): one for one in queue_folders(store / BATCH_CONSUME_QUEUE, with_empty=True)}
    checks = []
    for queue in sorted({*parts, *folders}):
        own, files = tuple(parts.get(queue, ())), folders[queue].files if queue in folders else ()
        near = _near(files, file_size, sum(part.count for part in own))
        checks.append(BatchQueueCheck(store, *queue, files[:near], files[near:], file_size, own, bounds, log))
    return checks


def _near(files: Sequence[QueueFileInfo], file_size: int, units: int) -> int:
    """The number of files before the first gap that the units of the log cannot fill."""
    most = units * BATCH_UNIT_SIZE // file_size + 2
    for number, (before, after) in enumerate(pairwise(int(info.base_name) // file_size for info in files)):
        if after - before > most:
            return number + 1
    return len(files)


def batch_queue_offsets(checks: Iterable[BatchQueueCheck]) -> dict[Queue, range]:
    """The queue offsets of the records of the log, by queue; of a queue without any, those of its files."""
    offsets = {}
    for check in checks:
        units = check.expected()
        if not units.size:
            units = check.existing()
            units = units[units["store_size"] > 0]
        first, last = (units[0], units[-1]) if units.size else (_ZEROS[0], _ZEROS[0])
        stop = int(last["queue_offset"]) + int(last["message_count"])
        offsets[check.topic, check.queue_id] = range(int(first["queue_offset"]) if check.parts else stop, stop)
    return offsets
