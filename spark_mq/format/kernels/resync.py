"""Where the hop over a segment can stand at a place in its middle, told from the bytes before that place.

A split owns the records that start in it, but where it begins is in the middle of some record. Bodies can carry
anything, whole records with the right own offset too, so what looks like a record need not be one. But the hop takes
nothing but frames (whole records and blanks), so it can be in few places only, and these can be followed. That the
true one is always among them is proved so:

- The hop is due at q if it takes the first frame at or behind q (bytes between are damage). Behind a frame it is due at
  the frame's end. So if it is due at one of some places, it is so still after each of them that lies at or before the
  next frame has been replaced by the end of that frame; these all become one.
- At the start w of a window the hop is due at some place in w ... w + `MAX_RECORD_SIZE` - 1: at w if it is searching,
  else at the end of the record that it is in, which begins before w and is no larger. It is in no blank if w is
  `MAX_BLANK_SIZE` or more before the segment's end. All these places are taken as possible, and followed as above.
- What is left of them at the window's end are places at or behind it, where the hop stands (be it on a record or on
  damage), and places before it: from those it searches, and takes the first frame at or behind the window's end.

If that is one place, it is the true one, whatever the bytes are. If not, they do not decide, and the caller has to hop
from the segment's start.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.frames import BLANK, FULL, RECORD, Frames, ScanStatus, find_frame, new_frames
from spark_mq.format.kernels.kernel import kernel
from spark_mq.format.record import MAX_RECORD_SIZE

_MOST_PLACES = 64
"""On a sound log there is one, and one more for each chain of records that a body pretends to hold."""


class ResyncCandidates:
    """The commit log offsets at which the hop can be due, followed from the offset `window_start` on."""

    def __init__(self, window_start: int) -> None:
        self._first_certain = window_start + MAX_RECORD_SIZE
        self._places = np.empty(_MOST_PLACES, np.int64)
        self._places[0] = self._first_certain - 1  # the last of those possible from the start stands for all of them
        self._count = 1
        self._scratch = new_frames(1)

    def follow(self, buffer: Bytes, stop: int, base: int, end: int) -> tuple[int, ScanStatus]:
        """Follow the hop over the frames that begin at index 0 ... `stop` - 1 of `buffer`.

        Returns up to which index, and why: STOP, MORE (the buffer ends before what lies there does; go on from there
        with another one) or FULL (there are too many places).
        """
        self._count, reached, found = _follow(
            buffer, stop, base, end, self._first_certain, self._places, self._count, self._scratch
        )
        return int(reached), ScanStatus(found)

    def behind(self, window_end: int) -> tuple[set[int], bool]:
        """The places at or behind the offset `window_end`, and whether there are others, to search from."""
        places = self._places[: self._count]
        return set(places[places >= window_end].tolist()), bool((places < window_end).any())


@kernel
def _follow(
    buffer: Bytes, stop: int, base: int, end: int, first_certain: int, places: Int64s, count: int, scratch: Frames
) -> tuple[int, int, int]:
    position = 0
    while True:
        position, found = find_frame(buffer, position, stop, base, end, scratch)
        if found != RECORD and found != BLANK:
            return count, position, found
        frame = base + position
        frame_end = base + (end if found == BLANK else position + scratch[0].store_size)
        left = 0
        is_known = False
        for index in range(count):
            if places[index] > frame:
                places[left] = places[index]
                is_known |= places[left] == frame_end
                left += 1
        is_due = left < count or frame < first_certain
        count = left
        if is_due and not is_known:
            if count == places.size:
                return count, position, FULL
            places[count] = frame_end
            count += 1
        position += 1
