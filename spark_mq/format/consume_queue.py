"""Consume queue files (`ConsumeQueue`@5.3.3; the same bytes in 4.9.0).

A queue file consists of units of 20 bytes, big-endian. Unit i of the queue is at byte 20 i, counted through all files
of the queue. All files have one size (300,000 units by default). A file's name is the queue's byte at which it starts.

| at | width | field |
| --- | --- | --- |
| 0 | i64 | commit log offset |
| 8 | i32 | store size of the message |
| 12 | i64 | tags code |

Zeros end a queue. If a queue does not begin at its first file's start, the units before the queue's first one are
pre-blank: (0, 0x7FFFFFFF, 0) (`ConsumeQueue.fillPreBlank`). Between two messages of a queue, no broker leaves a unit
without a message. This package does, for messages that were left out of a restored log, or are lost: such a unit has
the same size, and can have a commit log offset above 0 (`indexer.queue_files.missing_offset`).

Topics with `queue.type=BatchCQ` have units of 46 bytes, one for each record: a message, or an inner batch of several
ones (`BatchConsumeQueue`@5.3.3). A queue of them begins at byte 0 of its first file, and has no gaps, so the position
of a unit says nothing about queue offsets.

| at | width | field |
| --- | --- | --- |
| 0 | i64 | commit log offset |
| 8 | i32 | store size of the record |
| 12 | i64 | tags code |
| 20 | i64 | store timestamp |
| 28 | i64 | queue offset of the record's first message |
| 36 | i16 | number of messages |
| 38 | i32 | offset in a compacted log; -1 here |
| 42 | i32 | reserved; 0 |
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_mq.format.array_types import Flags

UNIT = struct.Struct(">qiq")
UNIT_DTYPE = np.dtype([("commit_log_offset", ">i8"), ("store_size", ">i4"), ("tags_code", ">i8")])
Queue = tuple[str, int]
"""A topic and a queue id."""

UNIT_SIZE = UNIT_DTYPE.itemsize  # 20
DEFAULT_FILE_SIZE = 300_000 * UNIT_SIZE

DATABASE_UNIT_DTYPE = np.dtype([*UNIT_DTYPE.descr, ("store_timestamp", ">i8")])
"""A unit in RocksDB (`RocksDBConsumeQueueTable`@5.3.3)."""

Units = npt.NDArray[Any]
"""An array of `UNIT_DTYPE`, or of `DATABASE_UNIT_DTYPE`."""

PRE_BLANK_SIZE = 0x7FFFFFFF
MAX_QUEUE_OFFSET = 1 << 58
"""The limit of queue offsets: 20 bytes for each unit, a file position still fits 64 bits. No broker comes near it."""

BATCH_UNIT = struct.Struct(">qiqqqhii")
MAX_MESSAGE_COUNT = (1 << 15) - 1
"""The largest number of messages of a record in a batch consume queue."""
BATCH_UNIT_DTYPE = np.dtype(
    [
        ("commit_log_offset", ">i8"),
        ("store_size", ">i4"),
        ("tags_code", ">i8"),
        ("store_timestamp", ">i8"),
        ("queue_offset", ">i8"),
        ("message_count", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
BATCH_UNIT_SIZE = BATCH_UNIT_DTYPE.itemsize  # 46
BATCH_FILE_SIZE = 300_000 * BATCH_UNIT_SIZE
"""`MessageStoreConfig.mapperFileSizeBatchConsumeQueue`@5.3.3."""

BatchUnits = npt.NDArray[Any]
"""An array of `BATCH_UNIT_DTYPE`."""


def pre_blank(count: int) -> Units:
    """`count` pre-blank units."""
    units = np.zeros(count, UNIT_DTYPE)
    units["store_size"] = PRE_BLANK_SIZE
    return units


def is_live(units: Units) -> Flags:
    """Which units point to a message: units that are neither zeros (the queue's end) nor pre-blank."""
    size = units["store_size"]
    live: Flags = (units["commit_log_offset"] >= 0) & (size > 0) & (size != PRE_BLANK_SIZE)
    return live


def is_written(units: BatchUnits) -> Flags:
    """Which units a boot keeps: it ends a queue before the first other one (`BatchConsumeQueue.recover`@5.3.3)."""
    written: Flags = (units["commit_log_offset"] >= 0) & (units["store_size"] > 0)
    written &= (units["queue_offset"] >= 0) & (units["message_count"] > 0)
    return written


def queue_file_name(file_number: int, file_size: int) -> str:
    """The name of a queue's file: the queue's byte at which it starts, 20 digits (`UtilAll.offset2FileName`@5.3.3).

    Args:
        file_number: The number of the file in the queue, from 0.
        file_size: Bytes of each file.

    Examples:
        >>> queue_file_name(1, DEFAULT_FILE_SIZE)
        '00000000000006000000'
    """
    return f"{file_number * file_size:020d}"
