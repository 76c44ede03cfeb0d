"""The plan of a read: the cheapest access path that misses no matching message, also of an earlier topic.

Reading the whole log is always possible. A predicate can limit the read to offsets or to a time range. If the predicate
requests queue offsets, the units of the queue give the offsets of the messages; if it requests keys, the index does; if
it requests topics, the units of all queues do (`topic_plan`). The parts of the log that the queue or the index does not
cover are read too. So a plan saves work, never rows. This module runs while Spark plans, and imports no kernels.

If a topic is deleted, its queues are deleted, and its messages stay in the log. A topic that is created again begins at
queue offset 0 (`DefaultMessageStore.deleteTopics`@5.3.3). So two messages can have the same topic, queue id and queue
offset. A unit leads only to the newer one, and the older one is before the first message of the queue.

The messages of a queue are in the log in the order of the queue (`CommitLog.asyncPutMessage`@5.3.3 assigns queue offset
and position under one lock). So a task reads the messages of its queue in the order of the log: by units in the parts
for which units account, and by a scan in all others. Messages of transaction types PREPARED and ROLLBACK are in no
queue, but they name one: they are among its rows, at their places in the log.

The index knows a key only together with its topic. Without a topic, each topic that has a queue is looked up. A log can
also have messages whose topic has no queue any more, and messages of transaction type ROLLBACK, which are in no index.
Both are in no queue. So the units of all queues are read, 20 bytes for each message, and the parts of the log for which
they do not account are scanned (`store.queue.unit_cover`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, product

import numpy as np

from spark_mq.errors import CorruptLogError, UnsupportedStoreError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.format.java_text import decode_utf8
from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import IntegerSet, Predicate
from spark_mq.source.read_plan import AccessPath, LookUp, OrderedRead, ReadPlan, splits_within
from spark_mq.source.time_window import open_log, time_window
from spark_mq.source.topic_plan import (
    TopicCover,
    parts_without_units,
    plan_topics,
    queued_parts,
    topic_cover,
    unit_reads,
)
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.log.commit_log import Split, plan_splits, within_offsets, within_time
from spark_mq.store.log.log_range import LogRange, joined
from spark_mq.store.log.scan import FOREVER
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import ProvenUnit, UnitsRead
from spark_mq.store.queue.unit_cover import CLEARLY_LESS, cost_of

_MAX_KEYS = 10_000
_KEYS_OF_A_TASK = 500
_READS_OF_A_LOOK_UP = 2
"""Reads of an index file for a key that it does not have: the slot, and the header of a file that is not full."""
_FEW_BYTES = 256 << 10
"""Bytes of the log that are read here, record by record: a task with its kernels would take longer."""
_LOG = logging.getLogger(__name__)

_MAX_QUEUE_OFFSETS = 1 << 16
_QUEUE_OFFSETS_OF_A_TASK = 1 << 12
_MAX_OFFSETS = 16
"""More commit log offsets are read as one range, from the first to the last: each single offset costs 16 MiB."""

_NO_CONDITION = "nothing limits the read: give a key, a time, offsets, or a queue with its offsets"


def plan_by_queue(options: ReadOptions, store: MessageStore) -> ReadPlan:
    """One partition for each queue that has files, and one for each topic's messages of other queues.

    If the queues would have to scan more than the log together, there is only one partition, which scans the log once.
    """
    cover = topic_cover(options, store, None)
    if isinstance(cover, str):
        whole = plan_splits(open_log(store), options.split_size)
        reads = [OrderedRead(tuple(within_time(whole, *options.predicate.store_timestamp.bounds)))]
        path, note = AccessPath.WHOLE_LOG, f"one partition with all queues: {cover}"
    else:
        path, note = AccessPath.CONSUME_QUEUE, cover.note
        everything, splits = (
            splits_within(options, store, parts) for parts in ([cover.window], cover.log_cover.uncovered)
        )
        if cover.log_cover.scanned * len(cover.queues) > store.live_log.size:
            parts = _parts(cover, range(len(cover.queues)), splits, everything, options.split_size)
            reads, note = [OrderedRead(parts)], f"one partition with all queues: {cover.note}"
        else:
            reads = [
                OrderedRead(
                    _parts(cover, [index], splits, everything, options.split_size),
                    Predicate(topics=frozenset((queue.topic,)), queue_ids=frozenset((queue.queue_id,))),
                )
                for index, queue in enumerate(cover.queues)
            ]
            for topic in sorted(options.predicate.topics or ()) if splits else ():
                known = frozenset(queue.queue_id for queue in cover.queues if queue.topic == topic)
                reads.append(OrderedRead(tuple(splits), Predicate(topics=frozenset((topic,))), known))
    return ReadPlan(path, ordered=tuple(reads), live_end=store.live_end, notes=(note,))


def _parts(
    cover: TopicCover, indexes: Sequence[int], splits: Sequence[Split], everything: Sequence[Split], split_size: int
) -> tuple[UnitsRead | Split, ...]:
    """The units of some queues and the splits, in the order of the log.

    If the units of a queue are not in its order, the whole part of the log is scanned for it.
    """
    units = cover.units.take(np.isin(cover.units.queues, indexes))
    if not all((np.diff(units.queue_offsets[units.queues == index]) > 0).all() for index in indexes):
        return tuple(everything)
    pieces: list[LogRange | Split] = [*cover.log_cover.covered, *splits]
    pieces.sort(key=lambda piece: piece.start if isinstance(piece, LogRange) else piece.segment.base + piece.start)
    parts: list[UnitsRead | Split] = []
    for is_split, group in groupby(pieces, key=lambda piece: isinstance(piece, Split)):
        if is_split:
            parts += [piece for piece in group if isinstance(piece, Split)]
        else:
            ranges = [piece for piece in group if isinstance(piece, LogRange)]
            parts += unit_reads(cover, ranges, units.in_ranges(ranges), split_size)
    return tuple(parts)


def plan_keys(options: ReadOptions, store: MessageStore) -> ReadPlan | str:
    """A plan that looks keys up; or why the index is not used, an empty text if the predicate requests no keys."""
    predicate = options.predicate
    keys = predicate.unique_keys if predicate.keys is None else predicate.keys
    if keys is None:
        return ""
    is_proven = predicate.topics is not None and predicate.is_indexed
    if not is_proven and not predicate.offsets.is_all:
        return _why_not_alone(predicate)
    # Light message queues contain messages of other topics.
    topics = predicate.topics or frozenset(
        topic for topic, _ in store.queue_names if not topic.startswith(LIGHT_PREFIX)
    )
    pairs = sorted(product(topics, keys))
    if len(pairs) > _MAX_KEYS:
        return f"{len(pairs):,} keys are more than {_MAX_KEYS:,}: reading the log costs less"
    window = store.index.window(*predicate.store_timestamp.bounds)
    spans = [part for part in window.parts if isinstance(part, IndexedRange)]
    if not spans and window.log.size:
        nothing = "the store has no index file with entries" + (
            "" if predicate.store_timestamp.is_all else " of that time"
        )
        return "; ".join(store.index.problems) or nothing
    uncovered = [part for part in window.parts if isinstance(part, LogRange)]
    notes = list(store.index.problems)
    if not is_proven:
        price = cost_of(store.location)
        cost = price.of(0, jumps=_READS_OF_A_LOOK_UP * len(pairs) * len(spans))
        parts = queued_parts(options, store, window.log, cost + sum(part.size for part in uncovered), CLEARLY_LESS)
        if isinstance(parts, str):
            return f"{parts}; {_why_not_alone(predicate)}"
        without_units, note = parts
        uncovered = joined([*uncovered, *without_units])
        notes.append(f"{len(topics):,} topics are looked up; {note}")
    look_ups = [LookUp(tuple(pairs[at : at + _KEYS_OF_A_TASK])) for at in range(0, len(pairs), _KEYS_OF_A_TASK)]
    index = store.index.checked(*predicate.store_timestamp.bounds)
    return ReadPlan.of_look_ups(AccessPath.INDEX, options, store, look_ups, uncovered, notes, index)


def _why_not_alone(predicate: Predicate) -> str:
    if predicate.topics is None:
        return "the index finds a key only together with its topic: give the topic"
    return "messages of transaction type ROLLBACK can match, and are in no index"


def log_of_earlier_topic(options: ReadOptions, store: MessageStore, queue: ConsumeQueue) -> list[LogRange]:
    """The parts of the live log that can have messages of the queue before its own first one, in order.

    They are empty if a unit of the queue leads to a message that has expired: everything older has expired, too. Parts
    for which the units of all queues account are left out.
    """
    first = store.queue_cover(queue.topic, queue.queue_id).first_proven()
    if first is None or _is_after_expired(store, queue, first):
        return []
    window = time_window(options.predicate, store, [queue])
    before = LogRange(window.start, min(window.stop, first.record.commit_log_offset))
    if before.size <= 0:
        return []
    parts = [before] if before.size <= _FEW_BYTES else parts_without_units(store, before, queue)
    if sum(part.size for part in parts) > _FEW_BYTES:
        return parts
    return [part for part in parts if _can_have_messages(store, part, queue)]


def _is_after_expired(store: MessageStore, queue: ConsumeQueue, first: ProvenUnit) -> bool:
    """Whether the unit before the first proven one is of a message that has expired."""
    commit_log_offset, store_size, _ = queue.unit(first.queue_offset - 1)
    is_message = store_size > 0 and store_size != PRE_BLANK_SIZE
    return is_message and 0 <= commit_log_offset < store.get_min_phy_offset()


def _can_have_messages(store: MessageStore, part: LogRange, queue: ConsumeQueue) -> bool:
    try:
        return any(
            record.queue_id == queue.queue_id and decode_utf8(record.topic) == queue.topic
            for record in store.records.iterate(part)
        )
    except CorruptLogError:
        return True


def plan_messages(options: ReadOptions, store: MessageStore) -> ReadPlan:
    """The plan for a table of messages. Raises `StoreNotFoundError` if the path is not a store."""
    plan = _plan(options, store)
    forms = tuple(_form_notes(options.predicate, store))
    for note in forms:
        _LOG.warning("%s: %s", store.location, note)
    return replace(plan, notes=(*plan.notes, *forms)) if forms else plan


def _form_notes(predicate: Predicate, store: MessageStore) -> Iterator[str]:
    """Why rows by queue offsets are not what a broker answers: the rows are those of the log."""
    for topic in () if predicate.queue_offset.is_all else sorted(predicate.topics or ()):
        try:
            yield from store.queue_notes(topic)
        except UnsupportedStoreError as error:
            yield str(error)


def _plan(options: ReadOptions, store: MessageStore) -> ReadPlan:
    predicate = options.predicate
    if predicate.is_empty or predicate.offsets.is_empty:
        return ReadPlan(AccessPath.NOTHING)
    if options.split_by_queue:
        return plan_by_queue(options, store)
    reasons: list[str] = []
    if options.check_crc:
        reasons.append("checkCrc is on, and look-ups do not check CRCs")
    for by in () if options.check_crc else (plan_keys, _by_queue, plan_topics):
        plan = by(options, store)
        if isinstance(plan, ReadPlan):
            return plan
        reasons.append(plan)
    log = open_log(store)
    splits = tuple(within_time(plan_splits(log, options.split_size), *predicate.store_timestamp.bounds))
    notes = (*(f"why: {reason}" for reason in filter(None, reasons)), *(stray.describe() for stray in log.stray))
    gaps = (*log.gaps, *log.stray) if predicate.only_constrains_offset else ()
    if not predicate.offsets.is_all:
        return ReadPlan(AccessPath.OFFSETS, tuple(_at_offsets(splits, predicate.offsets)), gaps, notes=notes)
    if not predicate.store_timestamp.is_all:
        return ReadPlan(AccessPath.TIME_RANGE, splits, gaps, notes=notes)
    if not any(reasons):
        notes = ("why: " + _NO_CONDITION, *notes)
    return ReadPlan(AccessPath.WHOLE_LOG, splits, gaps, notes=notes)


def _at_offsets(splits: Sequence[Split], offsets: IntegerSet) -> list[Split]:
    if offsets.values is not None and len(offsets.values) <= _MAX_OFFSETS:
        single = sorted(offset for offset in offsets.values if offset in offsets)
        return [split for offset in single for split in within_offsets(splits, offset, offset + 1)]
    first, last = offsets.bounds
    return within_offsets(splits, 0 if first is None else first, 1 << 63 if last is None else last + 1)


def _by_queue(options: ReadOptions, store: MessageStore) -> ReadPlan | str:
    """A plan by the units of one queue; or why the queue is not used, an empty text if no queue offsets are requested.

    It is not used either if so many units contradict each other that reading the log costs less.
    """
    predicate = options.predicate
    if predicate.queue_offset.is_all:
        return ""
    if predicate.topics is None or predicate.queue_ids is None or len(predicate.topics) * len(predicate.queue_ids) != 1:
        return "queue offsets belong to one queue: give one topic and one queue id"
    if not predicate.is_queued:
        return "messages that are in no queue can match"
    (topic,), (queue_id,) = predicate.topics, predicate.queue_ids
    queue = store.find_queue(topic, queue_id)
    first, last = predicate.queue_offset.bounds
    start = 0 if first is None else first
    if queue is None or start < 0:
        return f"the store has no files of queue {topic}/{queue_id}"
    stop = FOREVER if last is None else last + 1
    if min(stop, queue.written_end) - start > _MAX_QUEUE_OFFSETS:
        return f"more than {_MAX_QUEUE_OFFSETS:,} queue offsets: reading the log costs less"
    plan = store.queue_cover(topic, queue_id).certain.plan(start, stop, _QUEUE_OFFSETS_OF_A_TASK)
    if plan is None:
        return f"too many units of queue {topic}/{queue_id} contradict the log"
    ranges, parts = plan
    look_ups = [LookUp(queue=found) for found in ranges]
    earlier = log_of_earlier_topic(options, store, queue)
    uncovered = joined([*parts, *earlier])
    size = sum(part.size for part in earlier)
    note = f"{size:,} bytes before the queue's first message can have messages of a deleted topic of this name"
    notes = [note] if earlier else []
    return ReadPlan.of_look_ups(AccessPath.CONSUME_QUEUE, options, store, look_ups, uncovered, notes)
