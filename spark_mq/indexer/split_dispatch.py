"""Dispatch: one split of the commit log becomes staged files and a row about them, reading each record once.

Splits are first read optimistically: each starts at the first whole record that the reader finds. `stage` then names
the segments that have to be read again, exactly, from their start, as one split. An undamaged log has no such segment.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable
from contextlib import nullcontext

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Flags, Int32s, Int64s
from spark_mq.format.consume_queue import (
    BATCH_UNIT_DTYPE,
    DATABASE_UNIT_DTYPE,
    MAX_QUEUE_OFFSET,
    UNIT_DTYPE,
    UNIT_SIZE,
    BatchUnits,
    Units,
)
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.columns import MessageColumns, text_array
from spark_mq.format.kernels.dispatch import (
    DispatchedUnits,
    GroupedUnits,
    batch_units,
    dispatch_units,
    grouped,
    has_unit,
    is_final,
    is_inner_batch,
    light_units,
    parse_delay_levels,
)
from spark_mq.format.kernels.index_keys import index_keys
from spark_mq.format.kernels.queue_table import QueueTable
from spark_mq.indexer.rebuild_plan import DispatchTargets
from spark_mq.indexer.staged_files import (
    MAX_RUN_UNITS,
    RUN_SCHEMA,
    BatchRun,
    RecordTablesWriter,
    SplitRow,
    StagedEntriesWriter,
    StagedUnits,
)
from spark_mq.store.log.commit_log import SegmentSource, Split
from spark_mq.store.log.live_reader import NO_TIME, LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange

_MAX_PARTS = 1024
"""Parts of a split's units that are joined into one: between damaged ranges, a part has few units."""

NOTHING_FOUND = -1


def dispatch_split(
    split: Split,
    targets: DispatchTargets,
    exact: bool,
    on_chunk: Callable[[RecordChunk], None] = lambda chunk: None,
    newest: int = NO_TIME,
) -> SplitRow:
    """The row of one split, whose units and index entries are staged.

    `exact` says that a record or a blank starts where the split starts. In the last segment, the split is the rest of
    the segment then, which is read up to its live end; `newest` is the store time (ms) of the record before the split.
    """
    writer = StagedEntriesWriter(targets.folder) if targets.has_index else None
    found = _Dispatched(split, targets, writer)
    with SegmentSource(split.segment) as source, writer or nullcontext():
        if exact and split.segment.is_last:
            live = LiveReader(source, split.start, newest)
            first = split.start
            found.add_all(live.read(split.stop), on_chunk)
            end = live.position
        else:
            reader = RecordReader(source, 0)
            first = split.start if exact or split.start == 0 else reader.find_next(split.start, split.stop)
            reader.position = first
            found.add_all(reader.read(split.stop), on_chunk)
            end = reader.position
            if first >= split.stop:
                first = end = NOTHING_FOUND
        row = found.row
        row.first_position, row.end_position, row.bytes_read = first, end, source.bytes_read
    return found.finished()


class _Dispatched:
    def __init__(self, split: Split, targets: DispatchTargets, entries: StagedEntriesWriter | None) -> None:
        self._split, self._targets, self._entries = split, targets, entries
        self._records = RecordTablesWriter(targets.folder) if targets.has_index_database else None
        self._delay_millis = parse_delay_levels(targets.settings.delay_levels)
        self.row = SplitRow(split.segment.base, split.start, split.stop)
        self._corrupt: list[CorruptRange] = []
        self._units: list[DispatchedUnits] = []
        self._queues = QueueTable()
        self._is_batch: list[bool] = []
        """Which queues are batch consume queues, by their numbers."""
        self._batches: list[tuple[Int32s, BatchUnits]] = []
        """The numbers of their queues, and the units themselves."""

    def add_all(self, parts: Iterable[RecordChunk | CorruptRange], on_chunk: Callable[[RecordChunk], None]) -> None:
        for part in joined_chunks(parts):
            if isinstance(part, list):
                self._corrupt += part
                continue
            on_chunk(part)
            times = MessageColumns(part.buffer, part.frames).store_timestamp_millis()
            self._follow_time(times)
            self.row.messages += part.frames.size
            self.row.inner_batches += int(is_inner_batch(part.frames).sum())
            tags_codes = None if self._entries is None else self._add_entries(self._entries, part)
            if self._records is not None:
                self._records.add(part)
            if self._targets.has_queues:
                self._add_units(part, tags_codes)
        self._corrupt.sort(key=lambda corrupt: corrupt.commit_log_offset)

    def _follow_time(self, times: Int64s) -> None:
        row, newest = self.row, int(times.max())
        before = row.last_store_timestamp
        if row.first_store_timestamp is None:
            row.first_store_timestamp = int(times[0])
        row.time_steps_back |= bool((np.diff(times) < 0).any() or (before is not None and times[0] < before))
        row.last_store_timestamp = int(times[-1])
        row.newest_store_timestamp = max(newest, row.newest_store_timestamp or newest)

    def _add_entries(self, writer: StagedEntriesWriter, part: RecordChunk) -> Int64s:
        """Stage the index entries of a chunk; returns the tags code of each message, which is found on the way."""
        frames, tags_codes = part.frames, np.empty(part.frames.size, np.int64)
        keys = index_keys(part.buffer, frames, self._targets.settings.index_tags, tags_codes)
        with_entries = np.flatnonzero(keys.entry_count)
        if with_entries.size:
            self.row.trailing_messages = int(frames.size - 1 - with_entries[-1])
        else:
            self.row.trailing_messages += int(frames.size)
        writer.add(keys.staged(part.buffer, frames, part.base))
        return tags_codes

    def _add_units(self, part: RecordChunk, tags_codes: Int64s | None) -> None:
        frames, with_unit = part.frames, has_unit(part.frames)
        if self._targets.settings.batch_topics:
            with_unit &= ~self._add_batches(part, tags_codes)
        if not with_unit.all():
            frames, tags_codes = frames[with_unit], None if tags_codes is None else tags_codes[with_unit]
        units = dispatch_units(part.buffer, frames, self._queues, self._delay_millis, tags_codes)
        if units.commit_log_offset.size:
            self._follow_units(int(units.commit_log_offset[-1]))
        self._units.append(self._possible(units))
        if self._targets.settings.has_light_queues:
            self._units.append(light_units(part.buffer, frames, units, self._queues))
        if len(self._units) >= _MAX_PARTS:
            self._units = [DispatchedUnits.concatenate(self._units)]

    def _follow_units(self, commit_log_offset: int) -> None:
        self.row.last_unit_offset = max(commit_log_offset, self.row.last_unit_offset or 0)

    def _add_batches(self, part: RecordChunk, tags_codes: Int64s | None) -> Flags:
        """Add the units of batch consume queues; returns which messages have topics of such queues."""
        numbers, topics = self._queues.numbers(part.buffer, part.frames), self._targets.settings.batch_topics
        for number in range(len(self._is_batch), self._queues.count):
            self._is_batch.append(decode_utf8(self._queues.topic(number)) in topics)
        is_of_topic: Flags = np.array(self._is_batch, np.bool_)[numbers]
        which = is_of_topic & is_final(part.frames)
        if which.any():
            units = batch_units(part.buffer, part.frames[which], None if tags_codes is None else tags_codes[which])
            possible = units["message_count"] >= 0
            self._batches.append((numbers[which][possible], units[possible]))
            self.row.inner_batches -= int(is_inner_batch(part.frames[which]).sum())
            self._follow_units(int(units["commit_log_offset"][-1]))
            for offset, size, *_ in units[~possible].tolist():
                self._add_impossible(offset, size, "INNER_BASE or INNER_NUM")
        return is_of_topic

    def _add_impossible(self, commit_log_offset: int, size: int, what: str) -> None:
        reason = f"{what} is impossible: the message is in no queue"
        file = str(self._split.segment.location)
        self._corrupt.append(CorruptRange(file, commit_log_offset, size, "BAD_QUEUE_OFFSET", reason))

    def _possible(self, units: DispatchedUnits) -> DispatchedUnits:
        """The units whose queue offset is possible; the others are reported."""
        possible = (units.queue_offset >= 0) & (units.queue_offset < MAX_QUEUE_OFFSET)
        if possible.all():
            return units
        for index in np.flatnonzero(~possible).tolist():
            offset, size = int(units.commit_log_offset[index]), int(units.store_size[index])
            self._add_impossible(offset, size, f"queue offset {int(units.queue_offset[index])}")
        return units.take(np.flatnonzero(possible))

    def finished(self) -> SplitRow:
        """The row of the split, whose units are staged now."""
        row, units = self.row, self._stage_units()
        row.corrupt = tuple(self._corrupt)
        if units is not None:
            row.units_file, row.units_size, row.unit_size = units.location.name, units.size, units.unit_size
            row.units, row.runs = units.units, units.runs
        if self._entries is not None:
            row.entries_file, row.index_entries = self._entries.staged.location.name, self._entries.staged.count
        if self._records is not None:
            self._records.write()
            row.record_tables = tuple(self._records.tables)
        if self._batches:
            self._stage_batches()
        return row

    def _stage_batches(self) -> None:
        """Write a file of the units of batch consume queues, by queue."""
        numbers = np.concatenate([number for number, _ in self._batches])
        order = np.argsort(numbers, kind="stable")
        units = np.concatenate([unit for _, unit in self._batches])[order].astype(BATCH_UNIT_DTYPE)  # not big-endian
        location = f"{uuid.uuid4().hex}.batches"
        with (self._targets.folder / location).open_output() as file:
            file.write(units.view(np.uint8).data)
        ids, counts = self._queues.queue_ids(), np.bincount(numbers)
        runs, first = list[BatchRun](), 0
        for number in np.flatnonzero(counts).tolist():
            topic, count = decode_utf8(self._queues.topic(number)), int(counts[number])
            runs.append(BatchRun(topic, int(ids[number]), first, count))
            first += count
        self.row.batches_file, self.row.batch_runs = location, tuple(runs)

    def _stage_units(self) -> StagedUnits | None:
        """The staged units, grouped into runs; no Python loop is per message or per queue. None without a unit."""
        if not any(units.queue_number.size for units in self._units):
            return None
        units = grouped(self._units, self._queues.count)
        file_number = units.queue_offset // (self._targets.settings.queue_file_size // UNIT_SIZE)
        starts = _run_starts(units, file_number)
        stops = np.append(starts[1:], units.queue_number.size)
        queue_number = units.queue_number[starts]
        topics, topic_ends = self._queues.topics()
        runs = {
            "topic": text_array(topics, topic_ends.astype(np.int32)).take(pa.array(queue_number)),
            "queue_id": pa.array(self._queues.queue_ids()[queue_number]),
            "file_number": pa.array(file_number[starts]),
            "first_queue_offset": pa.array(units.queue_offset[starts]),
            "unit_count": pa.array(stops - starts),
            "commit_log_offset": pa.array(units.units["commit_log_offset"][starts].astype(np.int64)),
            "last_store_timestamp": pa.array(units.store_timestamp[stops - 1]),
        }
        directory = pa.RecordBatch.from_pydict(runs, schema=RUN_SCHEMA)
        return StagedUnits.write(self._targets.folder, self._staged_form(units), directory)

    def _staged_form(self, grouped_units: GroupedUnits) -> Units:
        units = grouped_units.units
        if not self._targets.settings.in_rocksdb:
            return units
        with_times = np.empty(units.size, DATABASE_UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            with_times[name] = units[name]
        with_times["store_timestamp"] = grouped_units.store_timestamp
        return with_times


def _run_starts(units: GroupedUnits, file_number: Int64s) -> Int64s:
    """The numbers of the units at which a run starts: another queue or file, or a queue offset that does not follow."""
    breaks = (np.diff(units.queue_number) != 0) | (np.diff(file_number) != 0) | (np.diff(units.queue_offset) != 1)
    starts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(breaks) + 1))
    lengths = np.diff(np.append(starts, units.queue_number.size))
    if lengths.max() <= MAX_RUN_UNITS:
        return starts
    pieces = -(-lengths // MAX_RUN_UNITS)
    piece_of_run = np.arange(pieces.sum()) - np.repeat(pieces.cumsum() - pieces, pieces)
    result: Int64s = np.repeat(starts, pieces) + piece_of_run * MAX_RUN_UNITS
    return result
