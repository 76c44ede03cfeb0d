"""The part of the log that is there: what queues and index are held against, besides messages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]
Which = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LogBounds:
    """Start and end of the log, and its damaged and missing parts.

    Attributes:
        start: The commit log offset at which the log starts.
        end: The commit log offset at which it ends.
        is_clean: Whether the broker stopped cleanly: there is no file `abort`.
        holes: Start and end of each part without a readable record, in order; they do not overlap.
    """

    start: int
    end: int
    is_clean: bool
    holes: tuple[tuple[int, int], ...] = ()

    def is_lost(self, offsets: Offsets) -> Which:
        """Which commit log offsets are in a part without a readable record."""
        if not self.holes:
            return np.zeros(offsets.size, np.bool_)
        starts, stops = np.array(self.holes, np.int64).T
        at = np.searchsorted(starts, offsets, "right") - 1
        lost: Which = (at >= 0) & (offsets < stops[np.maximum(at, 0)])
        return lost


def merged(ranges: Iterable[tuple[int, int]], limit: int | None = None) -> tuple[tuple[int, int], ...]:
    """The ranges in order, without overlaps; with a limit, all ranges after so many become one."""
    result: list[tuple[int, int]] = []
    for start, stop in sorted(ranges):
        if result and (start <= result[-1][1] or (limit is not None and len(result) == limit)):
            result[-1] = result[-1][0], max(result[-1][1], stop)
        else:
            result.append((start, stop))
    return tuple(result)
