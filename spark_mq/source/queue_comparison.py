"""The comparison of all queues with a part of the log: it shows which messages are in no queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.source.time_window import live_log
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import QueueCover
from spark_mq.store.queue.read_cost import ReadCost, cost_of
from spark_mq.store.queue.unit_cover import LogCover, log_cover
from spark_mq.store.state_memory import StateMemory

_MERGE_DISTANCE = 256 << 10
"""Parts of the log that must be scanned become one if fewer bytes are between them: each one is a task."""
_COVERS = StateMemory[LogCover]()
"""By the state of the files, the live log, and the part of it."""


@dataclass(frozen=True)
class QueueComparison:
    """The comparison of the units of all queues with a part of the log, which may have been done before.

    Attributes:
        state: The state of the files of the store, as in `MessageStore.state_of_files`. All files count: the end of a
            queue depends on segments outside the part, too.
        known: What an earlier comparison of the same files showed; None if there is none.
    """

    store: MessageStore
    everything: Sequence[ConsumeQueue]
    log: LogRange
    state: bytes | None
    known: LogCover | None

    @classmethod
    def of(cls, store: MessageStore, everything: Sequence[ConsumeQueue], log: LogRange) -> QueueComparison:
        """The comparison with a part of the live log that starts at a boundary."""
        state = store.first_state
        known = None if state is None else _COVERS.recall((state, live_log(store), log))
        return cls(store, everything, log, state, known)

    def cost(self) -> int | str:
        """What it costs, in bytes that are read in order; or that there are too many units."""
        if self.known is not None:
            return 0
        part = self.log.size / max(live_log(self.store).size, 1)
        return _cost_of_all(self.everything, cost_of(self.store.location), part)

    def result(self) -> LogCover:
        """What the units of all queues show about the part of the log."""
        if self.known is not None:
            return self.known
        found = log_cover(with_covers(self.store, self.everything), self.store.records, self.log, _MERGE_DISTANCE)
        if self.state is not None and self.store.state_of_files() == self.state:  # none changed while they were read
            _COVERS.keep((self.state, live_log(self.store), self.log), found)
        return found

    def note(self, cover: LogCover) -> str:
        """The work in words."""
        if self.known is not None:
            return "an earlier read of the same files has found what is in no queue"
        return f"{cover.unit_bytes:,} bytes of units of all queues were read to find what is in no queue"


def with_covers(store: MessageStore, queues: Iterable[ConsumeQueue]) -> list[tuple[ConsumeQueue, QueueCover]]:
    """The queues, each with what its units prove."""
    return [(queue, store.queue_cover(queue.topic, queue.queue_id)) for queue in queues]


def _cost_of_all(everything: Sequence[ConsumeQueue], price: ReadCost, part: float) -> int | str:
    """What it costs to compare the units of all queues with a part of the log; or that they are too many."""
    units = int(part * sum(queue.written_end - queue.files[0].first for queue in everything))
    if units > price.most_units:
        return (
            f"the queues have {units:,} units, more than {price.most_units:,} to compare with the log: limit the time"
        )
    return price.of(0, unit_bytes=units * UNIT_SIZE, queues=len(everything))
