"""The file `checkpoint` (`StoreCheckpoint`@5.5.1): six 64-bit times and offsets, and what it shows of the last run.

| position | field |
| --- | --- |
| 0 | physicMsgTimestamp: store time of the last message that was flushed to the commit log |
| 8 | logicsMsgTimestamp: the same for consume queues |
| 16 | indexMsgTimestamp: end time of the last full index file that was flushed |
| 24 | masterFlushedOffset (5.0.0) |
| 32 | confirmPhyOffset (5.1.1) |
| 40 | logicsPhysicalOffset: the start of the last message that was flushed to a consume queue (5.5.0) |
| 4080 | `SPARKMQ1`, and at 4088 the commit log offset up to which a restore or an append of ours wrote the log |

A broker writes only its own fields, so the bytes at 4080 stay as long as the file does.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, fields, replace
from typing import NamedTuple, Self

from pyarrow import fs

from spark_mq.format.timestamp import NANOS_PER_MILLI, iso_text
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import ABORT, CONFIG, TIMER_LOG

CHECKPOINT = "checkpoint"
CHECKPOINT_SIZE = 4096

_FIELDS = struct.Struct(">qqqqqq")
_TIMER = struct.Struct(">qqq")
_WRITTEN = struct.Struct(">8sq")
_WRITTEN_AT = CHECKPOINT_SIZE - _WRITTEN.size
_WRITTEN_MARK = b"SPARKMQ1"
_MARGIN_MILLIS = 3_000


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


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint. Times are milliseconds since the epoch; a field that was never set is 0.

    `written_end` is the commit log offset up to which a job of ours wrote the log: all records before it were live
    then, whatever their store times are. No broker reads it.
    """

    physic_msg_timestamp: int = 0
    logics_msg_timestamp: int = 0
    index_msg_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_phy_offset: int = 0
    logics_physical_offset: int = 0
    written_end: int = 0

    @classmethod
    def load(cls, store: Location) -> Self:
        """The checkpoint of a store; every field is 0 if the file is missing.

        Bytes that a shorter file lacks are zeros: a broker maps 4096 bytes, which makes the file longer
        (`StoreCheckpoint`@5.3.3).
        """
        file = store / CHECKPOINT
        return cls.decode(file.read_bytes() if file.is_file else b"")

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """The checkpoint in the content of a file, which can be shorter than 4096 bytes."""
        mark, written_end = _WRITTEN.unpack_from(data.ljust(CHECKPOINT_SIZE, b"\0"), _WRITTEN_AT)
        checkpoint = cls(*_FIELDS.unpack_from(data.ljust(_FIELDS.size, b"\0")))
        return replace(checkpoint, written_end=written_end) if mark == _WRITTEN_MARK else checkpoint

    @property
    def min_timestamp(self) -> int:
        """The store time up to which log and queues are certainly flushed (`StoreCheckpoint.getMinTimestamp`@5.3.3)."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MILLIS)

    def encode(self) -> bytes:
        """The content of the file, 4096 bytes."""
        *values, _ = vars(self).values()
        written = _WRITTEN.pack(_WRITTEN_MARK, self.written_end) if self.written_end else b""
        return _FIELDS.pack(*values).ljust(_WRITTEN_AT, b"\0") + written.ljust(_WRITTEN.size, b"\0")


def checkpoint_problem(store: Location) -> str | None:
    """What is wrong with the file, as text for a person; None if it can be what a broker wrote."""
    info = (store / CHECKPOINT).info()
    if info.type == fs.FileType.NotFound:
        return "there is no file checkpoint: a broker takes all its times for 0"
    if info.type != fs.FileType.File:
        return "checkpoint is not a file: a broker does not start"
    if info.size < CHECKPOINT_SIZE:
        return f"the file has {info.size} of {CHECKPOINT_SIZE} bytes: a broker takes the missing bytes for zeros"
    checkpoint = Checkpoint.load(store)
    negative = [field.name for field in fields(checkpoint) if getattr(checkpoint, field.name) < 0]
    return f"negative: {', '.join(negative)}" if negative else None


def lost_end(store: Location, newest_timestamp: int) -> str | None:
    """Why the end of the log can be lost; None if it is there."""
    if not (store / CHECKPOINT).is_file:
        return "there is no file checkpoint, which would show whether the end of the log is lost"
    flushed = Checkpoint.load(store).physic_msg_timestamp
    if flushed <= newest_timestamp:
        return None
    return f"the end of the log is lost: its newest message is older than the time in checkpoint, {iso_text(flushed)}"


class TimerCheckpoint(NamedTuple):
    """What `config/timercheck` says of the timer (`TimerCheckpoint`@5.3.3).

    Attributes:
        read_time: The slot up to which messages were delivered, in milliseconds.
        log_stop: The end of the timer log that was flushed.
        enqueued: The queue offset after the last message that is in the timer log.
    """

    read_time: int
    log_stop: int
    enqueued: int


def timer_checkpoint(store: Location) -> TimerCheckpoint | None:
    """The timer's checkpoint of a store; None if the file is missing or too short."""
    file = store / CONFIG / "timercheck"
    data = file.read_bytes() if file.is_file else b""
    return TimerCheckpoint(*_TIMER.unpack_from(data)) if len(data) >= _TIMER.size else None


class LostTimers(NamedTuple):
    """The end of a timer log that ends before `log_stop`, up to which its broker has flushed it."""

    end: int
    log_stop: int


def lost_timers(store: Location) -> LostTimers | None:
    """What the timer log lost: a broker reads on after the messages that it had (`TimerMessageStore.recover`@5.3.3)."""
    checkpoint = timer_checkpoint(store)
    files = [info for info in (store / TIMER_LOG).entries() if info.base_name.isdecimal()]
    end = max((int(info.base_name) + info.size for info in files), default=0)
    return None if checkpoint is None or end >= checkpoint.log_stop else LostTimers(end, checkpoint.log_stop)
