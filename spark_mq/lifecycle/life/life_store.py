"""What the life of a message is looked up in: a store directory, or a store in an archive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Protocol

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.record import Record
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.key_search import FoundMessages, find_key
from spark_mq.lifecycle.life.message_expiry import MessageExpiry, message_expiry
from spark_mq.lifecycle.life.queue_tail import Cut, messages_after, revive_messages
from spark_mq.lifecycle.messages.lost_end import lost_end
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.newest_record import newest_record
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of
from spark_mq.store.unique_key_search import known_topics


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
