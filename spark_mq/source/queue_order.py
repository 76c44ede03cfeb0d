"""The plan of a read with option `splitBy=queue`: each queue is in exactly one partition, its rows in queue order.

The messages of a queue are in the log in the order of the queue (`CommitLog.asyncPutMessage`@5.3.3 assigns queue offset
and position under one lock). So a task reads the messages of its queue in the order of the log: by units in the parts
for which units account, and by a scan in all others. Messages of transaction types PREPARED and ROLLBACK are in no
queue, but they name one: they are among its rows, at their places in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from spark_mq.source.options import ReadOptions
from spark_mq.source.predicate import Predicate
from spark_mq.source.time_window import open_log
from spark_mq.source.topic_plan import TopicCover, topic_cover, unit_reads
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.scan import splits_of
from spark_mq.store.log.splits import Split, plan_splits, within_time
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.lookup import UnitsRead

Part = UnitsRead | Split


@dataclass(frozen=True)
class OrderedRead:
    """The messages of one partition.

    Attributes:
        parts: What to read, in the order of the log.
        predicate: Which of these messages belong to the partition.
        other_queue_ids: Messages with these queue ids belong to other partitions.
    """

    parts: tuple[Part, ...]
    predicate: Predicate = field(default_factory=Predicate)
    other_queue_ids: frozenset[int] = frozenset()


@dataclass(frozen=True)
class OrderedPlan:
    """The partitions of a read by queue, whether they are found by units, and a remark for `explain`."""

    reads: tuple[OrderedRead, ...]
    is_by_units: bool
    note: str


def plan_by_queue(options: ReadOptions, store: MessageStore) -> OrderedPlan:
    """One partition for each queue that has files, and one for each topic's messages of other queues.

    If the queues would have to scan more than the log together, there is only one partition, which scans the log once.
    """
    cover = topic_cover(options, store, None)
    if isinstance(cover, str):
        splits = within_time(
            plan_splits(open_log(store), options.split_size), *options.predicate.store_timestamp.bounds
        )
        return OrderedPlan((OrderedRead(tuple(splits)),), False, f"one partition with all queues: {cover}")
    times = options.predicate.store_timestamp.bounds
    everything, splits = (
        within_time([split for part in parts for split in splits_of(store.location, part, options.split_size)], *times)
        for parts in ([cover.window], cover.uncovered)
    )
    log_size = store.get_max_phy_offset() - store.get_min_phy_offset()
    if cover.scanned * len(cover.queues) > log_size:
        parts = tuple(_parts(cover, range(len(cover.queues)), splits, everything, options.split_size))
        return OrderedPlan((OrderedRead(parts),), True, f"one partition with all queues: {cover.note}")
    reads = [
        OrderedRead(
            tuple(_parts(cover, [index], splits, everything, options.split_size)),
            Predicate(topics=frozenset((queue.topic,)), queue_ids=frozenset((queue.queue_id,))),
        )
        for index, queue in enumerate(cover.queues)
    ]
    if splits:
        for topic in sorted(options.predicate.topics or ()):
            known = frozenset(queue.queue_id for queue in cover.queues if queue.topic == topic)
            reads.append(OrderedRead(tuple(splits), Predicate(topics=frozenset((topic,))), known))
    return OrderedPlan(tuple(reads), True, cover.note)


def _parts(
    cover: TopicCover, indexes: Sequence[int], splits: Sequence[Split], everything: Sequence[Split], split_size: int
) -> list[Part]:
    """The units of some queues and the splits, in the order of the log.

    If the units of a queue are not in its order, the whole part of the log is scanned for it.
    """
    units = cover.units.at(np.isin(cover.units.queues, indexes))
    if not all((np.diff(units.queue_offsets[units.queues == index]) > 0).all() for index in indexes):
        return list(everything)
    places: list[tuple[int, LogRange | Split]] = [(piece.start, piece) for piece in cover.covered]
    places += [(split.segment.base + split.start, split) for split in splits]
    places.sort(key=lambda place: place[0])
    parts: list[Part] = []
    for is_split, group in groupby(places, key=lambda place: isinstance(place[1], Split)):
        found = [part for _, part in group]
        if is_split:
            parts += [part for part in found if isinstance(part, Split)]
        else:
            pieces = [part for part in found if isinstance(part, LogRange)]
            parts += unit_reads(cover, pieces, units.in_ranges(pieces), split_size)
    return parts
