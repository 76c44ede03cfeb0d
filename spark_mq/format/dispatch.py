"""To what a message is dispatched: its queue and light message queues, and the keys of its index entries.

The keys are the unique key, and the pieces of property KEYS between single spaces, without empty pieces. A message of
transaction type ROLLBACK has no keys (`IndexService.buildIndex`@5.3.3; the same in 4.9). The twins have the same rule
for many messages: `kernels.keys` returns the keys, `kernels.index_keys` their hashes.

Tags are not a key, but the index can have an entry for them, of the text `tags_key` (rule `INDEX_TAGS`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from itertools import takewhile

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    KEYS,
    TAGS,
    UNIQUE_KEY,
    parse_properties,
)
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, Record
from spark_mq.format.system_topic import RETRY_PREFIX, SCHEDULE_TOPIC, SYSTEM_PREFIX

LIGHT_PREFIX = "%LMQ%"
"""How the name of a light message queue begins (`MixAll.LMQ_PREFIX`@5.3.3)."""
LITE_PREFIX = "%LMQ%$"
"""How the light message queue `%LMQ%$PARENT$LITE` of a lite topic begins (`LiteUtil.toLmqName`@5.5.0)."""


MAX_OFFSET_DIGITS = 18
"""Longer texts are not queue offsets: no broker writes them."""


class KeyType(StrEnum):
    """The property that contains a key."""

    KEYS = "KEYS"
    UNIQ_KEY = "UNIQ_KEY"


def tags_key(tags: str) -> str:
    """The key under which the index has tags (`IndexService.buildKey`, `MessageConst.INDEX_TAG_TYPE`@5.5.0).

    Examples:
        >>> tags_key("TagA")
        'T#TagA'
    """
    return f"T#{tags}"


def record_tags_key(record: Record) -> str | None:
    """The key under which the index can have the tags of a record; None if it has no tags, or is not indexed."""
    tags = parse_properties(record.properties).get(TAGS)
    if tags is None or record.transaction_type == TRANSACTION_ROLLBACK_TYPE:
        return None
    return tags_key(decode_utf8(tags))


def record_keys(record: Record) -> dict[str, KeyType]:
    """The distinct keys of a record in the order of the index: the unique key, then those of KEYS."""
    if record.transaction_type == TRANSACTION_ROLLBACK_TYPE:
        return {}
    properties = parse_properties(record.properties)
    keys = dict.fromkeys(filter(None, decode_utf8(properties.get(KEYS, b"")).split(" ")), KeyType.KEYS)
    if UNIQUE_KEY not in properties:
        return keys
    unique_key = decode_utf8(properties[UNIQUE_KEY])
    return {unique_key: KeyType.UNIQ_KEY} | {key: kind for key, kind in keys.items() if key != unique_key}


def offset_in_queue(record: Record, topic: str, queue_id: int) -> int | None:
    """The queue offset that a message has in the queue `queue_id` of `topic`; None if it is not in that queue.

    A message is in its own queue, and in those that its property INNER_MULTI_DISPATCH names, at the offsets that
    INNER_MULTI_QUEUE_OFFSET has (`ConsumeQueue.multiDispatchLmqQueue`@5.3.3).
    """
    if not record.is_in_queue:
        return None
    if record.queue_id == queue_id and decode_utf8(record.topic) == topic:
        return record.queue_offset
    if INNER_MULTI_DISPATCH not in record.properties:
        return None
    is_light = queue_id == 0 and topic.startswith(LIGHT_PREFIX)
    if record.queue_id != queue_id and not is_light:
        return None
    return _dispatched(parse_properties(record.properties)).get(topic.encode("utf-8", "replace"))


def light_queues(record: Record) -> dict[str, int]:
    """The offsets that a message has in light message queues, by the topics of these queues."""
    if not record.is_in_queue or INNER_MULTI_DISPATCH not in record.properties:
        return {}
    others = {decode_utf8(name): offset for name, offset in _dispatched(parse_properties(record.properties)).items()}
    return {name: offset for name, offset in others.items() if name.startswith(LIGHT_PREFIX)}


def undispatched_queues(record: Record) -> list[str]:
    """The light message queues that a message names, and in which it never gets a unit.

    A broker since 5.0.0 gives a plain topic of the list no queue offset. Such a topic at the end of the list makes the
    list of offsets shorter, and then the broker dispatches the message to none of its queues
    (`LmqDispatch.wrapLmqDispatch`, `ConsumeQueue.multiDispatchLmqQueue`@5.3.3).
    """
    if not _is_dispatched(record):
        return []
    names, found = parse_properties(record.properties).get(INNER_MULTI_DISPATCH, b""), light_queues(record)
    named = dict.fromkeys(decode_utf8(names).split(","))
    return [name for name in named if name.startswith(LIGHT_PREFIX) and "/" not in name and name not in found]


def fails_dispatch(record: Record) -> bool:
    """Whether a broker that dispatches to light message queues throws an exception for a message.

    One of the queue offsets in its properties is not a number. A broker since 5.0.0 stores such a message that names a
    light message queue after a plain topic (`LmqDispatch.wrapLmqDispatch`@5.3.3).
    """
    if not _is_dispatched(record):
        return False
    return any(not _is_offset(text) for _, text in _named(parse_properties(record.properties)))


def _is_dispatched(record: Record) -> bool:
    """Whether a broker dispatches a message to the queues of its list, if it has one."""
    if not record.is_in_queue or INNER_MULTI_DISPATCH not in record.properties:
        return False
    topic = decode_utf8(record.topic)
    return not topic.startswith((RETRY_PREFIX, SYSTEM_PREFIX)) and topic != SCHEDULE_TOPIC


def _dispatched(properties: Mapping[bytes, bytes]) -> dict[bytes, int]:
    """The queue offsets by the topics that a message names, up to a text that is not one; of a name, the first one."""
    found: dict[bytes, int] = {}
    for name, text in takewhile(lambda pair: _is_offset(pair[1]), _named(properties)):
        found.setdefault(name, int(text))
    return found


def _named(properties: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The topics and offsets that a message names. Java's `split` drops empty pieces at the end."""
    names = properties.get(INNER_MULTI_DISPATCH, b"").rstrip(b",")
    offsets = properties.get(INNER_MULTI_QUEUE_OFFSET, b"").rstrip(b",")
    if not names or not offsets or names.count(b",") != offsets.count(b","):
        return []
    return [pair for pair in zip(names.split(b","), offsets.split(b","), strict=True) if b"/" not in pair[0]]


def _is_offset(text: bytes) -> bool:
    return text.isdigit() and len(text) <= MAX_OFFSET_DIGITS
