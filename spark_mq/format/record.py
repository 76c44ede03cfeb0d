"""One commit log record, field by field (`MessageExtEncoder`@5.3.3, `CommitLog`@4.9.0).

All integers are big-endian. B and S are the sizes of born host and store host: 8 (IPv4) or 20 (IPv6) bytes, the
address followed by a 32-bit port.

| at | width | field |
| --- | --- | --- |
| 0 | i32 | total size |
| 4 | i32 | magic: V1 0xDAA320A7, V2 0xDAA320AB (5.1.0), or the blank's 0xCBD43194 |
| 8 | i32 | body CRC: crc32(stored body) & 0x7FFFFFFF, 0 without a body |
| 12 | i32 | queue id |
| 16 | i32 | flag |
| 20 | i64 | queue offset |
| 28 | i64 | the record's own commit log offset |
| 36 | i32 | sysFlag, see the bits below |
| 40 | i64 | born timestamp, milliseconds |
| 48 | B | born host |
| 48 + B | i64 | store timestamp, milliseconds |
| 56 + B | S | store host |
| 56 + B + S | i32 | reconsume times |
| 60 + B + S | i64 | prepared transaction offset |
| 68 + B + S | i32 + n | body; a length <= 0 means that there is no body |
| then | i8 or i16 + n | topic: V1 has a signed byte, V2 a short |
| then | i16 + n | properties; a length <= 0 means that there are none |

A segment ends with a blank: i32 bytes left in the segment, i32 0xCBD43194. The bytes after these eight are not
defined (`CommitLog.DefaultAppendMessageCallback`@5.3.3; zeros from 4.9.1).

This module is the format of one record in plain Python: encoding, and decoding of a few records. The twin
`kernels.frames` has the same rules for many records.

| bits | meaning |
| --- | --- |
| 0x1 | the stored body is compressed |
| 0x2 | multi-tags marker |
| 0xC | transaction: 0 none, 0x4 prepared, 0x8 commit, 0xC rollback |
| 0x10, 0x20 | born host, store host is an IPv6 address |
| 0x40, 0x80 | need-unwrap, inner batch |
| 0x700 | compression: 0 zlib (old clients), 0x100 LZ4, 0x200 zstd, 0x300 zlib |

(`UtilAll.crc32`, `MessageDecoder.createCrc32`@5.3.3.)
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from spark_mq.errors import CorruptLogError
from spark_mq.format.dledger import BLANK_MAGIC
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import (
    CRC_PROPERTY,
    NAME_VALUE_SEPARATOR,
    PROPERTY_CRC_SIZE,
    PROPERTY_SEPARATOR,
    parse_properties,
)

COMPRESSED_FLAG = 0x1
TRANSACTION_TYPE_MASK = 0xC
TRANSACTION_PREPARED_TYPE = 0x4
TRANSACTION_COMMIT_TYPE = 0x8
TRANSACTION_ROLLBACK_TYPE = 0xC
BORN_HOST_V6_FLAG = 0x10
STORE_HOST_V6_FLAG = 0x20
NEED_UNWRAP_FLAG = 0x40
INNER_BATCH_FLAG = 0x80
UNWRAPPED_FLAGS = INNER_BATCH_FLAG | NEED_UNWRAP_FLAG
"""The bits of a record whose messages a consumer gets one by one (`PullAPIWrapper`@5.3.3)."""
COMPRESSION_TYPE_MASK = 0x700
COMPRESSION_TYPE_SHIFT = 8

TRANSACTION_TYPE_NAMES = ("NONE", "PREPARED", "COMMIT", "ROLLBACK")
"""Names of transaction types, by `(sys_flag & TRANSACTION_TYPE_MASK) >> 2`."""
_NAME = CRC_PROPERTY + bytes((NAME_VALUE_SEPARATOR,))
CRC_MASK = 0x7FFFFFFF
"""The bits of a CRC-32 that are stored (`UtilAll.crc32`@5.3.3)."""
MAGIC_V1 = -626843481  # 0xDAA320A7
MAGIC_V2 = -626843477  # 0xDAA320AB
MAGIC_BLANK = -875286124  # 0xCBD43194
STORED_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big", signed=True)
"""The magic of a blank as it is stored."""
MAX_V1_TOPIC = 127
"""The longest topic of a record of version 1, in bytes: its length has one byte."""

FRAME = struct.Struct(">ii")  # total size, magic
HEADER = struct.Struct(">iiiiiqqiq")  # total size ... born timestamp
HEADER_SIZE = HEADER.size  # 48
_INT32 = struct.Struct(">i")
AFTER_HOSTS = struct.Struct(">iqi")  # reconsume times, prepared transaction offset, body length

MAGIC_AT = 4
BODY_CRC_AT = 8
QUEUE_ID_AT = 12
FLAG_AT = 16
QUEUE_OFFSET_AT = 20
COMMIT_LOG_OFFSET_AT = 28
SYS_FLAG_AT = 36
BORN_TIMESTAMP_AT = 40
BORN_HOST_AT = HEADER_SIZE
HOST_V4_SIZE = 8
HOST_V6_SIZE = 20
TIMESTAMP_SIZE = 8

HEAD_SIZE = HEADER_SIZE + HOST_V6_SIZE + TIMESTAMP_SIZE
"""The largest number of bytes from a record's start to the end of its store timestamp."""

MIN_RECORD_SIZE = HEADER_SIZE + HOST_V4_SIZE + TIMESTAMP_SIZE + HOST_V4_SIZE + AFTER_HOSTS.size + 1 + 2
"""91 bytes: a V1 record with IPv4 hosts, no body, an empty topic and no properties."""

MAX_RECORD_SIZE = (16 << 20) + (128 << 10)
"""Bytes of the largest record.

No broker writes a larger one unless its system property `com.rocketmq.remoting.frameMaxLength` was raised. A frame on
the wire, which contains the body, has at most 16 MiB (`NettyDecoder`@4.9.7, @5.3.3). A record without its body has less
than 128 KiB, because the lengths of topic and properties are shorts. By default a body has at most 4 MiB
(`maxMessageSize`).

A larger size is damage, and is never allocated. `kernels.resync` relies on this limit: no record is longer."""

BLANK_SIZE = FRAME.size
"""Bytes of the smallest blank. A record is appended only if this many bytes are left after it."""

MAX_BLANK_SIZE = 64 << 20
"""Bytes of the largest blank.

A blank is shorter than the data that did not fit plus `BLANK_SIZE` (`CommitLog.DefaultAppendMessageCallback`@5.3.3).
This data can be a batch of small messages, whose records are a few times as long as the batch's frame on the wire.
A longer blank is damage: eight bytes in a body must not make a reader skip hundreds of megabytes."""


def is_body_crc_wrong(record: Record) -> bool:
    """Whether the record has a body whose CRC differs from the stored body CRC."""
    return bool(record.body) and zlib.crc32(record.body) & CRC_MASK != record.body_crc


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
    return not digits.isdigit() or int(digits[::-1]) != zlib.crc32(covered) & CRC_MASK


@dataclass(frozen=True)
class Record:
    """The stored values of one record.

    Text, hosts and body are the stored bytes. `born_host` and `store_host` are the 4 or 16 bytes of the address,
    followed by the 4 bytes of the port. Timestamps are milliseconds since the epoch. If `body_crc` is None, `encode`
    computes the CRC of the body.

    Examples:
        >>> decode_record(Record(b"TopicTest", body=b"hello").encode()).body
        b'hello'
    """

    topic: bytes
    queue_id: int = 0
    queue_offset: int = 0
    commit_log_offset: int = 0
    body: bytes = b""
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x00\x00"
    store_timestamp: int = 0
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    magic: int = MAGIC_V1
    body_crc: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        hosts = len(self.born_host) + len(self.store_host)
        topic = (2 if self.magic == MAGIC_V2 else 1) + len(self.topic)
        after_topic = 2 + len(self.properties)
        return HEADER_SIZE + TIMESTAMP_SIZE + hosts + AFTER_HOSTS.size + len(self.body) + topic + after_topic

    @property
    def transaction_type(self) -> int:
        """The transaction type in `sys_flag`; 0 if the message is not of a transaction."""
        return self.sys_flag & TRANSACTION_TYPE_MASK

    @property
    def text_properties(self) -> dict[str, str]:
        """The names and values of the properties as text, as Java decodes them."""
        return {decode_utf8(name): decode_utf8(value) for name, value in parse_properties(self.properties).items()}

    @property
    def is_in_queue(self) -> bool:
        """Whether queues have it: not if it is PREPARED or ROLLBACK (`CommitLogDispatcherBuildConsumeQueue`@5.3.3)."""
        return self.transaction_type in (0, TRANSACTION_COMMIT_TYPE)

    def encode(self) -> bytes:
        """The bytes that a broker would append (`MessageExtEncoder.encode`@5.3.3).

        The IPv6 bits of `sys_flag` are set from the sizes of the hosts.

        Raises:
            struct.error: A value does not fit its field.
        """
        body_crc = zlib.crc32(self.body) & CRC_MASK if self.body_crc is None else self.body_crc
        sys_flag = self.sys_flag & ~(BORN_HOST_V6_FLAG | STORE_HOST_V6_FLAG)
        sys_flag |= BORN_HOST_V6_FLAG if len(self.born_host) == HOST_V6_SIZE else 0
        sys_flag |= STORE_HOST_V6_FLAG if len(self.store_host) == HOST_V6_SIZE else 0
        return b"".join(
            (
                HEADER.pack(
                    self.size,
                    self.magic,
                    body_crc,
                    self.queue_id,
                    self.flag,
                    self.queue_offset,
                    self.commit_log_offset,
                    sys_flag,
                    self.born_timestamp,
                ),
                self.born_host,
                struct.pack(">q", self.store_timestamp),
                self.store_host,
                AFTER_HOSTS.pack(self.reconsume_times, self.prepared_transaction_offset, len(self.body)),
                self.body,
                struct.pack(">h" if self.magic == MAGIC_V2 else ">b", len(self.topic)),
                self.topic,
                struct.pack(">h", len(self.properties)),
                self.properties,
            )
        )


def encode_blank(size: int) -> bytes:
    """A blank of `size` bytes, at least 8, as brokers from 4.9.1 on write it: zeros after the first eight bytes."""
    return FRAME.pack(size, MAGIC_BLANK).ljust(size, b"\0")


def is_blank(head: bytes, size: int) -> bool:
    """Whether a blank of exactly `size` bytes starts with the bytes `head`, of which at most `BLANK_SIZE` are used.

    A DLedger log has another blank. `kernels.frames.read_frame` is the twin for a segment's bytes: `size` is what is
    left of the segment.
    """
    if not BLANK_SIZE <= size <= MAX_BLANK_SIZE:
        return False
    return head[:BLANK_SIZE] in (FRAME.pack(size, MAGIC_BLANK), FRAME.pack(BLANK_MAGIC, size))


def decode_record(buffer: bytes | memoryview, position: int = 0, commit_log_offset: int | None = None) -> Record:
    """The record at `position` of `buffer`.

    Args:
        buffer: Bytes that contain the record.
        position: The index in `buffer` at which the record starts.
        commit_log_offset: The offset that the record must have as its own commit log offset; None for any offset.

    Raises:
        CorruptLogError: The bytes are not a whole, consistent record
            (`CommitLog.checkMessageAndReturnSize`@5.3.3 without its CRC check). The message names the reason.
    """
    try:
        return _decode(buffer, position, commit_log_offset)
    except struct.error as error:
        raise CorruptLogError(f"record at {position}: the record is cut") from error


def read_store_timestamp(head: bytes, commit_log_offset: int) -> int | None:
    """The store timestamp, in milliseconds, of the record whose first `HEAD_SIZE` bytes are `head`.

    None if `head` is shorter, or is not the beginning of a record at `commit_log_offset`.
    """
    if len(head) < HEAD_SIZE:
        return None
    size, magic, _, _, _, _, own_offset, _, _ = HEADER.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2) or own_offset != commit_log_offset:
        return None
    if not MIN_RECORD_SIZE <= size <= MAX_RECORD_SIZE:
        return None
    return store_timestamp_of(head)


def store_timestamp_of(head: bytes) -> int | None:
    """The store timestamp, in milliseconds, in the first bytes of a record; None if `head` ends before it.

    Whether `head` is the beginning of a record is not checked.
    """
    if len(head) < BORN_HOST_AT:
        return None
    (sys_flag,) = _INT32.unpack_from(head, SYS_FLAG_AT)
    at = BORN_HOST_AT + (HOST_V6_SIZE if sys_flag & BORN_HOST_V6_FLAG else HOST_V4_SIZE)
    return (
        int.from_bytes(head[at : at + TIMESTAMP_SIZE], "big", signed=True) if len(head) >= at + TIMESTAMP_SIZE else None
    )


def _decode(buffer: bytes | memoryview, position: int, commit_log_offset: int | None) -> Record:
    (size, magic, body_crc, queue_id, flag, queue_offset, own_offset, sys_flag, born_timestamp) = HEADER.unpack_from(
        buffer, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise CorruptLogError(f"record at {position}: magic {magic & 0xFFFFFFFF:#x} is not a record's")
    if not MIN_RECORD_SIZE <= size <= min(MAX_RECORD_SIZE, len(buffer) - position):
        raise CorruptLogError(f"record at {position}: size {size} is too small, too large, or past the end")
    if commit_log_offset is not None and own_offset != commit_log_offset:
        raise CorruptLogError(f"record at {position}: its own offset is {own_offset}, not {commit_log_offset}")
    born_end = position + BORN_HOST_AT + (HOST_V6_SIZE if sys_flag & BORN_HOST_V6_FLAG else HOST_V4_SIZE)
    (store_timestamp,) = struct.unpack_from(">q", buffer, born_end)
    store_host_at = born_end + TIMESTAMP_SIZE
    hosts_end = store_host_at + (HOST_V6_SIZE if sys_flag & STORE_HOST_V6_FLAG else HOST_V4_SIZE)
    reconsume_times, prepared_transaction_offset, body_length = AFTER_HOSTS.unpack_from(buffer, hosts_end)
    at = hosts_end + AFTER_HOSTS.size
    body_end = at + max(body_length, 0)
    topic_length_format = ">h" if magic == MAGIC_V2 else ">b"
    (topic_length,) = struct.unpack_from(topic_length_format, buffer, body_end)
    topic_at = body_end + struct.calcsize(topic_length_format)
    topic_end = topic_at + topic_length
    if topic_length < 0 or topic_end > position + size:
        raise CorruptLogError(f"record at {position}: topic length {topic_length} does not fit size {size}")
    (properties_length,) = struct.unpack_from(">h", buffer, topic_end)
    end = topic_end + 2 + max(properties_length, 0)
    if end != position + size:
        raise CorruptLogError(f"record at {position}: its parts take {end - position} bytes, its size is {size}")
    return Record(
        topic=bytes(buffer[topic_at:topic_end]),
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=own_offset,
        body=bytes(buffer[at:body_end]),
        properties=bytes(buffer[topic_end + 2 : end]),
        flag=flag,
        sys_flag=sys_flag,
        born_timestamp=born_timestamp,
        born_host=bytes(buffer[position + BORN_HOST_AT : born_end]),
        store_timestamp=store_timestamp,
        store_host=bytes(buffer[store_host_at:hosts_end]),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
        magic=magic,
        body_crc=body_crc,
    )
