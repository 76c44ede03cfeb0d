"""Messages that match a filter, from the newest to the oldest: the log is read from its end, part by part.

Records do not know the record before them. So a part of the log is read forwards, and its matching messages are
returned backwards. A caller that stops after some messages reads only the last parts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spark_mq.errors import CorruptLogError
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange, iterate_records
from spark_mq.store.log.offset_range import list_offset_range
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import RecordFilter, scan_split
from spark_mq.store.log.time_pruning import within_time

_SPLIT_SIZE = 64 << 20
"""Bytes of a part. To find where its first record starts, a reader needs the 16 MiB before it, too."""


def scan_backwards(
    store: Location,
    records: RecordLookup,
    log_range: LogRange,
    row_filter: RecordFilter,
    begin: int | None = None,
    end: int | None = None,
    tail_starts: Sequence[int] = (),
) -> Iterator[Record | CorruptRange]:
    """The matching messages of a range of the live log, newest first, and its damaged or missing ranges.

    Args:
        row_filter: The rule that selects messages.
        begin: The earliest store time in milliseconds; None for any. Parts of the log that were stored outside `begin`
            to `end` can be left out; messages outside can be returned.
        end: The latest store time in milliseconds; None for any.
        tail_starts: Offsets of records near the end of the range, descending. The records from each of them on are
            read in plain Python. A caller that stops there never imports the kernels.
    """
    stop = log_range.stop
    for start in tail_starts:
        if not log_range.start <= start < stop:
            continue
        try:
            tail = [record for record in iterate_records(records, LogRange(start, stop)) if row_filter.matches(record)]
        except CorruptLogError:
            break  # the reader of splits handles damage
        yield from reversed(tail)
        stop = start
    if stop <= log_range.start:
        return
    listed = list_offset_range(store, log_range.start, stop)
    splits = within_time(listed.splits(_SPLIT_SIZE, is_end_known=False), begin, end)
    for split in reversed(splits):
        yield from reversed(list(scan_split(split, row_filter)))
    yield from listed.missing
