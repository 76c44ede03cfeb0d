"""All messages that have a key, whatever their topic: through the index, and in the log where no index file covers it.

The index knows a key only together with its topic. So each known topic is looked up: those of queues and settings, and
those that the messages which were found name in REAL_TOPIC and RETRY_TOPIC.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from spark_mq.format.record import Record
from spark_mq.lifecycle.life.situation import REAL_TOPIC, RETRY_TOPIC, text_properties
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import WithKeyOfAnyTopic, scan
from spark_mq.store.message_store import MessageStore
from spark_mq.store.unique_key_search import known_topics, uncovered_parts

MAX_MESSAGES = 10_000
"""Messages that are looked at for one key: of each topic, the newest first, and of the log without index."""
_SHOWN_DAMAGE = 5


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
