"""The index entries of a split's messages. They are staged while the split is read."""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.kernels.index_keys import index_keys
from spark_mq.indexer.staging.staged_entries import EntryBatch, StagedEntriesWriter


class IndexEntryCollector:
    """Hands entries to `writer`, in the order of the log; `has_tags` is the argument of `index_keys`.

    Attributes:
        trailing_messages: The number of messages after the message with the last entry.

    """

    def __init__(self, writer: StagedEntriesWriter, has_tags: bool | None) -> None:
        self.trailing_messages = 0
        self._writer = writer
        self._has_tags = has_tags

    def add(self, buffer: Bytes, base: int, frames: Frames, store_timestamps: Int64s) -> None:
        """Stage the entries of messages that come next in the log.

        Args:
            buffer: The bytes of the records.
            base: The commit log offset of the buffer's start.
            frames: The records.
            store_timestamps: The store time of each record, in milliseconds.

        """
        keys = index_keys(buffer, frames, self._has_tags)
        with_entries = np.flatnonzero(keys.entry_count)
        if with_entries.size:
            self.trailing_messages = int(frames.size - 1 - with_entries[-1])
        else:
            self.trailing_messages += int(frames.size)
        offsets: Int64s = np.repeat(frames.position + base, keys.entry_count)
        self._writer.add(EntryBatch(keys.key_hash, offsets, np.repeat(store_timestamps, keys.entry_count)))
