"""The plan of a read: the parts that tasks scan, and the look-ups that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import Predicate
from spark_mq.store.index.coverage import CheckedIndex
from spark_mq.store.log.commit_log import Split, within_time
from spark_mq.store.log.log_range import LiveEnd, LogRange
from spark_mq.store.log.scan import splits_of
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import QueueRange, UnitsRead

_NO_END = LiveEnd(-1)


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
class OrderedRead:
    """The messages of one partition of a read with `splitBy=queue`, without those of other queue ids."""

    parts: tuple[UnitsRead | Split, ...]
    predicate: Predicate = field(default_factory=Predicate)
    other_queue_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ReadPlan:
    """The parts of a read; each of `gaps`, which are missing ranges and stray files, is a row.

    The index or the queue does not cover `uncovered`: the splits give their messages, so a look-up leaves them out.
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

    @property
    def scanned(self) -> int:
        """The number of bytes of the log that splits have."""
        return sum(split.stop - split.start for split in self.splits)

    @classmethod
    def of_look_ups(
        cls,
        path: AccessPath,
        options: ReadOptions,
        store: MessageStore,
        look_ups: Sequence[LookUp],
        uncovered: Sequence[LogRange],
        notes: Sequence[str] = (),
        index: CheckedIndex | None = None,
    ) -> Self:
        """The plan of look-ups, with splits for the ranges that the index or the queue does not cover."""
        return cls(
            path,
            tuple(splits_within(options, store, uncovered)),
            look_ups=tuple(look_ups),
            uncovered=tuple(uncovered),
            live_end=store.live_end,
            index=index,
            notes=tuple(notes),
        )


def splits_within(options: ReadOptions, store: MessageStore, parts: Sequence[LogRange]) -> list[Split]:
    """The splits of some parts of the live log that can have messages of the requested times."""
    splits = [split for part in parts for split in splits_of(store.location, part, options.split_size)]
    return within_time(splits, *options.predicate.store_timestamp.bounds)
