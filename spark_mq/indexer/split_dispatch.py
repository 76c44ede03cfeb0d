"""Dispatch: one split of the commit log becomes staged files and a row about them, reading each record once.

Splits are first read optimistically: each starts at the first whole record that the reader finds. `alignment` then
names the segments that have to be read again, exactly, from their start, as one split. An undamaged log has no such
segment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE
from spark_mq.format.kernels.columns import MessageColumns, text_array
from spark_mq.format.kernels.dispatch import (
    DispatchedUnits,
    QueueTable,
    dispatch_units,
    has_unit,
    is_inner_batch,
    parse_delay_levels,
)
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.index_keys import index_keys
from spark_mq.indexer.rebuild_plan import DispatchTargets
from spark_mq.indexer.split_rows import SPLIT_SCHEMA
from spark_mq.indexer.staged_files import (
    MAX_RUN_UNITS,
    RUN_SCHEMA,
    EntryBatch,
    StagedEntries,
    StagedEntriesWriter,
    StagedUnits,
)
from spark_mq.store.log.commit_log import SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader, joined_chunks
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.splits import Split

_MAX_QUEUE_OFFSET = 1 << 58
"""The limit of queue offsets: 20 bytes for each unit, a file position still fits 64 bits. No broker comes near it."""

_MAX_PARTS = 1024
"""Parts of a split's units that are joined into one: between damaged ranges, a part has few units."""

NOTHING_FOUND = -1


@dataclass
class _SplitResult:
    """The result of a split while the split is read."""

    messages: int = 0
    inner_batches: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    last_unit_offset: int | None = None
    newest_store_timestamp: int | None = None
    time_steps_back: bool = False
    corrupt: list[CorruptRange] = field(default_factory=list)
    units: list[DispatchedUnits] = field(default_factory=list)
    queues: QueueTable = field(default_factory=QueueTable)
    index: IndexEntryCollector | None = None


def dispatch_split(
    split: Split, targets: DispatchTargets, exact: bool, see: Callable[[RecordChunk], None] = lambda chunk: None
) -> pa.RecordBatch:
    """The row (`SPLIT_SCHEMA`) of one split, whose units and index entries are staged.

    Args:
        exact: Whether a record or a blank starts where the split starts. In the last segment, the split is the whole
            segment, which is read up to its live end.
        see: Is called with all records of the split, chunk by chunk.
    """
    writer = StagedEntriesWriter(targets.folder) if targets.has_index else None
    result = _SplitResult(index=None if writer is None else IndexEntryCollector(writer, targets.index_tags))
    with SegmentSource(split.segment) as source, writer or nullcontext():
        if exact and split.segment.is_last:
            live = LiveReader(source)
            first, parts = 0, live.read(split.stop)
            _dispatch(parts, targets, result, split, see)
            end = live.position
        else:
            reader = RecordReader(source, 0)
            first = split.start if exact or split.start == 0 else reader.find_next(split.start, split.stop)
            reader.position = first
            _dispatch(reader.read(split.stop), targets, result, split, see)
            end = reader.position
            if first >= split.stop:
                first = end = NOTHING_FOUND
        bytes_read = source.bytes_read
    units = _stage_units(result, targets) if result.units else None
    return _split_row(split, result, (first, end), bytes_read, units, None if writer is None else writer.staged)


def _dispatch(
    parts: Iterable[RecordChunk | CorruptRange],
    targets: DispatchTargets,
    result: _SplitResult,
    split: Split,
    see: Callable[[RecordChunk], None],
) -> None:
    delay_millis = parse_delay_levels(targets.delay_levels)
    for part in joined_chunks(parts):
        if isinstance(part, list):
            result.corrupt += part
            continue
        see(part)
        frames = part.frames
        times = MessageColumns(part.buffer, frames).store_timestamp_millis()
        _follow_time(times, result)
        result.messages += frames.size
        result.inner_batches += int(is_inner_batch(frames).sum())
        if result.index is not None:
            result.index.add(part.buffer, part.base, frames, times)
        if targets.queue_file_size:
            with_unit = has_unit(frames)
            dispatched = frames if with_unit.all() else frames[with_unit]
            units = dispatch_units(part.buffer, dispatched, result.queues, delay_millis)
            if units.commit_log_offset.size:
                result.last_unit_offset = int(units.commit_log_offset[-1])
            result.units.append(_possible_units(units, result, split))
            if len(result.units) >= _MAX_PARTS:
                result.units = [DispatchedUnits.concatenate(result.units)]
    result.corrupt.sort(key=lambda corrupt: corrupt.commit_log_offset)


def _follow_time(times: Int64s, result: _SplitResult) -> None:
    before, newest = result.last_store_timestamp, int(times.max())
    if result.first_store_timestamp is None:
        result.first_store_timestamp = int(times[0])
    result.time_steps_back |= bool((np.diff(times) < 0).any() or (before is not None and times[0] < before))
    result.last_store_timestamp = int(times[-1])
    result.newest_store_timestamp = max(newest, result.newest_store_timestamp or newest)


def _possible_units(units: DispatchedUnits, result: _SplitResult, split: Split) -> DispatchedUnits:
    """The units whose queue offset is possible; the others are reported."""
    possible = (units.queue_offset >= 0) & (units.queue_offset < _MAX_QUEUE_OFFSET)
    if possible.all():
        return units
    for index in np.flatnonzero(~possible).tolist():
        offset, size = int(units.commit_log_offset[index]), int(units.store_size[index])
        reason = f"queue offset {int(units.queue_offset[index])} is impossible: the message is in no queue"
        result.corrupt.append(CorruptRange(str(split.segment.location), offset, size, "BAD_QUEUE_OFFSET", reason))
    return units.take(np.flatnonzero(possible))


def _stage_units(result: _SplitResult, targets: DispatchTargets) -> StagedUnits | None:
    """The staged units, grouped into runs; no Python loop is per message or per queue. None without a unit."""
    units = DispatchedUnits.concatenate(result.units)
    if not units.queue_number.size:
        return None
    # NumPy sorts 16-bit integers by radix, which is several times as fast.
    short = units.queue_number.astype(np.uint16) if result.queues.count <= 1 << 16 else units.queue_number
    units = units.take(np.argsort(short, kind="stable"))
    file_number = units.queue_offset // (targets.queue_file_size // UNIT_SIZE)
    starts = _run_starts(units, file_number)
    stops = np.append(starts[1:], units.queue_number.size)
    packed = np.empty(units.queue_number.size, UNIT_DTYPE)
    packed["commit_log_offset"] = units.commit_log_offset
    packed["store_size"] = units.store_size
    packed["tags_code"] = units.tags_code
    queue_number = units.queue_number[starts]
    topics, topic_ends = result.queues.topics()
    runs = {
        "topic": text_array(topics, topic_ends.astype(np.int32)).take(pa.array(queue_number)),
        "queue_id": pa.array(result.queues.queue_ids()[queue_number]),
        "file_number": pa.array(file_number[starts]),
        "first_queue_offset": pa.array(units.queue_offset[starts]),
        "unit_count": pa.array(stops - starts),
        "commit_log_offset": pa.array(units.commit_log_offset[starts]),
        "last_store_timestamp": pa.array(units.store_timestamp[stops - 1]),
    }
    return StagedUnits.write(targets.folder, packed, pa.RecordBatch.from_pydict(runs, schema=RUN_SCHEMA))


def _run_starts(units: DispatchedUnits, file_number: Int64s) -> Int64s:
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


def _split_row(
    split: Split,
    result: _SplitResult,
    positions: tuple[int, int],
    bytes_read: int,
    units: StagedUnits | None,
    entries: StagedEntries | None,
) -> pa.RecordBatch:
    row = {
        "segment": split.segment.base,
        "split_start": split.start,
        "split_stop": split.stop,
        "first_position": positions[0],
        "end_position": positions[1],
        "messages": result.messages,
        "inner_batches": result.inner_batches,
        "bytes_read": bytes_read,
        "first_store_timestamp": result.first_store_timestamp,
        "last_store_timestamp": result.last_store_timestamp,
        "last_unit_offset": result.last_unit_offset,
        "newest_store_timestamp": result.newest_store_timestamp,
        "time_steps_back": result.time_steps_back,
        "corrupt": [vars(corrupt) for corrupt in result.corrupt],
        "units_file": None if units is None else units.location.name,
        "units": 0 if units is None else units.units,
        "runs": 0 if units is None else units.runs,
        "units_size": 0 if units is None else units.size,
        "entries_file": None if entries is None else entries.location.name,
        "index_entries": 0 if entries is None else entries.count,
        "trailing_messages": 0 if result.index is None else result.index.trailing_messages,
    }
    return pa.RecordBatch.from_pylist([row], schema=SPLIT_SCHEMA)


class IndexEntryCollector:
    """Hands entries to `writer`, in the order of the log; `has_tags` is the argument of `index_keys`.

    Attributes:
        trailing_messages: The number of messages after the message with the last entry.
    """

    def __init__(self, writer: StagedEntriesWriter, has_tags: bool | None) -> None:
        self.trailing_messages = 0
        self._writer = writer
        self._has_tags = has_tags

    def add(self, buffer: Bytes, base: int, frames: Frames, store_timestamps: Int64s) -> None:
        """Stage the entries of messages that come next in the log.

        Args:
            buffer: The bytes of the records.
            base: The commit log offset of the buffer's start.
            store_timestamps: The store time of each record, in milliseconds.
        """
        keys = index_keys(buffer, frames, self._has_tags)
        with_entries = np.flatnonzero(keys.entry_count)
        if with_entries.size:
            self.trailing_messages = int(frames.size - 1 - with_entries[-1])
        else:
            self.trailing_messages += int(frames.size)
        offsets: Int64s = np.repeat(frames.position + base, keys.entry_count)
        self._writer.add(EntryBatch(keys.key_hash, offsets, np.repeat(store_timestamps, keys.entry_count)))
