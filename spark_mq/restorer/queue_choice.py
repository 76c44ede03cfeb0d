"""Which queue of its topic a message goes to (`SelectMessageQueueByHash`, `TopicPublishInfo`).

Messages that are sent to a broker, and rows that become messages of a store, choose by the same function.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.java_text import hash_code
from spark_mq.format.pieces import Pieces
from spark_mq.restorer.config_files import default_queues
from spark_mq.source.options import parse_choice


class QueueSelector(StrEnum):
    """How the queue of a message is chosen."""

    QUEUE_ID = "queue_id"
    """By column `queue_id`; a row without one by its sharding key, and without that in turn."""
    SHARDING_KEY = "sharding_key"
    """By the hash of the sharding key; a row without one in turn."""
    ROUND_ROBIN = "round_robin"


def parse_queue_selector(text: str) -> QueueSelector:
    """The selector that option `queueSelector` names. Raises `OptionError` for another value."""
    return QueueSelector(parse_choice("queueSelector", text.lower(), (*QueueSelector,)))


@dataclass(frozen=True)
class StoreQueues:
    """What a broker knows that takes messages of producers.

    Attributes:
        queue_counts: The number of queues of each topic that it has; it makes other topics with the usual number.
        delay_levels: The number of its delay levels.
    """

    selector: QueueSelector
    delay_levels: int
    queue_counts: Mapping[str, int] = field(default_factory=dict)

    def counts_of(self, topics: Sequence[str]) -> Int64s:
        """The number of queues of each of these topics."""
        return np.array([self.queue_counts.get(topic) or default_queues(topic) for topic in topics], np.int64)


def by_hash(key: str, count: int) -> int:
    """The number of the queue for a sharding key, of `count` queues (`SelectMessageQueueByHash`@5.3.3)."""
    return abs(hash_code(key)) % count


def choose_queues(
    counts: Int64s, given: Int64s, sharding_keys: Pieces, selector: QueueSelector, turns: Int64s
) -> tuple[Int64s, Flags]:
    """The numbers of the queues of rows, and which rows have no choice of their own: any queue would do for them.

    Args:
        counts: The number of queues of each row's topic.
        given: The number of the queue that each row names; -1 if it names none.
        sharding_keys: The sharding key of each row; NULL for rows without one.
        turns: The number of the turn that each row has if it has no choice.
    """
    from spark_mq.format.kernels.java_string import hash_codes

    numbers, is_in_turn = turns % counts, np.ones(counts.size, np.bool_)
    if selector != QueueSelector.ROUND_ROBIN:
        of_key = np.abs(hash_codes(sharding_keys)) % counts
        _put(numbers, is_in_turn, of_key, sharding_keys.is_given())
    if selector == QueueSelector.QUEUE_ID:
        _put(numbers, is_in_turn, given, given >= 0)
    return numbers, is_in_turn


def _put(numbers: Int64s, is_in_turn: Flags, chosen: Int64s, is_chosen: Flags) -> None:
    numbers[is_chosen] = chosen[is_chosen]
    is_in_turn &= ~is_chosen
