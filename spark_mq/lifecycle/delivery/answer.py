"""The answer to the question why a consumer group did not consume a message."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class NotConsumed(StrEnum):
    """The reason why a group did not consume a message, or that it did."""

    OUT_OF_RANGE = "OUT_OF_RANGE"
    """The queue has no message with this offset yet."""
    EXPIRED = "EXPIRED"
    """The message is not in the store any more."""
    DEAD = "DEAD"
    """The group gave it up: it is a dead letter."""
    IN_RETRY = "IN_RETRY"
    """The group returned it, and has not consumed it again."""
    NOT_YET = "NOT_YET"
    """The group's offset is at the message, or before it."""
    FILTERED_BY_TAG_HASH = "FILTERED_BY_TAG_HASH"
    """The broker does not send it: the hash of its tag is not one of the subscription's."""
    FILTERED_BY_TAG = "FILTERED_BY_TAG"
    """The client drops it: its tag only has the same hash as one of the subscription's."""
    FILTERED_BY_SQL = "FILTERED_BY_SQL"
    """The broker does not send it: the group's SQL92 expression is not TRUE."""
    FILTERED_BY_BIT_MAP = "FILTERED_BY_BIT_MAP"
    """The broker does not send it: its bit map lacks the group's bits, although the expression is TRUE."""
    POPPED = "POPPED"
    """The group popped it, and has not acknowledged it."""
    NO_OFFSET = "NO_OFFSET"
    """The group has no offset in the queue, so the store does not show that it ever read there."""
    CONSUMED = "CONSUMED"
    """The group's offset is past it, and nothing shows that the group did not consume it."""
    UNKNOWN = "UNKNOWN"
    """The store does not show it."""


@dataclass(frozen=True)
class WhyNotConsumed:
    """The answer for one group and one message.

    Attributes:
        text: The reason with its evidence, for a person.
        min_offset: The queue's first offset that a broker offers.
        max_offset: The offset that the queue's next message gets.
        consumer_offset: The offset that the group consumes next; None without one.
        commit_log_offset: Where the message is in the log; None if it is not there.
        store_timestamp: Its store time, milliseconds since the epoch.
        subscription: The tags or the expression of the group; None if they are not known.
        evidence: What else is known, a text each.
        unknown: What the store does not show, a text each.
    """

    reason: NotConsumed
    text: str
    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_offset: int
    max_offset: int
    consumer_offset: int | None = None
    commit_log_offset: int | None = None
    unique_key: str | None = None
    tags: str | None = None
    store_timestamp: int | None = None
    subscription: str | None = None
    evidence: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The answer as values that JSON can hold; times are milliseconds since the epoch."""
        return asdict(self)
