"""What a store's files tell of the last run of its broker: when it started, and which messages were certainly live."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import ABORT


@dataclass(frozen=True)
class LastRun:
    """The last run of a store's broker.

    Attributes:
        started: When the broker that runs, or crashed, was started: the time of the file `abort`, in milliseconds. None
            if the broker stopped cleanly. Infinity if the store is not on a local disk: the time of a file in an object
            store is that of its upload, which proves nothing about the broker.
        dispatched: The store time of the last message in the log before a clean stop, in milliseconds; 0 if it is not
            known. A broker sets `logicsMsgTimestamp` with each unit, a stop waits for all units, and then writes the
            checkpoint (`DefaultMessageStore.shutdown`, `ConsumeQueue.putMessagePositionInfoWrapper`@4.9.7 and @5.3.3).
            `physicMsgTimestamp` does not tell this: the last flush of a log does not set it
            (`FlushRealTimeService.run`).
        confirmed: The commit log offset up to which the log was live when a broker started, or when a job of ours wrote
            it: `confirmPhyOffset` (`CommitLog.setConfirmOffset`@5.1.1) and `Checkpoint.written_end`; 0 if neither is
            set.
    """

    started: float | None
    dispatched: int
    confirmed: int

    @classmethod
    def of(cls, store: Location) -> Self:
        """The last run of the broker of the store at `store`."""
        abort, checkpoint = store / ABORT, Checkpoint.load(store)
        confirmed = max(checkpoint.confirm_phy_offset, checkpoint.written_end)
        if not abort.is_file:
            return cls(None, checkpoint.logics_msg_timestamp, confirmed)
        started = (abort.info().mtime_ns or 0) / NANOS_PER_MILLI if abort.is_local else math.inf
        return cls(started, 0, confirmed)
