"""The plan of a read: the cheapest access path that misses no matching message, also of an earlier topic.

Reading the whole log is always possible. A predicate can limit the read to offsets or to a time range. If the predicate
requests queue offsets, the units of the queue give the offsets of the messages; if it requests keys, the index does; if
it requests topics, the units of all queues do (`topic_plan`). The parts of the log that the queue or the index does not
cover are read too. So a plan saves work, never rows. This module runs while Spark plans, and imports no kernels.

If a topic is deleted, its queues are deleted, and its messages stay in the log. A topic that is created again begins at
queue offset 0 (`DefaultMessageStore.deleteTopics`@5.3.3). So two messages can have the same topic, queue id and queue
offset. A unit leads only to the newer one, and the older one is before the first message of the queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_mq.errors import CorruptLogError, UnsupportedStoreError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.java_text import decode_utf8
from spark_mq.source.key_plan import plan_keys
from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import IntegerSet, Predicate
from spark_mq.source.queue_order import OrderedRead, plan_by_queue
from spark_mq.source.time_window import open_log, time_window
from spark_mq.source.topic_plan import parts_without_units, plan_topics
from spark_mq.store.index.coverage import CheckedIndex
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.log_range import LiveEnd, LogRange, iterate_records
from spark_mq.store.log.scan import FOREVER, splits_of
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.splits import Split, plan_splits, within_offsets, within_time
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import ProvenUnit, QueueRange, UnitsRead
from spark_mq.store.queue.unit_tiles import joined

_FEW_BYTES = 256 << 10
"""Bytes of the log that are read here, record by record: a task with its kernels would take longer."""
_LOG = logging.getLogger(__name__)

_MAX_QUEUE_OFFSETS = 1 << 16
_QUEUE_OFFSETS_OF_A_TASK = 1 << 12
_MAX_OFFSETS = 16
"""More commit log offsets are read as one range, from the first to the last: each single offset costs 16 MiB."""

_NO_END = LiveEnd(-1)
_NO_CONDITION = "nothing limits the read: give a key, a time, offsets, or a queue with its offsets"


def log_of_earlier_topic(options: ReadOptions, store: MessageStore, queue: ConsumeQueue) -> list[LogRange]:
    """The parts of the live log that can have messages of the queue before its own first one, in order.

    They are empty if a unit of the queue leads to a message that has expired: everything older has expired, too. Parts
    for which the units of all queues account are left out.

    Args:
        options: The options of the read, whose times limit the log.
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
            for record in iterate_records(store.records, part)
        )
    except CorruptLogError:
        return True


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
    log = open_log(store)
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
