"""A plain model of consume queues: which unit each message becomes, and the units that queue files have."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

from spark_mq.format.consume_queue import PRE_BLANK_SIZE, Queue
from spark_mq.format.java_text import decode_utf8, hash_code
from spark_mq.format.record import Record
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS, delay_level_millis

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
