"""The messages that have a unique key, if the topic is not known.

The index knows a key only together with its topic. So every topic that has a queue or a setting is looked up in the
index, and the parts of the log that the index does not cover are read. A message of a deleted topic, in a part of the
log that the index covers, is not found.
"""

from __future__ import annotations

from spark_mq.format.dispatch import KeyType, record_keys
from spark_mq.format.record import Record
from spark_mq.store.config.topics import configured_topics
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import WithUniqueKey, scan
from spark_mq.store.message_store import MessageStore


def find_unique_key(store: MessageStore, unique_key: str) -> list[Record]:
    """The live messages of all topics that have the unique key, newest first."""
    uncovered = uncovered_parts(store)
    found: dict[int, Record] = {}
    for topic in known_topics(store):
        for record in store.index.find_messages(topic, unique_key, beside=uncovered):
            if record_keys(record).get(unique_key) == KeyType.UNIQ_KEY:
                found[record.commit_log_offset] = record
    row_filter = WithUniqueKey(unique_key)
    for log_range in uncovered:
        for part in scan(store.location, store.records, log_range, row_filter):
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
