"""The first record of a split that starts in the middle of a segment, found from the bytes before the split.

A split owns the records that start in it, but its own start is in the middle of some record. Bodies can contain any
bytes, even whole records with the right own offset, so bytes that look like a record are not always one. But a scan
from the segment's start takes only frames (whole records and blanks). So only a few positions of this scan are
possible, and these candidates can be followed.

The true position is always among the candidates. Let the scan be *due* at q if the next frame that it takes is the
first frame at or after q; the bytes before that frame are damage.

- After a frame, the scan is due at the frame's end. So if the true position is among the candidates, it still is after
  every candidate at or before the next frame is replaced by that frame's end. The replaced candidates merge into one.
- At the start w of a window, the scan is due at a position from w to w + `MAX_RECORD_SIZE` - 1: at w if it is searching
  for a frame, else at the end of the record that it is in. This record starts before w and has at most
  `MAX_RECORD_SIZE` bytes. The scan is not in a blank if w is at least `MAX_BLANK_SIZE` before the segment's end. All
  these positions are candidates at the start.
- At the window's end, a candidate at or after this end is a possible position of the scan, on a record or on damage.
  From a candidate before the window's end the scan searches, and takes the first frame at or after the window's end.

If one position remains, it is the true one, whatever the bytes are. If several remain, the bytes do not decide, and
the caller has to scan from the segment's start.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, OutInt64s
from spark_mq.format.kernels.frames import BLANK, FULL, RECORD, Frames, ScanStatus, find_frame, new_frames
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import MAX_RECORD_SIZE

_MAX_CANDIDATES = 64
"""A sound log has one candidate, and one more for each chain of records that is inside of bodies."""


class ResyncCandidates:
    """The commit log offsets at which a scan from the segment's start can be due, followed through a window.

    `window_start` is the commit log offset at which the window starts. The window must start at least `MAX_BLANK_SIZE`
    bytes before the segment's end.
    """

    def __init__(self, window_start: int) -> None:
        self._first_certain = window_start + MAX_RECORD_SIZE
        self._candidates = np.empty(_MAX_CANDIDATES, np.int64)
        self._candidates[0] = self._first_certain - 1  # the last of the positions that are possible at the start
        self._count = 1
        self._scratch = new_frames(1)

    def follow(self, buffer: Bytes, stop: int, base: int, end: int) -> tuple[int, ScanStatus]:
        """Follow the candidates over the frames that start at indices 0 to `stop` - 1 of `buffer`.

        The index that was reached, and why the candidates were not followed further: STOP; MORE, if `buffer` ends
        before this index is decided, so that the caller has to continue there with another buffer; or FULL, if there
        are too many candidates.
        """
        self._count, reached, status = _follow(
            buffer, stop, base, end, self._first_certain, self._candidates, self._count, self._scratch
        )
        return int(reached), ScanStatus(status)

    def after(self, window_end: int) -> tuple[set[int], bool]:
        """The candidates at or after the offset `window_end`, and whether there are candidates before it."""
        candidates = self._candidates[: self._count]
        return set(candidates[candidates >= window_end].tolist()), bool((candidates < window_end).any())


@kernel
def _follow(
    buffer: Bytes,
    stop: int,
    base: int,
    end: int,
    first_certain: int,
    candidates: OutInt64s,
    count: int,
    scratch: Frames,
) -> tuple[int, int, int]:
    position = 0
    while True:
        position, status = find_frame(buffer, position, stop, base, end, scratch)
        if status != RECORD and status != BLANK:
            return count, position, status
        frame = base + position
        frame_end = base + (end if status == BLANK else position + scratch[0].store_size)
        kept = 0
        is_known = False
        for index in range(count):
            if candidates[index] > frame:
                candidates[kept] = candidates[index]
                is_known |= candidates[kept] == frame_end
                kept += 1
        is_due = kept < count or frame < first_certain
        count = kept
        if is_due and not is_known:
            if count == candidates.size:
                return count, position, FULL
            candidates[count] = frame_end
            count += 1
        position += 1
