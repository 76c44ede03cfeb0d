"""What a read costs, so that the planner can compare two ways to the same rows.

The unit is one byte that is read in order. A read at another place costs a *jump* more, and a queue some calls. The
constants are a model, not a measurement of the machine at hand; `benchmarks.topics` measures what they lead to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Int64s
from spark_mq.io.location import Location


@dataclass(frozen=True)
class ReadCost:
    """The prices of one kind of storage.

    Attributes:
        jump: Bytes that could be read in order in the time of a read at another place.
        queue: Bytes that could be read in the time in which one queue is opened, and its end is compared with the log.
        most_units: Units of all queues that the one process that plans a read may compare with the log.
    """

    jump: int
    queue: int
    most_units: int = 1 << 30

    @property
    def gap(self) -> int:
        """Bytes between two records that are read over: half a jump, so that little more is read than necessary."""
        return self.jump // 2

    def of(self, log_bytes: int, jumps: int = 0, unit_bytes: int = 0, queues: int = 0) -> int:
        """The cost of a read, in bytes that are read in order."""
        return log_bytes + jumps * self.jump + unit_bytes + queues * self.queue


LOCAL = ReadCost(jump=4 << 10, queue=128 << 10)
"""A local disk whose files are cached or which is an SSD: a call takes about 2 microseconds, a scan 2 GB a second.

A thousand million units are 20 GB, and take some 15 seconds of a processor.
"""
REMOTE = ReadCost(jump=4 << 20, queue=24 << 20, most_units=1 << 27)
"""An object store, by assumption: 50 milliseconds until the first byte, then 80 MB a second, six reads for a queue.

A hundred million units are 2.7 GB, and half a minute.
"""

CLEARLY_LESS = 0.7
"""The part of the other way's cost that a way by queues may cost to be chosen: it has more to go wrong."""


def cost_of(location: Location) -> ReadCost:
    """The prices of the storage of a store."""
    return LOCAL if location.is_local else REMOTE


def coalesced(offsets: Int64s, sizes: Int64s, gap: int) -> tuple[Int64s, Int64s]:
    """The starts and stops of the ranges to read for records; a gap of at most `gap` bytes is read over.

    Args:
        offsets: Where the records start, ascending.
        sizes: Their sizes, in bytes.
    """
    if not offsets.size:
        return offsets, offsets
    stops = np.maximum.accumulate(offsets + sizes)
    jumps = np.flatnonzero(offsets[1:] - stops[:-1] > gap)
    starts = offsets[np.concatenate(([0], jumps + 1))]
    return starts, stops[np.concatenate((jumps, [offsets.size - 1]))]
