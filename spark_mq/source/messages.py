"""The batch reader of table `messages`: one process plans, tasks read.

While Spark plans, the reader lists segments and chooses an access path (`planner`). Modules with kernels are imported
only when a task reads splits, because their import takes longer than planning or a look-up.

After a task, Spark's Python daemon calls `gc.collect` in the worker (`pyspark.daemon`, 4.0 to 4.2). With numba and
pyarrow, a worker has more than 100,000 objects of modules, which are never garbage, and looking at all of them takes 25
to 40 ms. A scan of one segment has eight tasks. After `gc.freeze`, the collector looks only at objects that are newer.
"""

from __future__ import annotations

import gc
import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.format.array_types import keep_freed_memory
from spark_mq.format.dispatch import record_keys
from spark_mq.format.message_row import Row, corrupt_row, message_row, message_table
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD, KEY, KEY_FIELDS, KEY_TYPE, MAX_STORE_SIZE
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.source.explain import advice, explain_plan
from spark_mq.source.options import Mode, ReadOptions
from spark_mq.source.planner import plan_messages
from spark_mq.source.read_plan import LookUp, OrderedRead
from spark_mq.source.row_filter import keeps_corrupt_range, matches_predicate, matching_messages, without_queues
from spark_mq.store.index.coverage import CheckedIndex
from spark_mq.store.log.commit_log import Split
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.segment_files import STRAY, CorruptRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueRange, UnitsRead
from spark_mq.store.queue.unit_cover import cost_of

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns
    from spark_mq.store.log.record_reader import RecordChunk, Records

try:
    from pyspark import TaskContext
    from pyspark.sql.datasource import DataSourceReader, InputPartition
except ModuleNotFoundError:  # a restore without Spark reads messages, too

    class TaskContext:  # type: ignore[no-redef]
        """There is no task of Spark."""

        @staticmethod
        def get() -> None:
            """No context."""

    class DataSourceReader:  # type: ignore[no-redef]
        """What Spark asks of a reader does not matter."""

    class InputPartition:  # type: ignore[no-redef]
        """What Spark asks of a partition does not matter."""


MAX_BATCH_ROWS = 16384
"""Usually more messages than one chunk of the log has: a second, small batch of a chunk would cost as much."""
_MAX_LOOK_UP_ROWS = 256
_MAX_LOOK_UP_BYTES = 4 << 20
"""The largest number of body bytes of looked-up messages in a batch."""

_LOG = logging.getLogger(__name__)
GET_AS_ROW: Final = "; read with mode PERMISSIVE to get it as a row"
"""What an error about damage says to who reads."""


_seen_modules = 0
"""How many modules this process had when it last froze their objects."""


@contextmanager
def frozen_modules() -> Iterator[None]:
    """A context of a task. When it ends, the garbage collector leaves out the modules that were imported in it.

    Freed memory stays with the process. Outside of a Spark task neither is done: the process belongs to a user, whose
    objects can become garbage.
    """
    global _seen_modules
    if not _seen_modules and TaskContext.get() is not None:
        keep_freed_memory()
    try:
        yield
    finally:
        if len(sys.modules) != _seen_modules and TaskContext.get() is not None:
            _seen_modules = len(sys.modules)
            gc.collect()  # garbage would stay for ever
            gc.freeze()


@dataclass
class SplitPartition(InputPartition):
    """A split that a task reads."""

    split: Split


@dataclass
class GapPartition(InputPartition):
    """A missing range between two segments, or a stray file: no messages, and in PERMISSIVE mode one row."""

    gap: CorruptRange


@dataclass
class LookUpPartition(InputPartition):
    """A look-up in the log as it was when Spark planned; messages in `uncovered` belong to other partitions."""

    look_up: LookUp
    uncovered: tuple[LogRange, ...]
    live_end: LiveEnd
    index: CheckedIndex | None


@dataclass
class OrderedPartition(InputPartition):
    """Messages that one task reads in the order of the log as it was when Spark planned."""

    read: OrderedRead
    live_end: LiveEnd


class MessagesReader(DataSourceReader):
    """The reader of messages; `columns` are the columns that the query reads."""

    shows_damage = True
    """Whether the table has rows for damage."""

    def __init__(self, options: ReadOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each split that can contain a matching message, for each look-up, and for each gap."""
        options = self._options
        with MessageStore(options.path, broker_conf=options.broker_conf, recalls_end=True) as store:
            planned = options
            if options.unwrap_batches:  # units, index entries and offsets are those of records
                planned = replace(options, predicate=options.predicate.of_batches)
            read = plan_messages(planned, store)
            for topic in sorted(options.predicate.topics or ()):
                reason = store.why_no_topic(topic)
                if reason is not None:
                    _LOG.warning("%s: %s", shown(options.path), reason)
        _LOG.info("%s: %s", shown(options.path), explain_plan(read))
        hint = advice(read, self._columns)
        if hint is not None:
            _LOG.warning("%s: %s", shown(options.path), hint)
        return [
            *map(GapPartition, read.gaps),
            *(LookUpPartition(look_up, read.uncovered, read.live_end, read.index) for look_up in read.look_ups),
            *(SplitPartition(split) for split in read.splits),
            *(OrderedPartition(ordered, read.live_end) for ordered in read.ordered),
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition."""
        with frozen_modules():
            if isinstance(partition, SplitPartition):
                yield from self._read_split(partition.split)
            elif isinstance(partition, GapPartition):
                yield from self._corrupt_rows([partition.gap])
            elif isinstance(partition, LookUpPartition):
                yield from self._look_up(partition)
            elif isinstance(partition, OrderedPartition):
                yield from self._read_in_order(partition)

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """The rows of matching messages."""
        return messages.record_batch(self._columns)

    def rows(self, record: Record, row: Row, looked_up: str | None) -> list[Row]:
        """The rows of a matching message; `looked_up` is the key by which the message was found, else None.

        A message that has several requested keys is found by each of them. Only the smallest of these keys gives a row.
        """
        requested = self._options.predicate.keys or self._options.predicate.unique_keys or frozenset()
        is_first = looked_up is None or looked_up == min(key for key in record_keys(record) if key in requested)
        return [row] if is_first else []

    def fields(self) -> list[pa.Field]:
        """The columns that the query reads."""
        return [ALL_MESSAGE_FIELDS[name] for name in self._columns]

    def _read_in_order(self, partition: OrderedPartition) -> Iterator[pa.RecordBatch]:
        options, read = self._options, partition.read
        reader = copy(self)
        reader._options = replace(options, predicate=options.predicate & read.predicate)
        splits = [part for part in read.parts if isinstance(part, Split)]
        scanned = [LogRange(split.segment.base + split.start, split.segment.base + split.stop) for split in splits]
        with MessageStore(options.path, broker_conf=options.broker_conf, live_end=partition.live_end) as store:
            for part in read.parts:
                if isinstance(part, Split):
                    yield from reader._read_split(part, read.other_queue_ids)
                else:
                    yield from reader._read_units(store, part, scanned)

    def _read_split(self, split: Split, other_queue_ids: frozenset[int] = frozenset()) -> Iterator[pa.RecordBatch]:
        from spark_mq.store.log.record_reader import joined_chunks
        from spark_mq.store.log.split_reader import read_split

        parts = read_split(split)
        if self._options.mode == Mode.FAILFAST:  # the first damage is the error
            parts = _up_to_damage(parts)
        for part in joined_chunks(parts):
            if isinstance(part, list):
                yield from self._corrupt_rows(part)
            else:
                kept = without_queues(part, other_queue_ids) if other_queue_ids else part
                yield from self._matching(kept, split.segment.location)

    def _matching(self, part: Records, file: Location) -> Iterator[pa.RecordBatch]:
        """Batches of the matching messages of a chunk, which is of the segment `file`."""
        if self._options.unwrap_batches:
            from spark_mq.format.kernels.inner_batches import inner_messages, needs_unwrap
            from spark_mq.store.log.record_reader import Records

            is_batch = needs_unwrap(part.frames)
            if is_batch.any():
                batches = part.frames if is_batch.all() else part.frames[is_batch]
                found, is_left = inner_messages(part.buffer, batches, self._columns)
                is_batch[is_batch] = ~is_left
                part = Records(part.buffer, part.frames[~is_batch])
                for messages in found:
                    matching = matching_messages(self._options.predicate, messages)
                    for first in range(0, matching.frames.size, MAX_BATCH_ROWS):
                        yield self.batch(matching.part(slice(first, first + MAX_BATCH_ROWS)))
        yield from self._of_records(part, file)

    def _of_records(self, part: Records, file: Location) -> Iterator[pa.RecordBatch]:
        """Batches of the matching messages of records, one for each."""
        from spark_mq.format.kernels.batches import BODY_COLUMNS, message_batches
        from spark_mq.format.kernels.columns import MessageColumns

        fails = self._options.mode == Mode.FAILFAST
        check_crc = self._options.check_crc and (fails or not BODY_COLUMNS.isdisjoint(self._columns))
        matching = matching_messages(self._options.predicate, MessageColumns(part.buffer, part.frames)).frames
        for messages in message_batches(part.buffer, matching, self._columns, MAX_BATCH_ROWS, check_crc=check_crc):
            if fails:
                _fail_on_body(file, messages)
            yield self.batch(messages)

    def _read_units(self, store: MessageStore, read: UnitsRead, others: Sequence[LogRange]) -> Iterator[pa.RecordBatch]:
        from spark_mq.store.queue.unit_reader import UnitReader

        gap = cost_of(store.location).gap
        reader = UnitReader(store.records, store.find_queue, store.queue_cover, read, gap, others)
        for part in reader.chunks():
            if isinstance(part, list):
                yield from self._corrupt_rows(part)
            else:
                yield from self._matching(part, store.location)

    def _look_up(self, partition: LookUpPartition) -> Iterator[pa.RecordBatch]:
        options, end, index = self._options, partition.live_end, partition.index
        with MessageStore(options.path, None, options.broker_conf, live_end=end, checked_index=index) as store:
            if partition.look_up.units is not None:
                yield from self._read_units(store, partition.look_up.units, partition.uncovered)
                return
            if partition.look_up.queue is not None:
                yield from self._record_batches(self._find_in_queue(store, partition.look_up.queue, partition))
                return
            times = options.predicate.store_timestamp.bounds
            found = (
                (record, key)
                for topic, key in partition.look_up.keys
                for record in store.index.find_messages(topic, key, *times, partition.uncovered)
            )
            yield from self._record_batches(found)
            for problem in store.index.problems:
                _LOG.warning("%s; that part of the log was read instead", problem)

    def _find_in_queue(
        self, store: MessageStore, requested: QueueRange, partition: LookUpPartition
    ) -> Iterator[tuple[Record, str | None]]:
        if store.find_queue(requested.topic, requested.queue_id) is None:
            raise StoreChangedError(
                f"queue {requested.topic}/{requested.queue_id} was removed since the read was planned: read again"
            )
        cover = store.queue_cover(requested.topic, requested.queue_id)
        for part in cover.messages_and_damage(requested.start, requested.stop):
            if isinstance(part, CorruptRange):
                self._fail_on_damage(part)
            elif not any(part.commit_log_offset in log_range for log_range in partition.uncovered):
                yield part, None

    def _fail_on_damage(self, corrupt: CorruptRange) -> None:
        if self._options.mode == Mode.FAILFAST:
            raise CorruptLogError(f"{corrupt.describe()}{GET_AS_ROW}")

    def _record_batches(self, found: Iterable[tuple[Record, str | None]]) -> Iterator[pa.RecordBatch]:
        rows: list[Row] = []
        size = 0
        for record, key in found:
            row = message_row(record)
            if not matches_predicate(self._options.predicate, row):
                continue
            if self._options.mode == Mode.FAILFAST and row.get(CORRUPT_RECORD) is not None:
                raise CorruptLogError(
                    f"{shown(self._options.path)}: message at commit log offset {record.commit_log_offset}: "
                    f"{row[CORRUPT_RECORD]}"
                )
            rows += self.rows(record, row, key)
            size += len(row["body"] or b"")
            if len(rows) >= _MAX_LOOK_UP_ROWS or size >= _MAX_LOOK_UP_BYTES:
                yield from self._batches(rows)
                rows, size = [], 0
        yield from self._batches(rows)

    def _batches(self, rows: list[Row]) -> Iterator[pa.RecordBatch]:
        if rows:
            yield from message_table(rows, pa.schema(self.fields())).to_batches()

    def _corrupt_rows(self, damage: Sequence[CorruptRange]) -> Iterator[pa.RecordBatch]:
        """The rows of corrupt ranges, nothing, or an error, by the mode. Conditions on other columns remove rows."""
        self._fail_on_damage(damage[0])
        if self._options.mode != Mode.DROPMALFORMED and self.shows_damage:
            rows = map(_row_of_damage, damage)
            predicate = self._options.predicate
            yield from self._batches([row for row in rows if keeps_corrupt_range(predicate, row["commit_log_offset"])])


def _up_to_damage(parts: Iterable[RecordChunk | CorruptRange]) -> Iterator[RecordChunk | CorruptRange]:
    for part in parts:
        yield part
        if isinstance(part, CorruptRange):
            return


def _row_of_damage(corrupt: CorruptRange) -> Row:
    """The one row of a corrupt range of any length.

    If the length does not fit in `store_size`, only the text has it. The name of a stray file is not an offset.
    """
    if corrupt.code == STRAY:
        return corrupt_row(None, None, f"{STRAY}: {corrupt.describe()}")
    if corrupt.length <= MAX_STORE_SIZE:
        return corrupt_row(corrupt.commit_log_offset, corrupt.length, str(corrupt))
    stop = corrupt.commit_log_offset + corrupt.length
    reason = f"{corrupt}: {corrupt.length} bytes, up to commit log offset {stop}"
    return corrupt_row(corrupt.commit_log_offset, None, reason)


def _fail_on_body(file: Location, messages: MessageColumns) -> None:
    if messages.bodies is None or not messages.bodies.reasons:
        return
    row, reason = min(messages.bodies.reasons.items())
    offset = messages.column("commit_log_offset")[row].as_py()
    raise CorruptLogError(f"{file}: message at commit log offset {offset}: {reason}")


class MessagesByKeyReader(MessagesReader):
    """The reader of keys and their messages; damage has no key, and so no row."""

    shows_damage = False

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """A row for each requested key of the messages."""
        from spark_mq.format.kernels.batches import message_keys, rows_of_keys

        return rows_of_keys(messages, message_keys(messages, self._options.predicate.keys), self._columns)

    def rows(self, record: Record, row: Row, looked_up: str | None) -> list[Row]:
        """A row for each requested key of the message, or for the key by which the message was found."""
        requested = self._options.predicate.keys
        key_types = record_keys(record)
        keys = [key for key in key_types if (requested is None or key in requested) and looked_up in (None, key)]
        if requested is None and looked_up is not None:  # found by its unique key, which is one of its keys
            keys = list(key_types) if super().rows(record, row, looked_up) else []
        return [row | {KEY: key, KEY_TYPE: key_types[key].value} for key in keys]

    def fields(self) -> list[pa.Field]:
        """The columns that the query reads."""
        return [(KEY_FIELDS | ALL_MESSAGE_FIELDS)[name] for name in self._columns]
