"""What the life of a message is looked up in: a store or an archive; its records by key, and when it expires.

The index knows a key only together with its topic. So each known topic is looked up: those of queues and settings, and
those that the messages which were found name in REAL_TOPIC and RETRY_TOPIC.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Protocol

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import Record
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.queue_tail import Cut, messages_after, revive_messages
from spark_mq.lifecycle.life.situation import REAL_TOPIC, RETRY_TOPIC, text_properties
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.expiry import MILLIS_PER_HOUR, expire_times, live_segments
from spark_mq.store.log.log_range import LogRange, newest_record
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.log.scan import WithKeyOfAnyTopic, scan
from spark_mq.store.message_selection import known_topics, uncovered_parts
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import delete_when, moment_of, reserved_time

MAX_MESSAGES = 10_000
"""Messages that are looked at for one key: of each topic, the newest first, and of the log without index."""
_SHOWN_DAMAGE = 5


@dataclass(frozen=True)
class MessageExpiry:
    """When a message expires.

    Attributes:
        expire_timestamp: When the segment has expired, and all segments before it, milliseconds since the epoch; None
            for the newest segment, which never expires.
        delete_timestamp: The first time from then on at which the broker deletes files; None as above.
        reserved_hours: For how many hours a segment is kept after its last change.
    """

    segment: str
    expire_timestamp: int | None
    delete_timestamp: int | None
    reserved_hours: float
    reserved_hours_source: str
    store: str = ""


def message_expiry(store: MessageStore, commit_log_offset: int, conf: BrokerConf, name: str) -> MessageExpiry | None:
    """When the segment expires that has an offset of the log; None if no segment with live records has it.

    Args:
        conf: The broker's settings, for `fileReservedTime` and `deleteWhen`.
    """
    live = live_segments(store)
    index = bisect_right([segment.file.base for segment in live], commit_log_offset) - 1
    if index < 0:
        return None
    hours = reserved_time(None, conf)
    times = expire_times([one.modification_timestamp for one in live[:-1]], round(hours.value * MILLIS_PER_HOUR))
    expire = times[index] if index < len(times) else None
    when, _, _ = delete_when(store, conf)
    delete = None if expire is None else when.next_time(expire)
    return MessageExpiry(live[index].file.location.name, expire, delete, hours.value, hours.source, name)


@dataclass(frozen=True)
class FoundMessages:
    """The messages that have a key.

    Attributes:
        records: The messages, in the order of the log.
        damage: Why messages can be missing here, as text for a person; empty if none is missing.
    """

    records: tuple[Record, ...]
    damage: tuple[str, ...] = ()
    has_more: bool = False


def find_key(store: MessageStore, key: str, also: Iterable[str] = ()) -> FoundMessages:
    """The live messages of all topics that have a key, in KEYS or as unique key.

    Args:
        also: Topics that are looked up besides those that the store is known to have.
    """
    uncovered = uncovered_parts(store)
    found: dict[int, Record] = {}
    damage, has_more = _find_in_log(store, key, found, uncovered)
    seen: set[str] = set()
    topics: Sequence[str] = sorted({*known_topics(store), *also})
    while topics:
        for topic in topics:
            number = 0
            for record in islice(store.index.find_messages(topic, key, beside=uncovered), MAX_MESSAGES):
                found[record.commit_log_offset] = record
                number += 1
            has_more |= number == MAX_MESSAGES
        seen.update(topics)
        topics = sorted(_named_topics(found.values()) - seen)
    damage += store.index.look_up_problems
    return FoundMessages(tuple(found[offset] for offset in sorted(found)), _shortened(damage), has_more)


def _find_in_log(
    store: MessageStore, key: str, found: dict[int, Record], uncovered: Sequence[LogRange]
) -> tuple[list[str], bool]:
    """Add the messages of the parts of the log that no index file covers; returns damage, and if there are more."""
    damage: list[str] = []
    number = 0
    for log_range in uncovered:
        for part in scan(store.location, store.records, log_range, WithKeyOfAnyTopic(key)):
            if not isinstance(part, Record):
                damage.append(part.describe())
                continue
            if number == MAX_MESSAGES:
                return damage, True
            found[part.commit_log_offset] = part
            number += 1
    return damage, False


def _named_topics(records: Iterable[Record]) -> set[str]:
    """The topics that the messages name as the one to which they belong."""
    named = (text_properties(record).get(name) for record in records for name in (REAL_TOPIC, RETRY_TOPIC))
    return {topic for topic in named if topic is not None}


def _shortened(damage: Sequence[str]) -> tuple[str, ...]:
    more = len(damage) - _SHOWN_DAMAGE
    return (*damage[:_SHOWN_DAMAGE], *([f"{more} more damaged parts of the log"] if more > 0 else []))


class LifeStore(Protocol):
    """The look-ups of one store."""

    @property
    def location(self) -> Location:
        """The folder with `config/`."""

    @property
    def broker_conf(self) -> BrokerConf:
        """The broker's settings."""

    @property
    def config_end(self) -> int | None:
        """The commit log offset up to which the files of `config/` can speak of messages; None for the whole log."""

    def moment(self, at: int | datetime | None) -> int:
        """The time of the question in milliseconds: `at`, or the newest one of which the store knows."""

    def find_record(self, commit_log_offset: int) -> Record | NoRecord:
        """The record at an offset of the log, or why there is none."""

    def find_record_by_id(self, offset_message_id: str, any_host: bool = False) -> Record | NoRecord:
        """The record with an offset message id, or why there is none; see `MessageStore.find_record_by_id`."""

    def find_key(self, key: str, also: Iterable[str] = ()) -> FoundMessages:
        """The messages that have a key; see `key_search.find_key`."""

    def known_topics(self) -> Iterable[str]:
        """The topics that have a queue or a setting."""

    def due(self, record: Record) -> int | None:
        """When a message of SCHEDULE_TOPIC_XXXX is due, in milliseconds; None if only the settings tell that."""

    def messages_after(self, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of a queue after an offset of the log; see `queue_tail.messages_after`."""

    def revive_messages(self, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of the timer and of revive topics after an offset; see `queue_tail.revive_messages`."""

    def doubt(self) -> str | None:
        """Why messages can be missing from what was found; None if none is missing. It is asked only if it matters."""

    def expiry(self, commit_log_offset: int, conf: BrokerConf, name: str) -> MessageExpiry | None:
        """When the message at an offset expires; see `message_expiry.message_expiry`."""


class LiveStore:
    """The look-ups of a store directory."""

    config_end: int | None = None

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
        return self.store.find_record_by_id(offset_message_id, any_host)

    def find_key(self, key: str, also: Iterable[str] = ()) -> FoundMessages:
        """The messages that have a key, by the index; what no index file covers is read."""
        return find_key(self.store, key, also)

    def known_topics(self) -> list[str]:
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

    def messages_after(self, topic: str, queue_id: int, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of a queue after an offset of the log."""
        return messages_after(self.store, topic, queue_id, commit_log_offset)

    def revive_messages(self, commit_log_offset: int) -> Iterator[Record | Cut]:
        """The messages of the timer and of revive topics after an offset of the log."""
        return revive_messages(self.store, commit_log_offset)

    def doubt(self) -> str | None:
        """Why the end of the log can be lost; None if it is there."""
        end = self.store.get_max_phy_offset()
        segment = self.store.records.segment_of(end - 1) if end > 0 else None
        newest = None if segment is None else newest_record(self.store.records, segment, end)
        return None if newest is None else lost_end(self.location, newest.store_timestamp)

    def expiry(self, commit_log_offset: int, conf: BrokerConf, name: str) -> MessageExpiry | None:
        """When the segment of a message expires."""
        return message_expiry(self.store, commit_log_offset, conf, name)


def life_store(store: MessageStore | LifeStore) -> LifeStore:
    """The look-ups of a store, which can be a store directory."""
    return LiveStore(store) if isinstance(store, MessageStore) else store
