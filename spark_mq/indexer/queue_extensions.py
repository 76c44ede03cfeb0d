"""Files of extension units, which a broker with `enableConsumeQueueExt` makes.

All units of a queue have one size, so the number of a message in its queue says where its unit is. The log is read a
second time, a task for each segment, which stages tags codes, store times and bit maps. Then a task makes each file.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from spark_mq.errors import OptionError
from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.bloom_filter import BloomFilter, bit_map
from spark_mq.format.consume_queue import Queue
from spark_mq.format.consume_queue_ext import END_BLANK_SIZE, END_MARK, HEADER_SIZE, MAX_UNIT_SIZE, ExtLayout
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.java_text import decode_utf8
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import StagedQueue
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import CONSUME_QUEUE_EXT
from spark_mq.store.log.commit_log import CommitLog, Segment, SegmentSource
from spark_mq.store.log.segment_files import CorruptRange

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.store.config.consumer_filters import ConsumerFilter
    from spark_mq.store.log.record_reader import RecordChunk

_STAGED = "ext"
Values = npt.NDArray[Any]
"""Staged values of messages: `queue_offset`, `tags_code`, `store_timestamp`, `bit_map` (`ExtSettings.staged_dtype`)."""


STAGED_EXT_SIZE = 24
"""Bytes that are staged for a message, besides its bit map: queue offset, tags code and store time."""


@dataclass(frozen=True)
class StagedExt:
    """The staged values of a queue's messages in a segment, and the first and last queue offset among them."""

    topic: str
    queue_id: int
    file: str
    position: int
    count: int
    first: int
    last: int


@dataclass(frozen=True)
class ExtSettings:
    """How a broker makes extension units; it has no filters without `enableCalcFilterBitMap`."""

    file_size: int
    bit_count: int
    filters: tuple[ConsumerFilter, ...] = ()

    @classmethod
    def of(cls, store: Location, conf: BrokerConf) -> Self:
        """The settings of a broker that starts on a store."""
        bloom = conf.bloom_filter
        filters = _filters(store, bloom) if conf.is_enabled("enableCalcFilterBitMap") else ()
        found = cls(conf.consume_queue_ext_file_size, bloom.bit_count, filters)
        largest = HEADER_SIZE + bloom.bit_count // 8
        if largest > min(MAX_UNIT_SIZE, found.file_size - END_BLANK_SIZE):
            raise OptionError(
                f"{conf.source}: extension units of {largest} bytes do not fit: a broker stores at most "
                f"{MAX_UNIT_SIZE}, and its files have {found.file_size} (mappedFileSizeConsumeQueueExt)"
            )
        return found

    @property
    def staged_dtype(self) -> np.dtype[Any]:
        """The fields of staged values."""
        names = [("queue_offset", np.int64), ("tags_code", np.int64), ("store_timestamp", np.int64)]
        return np.dtype([*names, ("bit_map", np.uint8, (self.bit_count // 8 if self.filters else 0,))])

    def filters_of(self, topic: str) -> tuple[ConsumerFilter, ...]:
        """The filters for a topic."""
        return tuple(one for one in self.filters if one.topic == topic)

    def layout(self, topic: str) -> ExtLayout:
        """Where the units of a queue of the topic are: they have a bit map if any group has a filter for the topic."""
        bits = self.bit_count // 8 if self.filters_of(topic) else 0
        return ExtLayout(self.file_size, HEADER_SIZE + bits)


def _filters(store: Location, bloom: BloomFilter) -> tuple[ConsumerFilter, ...]:
    from spark_mq.store.config.consumer_filters import CONSUMER_FILTERS, load_consumer_filters, usable_filters

    filters = usable_filters(load_consumer_filters(store), bloom)
    outside = [one for one in filters for bit in one.bit_positions or () if not 0 <= bit < bloom.bit_count]
    if outside:
        raise OptionError(
            f"config/{CONSUMER_FILTERS}: the bits of group {outside[0].consumer_group} are not in a bit map of "
            f"{bloom.bit_count} bits; remove the group from the file"
        )
    return filters


def write_extensions(context: JobContext, plan: RebuildPlan, queue_plan: QueuePlan, ext: ExtSettings) -> None:
    """Write the extension files of the planned queues, into the tree that is committed with them."""
    target, folder = context.committer.staging_path(CONSUME_QUEUE_EXT), context.committer.folder / _STAGED
    target.make_folder()
    folder.make_folder()
    stage = partial(_stage_segment, folder=folder, ext=ext, delay_levels=plan.settings.delay_levels)
    staged = defaultdict[Queue, list[StagedExt]](list)
    for rows in context.each("stage extensions", "segments", CommitLog.open(plan.store).segments, stage):
        for row in rows:
            staged[row.topic, row.queue_id].append(row)
    # The broker gives no extension units to light message queues (`ConsumeQueue.doDispatchLmqQueue`@5.3.3).
    queues = [queue for queue in queue_plan.queues if not queue.topic.startswith(LIGHT_PREFIX)]
    files = [file for queue in queues for file in _files_of(queue, ext, staged[queue.key])]
    context.each("write extensions", "files", files, partial(_write_file, staged=folder, target=target, ext=ext))


@dataclass(frozen=True)
class _ExtFile:
    """One file: its queue, the queue offsets of its units, and the staged values that can be in it."""

    topic: str
    queue_id: int
    number: int
    first_queue_offset: int
    stop_queue_offset: int
    is_last: bool
    staged: tuple[StagedExt, ...]


def _files_of(queue: StagedQueue, ext: ExtSettings, staged: list[StagedExt]) -> Iterator[_ExtFile]:
    capacity = ext.layout(queue.topic).units_per_file
    count = -(-(queue.queue_max - queue.queue_min) // capacity)
    for number in range(count):
        first = queue.queue_min + number * capacity
        stop = min(first + capacity, queue.queue_max)
        parts = tuple(part for part in staged if part.first < stop and part.last >= first)
        yield _ExtFile(queue.topic, queue.queue_id, number, first, stop, number == count - 1, parts)


def _stage_segment(segment: Segment, folder: Location, ext: ExtSettings, delay_levels: str) -> list[StagedExt]:
    """What is staged of one segment, in one file."""
    from spark_mq.format.kernels.dispatch import parse_delay_levels

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
    from spark_mq.store.log.live_reader import LiveReader
    from spark_mq.store.log.record_reader import RecordReader

    with SegmentSource(segment) as source:
        reader = LiveReader(source) if segment.is_last else RecordReader(source, 0)
        for part in reader.read(segment.data_end):
            if not isinstance(part, CorruptRange):
                yield part


class _Values:
    """The numbers of messages' queues, and the values of their extension units, chunk by chunk."""

    def __init__(self, ext: ExtSettings, delays: Int64s) -> None:
        from spark_mq.format.kernels.queue_table import QueueTable

        self.queues = QueueTable()
        self.topics: list[str] = []
        """The topic of each queue, by its number."""
        self._ext, self._delays = ext, delays
        self._filtered: dict[str, list[int]] = {one.topic: [] for one in ext.filters}
        """The numbers of the queues of each topic that has a filter."""

    def __call__(self, chunk: RecordChunk) -> tuple[Int32s, Values]:
        """The numbers and the values of the messages of a chunk that get a unit."""
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.format.kernels.dispatch import dispatch_units, has_unit

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
    from spark_mq.filters.arrays import matching_mask, of_columns

    size = messages.frames.size
    properties = of_columns(messages)
    found = np.zeros((size, ext.bit_count // 8), np.uint8)
    for one in ext.filters_of(topic):
        if one.condition is not None:
            bits = np.frombuffer(bit_map(one.bit_positions or (), ext.bit_count), np.uint8)
            found[matching_mask(one.condition, properties)] |= bits
    return found


def _write_file(file: _ExtFile, staged: Location, target: Location, ext: ExtSettings) -> None:
    content, modified = _content(file, staged, ext)
    name = f"{file.number * ext.file_size:020d}"
    publish(target / file.topic / str(file.queue_id) / name, content, ext.file_size, modified)


def _content(file: _ExtFile, staged: Location, ext: ExtSettings) -> tuple[bytes, int]:
    """The units of a file, its end mark if another file follows, and the last store time."""
    layout = ext.layout(file.topic)
    units = np.zeros(file.stop_queue_offset - file.first_queue_offset, layout.dtype)
    # A queue offset without a message has a unit, too: a broker takes zeros for the end of the extension.
    units["size"], units["bit_map_size"] = layout.unit_size, units["bit_map"].shape[1]
    taken = np.zeros(units.size, np.bool_)
    modified = 0
    for part in file.staged:
        dtype = ext.staged_dtype
        with FileReader(staged / part.file) as reader:
            values: Values = np.frombuffer(reader.read(part.position, part.count * dtype.itemsize), dtype)
        at = values["queue_offset"] - file.first_queue_offset
        inside = np.flatnonzero((at >= 0) & (at < units.size))
        # The first message with a queue offset gets it, as in the queue.
        inside = inside[np.unique(at[inside], return_index=True)[1]]
        inside = inside[~taken[at[inside]]]
        for field in ("tags_code", "store_timestamp"):
            units[field][at[inside]] = values[field][inside]
        if units["bit_map"].shape[1]:
            units["bit_map"][at[inside]] = values["bit_map"][inside]
        taken[at[inside]] = True
        modified = max(modified, int(values["store_timestamp"][inside].max(initial=0)))
    mark = b"" if file.is_last else END_MARK.to_bytes(2, "big", signed=True)
    return units.tobytes() + mark, modified
