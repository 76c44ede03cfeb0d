"""What is known of a new log, or of the new part of a log, when it is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa

from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.indexer.queue.carry_over import Queue
from spark_mq.restorer.placement import LogPlan

WAITING_TOPICS = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC)
"""The topics from which a broker delivers messages to their own topics."""

_WAITING = {
    SCHEDULE_TOPIC: "delayed messages: a broker delivers those that are due as soon as it starts",
    TIMER_TOPIC: "timer messages: a broker of 5.x delivers those that are due as soon as it starts",
    HALF_TOPIC: "half messages: a broker asks the producers of those that are not settled",
}


@dataclass(frozen=True)
class NewLog:
    """The new log.

    Attributes:
        start: The commit log offset of the first segment.
        end: The commit log offset after the last record.
        last_store_timestamp: The store time of the last message in the log, in milliseconds.
    """

    start: int
    end: int
    messages: Mapping[Queue, int]
    next_offsets: Mapping[Queue, int]
    last_store_timestamp: int

    @classmethod
    def of(cls, plan: LogPlan, written: pa.Table) -> Self:
        """The new log of a plan; `written` are the rows of its segments."""
        return cls(
            plan.segments[0].base,
            written["end"][-1].as_py(),
            plan.messages,
            plan.next_queue_offsets,
            written["last_store_timestamp"][-1].as_py(),
        )

    @property
    def queue_counts(self) -> dict[str, int]:
        """The largest queue id and 1, for each topic."""
        counts: dict[str, int] = {}
        for topic, queue_id in self.next_offsets:
            counts[topic] = max(counts.get(topic, 0), queue_id + 1)
        return counts

    @property
    def waiting_notes(self) -> list[str]:
        """A sentence for each kind of messages that a broker may deliver when it starts."""
        counts: dict[str, int] = {}
        for (topic, _), count in self.messages.items():
            counts[topic] = counts.get(topic, 0) + count
        texts = (f"{counts[topic]:,} {text}" for topic, text in _WAITING.items() if counts.get(topic))
        return [f"{text} (--only-delivered leaves them out)" for text in texts]
