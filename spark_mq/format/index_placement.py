"""Which index file each entry goes to, computed from counts (`IndexService.buildIndex`, `putKey`@5.3.3; as in 4.9).

Entries fill one file after the other, `index_num` - 1 in each. When a file is full, the next dispatched message
creates the next file, even a message without keys, a rolled-back message, or one that was indexed before. So if the
last entry fills a file, it matters whether a message follows.

In this module a *run* is a range of consecutive messages of the log: those of a split, or a single message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.index_file import IndexHeader, IndexLayout

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexPlacement:
    """The files of all entries, as pieces in log order: `count` entries of a run, from entry `start` on, go to a file.

    `run`, `file`, `start` and `count` have one value for each piece. A file without a piece gets no entry: it is the
    store's last file, or the last file of all, which a message after the last entry created.

    Attributes:
        run: The number of the run, from 0.
        file: The number of the file, from 0.
        start: The piece's first entry, counted in its run from 0.
        count: The number of entries in the piece.
        files: The number of files.
        continues_last: Whether file 0 is the store's last file, which is not full yet.
    """

    run: Counts
    file: Counts
    start: Counts
    count: Counts
    files: int
    continues_last: bool

    def entry_before(self, file: int) -> tuple[int, int] | None:
        """The last entry before `file`, as its run and its index in that run; None if no run contains that entry.

        The header of `file` begins with the commit log offset and store time of this entry. No run contains it if it
        is the end of the store's last file, or if `file` is the first one.
        """
        piece = int(np.searchsorted(self.file, file)) - 1
        if piece < 0:
            return None
        return int(self.run[piece]), int(self.start[piece] + self.count[piece] - 1)


def place_entries(
    entry_counts: Counts, trailing_messages: Counts, layout: IndexLayout, last: IndexHeader | None = None
) -> IndexPlacement:
    """The placement of the entries of all runs.

    Args:
        entry_counts: The number of entries of each run; the runs are in log order.
        trailing_messages: The number of messages of each run after the message with its last entry; the number of all
            its messages if the run has no entry.
        layout: The layout of the index files.
        last: The header of the store's last index file; None if the store has no index file.
    """
    continues_last = last is not None and not last.is_full(layout)
    used = last.next_entry - 1 if last is not None and continues_last else 0
    capacity = layout.index_num - 1
    ends = used + np.cumsum(entry_counts, dtype=np.int64)
    total = int(ends[-1]) if ends.size else used

    file_ends = np.arange(capacity, total, capacity, dtype=np.int64)
    stops = np.union1d(ends, file_ends)
    stops = stops[stops > used]
    starts = np.concatenate((np.array([used], np.int64), stops[:-1]))[: stops.size]
    run = np.searchsorted(ends, starts, side="right").astype(np.int64)

    files = -(-total // capacity)
    if total % capacity == 0 and _is_followed(entry_counts, trailing_messages):
        files += 1
    return IndexPlacement(
        run=run,
        file=starts // capacity,
        start=starts - (ends - entry_counts)[run],
        count=stops - starts,
        files=max(files, int(continues_last)),
        continues_last=continues_last,
    )


def _is_followed(entry_counts: Counts, trailing_messages: Counts) -> bool:
    """Whether a message is dispatched after the message that puts the last entry."""
    with_entries = np.flatnonzero(entry_counts)
    last = int(with_entries[-1]) if with_entries.size else 0
    return bool(trailing_messages[last:].any())
