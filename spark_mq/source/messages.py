"""The batch reader of table `messages`: planning in one process, reading in tasks.

While Spark plans, segments are listed and, for a time range, a few records looked at. Modules with kernels are
imported where a task reads, for their import costs more than the planning.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.errors import CorruptLogError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS, CORRUPT_RECORD
from spark_mq.source.options import Mode, ReadOptions
from spark_mq.store.commit_log import CommitLog
from spark_mq.store.corrupt_range import CorruptRange
from spark_mq.store.filesystem import Location
from spark_mq.store.splits import Split, plan_splits
from spark_mq.store.store_time import within_time

if TYPE_CHECKING:
    from spark_mq.format.columns import MessageColumns
    from spark_mq.format.scan import Frames

MAX_BATCH_ROWS = 8192
_MAX_ROW_SIZE = (1 << 31) - 1
_EARLIEST, _LATEST = -(1 << 63), (1 << 63) - 1


@dataclass
class SplitPartition(InputPartition):
    """A task's share: one split. `plan` is the same for all partitions of one read."""

    split: Split
    plan: str


@dataclass
class GapPartition(InputPartition):
    """A range that is missing between two segments; it has no bytes, but in PERMISSIVE mode a row."""

    gap: CorruptRange


class MessagesReader(DataSourceReader):
    """Reads the columns `names` of the messages."""

    def __init__(self, options: ReadOptions, names: list[str]) -> None:
        self._options = options
        self._names = names

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each split that can hold a wanted message.

        Raises `StoreNotFoundError` where the path is no store.
        """
        options = self._options
        log = CommitLog.open(Location.resolve(options.path))
        splits = within_time(plan_splits(log, options.split_size), options.start_timestamp, options.end_timestamp)
        plan = uuid.uuid4().hex
        gaps = [GapPartition(gap) for gap in log.gaps]
        return [*gaps, *(SplitPartition(split, plan) for split in splits)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this with None where there is no partition at all."""
        if isinstance(partition, SplitPartition):
            yield from self._read_split(partition)
        elif isinstance(partition, GapPartition):
            yield from self._corrupt_rows(partition.gap)

    def _read_split(self, partition: SplitPartition) -> Iterator[pa.RecordBatch]:
        from spark_mq.format.columns import MessageColumns
        from spark_mq.format.message_batches import BODY_COLUMNS, message_batches
        from spark_mq.store.split_reader import read_split

        fails = self._options.mode == Mode.FAILFAST
        check_crc = self._options.check_crc and (fails or not BODY_COLUMNS.isdisjoint(self._names))
        for part in read_split(partition.split, partition.plan):
            if isinstance(part, CorruptRange):
                yield from self._corrupt_rows(part)
                continue
            wanted = self._wanted(MessageColumns(part.buffer, part.base, part.frames))
            for messages in message_batches(
                part.buffer, part.base, wanted, self._names, MAX_BATCH_ROWS, check_crc=check_crc
            ):
                if fails:
                    _fail_on_body(partition.split, messages)
                yield messages.record_batch(self._names)

    def _wanted(self, messages: MessageColumns) -> Frames:
        """The frames that pass the options' filters."""
        options, frames = self._options, messages.frames
        if options.topic is not None:
            frames = frames[messages.topic_is(options.topic.encode("utf-8"))]
        if options.start_timestamp is None and options.end_timestamp is None:
            return frames
        times = messages.with_frames(frames).store_timestamp_millis()
        start = _EARLIEST if options.start_timestamp is None else options.start_timestamp
        end = _LATEST if options.end_timestamp is None else options.end_timestamp
        return frames[(times >= start) & (times <= end)]

    def _corrupt_rows(self, corrupt: CorruptRange) -> Iterator[pa.RecordBatch]:
        """What the mode makes of a corrupt range: rows (a filter on topic or time leaves none), nothing, an error."""
        options = self._options
        if options.mode == Mode.FAILFAST:
            raise CorruptLogError(f"{corrupt.describe()}; read with mode PERMISSIVE to get it as a row")
        if options.mode == Mode.DROPMALFORMED or options.topic is not None:
            return
        if options.start_timestamp is not None or options.end_timestamp is not None:
            return
        for start in range(0, corrupt.length, _MAX_ROW_SIZE):
            values = {
                "commit_log_offset": corrupt.commit_log_offset + start,
                "store_size": min(corrupt.length - start, _MAX_ROW_SIZE),
                CORRUPT_RECORD: str(corrupt),
            }
            fields = [ALL_MESSAGE_FIELDS[name] for name in self._names]
            arrays = [pa.array([values.get(field.name)], field.type) for field in fields]
            yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _fail_on_body(split: Split, messages: MessageColumns) -> None:
    if messages.bodies is None or not messages.bodies.reasons:
        return
    row, reason = min(messages.bodies.reasons.items())
    offset = messages.base + int(messages.frames[row].position)
    raise CorruptLogError(f"{split.segment.location}: message at commit log offset {offset}: {reason}")
