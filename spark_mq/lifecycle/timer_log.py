"""The timer log of 5.x: which timer messages are enqueued, and when the broker takes each of them next.

A unit has 52 bytes, big-endian: size, position of the slot's previous unit, magic, write time, delay, commit log offset
and size of the message, hash of its topic, and a reserved number (`TimerLog`, `TimerMessageStore.doEnqueue`@5.3.3). The
timer wheel (file `timerwheel`) only links the units of a slot; a broker checks it against the timer log at its start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.io.location import Location

TIMER_LOG = "timerlog"
UNIT_SIZE = 52
ROLL, DELETE = 2, 4
"""Bits of a unit's magic number: the message is stored in the timer topic again; the message cancels another one."""

_UNIT = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_time", ">i8"),
        ("delay", ">i4"),
        ("commit_log_offset", ">i8"),
        ("store_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)


@dataclass(frozen=True)
class TimerUnits:
    """The units of a timer log, in its order.

    Attributes:
        slot_time: The time of the slot in which the broker takes the message, milliseconds since the epoch.
        rolls: Whether the message is then stored in the timer topic again, because its time is still far away.
    """

    commit_log_offset: Int64s
    slot_time: Int64s
    rolls: Flags

    def newest(self, commit_log_offset: Int64s) -> Int64s:
        """The number of the last unit of each message; -1 if it has none."""
        order = np.argsort(self.commit_log_offset, kind="stable")
        offsets = self.commit_log_offset[order]
        place = np.searchsorted(offsets, commit_log_offset, side="right") - 1
        result = np.full(commit_log_offset.size, -1, np.int64)
        is_found = place >= 0
        is_found[is_found] = offsets[place[is_found]] == commit_log_offset[is_found]
        result[is_found] = order[place[is_found]]
        return result


def timer_units(store: Location) -> TimerUnits:
    """The units of the timer log of a store; none if it has no timer log.

    A file is read up to its first bytes that are not a unit: zeros, or the filler at its end.
    """
    folder = store / TIMER_LOG
    names = [info.base_name for info in folder.entries() if info.base_name.isdecimal()]
    parts = [_units((folder / name).read_bytes()) for name in names]
    return TimerUnits(
        np.concatenate([np.empty(0, np.int64), *(part.commit_log_offset for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.slot_time for part in parts)]),
        np.concatenate([np.empty(0, np.bool_), *(part.rolls for part in parts)]),
    )


def _units(data: bytes) -> TimerUnits:
    """The units of one file."""
    units = np.frombuffer(data[: len(data) // UNIT_SIZE * UNIT_SIZE], _UNIT)
    is_unit = (units["size"] == UNIT_SIZE) & ((units["magic"] & 1) != 0)
    units = units[: units.size if is_unit.all() else int(np.argmin(is_unit))]
    return TimerUnits(
        units["commit_log_offset"].astype(np.int64),
        units["write_time"].astype(np.int64) + units["delay"].astype(np.int64),
        (units["magic"] & ROLL) != 0,
    )
