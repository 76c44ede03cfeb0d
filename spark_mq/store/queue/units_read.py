"""What a task reads by units of queues."""

from __future__ import annotations

from dataclasses import dataclass

from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.lookup import QueueRange


@dataclass(frozen=True)
class UnitsRead:
    """Records that a task reads by their units.

    Attributes:
        pieces: Parts of the log in which the queues' units lead to all messages, in order, each in one segment.
        queues: The units to read. Those that lead outside `pieces` belong to other tasks.
        count: The number of units that lead into `pieces` and have one of the tags codes.
        tags_codes: The tags codes of requested messages; None for any.
    """

    pieces: tuple[LogRange, ...]
    queues: tuple[QueueRange, ...]
    count: int
    tags_codes: frozenset[int] | None = None
