"""A plain model of a boot, message by message: which messages no consumer gets after it.

It is written from the Java classes and shares no rule with the package: records are cut by their sizes. Only ordinary
messages are considered. The store is sound before it is damaged: a message is what the facts of a real broker say.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_mq.format.consume_queue import Queue
from spark_mq.testing.corpus import RealStore
from spark_mq.testing.plain_log import Log
from spark_mq.testing.plain_queue import units_of

_V1, _V2 = -626843481, -626843477


@dataclass(frozen=True)
class OracleMessage:
    """A message as a broker wrote it."""

    offset: int
    size: int
    queue: Queue
    queue_offset: int
    magic: int
    data: bytes


def messages_of(store: RealStore, folder: Path) -> list[OracleMessage]:
    """The messages that get a unit, with their bytes in a store that is not damaged yet."""
    log = Log(folder)
    found = []
    for fact in store.facts("msg"):
        if fact["sysFlag"] & 0xC in (0, 8) and not fact["sysFlag"] & 0x80:
            queue = fact["topic"], fact["queueId"]
            data = log.read(fact["offset"], fact["size"])
            found.append(OracleMessage(fact["offset"], fact["size"], queue, fact["queueOffset"], fact["magic"], data))
    return sorted(found, key=lambda message: message.offset)


def offsets_of(folder: Path) -> dict[Queue, dict[int, int]]:
    """By queue: the commit log offset of the unit at each queue offset."""
    return {queue: {at: unit[0] for at, unit in units.items()} for queue, units in units_of(folder).items()}


def never_consumed(
    messages: list[OracleMessage], folder: Path, version: tuple[int, int, int], checkpoint: Mapping[str, Any]
) -> set[int]:
    """The commit log offsets of the messages that are not in the log, or have no unit at their queue offset, after it.

    Args:
        messages: The messages before the damage.
        folder: The damaged store. Its queue files are cut at their ends or removed, its log has zeros at its end.
        version: The version of the broker.
        checkpoint: The times `physic` and `logics`, milliseconds, and the offset `logics_offset`.

    """
    log, queues = Log(folder), offsets_of(folder)
    is_clean = not (folder / "abort").exists()
    bases = sorted(log.segments)
    sizes = {message.offset: message.size for message in messages}
    ends = [max(units.values()) for units in queues.values() if units]
    queue_end = max((offset + sizes.get(offset, 0) for offset in ends), default=-1)
    start = _start(log, bases, is_clean, version, queue_end, checkpoint)
    accepted = (_V1, _V2) if version >= (5, 1, 0) else (_V1,)
    log_end = next(
        (
            message.offset
            for message in messages
            if message.offset >= start
            and (log.read(message.offset, message.size) != message.data or message.magic not in accepted)
        ),
        1 << 62,
    )
    units = {
        queue: {at: offset for at, offset in places.items() if offset < log_end} for queue, places in queues.items()
    }
    live_end = max((max(places.values()) for places in units.values() if places), default=-1)
    live_end += sizes.get(live_end, 0)
    if queue_end >= log_end and not all(units.values()):
        live_end = log_end  # `truncateDirtyLogicFiles` sets maxPhysicOffset to the end of the log, also for no unit
    lost = set()
    for message in messages:
        if message.offset >= log_end or log.read(message.offset, message.size) != message.data:
            lost.add(message.offset)
            continue
        places = units.setdefault(message.queue, {})
        if places.get(message.queue_offset) == message.offset:
            continue
        if is_clean and version >= (5, 3, 2):
            is_dispatched = message.offset > queue_end and message.offset >= start
        elif is_clean:
            is_dispatched = version < (5, 0, 0) and message.offset >= max(live_end, 0)
        else:
            is_dispatched = message.offset >= start
        end = max(places, default=message.queue_offset - 1) + 1
        if is_dispatched and message.queue_offset >= end:
            places[end] = message.offset  # at the end of the queue, which can be another place
            if end == message.queue_offset:
                continue
        lost.add(message.offset)
    return lost


def _start(
    log: Log,
    bases: list[int],
    is_clean: bool,
    version: tuple[int, int, int],
    queue_end: int,
    checkpoint: Mapping[str, Any],
) -> int:
    """The first offset of the segment with which the check begins."""
    if is_clean and version < (5, 3, 2):
        return bases[max(len(bases) - 3, 0)]
    if is_clean and version < (5, 4, 0):
        return max([base for base in bases if base <= queue_end], default=bases[0])
    for number, base in enumerate(reversed(bases), start=1):
        head = log.segments[base][:100]
        (magic,) = struct.unpack_from(">i", head, 4)
        (flags,) = struct.unpack_from(">i", head, 36)
        (time,) = struct.unpack_from(">q", head, 68 if flags & 0x10 else 56)
        (own,) = struct.unpack_from(">q", head, 28)
        if version >= (5, 4, 0) and number == 10:
            return base
        if magic not in ((_V1, _V2) if version >= (5, 1, 0) else (_V1,)) or time == 0:
            continue
        if is_clean:
            matches = own <= queue_end
        elif version >= (5, 5, 0) and checkpoint["logics_offset"] > 0:
            matches = own <= checkpoint["logics_offset"]
        elif version >= (5, 5, 0):
            matches = time <= checkpoint["logics"]
        else:
            matches = time <= max(min(checkpoint["physic"], checkpoint["logics"]) - 3000, 0)
        if matches:
            return base
    return bases[0]
