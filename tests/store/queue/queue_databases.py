"""Keys of queues in RocksDB, as a broker writes them."""

from __future__ import annotations

import struct


def key_of(topic: str, queue_id: int, offset: int) -> bytes:
    """`RocksDBConsumeQueueTable.buildCQKeyByteBuffer`@5.3.3."""
    name = topic.encode()
    return struct.pack(">i", len(name)) + b"\1" + name + b"\1" + struct.pack(">ibq", queue_id, 1, offset)
