"""Which index file an entry goes to, out of counts (`IndexService.buildIndex`, `putKey`@5.3.3; the same in 4.9).

Entries fill file after file, M - 1 each. A file is made by the first message that is dispatched after the one before it
is full, whatever message that is: without keys, rolled back, or indexed before. So where entries end with a full file,
it matters whether a message follows.

Words of this module: a `run` is consecutive messages of the log: a split's, or one message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_mq.format.index_file import IndexHeader, IndexLayout

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class IndexPlacement:
    """Pieces in log order, n values each: `count` entries of a run, from its entry `start` on, go to a file.

    Files are numbered from 0; with `continues_last` file 0 is the store's last file, which is not full yet. A file
    without a piece has no entry: it is the last one, made by a message that came after the last entry.
    """

    run: Counts
    file: Counts
    start: Counts
    count: Counts
    files: int
    continues_last: bool

    def entry_before(self, file: int) -> tuple[int, int] | None:
        """Run and place in it of the last entry before a file: its offset and time begin the file's header.

        None where no run has it: the store's last file ends with it, or nothing was before.
        """
        piece = int(np.searchsorted(self.file, file)) - 1
        if piece < 0:
            return None
        return int(self.run[piece]), int(self.start[piece] + self.count[piece] - 1)


def place_entries(
    entry_counts: Counts, trailing_messages: Counts, layout: IndexLayout, last: IndexHeader | None = None
) -> IndexPlacement:
    """Place the entries of runs, in log order.

    `entry_counts`: entries of each run; `trailing_messages`: messages that each run has after the last of them (all of
    its messages where it has none). `last`: the header of the store's last index file, None where there is none.
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
    """Whether a message is dispatched after the one that puts the last entry."""
    with_entries = np.flatnonzero(entry_counts)
    last = int(with_entries[-1]) if with_entries.size else 0
    return bool(trailing_messages[last:].any())
