"""The messages of a topic or of one of its queues, in a time range, in the order of the log or backwards.

The index knows a key only together with its topic. So every topic that has a queue or a setting is looked up in the
index, and the parts of the log that the index does not cover are read. A message of a deleted topic, in a part of the
log that the index covers, is not found.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from spark_mq.errors import LogCutError
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import KeyType, record_keys
from spark_mq.format.record import Record
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import configured_topics
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CLOCK_TOLERANCE_MILLIS
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.log.scan import FIRST, FOREVER, InQueue, RecordFilter, WithKeyOfAnyTopic, scan, scan_backwards
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueCover

_TAIL_SIZES = (256 << 10, 4 << 20)
"""Bytes at the end of the log that are read without the kernels, first and then."""
_OTHER_QUEUES = 8
"""Queues of other topics that are asked for the offset of a record near the log's end."""

_FIRST_UNITS, _MOST_UNITS = 64, 4096
_LOOKED_AT_UNITS = 4096


def find_unique_key(store: MessageStore, unique_key: str) -> list[Record]:
    """The live messages of all topics that have the unique key, newest first."""
    uncovered = uncovered_parts(store)
    found: dict[int, Record] = {}
    for topic in known_topics(store):
        for record in store.index.find_messages(topic, unique_key, beside=uncovered):
            if record_keys(record).get(unique_key) == KeyType.UNIQ_KEY:
                found[record.commit_log_offset] = record
    row_filter = WithKeyOfAnyTopic(unique_key, is_unique=True)
    for log_range in uncovered:
        for part in scan(store.records, log_range, row_filter):
            if isinstance(part, Record):
                found[part.commit_log_offset] = part
    return [found[offset] for offset in sorted(found, reverse=True)]


def uncovered_parts(store: MessageStore) -> list[LogRange]:
    """The parts of the log that no valid index file covers, in its order."""
    return [part for part in store.index.parts if isinstance(part, LogRange) and part.size]


def known_topics(store: MessageStore) -> list[str]:
    """The topics that have a queue, or are in `config/topics.json`, sorted."""
    topics = {topic for topic, _ in store.queue_names}
    return sorted(topics | (configured_topics(store.location) or frozenset()))


def select_messages(
    store: MessageStore,
    topic: str,
    queue_id: int | None = None,
    begin: int | None = None,
    end: int | None = None,
    newest_first: bool = False,
) -> Iterator[Record | CorruptRange]:
    """The messages of a topic or of one of its queues, and damaged ranges of the log.

    All messages stored from `begin` to `end` are in the result; others can be, too. Messages of one queue are found by
    its units. Those of a whole topic are searched for in the log, because only the log shows that no queue was lost.
    """
    if queue_id is not None:
        return _of_queue(store, topic, queue_id, begin, end, newest_first)
    if not newest_first:
        return store.messages_of_topic(topic, begin, end)
    starts = tail_starts(store, topic)
    return scan_backwards(store.records, store.live_log, InQueue(topic), begin, end, starts)


def tail_starts(store: MessageStore, topic: str) -> list[int]:
    """Offsets of records near the end of the log, descending, from which on plain Python reads it."""
    return [start for size in _TAIL_SIZES if (start := _tail_start(store, topic, size)) is not None]


def _of_queue(
    store: MessageStore, topic: str, queue_id: int, begin: int | None, end: int | None, newest_first: bool
) -> Iterator[Record | CorruptRange]:
    cover, start, stop = store.queue_cover(topic, queue_id), FIRST, FOREVER
    if begin is not None:
        earliest = begin - CLOCK_TOLERANCE_MILLIS
        early, _ = cover.around(lambda record: record.store_timestamp >= earliest)
        start = FIRST if early is None else early.queue_offset + 1
    if end is not None:
        latest = end + CLOCK_TOLERANCE_MILLIS
        _, later = cover.around(lambda record: record.store_timestamp > latest)
        stop = FOREVER if later is None else later.queue_offset
    return messages_newest_first(cover, start, stop) if newest_first else cover.messages_and_damage(start, stop)


def _tail_start(store: MessageStore, topic: str, size: int) -> int | None:
    """The offset of a record in the last `size` bytes of the log, as early as the last units of a few queues show."""
    at_least = store.get_max_phy_offset() - size
    if at_least <= store.get_min_phy_offset():
        return store.get_min_phy_offset()
    own = [(topic, queue_id) for queue_id in store.queue_ids(topic)]
    others = [name for name in store.queue_names if name[0] != topic][:_OTHER_QUEUES]
    for names in (own, others):
        offsets = [_first_near(store, name, at_least) for name in names]
        start = min((offset for offset in offsets if offset is not None), default=None)
        if start is not None:
            return start
    return None


def _first_near(store: MessageStore, name: Queue, at_least: int) -> int | None:
    """The offset of a record at or after `at_least`, as early as the last units of a queue show; else None."""
    queue, cover = store.find_queue(*name), store.queue_cover(*name)
    if queue is None:
        return None
    begin = max(cover.first_unit, cover.end_of_units - _LOOKED_AT_UNITS)
    units = queue.units(begin, cover.end_of_units)
    near = (units["commit_log_offset"] >= at_least).nonzero()[0].tolist()
    proven = cover.proven(begin + near[0]) if near else None
    offset = None if proven is None else proven.record.commit_log_offset
    return offset if offset is not None and offset >= at_least else None


def messages_newest_first(cover: QueueCover, start: int, stop: int) -> Iterator[Record | CorruptRange]:
    """The messages of the queue offsets from `start` to `stop` (not included), backwards, and damaged ranges."""
    step = _FIRST_UNITS
    first, end = cover.first_unit, cover.end_of_units
    middle = min(stop, end) - step
    while stop > start:
        begin = start if middle <= max(start, first) else middle
        yield from reversed(list(cover.messages_and_damage(begin, stop)))
        step = min(2 * step, _MOST_UNITS)
        stop, middle = begin, begin - step


class FollowedLog:
    """The messages of a log that match a filter and come after `position`, a commit log offset."""

    def __init__(self, store: Location, row_filter: RecordFilter, position: int) -> None:
        """Follow the log of `store` from `position` on: the live end of an earlier read; -1 if the log was empty."""
        self.position = position
        self._store = store
        self._filter = row_filter
        self._finder = LiveEndFinder(store)

    def new_parts(self) -> Iterator[Record | CorruptRange]:
        """The matching messages that were added since the last call, and damaged or expired ranges among them."""
        end = self._finder.find_now()
        if end < self.position:
            raise LogCutError(
                f"{self._store}: the log was read up to commit log offset {self.position}, and ends at {end} now: the "
                "broker crashed and lost the end of its log; start again to read what it writes since"
            )
        if end == self.position:
            return
        with closing(FileReaders()) as files:
            records = RecordLookup(self._store, files)
            start = records.min_offset if self.position < 0 else self.position
            yield from scan(records, LogRange(start, end), self._filter)
        self.position = end
