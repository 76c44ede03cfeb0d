"""The keys by which a message can be found, of a single record.

The keys are the unique key, and the pieces of property KEYS between single spaces, without empty pieces. A message of
transaction type ROLLBACK has no keys (`IndexService.buildIndex`@5.3.3; the same in 4.9). The twins have the same rule
for many messages: `kernels.keys` returns the keys, `kernels.index_keys` their hashes.

Tags are no key, but the index can have an entry for them, of the text `tags_key` (rule `INDEX_TAGS`).
"""

from __future__ import annotations

from enum import StrEnum

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import KEYS, TAGS, UNIQUE_KEY, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.sys_flag import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK


class KeyType(StrEnum):
    """The property that contains a key."""

    KEYS = "KEYS"
    UNIQ_KEY = "UNIQ_KEY"


def tags_key(tags: str) -> str:
    """The key under which the index has tags (`IndexService.buildKey`, `MessageConst.INDEX_TAG_TYPE`@5.5.0).

    Example:
        >>> tags_key("TagA")
        'T#TagA'
    """
    return f"T#{tags}"


def record_tags_key(record: Record) -> str | None:
    """The key under which the index can have the tags of a record; None if it has no tags, or is not indexed."""
    tags = parse_properties(record.properties).get(TAGS)
    if tags is None or record.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE:
        return None
    return tags_key(decode_utf8(tags))


def record_keys(record: Record) -> dict[str, KeyType]:
    """The distinct keys of a record in the order of the index: the unique key, then those of KEYS."""
    if record.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_ROLLBACK_TYPE:
        return {}
    properties = parse_properties(record.properties)
    keys = dict.fromkeys(filter(None, decode_utf8(properties.get(KEYS, b"")).split(" ")), KeyType.KEYS)
    if UNIQUE_KEY not in properties:
        return keys
    unique_key = decode_utf8(properties[UNIQUE_KEY])
    return {unique_key: KeyType.UNIQ_KEY} | {key: kind for key, kind in keys.items() if key != unique_key}
