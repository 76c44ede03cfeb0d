"""The plan of a read: the cheapest access path that misses no matching message.

Reading the whole log is always possible. A predicate can limit the read to offsets or to a time range. If the predicate
requests queue offsets, the units of the queue give the offsets of the messages; if it requests keys, the index does.
The parts of the log that the queue or the index does not cover are read too. So a plan saves work, never rows. This
module runs while Spark plans, and imports no kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from spark_mq.source.integer_set import IntegerSet
from spark_mq.source.options import ReadOptions
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import FOREVER, splits_of
from spark_mq.store.log.splits import Split, plan_splits, within_offsets
from spark_mq.store.log.time_pruning import within_time
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueRange

_MAX_KEYS = 10_000
_KEYS_OF_A_TASK = 500
_MAX_QUEUE_OFFSETS = 1 << 16
_QUEUE_OFFSETS_OF_A_TASK = 1 << 12
_MAX_OFFSETS = 16
"""More commit log offsets are read as one range, from the first to the last: each single offset costs 16 MiB."""

_NO_LOG = LogRange(0, 0)


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
    """The look-ups of one task: pairs of topic and key in the index, or queue offsets of one queue."""

    keys: tuple[tuple[str, str], ...] = ()
    queue: QueueRange | None = None


@dataclass(frozen=True)
class ReadPlan:
    """The parts of a read.

    Attributes:
        path: The access path.
        splits: The parts of the log that tasks scan.
        gaps: Missing ranges between segments, and stray files; each is a row.
        look_ups: The look-ups in the index or in a queue.
        uncovered: The ranges of the log that the index or the queue does not cover. The splits give their messages, so
            a look-up leaves them out.
        log: The live log when the read was planned; only look-ups need it.
        notes: Remarks for `explain`.

    """

    path: AccessPath
    splits: tuple[Split, ...] = ()
    gaps: tuple[CorruptRange, ...] = ()
    look_ups: tuple[LookUp, ...] = ()
    uncovered: tuple[LogRange, ...] = ()
    log: LogRange = _NO_LOG
    notes: tuple[str, ...] = ()


def plan_messages(options: ReadOptions, store: MessageStore) -> ReadPlan:
    """The plan for a table of messages. Raises `StoreNotFoundError` if the path is not a store."""
    predicate = options.predicate
    if predicate.is_empty or predicate.offsets.is_empty:
        return ReadPlan(AccessPath.NOTHING)
    if not options.check_crc:  # look-ups do not check CRCs
        plan = _by_index(options, store) or _by_queue(options, store)
        if plan is not None:
            return plan
    log = CommitLog.open(store.location)
    splits = _splits(options, log)
    notes = tuple(stray.describe() for stray in log.stray)
    gaps = (*log.gaps, *log.stray) if predicate.only_constrains_offset else ()
    if not predicate.offsets.is_all:
        return ReadPlan(AccessPath.OFFSETS, tuple(_at_offsets(splits, predicate.offsets)), gaps, notes=notes)
    if not predicate.store_timestamp.is_all:
        return ReadPlan(AccessPath.TIME_RANGE, splits, gaps, notes=notes)
    return ReadPlan(AccessPath.WHOLE_LOG, splits, gaps, notes=notes)


def _splits(options: ReadOptions, log: CommitLog) -> tuple[Split, ...]:
    return tuple(within_time(plan_splits(log, options.split_size), *options.predicate.store_timestamp.bounds))


def _at_offsets(splits: Sequence[Split], offsets: IntegerSet) -> list[Split]:
    if offsets.values is not None and len(offsets.values) <= _MAX_OFFSETS:
        single = sorted(offset for offset in offsets.values if offset in offsets)
        return [split for offset in single for split in within_offsets(splits, offset, offset + 1)]
    first, last = offsets.bounds
    return within_offsets(splits, 0 if first is None else first, 1 << 63 if last is None else last + 1)


def _by_index(options: ReadOptions, store: MessageStore) -> ReadPlan | None:
    """A plan that looks keys up; None if the predicate requests no keys, or no index file can be used."""
    predicate = options.predicate
    keys = predicate.unique_keys if predicate.keys is None else predicate.keys
    if predicate.topics is None or keys is None or not predicate.is_indexed:
        return None
    pairs = sorted(product(predicate.topics, keys))
    if len(pairs) > _MAX_KEYS or not any(isinstance(part, IndexedRange) for part in store.index.parts):
        return None
    look_ups = [LookUp(tuple(pairs[at : at + _KEYS_OF_A_TASK])) for at in range(0, len(pairs), _KEYS_OF_A_TASK)]
    uncovered = [part for part in store.index.parts if isinstance(part, LogRange)]
    return _with_uncovered(AccessPath.INDEX, options, store, look_ups, uncovered)


def _by_queue(options: ReadOptions, store: MessageStore) -> ReadPlan | None:
    """A plan by the units of one queue; None if the predicate requests no queue offsets of one queue that has units.

    None also if so many units contradict each other that reading the log costs less.
    """
    predicate = options.predicate
    if predicate.topics is None or predicate.queue_ids is None or len(predicate.topics) * len(predicate.queue_ids) != 1:
        return None
    if predicate.queue_offset.is_all or not predicate.is_queued:
        return None
    (topic,), (queue_id,) = predicate.topics, predicate.queue_ids
    queue = store.find_queue(topic, queue_id)
    first, last = predicate.queue_offset.bounds
    start = 0 if first is None else first
    if queue is None or start < 0:
        return None
    stop = FOREVER if last is None else last + 1
    if min(stop, queue.written_end) - start > _MAX_QUEUE_OFFSETS:
        return None
    plan = store.queue_cover(topic, queue_id).plan(start, stop, _QUEUE_OFFSETS_OF_A_TASK)
    if plan is None:
        return None
    look_ups = [LookUp(queue=found) for found in plan.found]
    return _with_uncovered(AccessPath.CONSUME_QUEUE, options, store, look_ups, plan.uncovered)


def _with_uncovered(
    path: AccessPath,
    options: ReadOptions,
    store: MessageStore,
    look_ups: Sequence[LookUp],
    uncovered: Sequence[LogRange],
) -> ReadPlan:
    """The plan of look-ups, with splits for the ranges that the index or the queue does not cover."""
    splits = [split for part in uncovered for split in splits_of(store.location, part, options.split_size)]
    splits = within_time(splits, *options.predicate.store_timestamp.bounds)
    notes = tuple(store.index.problems) if path == AccessPath.INDEX else ()
    return ReadPlan(path, tuple(splits), (), tuple(look_ups), tuple(uncovered), _live_log(store), notes)


def _live_log(store: MessageStore) -> LogRange:
    return LogRange(store.get_min_phy_offset(), store.get_max_phy_offset())
