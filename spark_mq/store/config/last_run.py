"""What a store's files tell of the last run of its broker: when it started, and what it flushed before it stopped."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import ABORT

CLOCK_STEP_MILLIS = 5_000
"""How far a clock may be set back just after a broker started."""


@dataclass(frozen=True)
class LastRun:
    """The last run of a store's broker.

    Attributes:
        started: When the broker that runs, or crashed, was started: the time of the file `abort`, in milliseconds. None
            if the broker stopped cleanly. Infinity if the store is not on a local disk: the time of a file in an object
            store is that of its upload, which proves nothing about the broker.
        flushed: The store time of the last message that was flushed before a clean stop (`checkpoint`), milliseconds.

    """

    started: float | None
    flushed: int

    @classmethod
    def of(cls, store: Location) -> Self:
        """The last run of the broker of the store at `store`."""
        abort = store / ABORT
        if not abort.is_file:
            return cls(None, Checkpoint.load(store).physic_msg_timestamp)
        if not abort.is_local:
            return cls(math.inf, 0)
        return cls((abort.info().mtime_ns or 0) / NANOS_PER_MILLI, 0)

    def ends_between(self, before: int, after: int) -> bool:
        """Whether the log certainly ends between two records that follow each other, the second one being older.

        It does if the first one is the last that was flushed; or if the broker was started between the times of the
        two, because all records after the first one were then written before the start.

        Args:
            before: The store time of the first record, milliseconds.
            after: The store time of the second record, milliseconds.

        """
        if self.started is None:
            return before == self.flushed > 0
        return after < self.started - CLOCK_STEP_MILLIS and self.started <= before
