"""The values of extension units that a task stages for one segment: this module needs the kernels."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from spark_mq.filters.arrays import matching_mask, of_columns
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.bloom_filter import bit_map
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.dispatch import QueueTable, dispatch_units, has_unit, parse_delay_levels
from spark_mq.indexer.ext_settings import ExtSettings, StagedExt, Values
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.store.log.commit_log import Segment, SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_files import CorruptRange


def stage_segment(segment: Segment, folder: Location, ext: ExtSettings, delay_levels: str) -> list[StagedExt]:
    """What is staged of one segment, in one file."""
    values_of = _Values(ext, parse_delay_levels(delay_levels))
    parts = [values_of(chunk) for chunk in _chunks(segment)]
    numbers = np.concatenate([number for number, _ in parts]) if parts else np.zeros(0, np.int32)
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    rows: list[StagedExt] = []
    if numbers.size:
        values = np.concatenate([value for _, value in parts])[order]
        file = f"{segment.base:020d}-{uuid.uuid4().hex}"
        publish(folder / file, values.tobytes(), values.nbytes)
        ids = values_of.queues.queue_ids()
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), numbers.size], strict=True):
            number, offsets = int(numbers[order[start]]), values["queue_offset"][start:stop]
            where = file, start * values.itemsize, stop - start
            rows.append(
                StagedExt(values_of.topics[number], int(ids[number]), *where, int(offsets.min()), int(offsets.max()))
            )
    return rows


def _chunks(segment: Segment) -> Iterator[RecordChunk]:
    """The records of a whole segment; damage is skipped, which other stages report."""
    with SegmentSource(segment) as source:
        reader = LiveReader(source) if segment.is_last else RecordReader(source, 0)
        for part in reader.read(segment.data_end):
            if not isinstance(part, CorruptRange):
                yield part


class _Values:
    """The numbers of messages' queues, and the values of their extension units, chunk by chunk."""

    def __init__(self, ext: ExtSettings, delays: Int64s) -> None:
        self.queues = QueueTable()
        self.topics: list[str] = []
        """The topic of each queue, by its number."""
        self._ext, self._delays = ext, delays
        self._filtered: dict[str, list[int]] = {one.topic: [] for one in ext.filters}
        """The numbers of the queues of each topic that has a filter."""

    def __call__(self, chunk: RecordChunk) -> tuple[npt.NDArray[np.int32], Values]:
        """The numbers and the values of the messages of a chunk that get a unit."""
        frames = chunk.frames[has_unit(chunk.frames)]
        units = dispatch_units(chunk.buffer, frames, self.queues, self._delays)
        for number in range(len(self.topics), self.queues.count):
            self.topics.append(decode_utf8(self.queues.topic(number)))
            self._filtered.get(self.topics[-1], []).append(number)
        values = np.zeros(frames.size, self._ext.staged_dtype)
        values["queue_offset"] = units.queue_offset
        values["tags_code"], values["store_timestamp"] = units.tags_code, units.store_timestamp
        for topic, numbers in self._filtered.items():
            at = np.flatnonzero(np.isin(units.queue_number, numbers))
            if at.size:
                messages = MessageColumns(chunk.buffer, frames[at])
                values["bit_map"][at] = _bit_maps(messages, topic, self._ext)
        return units.queue_number, values


def _bit_maps(messages: MessageColumns, topic: str, ext: ExtSettings) -> Bytes:
    size = messages.frames.size
    properties = of_columns(messages)
    found = np.zeros((size, ext.bit_count // 8), np.uint8)
    for one in ext.filters_of(topic):
        if one.condition is not None:
            bits = np.frombuffer(bit_map(one.bit_positions or (), ext.bit_count), np.uint8)
            found[matching_mask(one.condition, properties)] |= bits
    return found
