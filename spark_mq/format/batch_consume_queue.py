"""Files of batch consume queues, those of topics with `queue.type=BatchCQ` (`BatchConsumeQueue`@5.3.3).

A file consists of units of 46 bytes, big-endian, one for each record: a message, or an inner batch of several ones. A
queue begins at byte 0 of its first file, and has no gaps, so the position of a unit says nothing about queue offsets.

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

BATCH_UNIT = struct.Struct(">qiqqqhii")
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


def is_written(units: BatchUnits) -> npt.NDArray[np.bool_]:
    """Which units a boot keeps: it ends a queue before the first other one (`BatchConsumeQueue.recover`@5.3.3)."""
    written: npt.NDArray[np.bool_] = (units["commit_log_offset"] >= 0) & (units["store_size"] > 0)
    written &= (units["queue_offset"] >= 0) & (units["message_count"] > 0)
    return written
