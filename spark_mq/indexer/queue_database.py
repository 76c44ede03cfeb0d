"""Queues in a RocksDB database out of staged runs of units (`storeType=defaultRocksDB`).

Tasks write sorted tables of units (`*.sst`), each those of its runs, and the driver makes the database of them, with
the table of the ends of queues. A broker that boots takes the queues as they are, and dispatches what comes after the
checkpoint (`RocksDBConsumeQueueStore.recover`@5.3.3).

A queue whose messages have all expired has no unit, and goes on at its next offset. A queue offset without a message
has no unit either; a broker skips it.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from spark_mq.format.consume_queue import DATABASE_UNIT_DTYPE, Queue
from spark_mq.indexer.queue_plan import ExistingQueues
from spark_mq.indexer.queue_runs import Run
from spark_mq.indexer.queue_writer import NEW, QueueFile, WrittenQueueFile, files_of
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import make_database, write_table
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.queue_database import (
    OFFSETS,
    End,
    OffsetTable,
    QueueDatabase,
    offset_records,
    queue_tree,
    unit_key_prefix,
)

_OFFSET_SIZE = 8


@dataclass(frozen=True)
class TableWriter:
    """Writes the units of runs into a new table in the folder `tables`."""

    tables: Location
    capacity: int

    def write(self, runs: Iterable[Run]) -> Iterator[WrittenQueueFile]:
        """What was written of each queue, in pieces of the size of a queue file; the runs are sorted by such files."""
        files = list(files_of(runs, self.capacity, DATABASE_UNIT_DTYPE))
        files.sort(key=lambda file: (unit_key_prefix(file.topic, file.queue_id), file.number))
        name = f"{uuid.uuid4().hex}.sst"
        size = write_table((self.tables / name).path, (record for file in files for record in _records(file)))
        for file in files:
            row = file.row(NEW, 0)
            offsets, units = file.messages()
            row.first, row.last = ((int(units["commit_log_offset"][at]), int(offsets[at])) for at in (0, -1))
            row.stop, row.table = row.last[0] + int(units["store_size"][-1]), name
            row.bytes, size = size, 0
            yield row


def _records(file: QueueFile) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a file, as `rocksdict` takes them: one by one."""
    offsets, units = file.messages()
    prefix = np.frombuffer(unit_key_prefix(file.topic, file.queue_id), np.uint8)
    keys = np.empty((offsets.size, prefix.size + _OFFSET_SIZE), np.uint8)
    keys[:, : prefix.size] = prefix
    keys[:, prefix.size :] = offsets.astype(">i8").view(np.uint8).reshape(-1, _OFFSET_SIZE)
    yield from zip(
        keys.view(f"V{keys.shape[1]}")[:, 0].tolist(), units.view(f"V{units.itemsize}").tolist(), strict=True
    )


def make_queue_database(
    folder: Location, tables: Location, written: Sequence[WrittenQueueFile], expired: OffsetTable
) -> None:
    """Make the database of tables; `expired` has the ends of queues without a live message."""
    ends = OffsetTable(dict(expired.minimum), dict(expired.maximum), max((row.stop for row in written), default=0))
    for row in sorted(written, key=lambda row: row.file_number):
        queue = row.topic, row.queue_id
        ends.minimum.setdefault(queue, row.first)
        ends.maximum[queue] = row.last
    shutil.rmtree(folder.path, ignore_errors=True)
    names = dict.fromkeys(row.table for row in written)
    make_database(folder.path, [(tables / name).path for name in names], {OFFSETS: offset_records(ends)})
    shutil.rmtree(tables.path, ignore_errors=True)


def expired_ends(store: Location, existing: ExistingQueues, live: Collection[Queue], log_start: int) -> OffsetTable:
    """The ends of the store's queues that have no live message; they begin after their last unit."""
    storage = queue_tree(store).storage
    maximum: dict[Queue, End] = {}
    if isinstance(storage, QueueDatabase):
        maximum = storage.offset_table().maximum
    else:
        with closing(FileReaders()) as files:
            for folder in existing.of_store:
                queue = ConsumeQueue(folder, files)
                if end := queue.end_before(log_start):
                    last = int(queue.units(end - 1, end)["commit_log_offset"][0])
                    maximum[folder.topic, folder.queue_id] = last, end - 1
    kept = {queue: last for queue, last in maximum.items() if queue not in live and last[0] < log_start}
    return OffsetTable({queue: (log_start, last[1] + 1) for queue, last in kept.items()}, kept, None)
