"""The units of consume queues in bulk: shares of about the same size, and the rows of one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_SIZE, Units
from spark_mq.io.file_reader import FileReaders
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder

CONSUME_QUEUE_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("commit_log_offset", pa.int64()),
        ("store_size", pa.int32()),
        ("tags_code", pa.int64()),
        ("state", pa.string()),
    ]
)

_SHARE_BYTES = 32 << 20
_BATCH_UNITS = 64 << 10
_STATES = ("LIVE", "EXPIRED", "PRE_BLANK", "STALE")
_LIVE, _EXPIRED, _PRE_BLANK, _STALE = range(len(_STATES))


@dataclass(frozen=True)
class QueueSplit:
    """The files `first_file` ... `last_file` - 1 of a queue."""

    folder: QueueFolder
    first_file: int
    last_file: int


def plan_queue_splits(folders: Sequence[QueueFolder], share_bytes: int = _SHARE_BYTES) -> list[list[QueueSplit]]:
    """The files of all queues, in lists of about `share_bytes` (one file more, at most)."""
    shares: list[list[QueueSplit]] = []
    size = share_bytes
    for folder in folders:
        for index, info in enumerate(folder.files):
            if size >= share_bytes:
                shares.append([])
                size = 0
            size += info.size
            last = shares[-1][-1] if shares[-1] else None
            if last is not None and last.folder is folder:
                shares[-1][-1] = QueueSplit(folder, last.first_file, index + 1)
            else:
                shares[-1].append(QueueSplit(folder, index, index + 1))
    return shares


def unit_batches(
    share: QueueSplit, records: RecordLookup, log_end: int, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The columns `names` of the share's units, all that are not zeros; see `CONSUME_QUEUE_SCHEMA`.

    `state`: LIVE; EXPIRED, its message is before the log's first segment; PRE_BLANK, before the queue's first message;
    STALE, behind the queue's end. `log_end` is the live end of the log.
    """
    with closing(FileReaders()) as readers:
        queue = ConsumeQueue(share.folder, readers)
        max_offset = queue.max_offset(records, log_end)
        for file in queue.files[share.first_file : share.last_file]:
            for first in range(file.first, file.first + file.count, _BATCH_UNITS):
                units = queue.units(first, min(first + _BATCH_UNITS, file.first + file.count))
                batch = _rows(queue, first, units, max_offset, records.min_offset)
                if batch.num_rows:
                    yield batch.select(list(names))


def _rows(queue: ConsumeQueue, first: int, units: Units, max_offset: int, log_start: int) -> pa.RecordBatch:
    written = np.flatnonzero(units.view((np.void, UNIT_SIZE)) != np.void(bytes(UNIT_SIZE)))
    units = units[written]
    queue_offsets = first + written
    commit_log_offsets = units["commit_log_offset"].astype(np.int64)
    store_sizes = units["store_size"].astype(np.int32)
    states = np.full(written.size, _LIVE, np.int8)
    states[commit_log_offsets < log_start] = _EXPIRED
    states[queue_offsets >= max_offset] = _STALE
    states[store_sizes == PRE_BLANK_SIZE] = _PRE_BLANK
    names = pa.DictionaryArray.from_arrays(pa.array(states), pa.array(_STATES)).cast(pa.string())
    arrays = [
        pa.repeat(pa.scalar(queue.topic, pa.string()), written.size),
        pa.repeat(pa.scalar(queue.queue_id, pa.int32()), written.size),
        pa.array(queue_offsets),
        pa.array(commit_log_offsets),
        pa.array(store_sizes),
        pa.array(units["tags_code"].astype(np.int64)),
        names,
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=CONSUME_QUEUE_SCHEMA)
