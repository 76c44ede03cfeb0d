"""Soundness of the extension units of one queue: their store times and bit maps, against the records of the log.

A broker believes both (`ExpressionMessageFilter.isMatchedByConsumeQueue`@5.3.3): if a group's filter is older than the
store time, and the bits of the group are not all set, the group does not get the message. Other bits do no harm,
because the broker evaluates the filter again with the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.errors import ConfigError
from spark_mq.filters.arrays import matching_mask, of_columns
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.bloom_filter import bit_map
from spark_mq.format.consume_queue import UNIT_SIZE, Queue
from spark_mq.format.consume_queue_ext import MAX_ADDRESS, ExtUnits
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.consumer_filters import ConsumerFilter, load_consumer_filters
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.store.queue.unit_cover import FoundUnits, cost_of
from spark_mq.store.queue.unit_reader import records_of_units
from spark_mq.verifier.finding import findings, text
from spark_mq.verifier.log_bounds import LogBounds

_UNITS = 1 << 14


@dataclass(frozen=True)
class QueueExtCheck:
    """The check of one queue, with its topic's filters, whose units can be addresses in `consumequeue_ext`."""

    store: Location
    folder: QueueFolder
    log: LogRange
    filters: tuple[ConsumerFilter, ...]

    def __call__(self) -> Iterator[pa.RecordBatch]:
        """What is wrong, in the files of `consumequeue/`, as the other findings about units."""
        with closing(FileReaders()) as files:
            queue, records = ConsumeQueue(self.folder, files), RecordLookup(self.store, files)
            for start in range(queue.files[0].first, queue.written_end, _UNITS):
                block = queue.units(start, min(start + _UNITS, queue.written_end))
                units = FoundUnits.of_queue(0, start, block).in_ranges([self.log])
                units = units.take(units.tags_codes <= MAX_ADDRESS)
                if units.count:
                    yield from self._findings(queue, records, units)

    def _findings(self, queue: ConsumeQueue, records: RecordLookup, units: FoundUnits) -> Iterator[pa.RecordBatch]:
        units = units.take(np.argsort(units.offsets, kind="stable"))
        gap = cost_of(self.store).gap
        for chunk, which in records_of_units(records, units.offsets, units.sizes, gap):
            found, own = queue.ext.units(units.tags_codes[which]), units.take(which)
            messages = MessageColumns(chunk.buffer, chunk.frames)
            times = messages.store_timestamp_millis()
            wrong = found.is_found & (found.store_timestamp != times)
            texts = (text("store time ", numbers[wrong]) for numbers in (times, found.store_timestamp))
            yield _batch("QUEUE_EXT_TIME", queue, own.take(wrong), *texts)
            for one in self.filters:
                lacks = _lacks_bits(one, messages, found)
                bits = f"the bits {list(one.bit_positions or ())} of group {one.consumer_group}, whose filter is TRUE"
                maps = [f"bit map {bits.hex()}" for bits in found.bit_map[lacks]]
                yield _batch("QUEUE_EXT_BITS", queue, own.take(lacks), bits, maps)


def extension_checks(
    store: Location, folders: Iterable[QueueFolder], dispatched: Collection[Queue], bounds: LogBounds
) -> Iterator[QueueExtCheck]:
    """The checks of queues whose units can be addresses; without bit maps if the filters cannot be read."""
    try:
        filters = load_consumer_filters(store)
    except ConfigError:
        filters = []
    for folder in folders:
        if (folder.topic, folder.queue_id) not in dispatched and not folder.topic.startswith(LIGHT_PREFIX):
            of_topic = tuple(one for one in filters if one.topic == folder.topic)
            yield QueueExtCheck(store, folder, LogRange(bounds.start, bounds.end), of_topic)


def _batch(
    code: str, queue: ConsumeQueue, units: FoundUnits, expected: pa.Array | str, found: pa.Array | list[str]
) -> pa.RecordBatch:
    firsts = np.array([file.first for file in queue.files])
    at = np.searchsorted(firsts, units.queue_offsets, "right") - 1
    names = pa.array([file.location.name for file in queue.files])
    return findings(
        code,
        text(f"consumequeue/{queue.topic}/{queue.queue_id}/", names.take(pa.array(at))),
        expected,
        found,
        queue=(queue.topic, queue.queue_id),
        position=(units.queue_offsets - firsts[at]) * UNIT_SIZE,
        commit_log_offset=units.offsets,
    )


def _lacks_bits(one: ConsumerFilter, messages: MessageColumns, found: ExtUnits) -> Flags:
    """Which units lack a bit of a group whose filter is TRUE, and is older than the message.

    A unit without a bit map of the filter's length says nothing: the broker evaluates the filter with the record.
    """
    count = found.is_found.size
    lacks = np.zeros(count, np.bool_)
    if one.condition is None or not one.bit_count or not one.bit_positions:
        return lacks
    size = one.bit_count // 8
    has_map = np.fromiter((len(bits) == size for bits in found.bit_map), np.bool_, count)
    live: Int64s = np.flatnonzero(found.is_found & has_map & (found.store_timestamp > one.born_time))
    if not live.size:
        return lacks
    maps = np.frombuffer(b"".join(found.bit_map[live]), np.uint8).reshape(live.size, size)
    own = np.frombuffer(bit_map(one.bit_positions, one.bit_count), np.uint8)
    lacks[live] = ((maps & own) != own).any(axis=1)
    return lacks & matching_mask(one.condition, of_columns(messages))
