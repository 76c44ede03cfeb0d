"""A plain model of a boot, message by message: which messages no consumer gets after it.

It is written from the Java classes and shares nothing with the package: records are cut by their sizes, units and
checkpoints are unpacked here. Only ordinary messages are considered: the stores of the tests that use it are sound
before they are damaged, so a message is what the facts of a real broker say it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_mq.format.consume_queue import Queue
from tests.support.stores import RealStore

_UNIT = struct.Struct(">qiq")
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


class Log:
    """The bytes of the segments."""

    def __init__(self, folder: Path) -> None:
        files = sorted((folder / "commitlog").iterdir())
        self.segments = {int(file.name): file.read_bytes() for file in files}
        self.size = max(map(len, self.segments.values()), default=0)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes at a commit log offset; none if no segment has them."""
        base = offset - offset % self.size
        return self.segments.get(base, b"")[offset - base : offset - base + size]


def units_of(folder: Path) -> dict[Queue, dict[int, int]]:
    """By queue: the commit log offset of the unit at each queue offset, up to the first one that was not written."""
    queues: dict[Queue, dict[int, int]] = {}
    for place in (folder / "consumequeue").glob("*/*"):
        units = queues.setdefault((place.parent.name, int(place.name)), {})
        for file in sorted(place.iterdir()):
            for number, (offset, size, _) in enumerate(_UNIT.iter_unpack(file.read_bytes())):
                if size > 0:
                    units[int(file.name) // _UNIT.size + number] = offset
    return queues


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
    log, queues = Log(folder), units_of(folder)
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
