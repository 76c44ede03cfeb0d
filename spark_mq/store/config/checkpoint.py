"""The file `checkpoint` (`StoreCheckpoint`@5.3.3): 4096 bytes, five 64-bit times and offsets, then zeros.

| position | field |
| --- | --- |
| 0 | physicMsgTimestamp: store time of the last message that was flushed to the commit log |
| 8 | logicsMsgTimestamp: the same for consume queues |
| 16 | indexMsgTimestamp: end time of the last full index file that was flushed |
| 24 | masterFlushedOffset (5.0.0) |
| 32 | confirmPhyOffset (5.1.1) |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from spark_mq.io.location import Location

CHECKPOINT = "checkpoint"
CHECKPOINT_SIZE = 4096

_FIELDS = struct.Struct(">qqqqq")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint. Times are milliseconds since the epoch; a field that was never set is 0."""

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0

    @classmethod
    def load(cls, store: Location) -> Self:
        """The checkpoint of a store; every field is 0 if the file is missing or shorter than the fields."""
        file = store / CHECKPOINT
        data = file.read_bytes() if file.is_file else b""
        return cls(*_FIELDS.unpack_from(data)) if len(data) >= _FIELDS.size else cls()

    def encode(self) -> bytes:
        """The content of the file, 4096 bytes."""
        values = (
            self.physic_msg_timestamp,
            self.logics_msg_timestamp,
            self.index_msg_timestamp,
            self.master_flushed_offset,
            self.confirm_phy_offset,
        )
        return _FIELDS.pack(*values).ljust(CHECKPOINT_SIZE, b"\0")
