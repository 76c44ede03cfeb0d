"""Dispatch: one split of the commit log becomes staged rows, reading each record once.

Splits are first read optimistically: each starts at the first whole record that the reader finds. `alignment` then
names the segments that have to be read again, exactly, from their start, as one split. An undamaged log has no such
segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from spark_mq.format.array_types import Int64s
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
from spark_mq.indexer.index.collector import IndexEntryCollector
from spark_mq.indexer.index.staged_entries import StagedEntries, StagedEntriesWriter
from spark_mq.indexer.settings import DispatchTargets
from spark_mq.indexer.staged_rows import CORRUPT_TYPE, MAX_RUN_UNITS, SPLIT, STAGED_SCHEMA, UNITS
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_source import SegmentSource
from spark_mq.store.log.splits import Split

_MAX_QUEUE_OFFSET = 1 << 58
"""The limit of queue offsets: 20 bytes for each unit, a file position still fits 64 bits. No broker comes near it."""

NOTHING_FOUND = -1


@dataclass
class _SplitResult:
    """The result of a split while the split is read."""

    messages: int = 0
    inner_batches: int = 0
    first_store_timestamp: int | None = None
    last_store_timestamp: int | None = None
    time_steps_back: bool = False
    corrupt: list[CorruptRange] = field(default_factory=list)
    units: list[DispatchedUnits] = field(default_factory=list)
    queues: QueueTable = field(default_factory=QueueTable)
    index: IndexEntryCollector | None = None


def dispatch_split(split: Split, targets: DispatchTargets, exact: bool) -> Iterator[pa.RecordBatch]:
    """The staged rows (`STAGED_SCHEMA`) of one split: its runs of units, then its own row.

    Args:
        split: The split.
        targets: What records are dispatched to.
        exact: Whether the split is a whole segment, which is read up to its live end.

    """
    folder = targets.entries_folder
    writer = None if folder is None else StagedEntriesWriter(folder)
    result = _SplitResult(index=None if writer is None else IndexEntryCollector(writer))
    with SegmentSource(split.segment) as source, writer or nullcontext():
        if exact and split.segment.is_last:
            live = LiveReader(source)
            first, parts = 0, live.read(split.stop)
            _dispatch(parts, targets, result, split)
            end = live.position
        else:
            reader = RecordReader(source, 0)
            first = 0 if split.start == 0 else reader.find_next(split.start, split.stop)
            reader.position = first
            _dispatch(reader.read(split.stop), targets, result, split)
            end = reader.position
            if first >= split.stop:
                first = end = NOTHING_FOUND
        bytes_read = source.bytes_read
    if result.units:
        yield _unit_rows(split, result, targets.queue_file_size)
    yield _split_row(split, result, (first, end), bytes_read, None if writer is None else writer.staged)


def _dispatch(
    parts: Iterable[RecordChunk | CorruptRange], targets: DispatchTargets, result: _SplitResult, split: Split
) -> None:
    delay_millis = parse_delay_levels(targets.delay_levels)
    for part in parts:
        if isinstance(part, CorruptRange):
            result.corrupt.append(part)
            continue
        frames = part.frames
        times = MessageColumns(part.buffer, part.base, frames).store_timestamp_millis()
        _follow_time(times, result)
        result.messages += frames.size
        result.inner_batches += int(is_inner_batch(frames).sum())
        if result.index is not None:
            result.index.add(part.buffer, part.base, frames, times)
        if targets.queue_file_size:
            with_unit = has_unit(frames)
            dispatched = frames if with_unit.all() else frames[with_unit]
            units = dispatch_units(part.buffer, dispatched, result.queues, delay_millis)
            result.units.append(_possible_units(units, result, split))


def _follow_time(times: Int64s, result: _SplitResult) -> None:
    before = result.last_store_timestamp
    if result.first_store_timestamp is None:
        result.first_store_timestamp = int(times[0])
    result.time_steps_back |= bool((np.diff(times) < 0).any() or (before is not None and times[0] < before))
    result.last_store_timestamp = int(times[-1])


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


def _unit_rows(split: Split, result: _SplitResult, file_size: int) -> pa.RecordBatch:
    """The rows of a split's units, grouped into runs; no Python loop is per message or per queue."""
    units = DispatchedUnits.concatenate(result.units)
    # NumPy sorts 16-bit integers by radix, which is several times as fast.
    short = units.queue_number.astype(np.uint16) if result.queues.count <= 1 << 16 else units.queue_number
    units = units.take(np.argsort(short, kind="stable"))
    file_number = units.queue_offset // (file_size // UNIT_SIZE)
    starts = _run_starts(units, file_number)
    stops = np.append(starts[1:], units.queue_number.size)
    packed = np.empty(units.queue_number.size, UNIT_DTYPE)
    packed["commit_log_offset"] = units.commit_log_offset
    packed["store_size"] = units.store_size
    packed["tags_code"] = units.tags_code
    offsets = np.append(starts, packed.size).astype(np.int64) * UNIT_SIZE
    cells = pa.Array.from_buffers(
        pa.large_binary(), starts.size, [None, pa.py_buffer(offsets), pa.py_buffer(packed.view(np.uint8))]
    ).cast(pa.binary())
    queue_number = units.queue_number[starts]
    topics, topic_ends = result.queues.topics()
    return _staged(
        starts.size,
        kind=pa.repeat(UNITS, starts.size),
        segment=pa.repeat(split.segment.base, starts.size),
        topic=text_array(topics, topic_ends.astype(np.int32)).take(pa.array(queue_number)),
        queue_id=pa.array(result.queues.queue_ids()[queue_number]),
        file_number=pa.array(file_number[starts]),
        first_queue_offset=pa.array(units.queue_offset[starts]),
        unit_count=pa.array(stops - starts),
        units=cells,
        commit_log_offset=pa.array(units.commit_log_offset[starts]),
        last_store_timestamp=pa.array(units.store_timestamp[stops - 1]),
    )


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
    split: Split, result: _SplitResult, positions: tuple[int, int], bytes_read: int, entries: StagedEntries | None
) -> pa.RecordBatch:
    corrupt = [vars(corrupt) for corrupt in result.corrupt]
    return _staged(
        1,
        kind=pa.array([SPLIT]),
        segment=pa.array([split.segment.base]),
        split_start=pa.array([split.start]),
        split_stop=pa.array([split.stop]),
        first_position=pa.array([positions[0]]),
        end_position=pa.array([positions[1]]),
        messages=pa.array([result.messages]),
        inner_batches=pa.array([result.inner_batches]),
        bytes_read=pa.array([bytes_read]),
        first_store_timestamp=pa.array([result.first_store_timestamp], pa.int64()),
        last_store_timestamp=pa.array([result.last_store_timestamp], pa.int64()),
        time_steps_back=pa.array([result.time_steps_back]),
        corrupt=pa.array([corrupt], CORRUPT_TYPE),
        entries_file=pa.array([None if entries is None else entries.location.name], pa.string()),
        index_entries=pa.array([0 if entries is None else entries.count]),
        trailing_messages=pa.array([0 if result.index is None else result.index.trailing_messages]),
    )


def _staged(count: int, **columns: pa.Array) -> pa.RecordBatch:
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in STAGED_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED_SCHEMA)
