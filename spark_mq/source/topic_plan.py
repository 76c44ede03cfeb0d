"""The plan of a read by topic: the units of all queues say where the topic's messages are, and what must be scanned.

Before anything of the log is read, the units of the topic say how many messages and bytes are requested. If reading
them costs clearly less than reading the log, the units of all queues are read. They show in which parts of the log the
topic's units are complete (`store.queue.unit_cover`). Tasks read the records there, and scan the other parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.java_text import hash_code
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.source.options import Mode, ReadOptions
from spark_mq.source.predicate import Predicate
from spark_mq.source.read_plan import AccessPath, LookUp, ReadPlan
from spark_mq.source.time_window import QueueComparison, queues_of, time_window, units_into, with_covers
from spark_mq.store.log.log_range import LogRange, cut
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue, can_have_tags
from spark_mq.store.queue.lookup import QueueRange, UnitsRead
from spark_mq.store.queue.unit_cover import (
    CLEARLY_LESS,
    FoundUnits,
    LogCover,
    ReadCost,
    coalesced,
    cost_of,
    units_within,
)
from spark_mq.store.queue.unit_runs import live_extents

_TOO_MANY = "the topic has so many messages that reading the log costs less"
_FAILS = "mode FAILFAST fails on damage anywhere in the log, which units do not show"
_NO_QUEUES = "the store has no files of queues"
_CLOCKS = 8
"""Queues whose units are searched for the ends of a time range, if all queues are requested."""
_MOST_OWN_UNITS, _SAMPLE = 1 << 22, 1 << 12
"""Units of the topic that are read before the decision, and those of each queue that are read of more units."""
_BYTES_PER_OWN_UNIT = 16 << 10
"""Of a database, at most one unit is read before the decision for so many bytes of the log. A unit takes half a
microsecond there, as long as 1 KiB of a scan: a wrong decision costs more than a sixteenth of a scan."""
_PART_COST = 256 << 20
"""What one of many tasks costs at most, in bytes that are read in order: some 100 milliseconds. Spark adds 30 to it."""
_LEAST_COST = 64 << 20
"""What is worth two tasks, in the same unit."""
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class TopicCover:
    """Where the messages of the requested topics are; with tags requested, the units have one of `tags_codes`.

    In the ranges `log_cover.covered`, the units lead to all messages of these queues.
    """

    queues: tuple[ConsumeQueue, ...]
    window: LogRange
    log_cover: LogCover
    units: FoundUnits
    tags_codes: frozenset[int] | None
    price: ReadCost
    note: str


def plan_topics(options: ReadOptions, store: MessageStore, within: LogRange | None = None) -> ReadPlan | str:
    """A plan by the queues of the requested topics; or why they are not used, an empty text if no topic is requested.

    Times do not limit a part `within` the live log further. Then each read is of one piece, with all of its messages.
    """
    if options.predicate.topics is None or not options.predicate.offsets.is_all:
        return ""
    cover = topic_cover(options, store, CLEARLY_LESS, within)
    if isinstance(cover, str):
        return cover
    covered = cover.log_cover.covered
    groups = [covered] if within is None else [[piece] for piece in covered]
    look_ups = [
        LookUp(units=read)
        for pieces in groups
        for read in unit_reads(cover, pieces, cover.units.in_ranges(pieces), options.split_size)
    ]
    return ReadPlan.of_look_ups(
        AccessPath.CONSUME_QUEUE, options, store, look_ups, cover.log_cover.uncovered, [cover.note]
    )


def topic_cover(
    options: ReadOptions, store: MessageStore, most: float | None, within: LogRange | None = None
) -> TopicCover | str:
    """Where the messages of the requested topics are; or why units do not show it.

    The read by units may cost at most `most` of what a scan costs; None for any cost.
    """
    predicate = options.predicate
    if options.mode == Mode.FAILFAST:
        return _FAILS
    if any("\ufffd" in topic for topic in predicate.topics or ()):
        return "a topic with U+FFFD can be text that is not UTF-8"
    everything = queues_of(store)
    if not everything:
        return _NO_QUEUES
    requested = queues_of(store, predicate)
    price, tags_codes = cost_of(store.location), _tags_codes(predicate)
    files = within or LogRange(store.records.min_offset, store.records.max_offset)
    is_all = within is not None or predicate.store_timestamp.is_all
    own_cost = None
    if most is not None and is_all and store.queue_database is None:  # which knows the ends of its queues
        own_cost = _own_cost(requested, files, price, tags_codes)
        if own_cost > most * files.size:
            return _TOO_MANY  # before the ends of all queues are looked for
    log, live = within or time_window(predicate, store, requested), store.live_log
    comparison = QueueComparison.of(store, everything, log)
    of_all = comparison.cost()
    if isinstance(of_all, str):
        return of_all
    if most is not None:
        if of_all > most * log.size:
            return "reading the units of all queues costs as much as reading the log"
        if own_cost is None:
            most_units = _MOST_OWN_UNITS if store.queue_database is None else log.size // _BYTES_PER_OWN_UNIT
            own_cost = _own_cost(requested, log, price, tags_codes, most_units)
        if of_all + own_cost > most * log.size:
            return _TOO_MANY
    cover = comparison.result()
    units = units_within(with_covers(store, requested), log, cover.covered)
    if tags_codes is not None:
        units = units.take(can_have_tags(units.tags_codes, tags_codes))
    if most is not None and cover.scanned + units.log_bytes > most * log.size:
        return f"units do not account for {cover.scanned:,} bytes of the log: reading the log costs less"
    note = (
        f"{len(requested):,} queues, {units.count:,} units, {units.log_bytes:,} bytes of a log of "
        f"{live.size:,}; {comparison.note(cover)}"
    )
    return TopicCover(tuple(requested), log, cover, units, tags_codes, price, note)


def queued_parts(
    options: ReadOptions, store: MessageStore, within: LogRange, other_cost: int, most: float
) -> tuple[tuple[LogRange, ...], str] | str:
    """The ranges of a part of the log with messages in no queue, and the work in words; or why units do not show it.

    It costs `other_cost` bytes, read in order, to find the other messages; all may cost `most` of what a scan costs.
    """
    if options.mode == Mode.FAILFAST:
        return _FAILS
    everything = queues_of(store)
    if not everything:
        return _NO_QUEUES
    longest = sorted(everything, key=lambda queue: queue.files[0].first - queue.written_end)[:_CLOCKS]
    timed = time_window(options.predicate, store, longest)
    log = LogRange(max(timed.start, within.start), max(timed.start, within.start, min(timed.stop, within.stop)))
    comparison = QueueComparison.of(store, everything, log)
    of_all = comparison.cost()
    if isinstance(of_all, str):
        return of_all
    if of_all + other_cost > most * log.size:
        return "looking it up for every topic, and reading the units of all queues, costs as much as reading the log"
    cover = comparison.result()
    if of_all + other_cost + cover.scanned > most * log.size:
        return f"units do not account for {cover.scanned:,} bytes of the log: reading the log costs less"
    return cover.uncovered, comparison.note(cover)


def parts_without_units(store: MessageStore, log: LogRange, queue: ConsumeQueue) -> list[LogRange]:
    """The parts of a range of the log for which the units of other queues than `queue` do not account, in order.

    It is the range itself if reading the units of all queues costs as much, or if a unit of `queue` leads into it.
    """
    everything = queues_of(store)
    comparison = QueueComparison.of(store, everything, log)
    cost = comparison.cost()
    if isinstance(cost, str) or cost > CLEARLY_LESS * log.size:
        return [log]
    cover = comparison.result()
    units = units_within(with_covers(store, [queue]), log, cover.covered)
    return [log] if units.count else list(cover.uncovered)


def _own_cost(
    requested: Sequence[ConsumeQueue],
    log: LogRange,
    price: ReadCost,
    tags_codes: frozenset[int] | None,
    most: int = _MOST_OWN_UNITS,
) -> int:
    """What it costs to read the topic's messages in a part of the log, by its own units alone.

    If these are more than `most`, some of them are read, and the cost is an estimate for messages at regular distances.
    """
    bounds = units_into(requested, log)
    count = sum(map(len, bounds))
    is_estimate, sample = count > most, min(_SAMPLE, most // max(len(requested), 1))
    extents = []
    for queue, own in zip(requested, bounds, strict=True):
        block = queue.units(own.start, min(own.stop, own.start + sample) if is_estimate else own.stop)
        if tags_codes is not None and not is_estimate:
            block = block[can_have_tags(block["tags_code"], tags_codes)]
        extents.append(live_extents(block, log))
    offsets, sizes = (
        np.concatenate([_NOTHING, *arrays]) for arrays in zip((_NOTHING, _NOTHING), *extents, strict=True)
    )
    if is_estimate:
        size = int(sizes.sum()) // max(sizes.size, 1)
        is_dense = log.size < count * (size + price.jump)
        return log.size if is_dense else price.of(count * size, jumps=count, unit_bytes=count * UNIT_SIZE)
    order = np.argsort(offsets, kind="stable")
    starts, stops = coalesced(offsets[order], sizes[order], price.gap)
    return price.of(int((stops - starts).sum()), jumps=starts.size, unit_bytes=offsets.size * UNIT_SIZE)


def _tags_codes(predicate: Predicate) -> frozenset[int] | None:
    """The tags codes that units of matching messages can have; None for any. Delayed messages have delivery times."""
    if predicate.tags is None or SCHEDULE_TOPIC in (predicate.topics or ()):
        return None
    return frozenset(map(hash_code, predicate.tags))


def unit_reads(cover: TopicCover, covered: Sequence[LogRange], units: FoundUnits, split_size: int) -> list[UnitsRead]:
    """The reads of units, which lead into these ranges, in the order of the log; each costs about the same."""
    if not units.count:
        return []
    starts = np.array([piece.start for piece in covered], np.int64)
    is_jump = np.diff(units.offsets, prepend=-1 - cover.price.gap) - np.append(0, units.sizes[:-1]) > cover.price.gap
    cost = np.cumsum(units.sizes + is_jump * cover.price.jump)
    count = max(-(-int(cost[-1]) // min(split_size, _PART_COST)), 2 if cost[-1] > _LEAST_COST else 1)
    part_of = (cost - 1) * count // int(cost[-1])
    bounds = [0, *(np.flatnonzero(np.diff(part_of)) + 1).tolist(), units.count]
    reads = []
    for start, stop in pairwise(bounds):
        part = units.take(slice(start, stop))
        last = int(units.offsets[stop]) if stop < units.count else covered[-1].stop
        within = LogRange(int(part.offsets[0]), last)
        ranges = []
        for index in np.unique(part.queues).tolist():
            queue_offsets = part.queue_offsets[part.queues == index]
            queue = cover.queues[index]
            first, stop_offset = int(queue_offsets.min()), int(queue_offsets.max()) + 1
            ranges.append(QueueRange(queue.topic, queue.queue_id, first, stop_offset))
        indexes = np.unique(np.searchsorted(starts, part.offsets, side="right") - 1).tolist()
        pieces = cut([covered[index] for index in indexes], within)
        reads.append(UnitsRead(tuple(pieces), tuple(ranges), part.count, cover.tags_codes))
    return reads
