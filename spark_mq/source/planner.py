"""How the wanted messages are read: by the cheapest way that misses none.

The whole log can always be read. A predicate can narrow it to a range of offsets or of times; it can name places in
queues, whose units lead to the messages; or it can name keys, which the index knows. What queue or index do not cover
is read from the log beside them. So a plan saves work, never rows. This module runs while Spark plans: no kernels.
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
_MAX_PLACES = 16
"""More commit log offsets than this are one range, from the first to the last: each costs a look at 16 MiB."""

_NO_LOG = LogRange(0, 0)


class AccessPath(StrEnum):
    """The ways to read."""

    NOTHING = "nothing"
    """No message can have all that is asked for."""
    WHOLE_LOG = "whole log"
    TIME_RANGE = "time range"
    OFFSETS = "list of offsets"
    CONSUME_QUEUE = "consume queue"
    INDEX = "index"


@dataclass(frozen=True)
class LookUp:
    """What a task looks up: topics and keys in the index, or places in a queue."""

    keys: tuple[tuple[str, str], ...] = ()
    queue: QueueRange | None = None


@dataclass(frozen=True)
class ReadPlan:
    """What is read. `log` is the live log as it was then; only look-ups need it.

    `look_ups` go to index or queues; `splits` are read by tasks as in a scan; `gaps` are parts that no segment holds,
    and stray files, each a row. `uncovered` is what index or queue do not cover: its messages are given by splits, and
    not by a look-up that finds them, too.
    """

    path: AccessPath
    splits: tuple[Split, ...] = ()
    gaps: tuple[CorruptRange, ...] = ()
    look_ups: tuple[LookUp, ...] = ()
    uncovered: tuple[LogRange, ...] = ()
    log: LogRange = _NO_LOG
    notes: tuple[str, ...] = ()


def plan_messages(options: ReadOptions, store: MessageStore) -> ReadPlan:
    """The plan for tables of messages. Raises `StoreNotFoundError` where the path is no store."""
    predicate = options.predicate
    if predicate.is_empty or predicate.places.is_empty:
        return ReadPlan(AccessPath.NOTHING)
    if not options.check_crc:  # what index and queues lead to is read without a look at checksums
        plan = _by_index(options, store) or _by_queue(options, store)
        if plan is not None:
            return plan
    log = CommitLog.open(store.location)
    splits = _splits(options, log)
    notes = tuple(stray.describe() for stray in log.stray)
    gaps = (*log.gaps, *log.stray) if predicate.only_constrains_offset else ()
    if not predicate.places.is_all:
        return ReadPlan(AccessPath.OFFSETS, tuple(_at_places(splits, predicate.places)), gaps, notes=notes)
    if not predicate.store_timestamp.is_all:
        return ReadPlan(AccessPath.TIME_RANGE, splits, gaps, notes=notes)
    return ReadPlan(AccessPath.WHOLE_LOG, splits, gaps, notes=notes)


def _splits(options: ReadOptions, log: CommitLog) -> tuple[Split, ...]:
    return tuple(within_time(plan_splits(log, options.split_size), *options.predicate.store_timestamp.bounds))


def _at_places(splits: Sequence[Split], places: IntegerSet) -> list[Split]:
    if places.among is not None and len(places.among) <= _MAX_PLACES:
        wanted = sorted(place for place in places.among if place in places)
        return [split for place in wanted for split in within_offsets(splits, place, place + 1)]
    first, last = places.bounds
    return within_offsets(splits, 0 if first is None else first, 1 << 63 if last is None else last + 1)


def _by_index(options: ReadOptions, store: MessageStore) -> ReadPlan | None:
    """A plan that looks keys up; None where the predicate names none, or no index file covers any of the log."""
    predicate = options.predicate
    keys = predicate.unique_keys if predicate.keys is None else predicate.keys
    if predicate.topics is None or keys is None or not predicate.is_indexed:
        return None
    wanted = sorted(product(predicate.topics, keys))
    if len(wanted) > _MAX_KEYS or not any(isinstance(part, IndexedRange) for part in store.index.parts):
        return None
    look_ups = [LookUp(tuple(wanted[at : at + _KEYS_OF_A_TASK])) for at in range(0, len(wanted), _KEYS_OF_A_TASK)]
    uncovered = [part for part in store.index.parts if isinstance(part, LogRange)]
    return _with_uncovered(AccessPath.INDEX, options, store, look_ups, uncovered)


def _by_queue(options: ReadOptions, store: MessageStore) -> ReadPlan | None:
    """A plan by the units of one queue; None where the predicate names no place in a queue that has units.

    None also where so many units do not fit one another that the log is better read.
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
    """The plan, with splits for what index or queues do not cover."""
    splits = [split for part in uncovered for split in splits_of(store.location, part, options.split_size)]
    splits = within_time(splits, *options.predicate.store_timestamp.bounds)
    notes = tuple(store.index.problems) if path == AccessPath.INDEX else ()
    return ReadPlan(path, tuple(splits), (), tuple(look_ups), tuple(uncovered), _live_log(store), notes)


def _live_log(store: MessageStore) -> LogRange:
    return LogRange(store.get_min_phy_offset(), store.get_max_phy_offset())
