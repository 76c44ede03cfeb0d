"""A split's index entries, staged as one file: key hashes, commit log offsets and store timestamps, three arrays.

They are many (twenty bytes for each key) and in the order of the log, so they stay out of the JVM: a task writes the
file, and the task that puts entries reads the ranges that it needs. What Spark keeps is where they are and how many.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from spark_mq.store.file_reader import FileReader
from spark_mq.store.filesystem import Location


@dataclass(frozen=True)
class IndexEntries:
    """Entries in the order of the log, n values each."""

    key_hashes: npt.NDArray[np.int32]
    commit_log_offsets: npt.NDArray[np.int64]
    store_timestamps: npt.NDArray[np.int64]

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The entries of all parts."""
        return cls(
            np.concatenate([part.key_hashes for part in parts] or [np.empty(0, np.int32)]),
            np.concatenate([part.commit_log_offsets for part in parts] or [np.empty(0, np.int64)]),
            np.concatenate([part.store_timestamps for part in parts] or [np.empty(0, np.int64)]),
        )


@dataclass(frozen=True)
class IndexBlob:
    """A staged file of `count` entries; without any there is no file."""

    location: Location
    count: int

    @classmethod
    def write(cls, folder: Location, entries: IndexEntries) -> Self:
        """Stage entries in a file of their own below `folder`."""
        blob = cls(folder / uuid.uuid4().hex, entries.key_hashes.size)
        if blob.count:
            # No name is used twice, and nothing here outlives the job: it needs neither a rename nor a flush.
            with folder.filesystem.open_output_stream(blob.location.path) as stream:
                for array in (entries.key_hashes, entries.commit_log_offsets, entries.store_timestamps):
                    stream.write(array.data)
        return blob

    def read(self, start: int, count: int) -> IndexEntries:
        """The entries from `start` on, `count` of them."""
        with FileReader(self.location) as file:
            hashes = file.read(4 * start, 4 * count)
            offsets = file.read(4 * self.count + 8 * start, 8 * count)
            timestamps = file.read(12 * self.count + 8 * start, 8 * count)
        return IndexEntries(
            np.frombuffer(hashes, np.int32), np.frombuffer(offsets, np.int64), np.frombuffer(timestamps, np.int64)
        )
