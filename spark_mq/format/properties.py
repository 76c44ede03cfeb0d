"""A record's properties (`MessageDecoder.string2messageProperties`@5.3.3, the same from 4.9.1).

The text is `name 0x01 value 0x02`, repeated; the last 0x02 may be missing. A piece between two 0x02 counts if its
first 0x01 has at least one character before and after it. The value is all text after that 0x01; it may contain more
0x01. So empty values and empty names are dropped. If a name is repeated, its last value wins.

`kernels.properties` is the twin for many records.
"""

from __future__ import annotations

from collections.abc import Mapping

NAME_VALUE_SEPARATOR = 1
PROPERTY_SEPARATOR = 2

KEYS = b"KEYS"
TAGS = b"TAGS"
UNIQUE_KEY = b"UNIQ_KEY"
SHARDING_KEY = b"__SHARDINGKEY"
DELAY_TIME_LEVEL = b"DELAY"
TIMER_PROPERTIES = (b"TIMER_DELIVER_MS", b"TIMER_DELAY_MS", b"TIMER_DELAY_SEC")
"""Properties with which a producer asks for a delivery by a timer (`HookUtils.checkIfTimerMessage`@5.3.3)."""
TIMER_OUT = b"TIMER_OUT_MS"
REAL_TOPIC, REAL_QUEUE_ID = b"REAL_TOPIC", b"REAL_QID"
"""Where a message belongs that waits in a topic of the broker."""
INNER_BASE, INNER_NUM = b"INNER_BASE", b"INNER_NUM"
INNER_MULTI_DISPATCH = b"INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET = b"INNER_MULTI_QUEUE_OFFSET"
CRC_PROPERTY = b"__CRC32#"
CRC_DIGITS = 10
PROPERTY_CRC_SIZE = len(CRC_PROPERTY) + 1 + CRC_DIGITS + 1
"""Bytes of the property CRC, a record's last property, see `kernels.crc` (`CommitLog.CRC32_RESERVED_LEN`@5.3.3)."""


def parse_properties(data: bytes) -> dict[bytes, bytes]:
    r"""The names and values of the stored properties `data`, as the Java decoder reads them.

    A repeated name is at the position of its last value.

    Examples:
        >>> parse_properties(b"TAGS\x01a\x02KEYS\x01k1 k2\x02")
        {b'TAGS': b'a', b'KEYS': b'k1 k2'}
    """
    parsed: dict[bytes, bytes] = {}
    for piece in data.split(bytes((PROPERTY_SEPARATOR,))):
        name, _, value = piece.partition(bytes((NAME_VALUE_SEPARATOR,)))
        if name and value:
            parsed.pop(name, None)
            parsed[name] = value
    return parsed


def encode_properties(properties: Mapping[bytes, bytes]) -> bytes:
    """The stored bytes of `properties`, in their order (`MessageDecoder.messageProperties2String`@5.3.3)."""
    separator, end = bytes((NAME_VALUE_SEPARATOR,)), bytes((PROPERTY_SEPARATOR,))
    return b"".join(name + separator + value + end for name, value in properties.items())
