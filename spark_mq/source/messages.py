"""The batch reader of table `messages`: planning in one process, reading in tasks.

While Spark plans, segments are listed and what the predicate asks for is looked up where it can be (`planner`). Modules
with kernels are imported where a task reads splits, for their import costs more than the planning, or than a look-up.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.errors import CorruptLogError, StoreChangedError
from spark_mq.format.message_keys import record_keys
from spark_mq.format.message_row import Row, corrupt_row, message_row, message_table
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD
from spark_mq.format.record import Record
from spark_mq.source.explain import explain_plan
from spark_mq.source.options import Mode, ReadOptions
from spark_mq.source.planner import LookUp, plan_messages
from spark_mq.source.predicate import Predicate
from spark_mq.source.row_filter import filter_frames, keeps_corrupt_range, matches_predicate
from spark_mq.store.log.corrupt_range import STRAY, CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.splits import Split
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueRange

if TYPE_CHECKING:
    from spark_mq.format.kernels.columns import MessageColumns

MAX_BATCH_ROWS = 8192
_MAX_LOOK_UP_ROWS = 256
_MAX_LOOK_UP_BYTES = 4 << 20
"""Stored bytes of looked-up messages in a batch; their bodies may be compressed."""
_MAX_STORE_SIZE = (1 << 31) - 1
"""What a column of type INT can hold."""

_LOG = logging.getLogger(__name__)


@dataclass
class SplitPartition(InputPartition):
    """A task's share: one split. `plan` is the same for all partitions of one read."""

    split: Split
    plan: str


@dataclass
class GapPartition(InputPartition):
    """A range that is missing between two segments, or a stray file: without messages, in PERMISSIVE mode a row."""

    gap: CorruptRange


@dataclass
class LookUpPartition(InputPartition):
    """A look-up, in the log as it was while Spark planned; what lies in `uncovered` belongs to other partitions."""

    look_up: LookUp
    uncovered: tuple[LogRange, ...]
    log: LogRange


class MessagesReader(DataSourceReader):
    """Reads the columns `names` of the messages."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def narrow(self, predicate: Predicate) -> None:
        """Read no more than messages that have all that the predicate says, too."""
        self._options = replace(self._options, predicate=self._options.predicate & predicate)

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each split that can hold a wanted message, and for each look-up.

        Raises `StoreNotFoundError` where the path is no store.
        """
        options = self._options
        with MessageStore(options.path, broker_conf=options.broker_conf) as store:
            read = plan_messages(options, store)
        _LOG.info("%s: %s", options.path, explain_plan(read))
        plan = uuid.uuid4().hex
        return [
            *map(GapPartition, read.gaps),
            *(LookUpPartition(look_up, read.uncovered, read.log) for look_up in read.look_ups),
            *(SplitPartition(split, plan) for split in read.splits),
        ]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this with None where there is no partition at all."""
        if isinstance(partition, SplitPartition):
            yield from self._read_split(partition.split, partition.plan)
        elif isinstance(partition, GapPartition):
            yield from self._corrupt_rows(partition.gap)
        elif isinstance(partition, LookUpPartition):
            yield from self._look_up(partition)

    def batch(self, messages: MessageColumns) -> pa.RecordBatch:
        """The rows that wanted messages make."""
        return messages.record_batch(self._names)

    def rows(self, record: Record, row: Row, looked_up: str | None) -> list[Row]:
        """The rows that a wanted message makes; `looked_up` is the key by which it was found, if it was by one.

        A message that has several of the wanted keys is found by each of them: the first one gives it.
        """
        wanted = self._options.predicate.keys or self._options.predicate.unique_keys or frozenset()
        is_first = looked_up is None or looked_up == min(key for key in record_keys(record) if key in wanted)
        return [row] if is_first else []

    def fields(self) -> list[pa.Field]:
        """The columns that are read."""
        return [ALL_MESSAGE_FIELDS[name] for name in self._names]

    def _read_split(self, split: Split, plan: str) -> Iterator[pa.RecordBatch]:
        from spark_mq.format.kernels.batches import BODY_COLUMNS, message_batches
        from spark_mq.format.kernels.columns import MessageColumns
        from spark_mq.store.log.split_reader import read_split

        fails = self._options.mode == Mode.FAILFAST
        check_crc = self._options.check_crc and (fails or not BODY_COLUMNS.isdisjoint(self._names))
        for part in read_split(split, plan):
            if isinstance(part, CorruptRange):
                yield from self._corrupt_rows(part)
                continue
            wanted = filter_frames(self._options.predicate, MessageColumns(part.buffer, part.base, part.frames))
            for messages in message_batches(
                part.buffer, part.base, wanted, self._names, MAX_BATCH_ROWS, check_crc=check_crc
            ):
                if fails:
                    _fail_on_body(split, messages)
                yield self.batch(messages)

    def _look_up(self, partition: LookUpPartition) -> Iterator[pa.RecordBatch]:
        options, log = self._options, partition.log
        with MessageStore(options.path, broker_conf=options.broker_conf, log_end=log.stop) as store:
            if partition.look_up.queue is not None:
                yield from self._record_batches(self._found_in_queue(store, partition.look_up.queue, partition))
                return
            yield from self._record_batches(self._found_by_key(store, partition))
            for problem in store.index.problems:
                _LOG.warning("%s; that part of the log was read instead", problem)

    def _found_in_queue(
        self, store: MessageStore, wanted: QueueRange, partition: LookUpPartition
    ) -> Iterator[tuple[Record, str | None]]:
        if store.find_queue(wanted.topic, wanted.queue_id) is None:
            raise StoreChangedError(f"queue {wanted.topic}/{wanted.queue_id} was removed since the read was planned")
        cover = store.queue_cover(wanted.topic, wanted.queue_id)
        for part in cover.messages_and_damage(wanted.start, wanted.stop):
            if isinstance(part, CorruptRange):
                self._fail_on_damage(part)
            elif not any(part.commit_log_offset in log_range for log_range in partition.uncovered):
                yield part, None

    def _fail_on_damage(self, corrupt: CorruptRange) -> None:
        if self._options.mode == Mode.FAILFAST:
            raise CorruptLogError(f"{corrupt.describe()}; read with mode PERMISSIVE to get it as a row")

    def _found_by_key(self, store: MessageStore, partition: LookUpPartition) -> Iterator[tuple[Record, str | None]]:
        begin, end = self._options.predicate.store_timestamp.bounds
        for topic, key in partition.look_up.keys:
            for record in store.index.find_messages(topic, key, begin, end, partition.uncovered):
                yield record, key

    def _record_batches(self, found: Iterable[tuple[Record, str | None]]) -> Iterator[pa.RecordBatch]:
        """Batches of looked-up messages: those that the predicate wants, few at a time."""
        rows: list[Row] = []
        size = 0
        for record, key in found:
            row = message_row(record)
            if not matches_predicate(self._options.predicate, row):
                continue
            if self._options.mode == Mode.FAILFAST and row.get(CORRUPT_RECORD) is not None:
                raise CorruptLogError(
                    f"{self._options.path}: message at commit log offset {record.commit_log_offset}: "
                    f"{row[CORRUPT_RECORD]}"
                )
            rows += self.rows(record, row, key)
            size += len(row["body"] or b"")
            if len(rows) >= _MAX_LOOK_UP_ROWS or size >= _MAX_LOOK_UP_BYTES:
                yield from message_table(rows, pa.schema(self.fields())).to_batches()
                rows, size = [], 0
        if rows:
            yield from message_table(rows, pa.schema(self.fields())).to_batches()

    def _corrupt_rows(self, corrupt: CorruptRange) -> Iterator[pa.RecordBatch]:
        """What the mode makes of a corrupt range: a row (a filter on a field leaves none), nothing, an error."""
        self._fail_on_damage(corrupt)
        if self._options.mode == Mode.DROPMALFORMED:
            return
        row = _row_of_damage(corrupt)
        if self.shows_damage() and keeps_corrupt_range(self._options.predicate, row["commit_log_offset"]):
            yield from message_table([row], pa.schema(self.fields())).to_batches()

    def shows_damage(self) -> bool:
        """Whether damage has rows in the table."""
        return True


def _row_of_damage(corrupt: CorruptRange) -> Row:
    """One row for a corrupt range, however long it is.

    A length that `store_size` cannot hold is in the text only. The number in the name of a stray file is not an offset.
    """
    if corrupt.code == STRAY:
        return corrupt_row(None, None, f"{STRAY}: {corrupt.describe()}")
    if corrupt.length <= _MAX_STORE_SIZE:
        return corrupt_row(corrupt.commit_log_offset, corrupt.length, str(corrupt))
    stop = corrupt.commit_log_offset + corrupt.length
    reason = f"{corrupt}: {corrupt.length} bytes, up to commit log offset {stop}"
    return corrupt_row(corrupt.commit_log_offset, None, reason)


def _fail_on_body(split: Split, messages: MessageColumns) -> None:
    if messages.bodies is None or not messages.bodies.reasons:
        return
    row, reason = min(messages.bodies.reasons.items())
    offset = messages.base + int(messages.frames[row].position)
    raise CorruptLogError(f"{split.segment.location}: message at commit log offset {offset}: {reason}")
