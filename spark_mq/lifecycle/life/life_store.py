"""What the life of a message is looked up in: a store directory, or a store in an archive.

A message that was looked up can be decided by a later message in a queue of the broker that has no key: op messages
of transactions, notes that cancel timers, and notes about messages that were popped. They are found by queue units.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.consume_queue_ext import ExtUnit
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import Record
from spark_mq.format.system_topic import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.lifecycle.life.event import time_text
from spark_mq.lifecycle.outcomes import DeliveryProgress
from spark_mq.lifecycle.popped_messages import unread_pops
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.config.config_file import configured_topics, consumed_offsets
from spark_mq.store.config.consumer_filters import CONSUMER_FILTERS, ConsumerFilter, load_consumer_filters
from spark_mq.store.expiry import MILLIS_PER_HOUR, expire_times, live_segments
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.log.scan import InQueue, WithKeyOfAnyTopic, scan
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_selection import known_topics, uncovered_parts
from spark_mq.store.message_store import MessageStore, record_with_id
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.retention import delete_when, moment_of, reserved_time

MAX_MESSAGES = 10_000
"""Messages that are looked at for one key: of each topic, the newest first, and of the log without index."""
MAX_FOLLOWING = 50_000
"""Messages of a queue that are looked at."""
_SHOWN_DAMAGE = 5


@dataclass(frozen=True)
class Cut:
    """Why messages of the queue can be missing, as text for a person."""

    reason: str


@dataclass(frozen=True)
class MessageExpiry:
    """When the segment of a message expires, and when a broker next deletes it; None for the newest one.

    A segment is kept for `reserved_hours` after its last change.
    """

    segment: str
    expire_timestamp: int | None
    delete_timestamp: int | None
    reserved_hours: float
    reserved_hours_source: str
    store: str = ""

    @property
    def text(self) -> str:
        """The times in a few words."""
        segment = f"segment {self.segment} of {self.store}" if self.store else f"segment {self.segment}"
        if self.expire_timestamp is None:
            return f"{segment} is the newest one, which does not expire"
        hours = f"{self.reserved_hours:g} hours, {self.reserved_hours_source}"
        delete = self.delete_timestamp
        deleted = "" if delete is None else f", and a broker that runs deletes it at {time_text(delete)}"
        return f"{segment} expires at {time_text(self.expire_timestamp)}{deleted} ({hours})"


@dataclass(frozen=True)
class FoundMessages:
    """The messages that have a key."""

    records: tuple[Record, ...]
    damage: tuple[str, ...] = ()
    has_more: bool = False


class LifeStore:
    """The look-ups of a store directory; `spark_mq.archive.archived_store` has those of an archive.

    The index knows a key only together with its topic. So each known topic is looked up: those of queues and settings,
    and those that the messages which were found name in REAL_TOPIC and RETRY_TOPIC.
    """

    config_end: int | None = None
    """The commit log offset up to which the files of `config/` can speak of messages; None for the whole log."""

    not_known: Sequence[str] = ()
    """What this kind of store never tells of a message, as texts for a person."""
    no_filter = (
        f"config/{CONSUMER_FILTERS} has no filter of the group, and no file has subscriptions to tags; --tag gives its "
        "tags"
    )
    """Why the subscription of a group is not known."""

    def __init__(self, store: MessageStore) -> None:
        self.store = store
        self.location = store.location
        self.broker_conf = store.broker_conf

    def moment(self, at: int | datetime | None) -> int:
        """The time `at`; now for None."""
        return moment_of(at)

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        """The record at an offset of the log, or why there is none."""
        return self.store.find_record(commit_log_offset)

    def find_record_by_id(self, offset_message_id: str, any_host: bool = False) -> Record | NoRecord:
        """The record with an offset message id, or why there is none."""
        return record_with_id(self.find_record, offset_message_id, any_host)

    def find_key(self, key: str, also: Iterable[str] = ()) -> FoundMessages:
        """The live messages that have a key, in KEYS or as unique key; `also` are topics that are looked up besides."""
        uncovered = uncovered_parts(self.store)
        in_log = (
            part for log_range in uncovered for part in scan(self.store.records, log_range, WithKeyOfAnyTopic(key))
        )
        damage: list[str] = []
        found: dict[int, Record] = {}
        has_more = False
        for part in in_log:
            if not isinstance(part, Record):
                damage.append(part.describe())
            elif len(found) < MAX_MESSAGES:
                found[part.commit_log_offset] = part
            else:
                has_more = True
                break
        seen: set[str] = set()
        topics: Sequence[str] = sorted({*known_topics(self.store), *also})
        while topics:
            for topic in topics:
                of_topic = list(islice(self.store.index.find_messages(topic, key, beside=uncovered), MAX_MESSAGES))
                found |= {record.commit_log_offset: record for record in of_topic}
                has_more |= len(of_topic) == MAX_MESSAGES
            seen.update(topics)
            # Those to which the messages belong.
            of_found = [record.text_properties for record in found.values()]
            named = {properties.get(name) for properties in of_found for name in ("REAL_TOPIC", "RETRY_TOPIC")}
            topics = sorted(topic for topic in named - seen if topic is not None)
        damage += self.store.index.look_up_problems
        if len(damage) > _SHOWN_DAMAGE:
            damage[_SHOWN_DAMAGE:] = [f"{len(damage) - _SHOWN_DAMAGE} more damaged parts of the log"]
        return FoundMessages(tuple(found[offset] for offset in sorted(found)), tuple(damage), has_more)

    def known_topics(self) -> Iterable[str]:
        """The topics that have a queue or a setting."""
        return known_topics(self.store)

    def due(self, record: Record) -> int | None:
        """The tags code of the unit of a delayed message; None if the unit does not point to the message."""
        queue = self.store.find_queue(SCHEDULE_TOPIC, record.queue_id)
        if queue is None or record.queue_offset < 0:
            return None
        commit_log_offset, store_size, _ = queue.unit(record.queue_offset)
        is_its_own = (commit_log_offset, store_size) == (record.commit_log_offset, record.size)
        return queue.tags_code(record.queue_offset) if is_its_own and store_size != PRE_BLANK_SIZE else None

    def queue_ends(self, topic: str, queue_id: int) -> tuple[int, int]:
        """The first offset of a queue that a broker offers, and the one after the last; 0 if there is no queue."""
        ends = self.store.get_min_offset_in_queue, self.store.get_max_offset_in_queue
        first, stop = (end(topic, queue_id, read_log=True) for end in ends)
        return first, stop

    def why_no_queue(self, topic: str, queue_id: int) -> str | None:
        """A text for a person if there is no such queue; else None."""
        return self.store.why_no_queue(topic, queue_id)

    def find_in_queue(self, topic: str, queue_id: int, queue_offset: int) -> Record | NoRecord:
        """The record at an offset of a queue, or why there is none."""
        cover = self.store.queue_cover(topic, queue_id)
        record = next(cover.messages(queue_offset, queue_offset + 1), None)
        if record is not None:
            return record
        start, queue = cover.log.start, cover.queue
        if start and queue is not None and queue.files:
            commit_log_offset, size, _ = queue.unit(queue_offset)
            if queue_offset < queue.files[0].first:
                return NoRecord(f"its queue file is deleted, and the log begins at {start}", is_expired=True)
            if 0 < size < PRE_BLANK_SIZE and commit_log_offset < start:
                reason = f"its unit leads to commit log offset {commit_log_offset}, and the log begins at {start}"
                return NoRecord(reason, is_expired=True)
        return NoRecord(cover.why_not(queue_offset) or "no unit and no record of the log has this offset")

    def filter_facts(self, record: Record) -> tuple[int | None, ExtUnit | None]:
        """The tags code and the extension unit of a record in a queue, which filters look at; None if not known."""
        queue = self.store.find_queue(decode_utf8(record.topic), record.queue_id)
        if queue is not None:
            commit_log_offset, size, code = queue.unit(record.queue_offset)
            if (commit_log_offset, size) == (record.commit_log_offset, record.size):
                return queue.tags_code(record.queue_offset), queue.ext.unit(code)
        return None, None

    def consumer_filters(self) -> Sequence[ConsumerFilter]:
        """The SQL92 filters that the broker keeps. Raises `ConfigError` if their file cannot be read."""
        return load_consumer_filters(self.location)

    def subscription(self, consumer_group: str, topic: str) -> tuple[str | None, str | None]:
        """The tags, or the SQL92 expression, to which connected consumers of a group subscribe; None if not known."""
        return None, None

    def queue_notes(self, topic: str) -> Sequence[str]:
        """What an answer by queue offsets of a topic leaves out, a sentence each."""
        return self.store.queue_notes(topic)

    def messages_after(self, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of a queue that are after an offset of the log, in the order of the queue.

        The log is read only for units that do not lead to messages, and after the last unit if the queue can lack
        messages there: if it has no files, if its units end where a file ends, if a consumer was already further, or
        if newer messages of the log are in no queue at all.
        """
        for number, part in enumerate(_parts(self.store, self.store.queue_cover(topic, queue_id), commit_log_offset)):
            if number == MAX_FOLLOWING:
                yield Cut(f"more than {MAX_FOLLOWING:,} messages of {topic}/{queue_id} follow")
                return
            if isinstance(part, CorruptRange):
                yield Cut(part.describe())
            elif part.commit_log_offset > commit_log_offset:
                yield part

    def revive_messages(self, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of the timer and of the revive topics that are after an offset of the log.

        The notes about a message that was popped are among them (`popped_messages`); a message can come twice.
        """
        queues = [
            name for name in self.store.queue_names if name[0] == TIMER_TOPIC or name[0].startswith(REVIVE_PREFIX)
        ]
        for topic, queue_id in queues:
            yield from self.messages_after(topic, queue_id, commit_log_offset)
        configured = configured_topics(self.location)
        if configured is not None and not any(name.startswith(REVIVE_PREFIX) for name in configured):
            return
        # A queue can be without files because its first message is among those that are in no queue yet.
        log_end = self.store.get_max_phy_offset()
        dispatched = _dispatched_to(self.store)
        if dispatched >= log_end:
            return
        topics = {TIMER_TOPIC, *(name for name in configured or () if name.startswith(REVIVE_PREFIX))}
        if configured is None:
            yield Cut(
                "config/topics.json does not name the topics of notes, and queues lack the newest messages of the log"
            )
        for topic in sorted(topics):
            rest = LogRange(max(dispatched, commit_log_offset), log_end)
            for part in scan(self.store.records, rest, InQueue(topic)):
                yield Cut(part.describe()) if isinstance(part, CorruptRange) else part

    def unread_pops(self) -> str | None:
        """Why pops can be somewhere else than in the log; None if they are not."""
        return unread_pops(self.location)

    def deliveries(self) -> DeliveryProgress:
        """How far the broker has delivered delayed messages."""
        return DeliveryProgress.of(self.location)

    def missing(self) -> str | None:
        """Why messages can be missing from what was found; None if none is missing. It is asked only if it matters."""
        end = self.store.get_max_phy_offset()
        segment = self.store.records.segment_of(end - 1) if end > 0 else None
        newest = None if segment is None else self.store.records.newest_in(segment, end)
        return None if newest is None else lost_end(self.location, newest.store_timestamp)

    def expiries(self, offsets: Iterable[int], conf: BrokerConf, name: str, at: int) -> list[MessageExpiry]:
        """When the segments expire that have these commit log offsets, asked at a time; the oldest one first.

        None of a DLedger log, whose files are deleted by rules of their own (`DLedgerMmapFileStore.CleanSpaceService`).
        """
        if self.store.records.has_entries:
            return []
        live = live_segments(self.store)
        bases = [segment.file.base for segment in live]
        hours = reserved_time(None, conf)
        times = expire_times([one.modification_timestamp for one in live[:-1]], round(hours.value * MILLIS_PER_HOUR))
        when, _, _ = delete_when(self.store, conf)
        found = []
        for index in sorted({bisect_right(bases, offset) - 1 for offset in offsets} - {-1}):
            expire = times[index] if index < len(times) else None
            delete = None if expire is None else when.next_time(max(expire, at))
            segment = live[index].file.location.name
            found.append(MessageExpiry(segment, expire, delete, hours.value, hours.source, name))
        return found


def life_store(store: MessageStore | LifeStore) -> LifeStore:
    """The look-ups of a store, which can be a store directory."""
    return LifeStore(store) if isinstance(store, MessageStore) else store


def _parts(store: MessageStore, cover: QueueCover, commit_log_offset: int) -> Iterator[Record | CorruptRange]:
    before, _ = cover.around(lambda record: record.commit_log_offset > commit_log_offset)
    start, stop = cover.first_unit if before is None else before.queue_offset + 1, cover.end_of_units
    yield from cover.messages_and_damage(start, stop)
    if not _has_all_units(store, cover.topic, cover.queue_id):
        yield from cover.messages_and_damage(max(start, stop))


def _has_all_units(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether the queue's units certainly include its newest message."""
    queue = store.find_queue(topic, queue_id)
    if queue is None or not queue.files:
        return False
    end, last = queue.written_end, queue.files[-1]
    if end <= last.first or end >= last.first + last.count:
        return False
    if consumed_offsets(store.location).get((topic, queue_id), 0) > end:
        return False
    return _dispatched_to(store) >= store.get_max_phy_offset()


def _dispatched_to(store: MessageStore) -> int:
    """The commit log offset after the newest message in a queue: `ReputMessageService` writes in its order."""
    reached = -1
    log_end = store.get_max_phy_offset()
    for name in store.queue_names:
        queue = store.find_queue(*name)
        if queue is not None:
            offset, size, _ = queue.unit(queue.written_end - 1)
            if offset + size <= log_end and store.records.is_at(offset, size):
                reached = max(reached, offset + size)
    return reached
