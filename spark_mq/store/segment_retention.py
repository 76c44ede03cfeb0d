"""When each segment of a store expires, and which files are deleted with it.

`expiry` has the rules, `old_files` the files to which they apply.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from spark_mq.format.arrow_array import table_of
from spark_mq.format.record import HEAD_SIZE, read_store_timestamp
from spark_mq.format.timestamp import micros
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.expiry import MILLIS_PER_HOUR, DeleteWhen, count_expired, expire_times
from spark_mq.store.log.newest_record import newest_record
from spark_mq.store.message_store import MessageStore
from spark_mq.store.old_files import OldFile, live_segments
from spark_mq.tables.store_files import RETENTION


@dataclass(frozen=True)
class SegmentRetention:
    """How long a segment is kept. All times are milliseconds since the epoch.

    Attributes:
        end_offset: The commit log offset after its last live record.
        first_store_timestamp: The store time of its first message; None if it does not begin with one.
        last_store_timestamp: The store time of its newest message; None if the end of the segment does not show it.
        modification_timestamp: The time of the last change of the file.
        expire_timestamp: When it has expired, and all segments before it; None for the newest, which never does.
        delete_timestamp: The first time from then on in an hour in which the broker deletes files, and not before the
            time of the question: what is still there was not deleted earlier. None for the newest.
        expire_by_store_timestamp: `last_store_timestamp` plus the reserved time.
        is_expired: Whether `expire_timestamp` has come.
        files: The queue files and index files that the broker deletes because the segment is gone.
    """

    file: str
    commit_log_offset: int
    end_offset: int
    file_size: int
    first_store_timestamp: int | None
    last_store_timestamp: int | None
    modification_timestamp: int
    expire_timestamp: int | None
    delete_timestamp: int | None
    expire_by_store_timestamp: int | None
    is_expired: bool
    files: tuple[OldFile, ...]

    @property
    def queue_files(self) -> int:
        """The number of queue files that go with it."""
        return sum(file.tree == CONSUME_QUEUE for file in self.files)

    @property
    def index_files(self) -> int:
        """The number of index files that go with it."""
        return len(self.files) - self.queue_files

    @property
    def freed_bytes(self) -> int | None:
        """Bytes of the segment, and of the files that go with it; None for the newest segment."""
        return None if self.expire_timestamp is None else self.file_size + sum(file.size for file in self.files)


def segment_retentions(
    store: MessageStore, hours: float, at: int, when: DeleteWhen, files: Sequence[OldFile]
) -> list[SegmentRetention]:
    """When each segment with live records expires, by offset.

    Args:
        hours: For how many hours a segment is kept after its last change.
        at: The time for which the question is answered, milliseconds since the epoch.
        when: The hours in which the broker deletes files.
    """
    live = live_segments(store)
    reserved = round(hours * MILLIS_PER_HOUR)
    times = expire_times([segment.modification_timestamp for segment in live[:-1]], reserved)
    expired = count_expired(times, at)
    bases = [segment.file.base for segment in live]
    by_segment: dict[int, list[OldFile]] = {}
    for old in files:
        by_segment.setdefault(bisect_right(bases, old.release_offset) - 1, []).append(old)
    rows = []
    for index, segment in enumerate(live):
        file, expire = segment.file, times[index] if index < len(times) else None
        last = newest_record(store.records, file, store.get_max_phy_offset())
        newest = None if last is None else last.store_timestamp
        rows.append(
            SegmentRetention(
                file=file.location.name,
                commit_log_offset=file.base,
                end_offset=min(segment.end_offset, store.get_max_phy_offset()),
                file_size=segment.size,
                first_store_timestamp=read_store_timestamp(store.records.read(file.base, HEAD_SIZE), file.base),
                last_store_timestamp=newest,
                modification_timestamp=segment.modification_timestamp,
                expire_timestamp=expire,
                delete_timestamp=None if expire is None else when.next_time(max(expire, at)),
                expire_by_store_timestamp=None if newest is None or expire is None else newest + reserved,
                is_expired=index < expired,
                files=() if expire is None else tuple(by_segment.get(index, ())),
            )
        )
    return rows


def retention_table(segments: Sequence[SegmentRetention]) -> pa.Table:
    """The segments as a table with table `retention`."""
    return table_of([_row(segment) for segment in segments], RETENTION.schema)


def _row(segment: SegmentRetention) -> dict[str, object]:
    row = {name: getattr(segment, name) for name in RETENTION.schema.names}
    times = [name for name in row if name.endswith("timestamp") and row[name] is not None]
    return row | {name: micros(row[name]) for name in times}
