"""The checksums of one record, in plain Python; see `kernels.crc`, the twin for many records, for the two checksums.

(`UtilAll.crc32`, `MessageDecoder.createCrc32`@5.3.3.)
"""

from __future__ import annotations

import zlib

from spark_mq.format.properties import (
    CRC_PROPERTY,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC_SIZE,
    PROPERTY_SEPARATOR,
)
from spark_mq.format.record import Record

_NAME = CRC_PROPERTY + bytes((NAME_VALUE_SEPARATOR,))
_MASK = 0x7FFFFFFF


def is_body_crc_wrong(record: Record) -> bool:
    """Whether the record has a body whose CRC differs from the stored body CRC."""
    return bool(record.body) and zlib.crc32(record.body) & _MASK != record.body_crc


def has_property_crc(properties: bytes) -> bool:
    """Whether the stored properties `properties` end with a property CRC, be its value right or wrong."""
    start = len(properties) - PROPERTY_CRC_SIZE
    if start < 0 or properties[-1] != PROPERTY_SEPARATOR or not properties.startswith(_NAME, start):
        return False
    return start == 0 or properties[start - 1] == PROPERTY_SEPARATOR


def is_property_crc_wrong(stored: bytes, properties: bytes) -> bool:
    """Whether a record has a property CRC that is not the CRC of the record.

    `stored` has the bytes of the whole record, whose properties are `properties`.
    """
    if not has_property_crc(properties):
        return False
    digits = properties[len(_NAME) - PROPERTY_CRC_SIZE : -1]
    covered = memoryview(stored)[:-PROPERTY_CRC_SIZE]
    return not digits.isdigit() or int(digits[::-1]) != zlib.crc32(covered) & _MASK
