"""A consume queue as a way to its messages: what its units lead to, and where in the log the others can be.

A unit leads to a message if the record that it points to says so. Where units are missing (before a queue's first file,
pre-blank, behind its end: a broker that was killed loses the last ones) or cannot be right, the messages can only lie
between those of the units beside them, for a queue's messages lie in the log in its order. So those parts of the log
are read, and the answer is what a scan of the whole log would give. A broker gives each queue offset once; where a log
has a message twice, the unit's is given.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import WithQueueOffset, scan
from spark_mq.store.queue.consume_queue import ConsumeQueue


@dataclass(frozen=True)
class QueueRange:
    """The queue offsets from `start` on, before `stop`, of a queue."""

    topic: str
    queue_id: int
    start: int
    stop: int


@dataclass(frozen=True)
class QueueCover:
    """What the units of a queue say of wanted messages.

    `found`: the queue offsets whose units lead to the log, or to what has expired. `uncovered`: the parts of the log in
    which the messages of the other ones can be.
    """

    found: tuple[QueueRange, ...]
    uncovered: tuple[LogRange, ...]


def cover(queue: ConsumeQueue, wanted: QueueRange, max_offset: int, log: LogRange) -> QueueCover:
    """Look at the units of the wanted messages; `max_offset` is the queue's end, `log` the live log.

    Reads 20 bytes for each wanted queue offset up to the queue's end.
    """
    stop = max(min(wanted.stop, max_offset), wanted.start)
    units = queue.units(wanted.start, stop)
    offsets, sizes = units["commit_log_offset"].astype(np.int64), units["store_size"].astype(np.int64)
    leads = (sizes > 0) & (sizes != PRE_BLANK_SIZE) & (offsets >= 0) & (offsets <= log.stop - sizes)
    highest = np.maximum.accumulate(np.where(leads, offsets, -1))
    leads[1:] &= offsets[1:] > highest[:-1]
    bounds = [0, *(np.flatnonzero(np.diff(leads)) + 1).tolist(), leads.size]
    found, uncovered = [], []
    before = log.start
    for first, last in pairwise(bounds):
        if first == last:
            continue
        if leads[first]:
            found.append(QueueRange(wanted.topic, wanted.queue_id, wanted.start + first, wanted.start + last))
            before = max(log.start, int(offsets[last - 1] + sizes[last - 1]))
        elif last < leads.size:
            uncovered.append(LogRange(before, int(offsets[last])))
    if wanted.stop > stop or (leads.size and not leads[-1]):
        uncovered.append(LogRange(before, log.stop))
    return QueueCover(tuple(found), tuple(part for part in uncovered if part.start < part.stop))


def read_messages(
    store: Location, queue: ConsumeQueue, found: QueueRange, records: RecordLookup, log: LogRange
) -> Iterator[Record]:
    """The messages of queue offsets that have units; where a unit leads to another one, the log is read between."""
    units = queue.units(found.start, found.stop)
    offsets, sizes = units["commit_log_offset"].tolist(), units["store_size"].tolist()
    for index, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        if offset < log.start:
            continue
        wanted = WithQueueOffset(found.topic, found.queue_id, frozenset((found.start + index,)))
        try:
            record = records.record(offset, size)
            if record.size == size and wanted.matches(record):
                yield record
                continue
        except CorruptLogError:
            pass
        start = max(log.start, offsets[index - 1]) if index else log.start
        stop = offsets[index + 1] if index + 1 < len(offsets) else log.stop
        for place in scan(store, records, LogRange(start, stop), wanted):
            yield records.record(place)
