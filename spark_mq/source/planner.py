"""The plan of a read: the cheapest access path that misses no matching message.

Reading the whole log is always possible. A predicate can limit the read to offsets or to a time range. If the predicate
requests queue offsets, the units of the queue give the offsets of the messages; if it requests keys, the index does; if
it requests topics, the units of all queues do (`topic_plan`). The parts of the log that the queue or the index does not
cover are read too. So a plan saves work, never rows. This module runs while Spark plans, and imports no kernels.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_mq.errors import UnsupportedStoreError
from spark_mq.source.earlier_topic import log_of_earlier_topic
from spark_mq.source.integer_set import IntegerSet
from spark_mq.source.key_plan import plan_keys
from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import Predicate
from spark_mq.source.queue_order import OrderedRead, plan_by_queue
from spark_mq.source.topic_plan import plan_topics
from spark_mq.store.index.checked_index import CheckedIndex
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.scan import FOREVER, splits_of
from spark_mq.store.log.splits import Split, plan_splits, within_offsets
from spark_mq.store.log.time_pruning import within_time
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueRange
from spark_mq.store.queue.tiles import joined
from spark_mq.store.queue.units_read import UnitsRead

_LOG = logging.getLogger(__name__)

_MAX_QUEUE_OFFSETS = 1 << 16
_QUEUE_OFFSETS_OF_A_TASK = 1 << 12
_MAX_OFFSETS = 16
"""More commit log offsets are read as one range, from the first to the last: each single offset costs 16 MiB."""

_NO_END = LiveEnd(-1)
_NO_CONDITION = "nothing limits the read: give a key, a time, offsets, or a queue with its offsets"


class AccessPath(StrEnum):
    """The ways to read messages."""

    NOTHING = "nothing"
    """No message can match the predicate."""
    WHOLE_LOG = "whole log"
    TIME_RANGE = "time range"
    OFFSETS = "list of offsets"
    CONSUME_QUEUE = "consume queue"
    INDEX = "index"


@dataclass(frozen=True)
class LookUp:
    """The look-ups of one task: pairs of topic and key in the index, queue offsets of one queue, or units of queues."""

    keys: tuple[tuple[str, str], ...] = ()
    queue: QueueRange | None = None
    units: UnitsRead | None = None


@dataclass(frozen=True)
class ReadPlan:
    """The parts of a read.

    Attributes:
        splits: The parts of the log that tasks scan.
        gaps: Missing ranges between segments, and stray files; each is a row.
        uncovered: The ranges of the log that the index or the queue does not cover. The splits give their messages, so
            a look-up leaves them out.
        ordered: The partitions of a read with `splitBy=queue`; then there are no splits and look-ups.
        live_end: Where the log ended when the read was planned; only look-ups need it.
        index: The index files of the look-ups, which were checked.
        notes: Remarks for `explain`.
    """

    path: AccessPath
    splits: tuple[Split, ...] = ()
    gaps: tuple[CorruptRange, ...] = ()
    look_ups: tuple[LookUp, ...] = ()
    uncovered: tuple[LogRange, ...] = ()
    ordered: tuple[OrderedRead, ...] = ()
    live_end: LiveEnd = _NO_END
    index: CheckedIndex | None = None
    notes: tuple[str, ...] = ()


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
        ordered = plan_by_queue(options, store)
        path = AccessPath.CONSUME_QUEUE if ordered.is_by_units else AccessPath.WHOLE_LOG
        return ReadPlan(path, ordered=ordered.reads, live_end=store.live_end, notes=(ordered.note,))
    reasons: list[str] = []
    if options.check_crc:
        reasons.append("checkCrc is on, and look-ups do not check CRCs")
    for by in () if options.check_crc else (_by_index, _by_queue, _by_topic):
        plan = by(options, store)
        if isinstance(plan, ReadPlan):
            return plan
        reasons.append(plan)
    log = CommitLog.open(store.location)
    splits = _splits(options, log)
    notes = (*(f"why: {reason}" for reason in filter(None, reasons)), *(stray.describe() for stray in log.stray))
    gaps = (*log.gaps, *log.stray) if predicate.only_constrains_offset else ()
    if not predicate.offsets.is_all:
        return ReadPlan(AccessPath.OFFSETS, tuple(_at_offsets(splits, predicate.offsets)), gaps, notes=notes)
    if not predicate.store_timestamp.is_all:
        return ReadPlan(AccessPath.TIME_RANGE, splits, gaps, notes=notes)
    if not any(reasons):
        notes = ("why: " + _NO_CONDITION, *notes)
    return ReadPlan(AccessPath.WHOLE_LOG, splits, gaps, notes=notes)


def _splits(options: ReadOptions, log: CommitLog) -> tuple[Split, ...]:
    return tuple(within_time(plan_splits(log, options.split_size), *options.predicate.store_timestamp.bounds))


def _at_offsets(splits: Sequence[Split], offsets: IntegerSet) -> list[Split]:
    if offsets.values is not None and len(offsets.values) <= _MAX_OFFSETS:
        single = sorted(offset for offset in offsets.values if offset in offsets)
        return [split for offset in single for split in within_offsets(splits, offset, offset + 1)]
    first, last = offsets.bounds
    return within_offsets(splits, 0 if first is None else first, 1 << 63 if last is None else last + 1)


def _by_index(options: ReadOptions, store: MessageStore) -> ReadPlan | str:
    """A plan that looks keys up; or why the index is not used, an empty text if the predicate requests no keys."""
    plan = plan_keys(options, store)
    if isinstance(plan, str):
        return plan
    look_ups = [LookUp(keys) for keys in plan.keys]
    read = _with_uncovered(AccessPath.INDEX, options, store, look_ups, plan.uncovered, plan.notes)
    return replace(read, index=plan.index)


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
    look_ups = [LookUp(queue=found) for found in plan.found]
    earlier = log_of_earlier_topic(options, store, queue)
    uncovered = joined([*plan.uncovered, *earlier])
    size = sum(part.size for part in earlier)
    note = f"{size:,} bytes before the queue's first message can have messages of a deleted topic of this name"
    return _with_uncovered(AccessPath.CONSUME_QUEUE, options, store, look_ups, uncovered, (note,) if earlier else ())


def _by_topic(options: ReadOptions, store: MessageStore) -> ReadPlan | str:
    """A plan by the units of all queues; or why they are not used, an empty text if no topic is requested."""
    plan = plan_topics(options, store)
    if isinstance(plan, str):
        return plan
    look_ups = [LookUp(units=read) for read in plan.reads]
    return _with_uncovered(AccessPath.CONSUME_QUEUE, options, store, look_ups, plan.uncovered, (plan.note,))


def _with_uncovered(
    path: AccessPath,
    options: ReadOptions,
    store: MessageStore,
    look_ups: Sequence[LookUp],
    uncovered: Sequence[LogRange],
    notes: tuple[str, ...] = (),
) -> ReadPlan:
    """The plan of look-ups, with splits for the ranges that the index or the queue does not cover."""
    splits = [split for part in uncovered for split in splits_of(store.location, part, options.split_size)]
    splits = within_time(splits, *options.predicate.store_timestamp.bounds)
    return ReadPlan(path, tuple(splits), (), tuple(look_ups), tuple(uncovered), live_end=store.live_end, notes=notes)
