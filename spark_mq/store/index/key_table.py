"""The keys of a part of the log that no index file covers, in memory, for callers that look up many keys.

Reading the log again for each key would take seconds each time. A `KeyTable` reads it once, and stores what an index
stores: the hash of each key, and the offset of its message.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Self

from spark_mq.io.location import Location
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import splits_of

if TYPE_CHECKING:
    from spark_mq.format.array_types import Int32s, Int64s

MAX_TABLE_RANGE = 8 << 30
"""The largest part of the log, in bytes, for a table: about 550 MB of memory for messages of the usual size."""


class KeyTable:
    """Key hashes, sorted, and the commit log offsets of their messages, ascending for each hash; 12 bytes for a key."""

    def __init__(self, key_hashes: Int32s, commit_log_offsets: Int64s) -> None:
        self._key_hashes = key_hashes
        self._commit_log_offsets = commit_log_offsets

    @classmethod
    def read(cls, store: Location, log_range: LogRange) -> Self:
        """The table of a range of the live log; damage is skipped."""
        import numpy as np

        from spark_mq.format.kernels.index_keys import index_keys
        from spark_mq.store.log.joined_chunks import joined_chunks
        from spark_mq.store.log.split_reader import read_split

        hashes, offsets = [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        listing = uuid.uuid4().hex
        for split in splits_of(store, log_range):
            for part in joined_chunks(read_split(split, listing)):
                if not isinstance(part, list):
                    keys = index_keys(part.buffer, part.frames)
                    hashes.append(keys.key_hash)
                    offsets.append(np.repeat(part.frames.position + part.base, keys.entry_count))
        all_hashes = np.concatenate(hashes)
        order = np.argsort(all_hashes, kind="stable")
        return cls(all_hashes[order], np.concatenate(offsets)[order])

    def offsets(self, key_hash: int) -> list[int]:
        """The commit log offsets of the messages with a key of this hash, each once, ascending."""
        start, stop = self._key_hashes.searchsorted([key_hash, key_hash + 1])
        return list(dict.fromkeys(self._commit_log_offsets[start:stop].tolist()))
