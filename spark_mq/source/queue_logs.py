"""The records of logs that single queues have: of tiered storage, and the copies of compacted topics.

In tiered storage are the rows of table `tiered_messages`, and those rows of `messages` that no store has. A broker
answers a pull from its store if the store has the queue offset, else from tiered storage
(`TieredMessageStore.fetchFromCurrentStore`@5.3.3 with NOT_IN_DISK, the default level). So of a message that both have,
the row is the store's. What a store has is said by its consume queues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from spark_mq.format.message_row import corrupt_row
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, MAX_STORE_SIZE
from spark_mq.format.record import QUEUE_OFFSET_AT
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.source.messages import MessagesReader, frozen_modules
from spark_mq.source.options import Mode, ReadOptions
from spark_mq.source.row_filter import keeps_corrupt_range
from spark_mq.store.compaction import copied_queues, copy_segments, is_long_blank
from spark_mq.store.log.commit_log import Segment, Split
from spark_mq.store.log.segment_files import CorruptRange, segment_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.tiered_storage import TieredQueue, find_storage, stored_offsets
from spark_mq.tables.messages import MESSAGES
from spark_mq.tables.tiered import TIERED_MESSAGES

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.store.log.record_reader import Records

_LOG = logging.getLogger(__name__)
_STATE = "state"
_COLD, _HOT, _NO_UNIT = range(3)
_STATES = pa.array(["COLD", "HOT", "NO_UNIT"])
Int8s = npt.NDArray[np.int8]
_OF_LOG = frozenset(("commit_log_offset", "offset_message_id"))
"""The columns that say where the commit log has a message."""


@dataclass
class QueueSplit:
    """A split of the log of a queue."""

    split: Split


@dataclass
class TieredSplit(QueueSplit):
    """A split of the log of a queue in tiered storage, and the queue offsets that the store has."""

    queue: TieredQueue
    stored: range


@dataclass
class QueuesPartition(InputPartition):
    """The splits that a task reads: on a local disk, small queues share one."""

    splits: list[QueueSplit]


def _compacted_splits(options: ReadOptions, store: Location) -> list[QueueSplit]:
    """The splits of the copies of all queues, or of those that the predicate names."""
    predicate = options.predicate
    return [
        QueueSplit(split)
        for topic, queue_id in copied_queues(store, predicate.topics)
        if predicate.queue_ids is None or queue_id in predicate.queue_ids
        for segment in copy_segments(store, topic, queue_id)
        for split in _splits(segment, segment.data_end, options.split_size)
    ]


def _splits(segment: Segment, stop: int, size: int) -> list[Split]:
    return [Split(segment, start, min(start + size, stop)) for start in range(0, stop, size)]


def _tiered_splits(options: ReadOptions, store: MessageStore) -> list[QueueSplit]:
    """The splits of the records of all queues, or of those that the predicate names."""
    predicate, storage = options.predicate, find_storage(store, options.tiered_storage)
    if storage is None or predicate.is_empty:
        return []
    if options.table == MESSAGES.name and not predicate.offsets.is_all:
        return []  # their rows have no offset
    queues = [
        queue
        for queue in storage.queues()
        if (predicate.topics is None or queue.topic in predicate.topics)
        and (predicate.queue_ids is None or queue.queue_id in predicate.queue_ids)
    ]
    return [
        TieredSplit(split, queue, stored)
        for queue in queues
        for stored in [stored_offsets(store, queue)]
        for file in queue.log
        for split in _splits(file, file.size, options.split_size)
    ]


def _partitions(splits: Sequence[QueueSplit], size: int) -> list[QueuesPartition]:
    partitions, room = list[QueuesPartition](), 0
    for one in splits:
        own = one.split.stop - one.split.start
        if own > room:
            partitions.append(QueuesPartition([]))
            room = size if one.split.segment.location.is_local else 0
        partitions[-1].splits.append(one)
        room -= own
    return partitions


class QueueLogsReader(MessagesReader):
    """The reader of records of the logs of single queues."""

    _part: QueueSplit

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition."""
        if isinstance(partition, QueuesPartition):
            reader = copy(self)
            with frozen_modules():
                for part in partition.splits:
                    reader._part = part
                    yield from reader._read_split(part.split)

    def _corrupt_rows(self, damage: Sequence[CorruptRange]) -> Iterator[pa.RecordBatch]:
        """As those of a log; `_corrupt_record` also names the file."""
        self._fail_on_damage(damage[0])
        rows = []
        for one in damage if self._options.mode != Mode.DROPMALFORMED else ():
            offset = None if self._is_of_messages else one.commit_log_offset
            if keeps_corrupt_range(self._options.predicate, offset):
                rows.append(corrupt_row(offset, min(one.length, MAX_STORE_SIZE), f"{one.code}: {one.describe()}"))
        yield from self._batches(rows)

    @property
    def _is_of_messages(self) -> bool:
        return self._options.table == MESSAGES.name


class CompactedMessagesReader(QueueLogsReader):
    """The reader of records in the copies of compacted topics."""

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of all copies. Raises `StoreNotFoundError` if the path is not a store."""
        store = Location.resolve(self._options.path)
        segment_files(store)
        return _partitions(_compacted_splits(self._options, store), self._options.split_size)

    def _corrupt_rows(self, damage: Sequence[CorruptRange]) -> Iterator[pa.RecordBatch]:
        damage = [one for one in damage if not is_long_blank(self._part.split.segment, one)]
        if damage:
            yield from super()._corrupt_rows(damage)


class TieredMessagesReader(QueueLogsReader):
    """The reader of records of tiered storage; of table `messages`, of those that the store lacks, and of its log."""

    _part: TieredSplit

    def partitions(self) -> Sequence[InputPartition]:
        """The partitions of tiered storage, and then those of the log for table `messages`."""
        options = self._options
        with MessageStore(options.path, broker_conf=options.broker_conf) as store:
            found = _partitions(_tiered_splits(options, store), options.split_size)
        size = sum(part.split.stop - part.split.start for partition in found for part in partition.splits)
        _LOG.info("%s: %s bytes of tiered storage", shown(options.path), f"{size:,}")
        return [*found, *(super().partitions() if self._is_of_messages else ())]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition."""
        if isinstance(partition, QueuesPartition):
            yield from super().read(partition)
        elif self._is_of_messages:
            yield from MessagesReader(self._options, self._columns).read(partition)

    def _matching(self, part: Records, file: Location) -> Iterator[pa.RecordBatch]:
        """As of a log; of table `messages`, nothing is decoded of a record that is not a row."""
        if self._is_of_messages:
            is_cold = self._states(part) == _COLD
            part = part if is_cold.all() else replace(part, frames=part.frames[is_cold])
        yield from super()._matching(part, file)

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """The rows of matching messages."""
        own: dict[str, pa.Array] = {}
        if self._is_of_messages:
            nulls = _OF_LOG.intersection(self._columns)
            own = {name: pa.nulls(messages.frames.size, ALL_MESSAGE_FIELDS[name].type) for name in nulls}
        elif _STATE in self._columns:
            own[_STATE] = pa.DictionaryArray.from_arrays(self._states(messages), _STATES).cast(pa.string())
        read = messages.record_batch([name for name in self._columns if name not in own])
        if not own:
            return read
        arrays = [own[name] if name in own else read.column(name) for name in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(self.fields()))

    def fields(self) -> list[pa.Field]:
        """The columns that the query reads."""
        return [ALL_MESSAGE_FIELDS.get(name) or TIERED_MESSAGES.schema.field(name) for name in self._columns]

    def _states(self, messages: MessageColumns | Records) -> Int8s:
        """The index of each message's state."""
        from spark_mq.format.kernels.big_endian import int64s_at
        from spark_mq.format.kernels.dispatch import lead_to

        queue, stored, buffer, frames = self._part.queue, self._part.stored, messages.buffer, messages.frames
        offsets = int64s_at(buffer, frames.position + QUEUE_OFFSET_AT)
        states = np.full(offsets.size, _COLD, np.int8)
        if stored:
            states[(offsets >= stored.start) & (offsets < stored.stop)] = _HOT
        states[~lead_to(queue.units(offsets), buffer, frames) | (offsets < queue.min_offset)] = _NO_UNIT
        return states
