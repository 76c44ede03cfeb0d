"""The entries of a DLedger log (`enableDLegerCommitLog`): a head of 48 bytes, and a record as the body.

Head: magic number, size of the entry, index, term, position of the entry in the log, channel, chain CRC, body CRC, size
of the body (`DLedgerEntryCoder.encode`@dledger-0.3.1). The record's own commit log offset is that of its first byte,
after the head (`DLedgerCommitLog`@5.3.3), so look-ups by offset are those of a plain log. An entry without a body
(NOOP) has no record. A blank ends a segment: -1 and the number of bytes that are left
(`MmapFileList.preAppend`@dledger-0.3.1).

A head cannot be taken for a record, nor a record for a head: a record's second number is its magic number, and a head's
is the size of the entry. So one reader reads both kinds of log, as `DLedgerCommitLog.checkMessageAndReturnSize`@5.3.3.

`kernels.entries` is the twin for many entries.
"""

from __future__ import annotations

import struct

HEAD = struct.Struct(">iiqqqiiii")
HEAD_SIZE = HEAD.size
POSITION_AT = 24
BODY_SIZE_AT = 44
MAGIC_NORMAL, MAGIC_CONFIG_CHANGE = 1, 3
"""The first and the last magic number of an entry; that of an entry without a body is between them."""
BLANK_MAGIC = -1
BLANK = struct.Struct(">ii")
"""A blank: its magic number, and the bytes that are left in the file."""
MAX_ENTRY_SIZE = 4 << 20
"""Bytes of the largest entry (`DLedgerMmapFileStore.localEntryBuffer`@dledger-0.3.1)."""


def is_head(data: bytes, commit_log_offset: int) -> bool:
    """Whether an entry that is at this offset of the log begins with `data`."""
    if len(data) < HEAD_SIZE:
        return False
    magic, size, _, _, position, _, _, _, body_size = HEAD.unpack_from(data)
    if not MAGIC_NORMAL <= magic <= MAGIC_CONFIG_CHANGE or position != commit_log_offset:
        return False
    return bool(0 <= body_size <= MAX_ENTRY_SIZE - HEAD_SIZE and size == body_size + HEAD_SIZE)


def has_body(head: bytes) -> bool:
    """Whether a record follows the head."""
    return any(head[BODY_SIZE_AT:HEAD_SIZE])
