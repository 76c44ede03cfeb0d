"""The plan of a read by keys: look-ups in the index, and the parts of the log that must be scanned.

The index knows a key only together with its topic. Without a topic, each topic that has a queue is looked up. A log can
also have messages whose topic has no queue any more, and messages of transaction type ROLLBACK, which are in no index.
Both are in no queue. So the units of all queues are read, 20 bytes for each message, and the parts of the log for which
they do not account are scanned (`store.queue.unit_cover`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import Predicate
from spark_mq.source.topic_plan import queued_parts
from spark_mq.store.index.coverage import CheckedIndex, IndexedRange
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import CLEARLY_LESS, cost_of
from spark_mq.store.queue.unit_tiles import joined

_MAX_KEYS = 10_000
_KEYS_OF_A_TASK = 500
_READS_OF_A_LOOK_UP = 2
"""Reads of an index file for a key that it does not have: the slot, and the header of a file that is not full."""


@dataclass(frozen=True)
class KeyPlan:
    """How to read the messages that have keys.

    Attributes:
        keys: The pairs of topic and key to look up, those of each task.
        index: The index files of the look-ups.
        uncovered: The ranges of the log to scan.
        notes: The work in words, for `explain`.
    """

    keys: tuple[tuple[tuple[str, str], ...], ...]
    index: CheckedIndex
    uncovered: tuple[LogRange, ...]
    notes: tuple[str, ...]


def plan_keys(options: ReadOptions, store: MessageStore) -> KeyPlan | str:
    """A plan that looks keys up; or why the index is not used, an empty text if the predicate requests no keys."""
    predicate = options.predicate
    keys = predicate.unique_keys if predicate.keys is None else predicate.keys
    if keys is None:
        return ""
    is_proven = predicate.topics is not None and predicate.is_indexed
    if not is_proven and not predicate.offsets.is_all:
        return _why_not_alone(predicate)
    topics = predicate.topics or _queued_topics(store)
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
        look_ups = price.of(0, jumps=_READS_OF_A_LOOK_UP * len(pairs) * len(spans))
        parts = queued_parts(options, store, window.log, look_ups + sum(part.size for part in uncovered), CLEARLY_LESS)
        if isinstance(parts, str):
            return f"{parts}; {_why_not_alone(predicate)}"
        uncovered = joined([*uncovered, *parts.uncovered])
        notes.append(f"{len(topics):,} topics are looked up; {parts.note}")
    tasks = (tuple(pairs[at : at + _KEYS_OF_A_TASK]) for at in range(0, len(pairs), _KEYS_OF_A_TASK))
    return KeyPlan(tuple(tasks), store.index.checked(*predicate.store_timestamp.bounds), tuple(uncovered), tuple(notes))


def _queued_topics(store: MessageStore) -> frozenset[str]:
    """The topics that have a queue. Light message queues contain messages of other topics."""
    return frozenset(topic for topic, _ in store.queue_names if not topic.startswith(LIGHT_PREFIX))


def _why_not_alone(predicate: Predicate) -> str:
    """Why the index alone does not find all messages."""
    if predicate.topics is None:
        return "the index finds a key only together with its topic: give the topic"
    return "messages of transaction type ROLLBACK can match, and are in no index"
