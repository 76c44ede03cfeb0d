"""Units that contradict the log: each leads to another message than the one at its queue offset.

Where all units are tiles of the log (`tiles`), each unit accounts for the record to which it leads, also if that record
belongs to another queue. Then the message at the unit's queue offset usually has no unit: it is in a part of the log
for which no unit accounts. So the records of these parts show which units are wrong. If no such part is left, the wrong
units lead to one another's messages, and the readers of the units see that.

This module runs while Spark plans, and imports no kernels: it looks at few records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import is_live
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import MAGIC_AT, MAGIC_V1, MAGIC_V2, Record, decode_record
from spark_mq.format.sys_flag import TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.tiles import cut, joined, rest

_BLOCK = 1 << 12
"""Units of one read."""
_MOST_BYTES = 32 << 20
"""Bytes of messages without a unit that are looked at. If there are more, the whole log is scanned."""
_MOST_TILES = 1 << 10
"""Wrong units that are told from others. If there are more, the whole log is scanned."""
_MAGICS = [magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2)]

Queues = Mapping[tuple[str, int], ConsumeQueue]


def with_contradicted(
    records: RecordLookup, log: LogRange, holes: Sequence[LogRange], queues: Queues
) -> list[LogRange]:
    """The parts of a log that must be scanned: those without units, and those to which wrong units lead, in order.

    Args:
        holes: Its parts for which no unit accounts, in order.
        queues: The queues of the store, by topic and queue id.
    """
    found, unseen, seen_bytes = list(holes), list(holes), 0
    while unseen:
        seen_bytes += sum(part.size for part in unseen)
        if seen_bytes > _MOST_BYTES:
            return [log]
        segments = [LogRange(segment.base, segment.base + segment.size) for segment in records.segments]
        parts = [part for segment in segments for part in cut(unseen, segment)]
        tiles = _wrong_tiles(records, parts, queues)
        if len(tiles) > _MOST_TILES:
            return [log]
        unseen = [part for tile in tiles for part in cut(rest(tile, found), log)]
        found = joined([*found, *unseen])
    return found


def _wrong_tiles(records: RecordLookup, parts: Iterable[LogRange], queues: Queues) -> list[LogRange]:
    """The records to which wrong units lead, as the messages of some parts of the log show."""
    places: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for part in parts:
        for record in _dispatched(records, part):
            place = record.queue_offset, record.commit_log_offset
            places[decode_utf8(record.topic), record.queue_id].append(place)
    found: set[tuple[int, int]] = set()
    for name, here in places.items():
        if name in queues:
            found.update(_led_elsewhere(queues[name], *np.array(here, np.int64).T))
    return [LogRange(offset, offset + size) for offset, size in sorted(found) if records.is_at(offset, size)]


def _dispatched(records: RecordLookup, part: LogRange) -> Iterator[Record]:
    """The messages that start in a part of a segment, and that queues contain. Damage is stepped over."""
    data = records.read(part.start, part.size)
    position = 0
    while 0 <= position < len(data):
        try:
            record = decode_record(data, position, part.start + position)
        except CorruptLogError:
            found = (data.find(magic, position + 1 + MAGIC_AT) for magic in _MAGICS)
            position = min((at - MAGIC_AT for at in found if at >= 0), default=-1)
            continue
        if record.sys_flag & TRANSACTION_TYPE_MASK not in (TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE):
            yield record
        position += record.size


def _led_elsewhere(queue: ConsumeQueue, queue_offsets: Int64s, places: Int64s) -> Iterator[tuple[int, int]]:
    """Offset and size of each unit at these queue offsets that leads to another place of the log."""
    is_written = (queue_offsets >= (queue.files[0].first if queue.files else 0)) & (queue_offsets < queue.written_end)
    queue_offsets, places = queue_offsets[is_written], places[is_written]
    blocks = queue_offsets // _BLOCK
    for block in np.unique(blocks).tolist():
        first = block * _BLOCK
        units = queue.units(first, min(first + _BLOCK, queue.written_end))
        chosen = units[queue_offsets[blocks == block] - first]
        is_wrong = is_live(chosen) & (chosen["commit_log_offset"] != places[blocks == block])
        wrong = chosen[is_wrong]
        yield from zip(wrong["commit_log_offset"].tolist(), wrong["store_size"].tolist(), strict=True)
