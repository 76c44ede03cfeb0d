"""Plain models of consume queues: the unit that each message becomes, units of files, and what a boot makes of both.

The boot goes message by message, and says which messages no consumer gets after it. It is written from the Java classes
and shares no rule with the package: records are cut by their sizes. Only ordinary messages are considered. The store is
sound before it is damaged: a message is what the facts of a real broker say.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, Queue
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.format.record import Record
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, delay_level_millis
from spark_mq.testing.corpus import RealStore
from spark_mq.testing.plain_log import Log

Unit = tuple[int, int, int]
"""Commit log offset, store size, tags code."""

_UNIT = struct.Struct(">qiq")


def units_of(folder: Path) -> dict[Queue, dict[int, Unit]]:
    """By queue of the store `folder`: the unit at each queue offset; neither zeros nor pre-blank units."""
    queues: dict[Queue, dict[int, Unit]] = {}
    for place in (folder / "consumequeue").glob("*/*"):
        units = queues.setdefault((place.parent.name, int(place.name)), {})
        for file in sorted(place.iterdir()):
            data = file.read_bytes()
            for number, unit in enumerate(_UNIT.iter_unpack(data[: len(data) // _UNIT.size * _UNIT.size])):
                if 0 < unit[1] < PRE_BLANK_SIZE:
                    units[int(file.name) // _UNIT.size + number] = unit
    return queues


def dispatched(records: Iterable[Record], delay_levels: str = DEFAULT_DELAY_LEVELS) -> dict[Queue, dict[int, Unit]]:
    """By queue: the units that a broker makes of the records (`CommitLogDispatcherBuildConsumeQueue`@5.3.3).

    Args:
        records: The records of a log, in its order. Inner batches make no unit here.
        delay_levels: The broker's `messageDelayLevel`.
    """
    queues: dict[Queue, dict[int, Unit]] = {}
    for record in records:
        if record.is_in_queue and not record.sys_flag & 0x80:
            topic, properties = decode_utf8(record.topic), record.text_properties
            unit = record.commit_log_offset, record.size, tags_code(record, delay_level_millis(delay_levels))
            queues.setdefault((topic, record.queue_id), {})[record.queue_offset] = unit
            names, offsets = (properties.get(f"INNER_MULTI_{name}", "") for name in ("DISPATCH", "QUEUE_OFFSET"))
            for name, offset in light_queues(topic, names, offsets):
                queues.setdefault((name, 0), {})[offset] = unit
    return queues


def tags_code(record: Record, delays: list[int]) -> int:
    """The hash of the tags; of a delayed message, its due time (`CommitLog.checkMessageAndReturnSize`@5.3.3).

    Args:
        record: The record.
        delays: The delays of levels 1, 2, ... in milliseconds.
    """
    properties = record.text_properties
    level = properties.get("DELAY", "0")
    if record.topic == b"SCHEDULE_TOPIC_XXXX" and level.removeprefix("+").isdecimal() and 0 < int(level) < 1 << 31:
        return record.store_timestamp + delays[min(int(level), len(delays)) - 1]
    return hash_code(properties.get("TAGS", ""))


def light_queues(topic: str, names: str, offsets: str) -> list[tuple[str, int]]:
    """The light message queues of a message, and its offset in each (`ConsumeQueue.multiDispatchLmqQueue`@5.3.3).

    A text that is not a number ends the list. A queue that was named before is skipped.

    Args:
        topic: The topic of the message.
        names: Its property INNER_MULTI_DISPATCH.
        offsets: Its property INNER_MULTI_QUEUE_OFFSET.
    """
    if topic.startswith(("%RETRY%", "rmq_sys_")) or topic == "SCHEDULE_TOPIC_XXXX":
        return []
    names_of, offsets_of = _java_split(names), _java_split(offsets)
    if not names or not offsets or len(names_of) != len(offsets_of):
        return []
    pairs = zip(names_of, offsets_of, strict=True)
    found: dict[str, int] = {}
    for name, at in pairs:
        if "/" in name:
            continue
        if not (at.isascii() and at.isdigit()):
            break
        if name.startswith("%LMQ%"):
            found.setdefault(name, int(at))
    return list(found.items())


def _java_split(text: str) -> list[str]:
    """`String.split(",")`: empty pieces at the end are left out."""
    pieces = text.split(",")
    while len(pieces) > 1 and not pieces[-1]:
        pieces.pop()
    return pieces


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
