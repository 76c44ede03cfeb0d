"""What became of half messages and of delayed messages: the rules, for one message (`life`) and for many (the tables).

A rule is a list of cases, and the first one that is true gives the state. Its conditions are of one message, or arrays
with an element for each message. A state is only said if nothing that would change it can be missing; else it is
UNKNOWN, with the reason.

*Op messages* say which half messages a broker settled, by commit or by rollback (`TransactionalMessageServiceImpl`).
The body of an op message contains queue offsets of half messages, which are in the queue of the half topic with the
same queue id. A broker of 4.9 writes one offset; one of 5.x writes many, each with a comma after it
(`TransactionalMessageServiceImpl.getOpMessage`@5.3.3). Commit and rollback write the same op messages, with tag `d`.

With transactions in RocksDB only (`ROCKSDB_HALF_TOPIC`), an op message has the commit log offset of one half message
in its property TRANS_OFFSET. The checks are counted in RocksDB, and when the broker gives up, it stores no message.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Self, TypeAlias

import pyarrow as pa

from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.retry_topic import consumer_offsets
from spark_mq.store.config.checkpoint import timer_checkpoint
from spark_mq.store.config.config_file import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    load_config,
    parse_delay_offsets,
    read_config,
)
from spark_mq.store.config.store_paths import CONFIG

if TYPE_CHECKING:
    from spark_mq.format.array_types import Flags

REMOVE_TAG = "d"
"""The tag of an op message (`TransactionalMessageUtil.REMOVE_TAG`@5.3.3). A broker ignores others."""
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say how far the broker has decided about half messages (`TransactionalMessageUtil`@5.3.3)."""
TIMER_PRECISION = 1000
"""Milliseconds by which a timer ends after TIMER_OUT_MS at most (`timerPrecisionMs`@5.3.3, by default)."""
SLOT_IS_READ = "the time in timercheck is after its slot, but no delivered message of it is in the log"
NOT_IN_LOG = (
    "whether the broker still asks is not known: it counts checks in RocksDB (folder rocksdbstore), and gives up "
    "without a message in the log"
)
HALF_OFFSET = r"\+?[0-9]{1,18}"
_OF_HALVES = (TRANSACTION_GROUP, HALF_TOPIC)


def half_queue_offsets(body: bytes) -> list[int]:
    """The queue offsets of half messages in the body of one op message; a broker ignores other pieces."""
    pieces = body.split(b",")
    return [int(piece) for piece in pieces if re.fullmatch(HALF_OFFSET.encode(), piece)]


class State(StrEnum):
    """What became of a message."""

    STORED = "STORED"  # it was sent, and consumers could get it at once
    PENDING = "PENDING"  # it is a half message whose transaction is not decided
    COMMITTED = "COMMITTED"  # its transaction was committed
    ROLLED_BACK = "ROLLED_BACK"  # its transaction was rolled back
    DISCARDED = "DISCARDED"  # the broker gave up asking about its transaction
    WAITING = "WAITING"  # it is delayed, and not due yet
    OVERDUE = "OVERDUE"  # it is due, and was not delivered: the broker has stopped, or is late
    DELIVERED = "DELIVERED"  # it was delayed, and then delivered
    CANCELLED = "CANCELLED"  # it was a timer that was cancelled
    UNKNOWN = "UNKNOWN"  # the store does not show it


Condition: TypeAlias = "Flags | bool"
Case: TypeAlias = "tuple[Condition, str, pa.Array | str | None]"
"""A condition, the state of the messages for which it is true, and the reason, which can differ by message."""
Doubt: TypeAlias = "tuple[Condition, pa.Array | str | None]"
"""When a state is not known, and why."""
NO_DOUBT: Doubt = (False, None)


def transaction_cases(
    *,
    is_committed: Condition,
    is_discarded: Condition,
    is_rolled_back: Condition,
    damage: Doubt,
    lacks_copies: Doubt,
    passed: Doubt,
    lost_end: Doubt,
    not_read: Doubt,
    asks_again: Condition = False,
    ambiguous: Doubt = NO_DOUBT,
) -> list[Case]:
    """What became of half messages.

    Args:
        is_discarded: Whether the broker gave up, and no op message says that the producer decided.
        damage: When a message that ended the transaction can be in a part of the log that cannot be read.
        lacks_copies: When older copies of the half message are not in the log: one of them can have been committed.
        passed: When the offset of `TRANSACTION_GROUP` is after the half message.
        asks_again: Whether an older copy was rolled back, and the broker asks about the newest one.
        ambiguous: When it is passed, and it is not certain which messages belong to it.
    """
    return [
        (is_committed, State.COMMITTED, None),
        (is_discarded, State.DISCARDED, None),
        *_unknown(damage, lacks_copies),
        (is_rolled_back, State.ROLLED_BACK, None),
        *_unknown(ambiguous, passed, lost_end, not_read),
        (asks_again, State.PENDING, "an older copy was rolled back, but the broker asks about the newest copy"),
        (True, State.PENDING, None),
    ]


def delivery_cases(
    *,
    is_delivered: Condition,
    is_cancelled: Condition,
    is_due: Condition,
    damage: Doubt,
    lost_end: Doubt,
    passed: Doubt,
    no_time: Doubt,
    read: Doubt,
    not_read: tuple[Doubt, ...],
    ambiguous: Doubt = NO_DOUBT,
) -> list[Case]:
    """What became of delayed messages.

    Args:
        is_due: Whether the due time is over; for a timer, by `TIMER_PRECISION`.
        passed: When the offset of the message's delay level is after it.
        read: When the broker has delivered the slot of a timer.
        not_read: When a file that says how far the broker is does not tell of the message.
    """
    return [
        (is_delivered, State.DELIVERED, None),
        *_unknown(ambiguous, damage, lost_end, passed),
        (is_cancelled, State.CANCELLED, None),
        *_unknown(no_time, read, *not_read),
        (is_due, State.OVERDUE, None),
        (True, State.WAITING, None),
    ]


def _unknown(*doubts: Doubt) -> list[Case]:
    return [(condition, State.UNKNOWN, reason) for condition, reason in doubts]


@dataclass(frozen=True)
class DecidedHalves:
    """Up to which queue offset the broker has decided about half messages, by queue id of the half topic.

    `problem` is the reason if that is not known. A queue that is absent has no decided half message.
    """

    offsets: Mapping[int, int]
    problem: str | None = None

    @classmethod
    def of(cls, store: Location) -> Self:
        """The offsets of CID_RMQ_SYS_TRANS in `config/consumerOffset.json` of a store."""
        found, problem = read_config(lambda: consumer_offsets(store))
        if found is None and problem is None:
            problem = f"there is no file {store / CONFIG / CONSUMER_OFFSETS}"
        mine = {queue: at for (group, topic, queue), at in (found or {}).items() if (group, topic) == _OF_HALVES}
        return cls(mine, problem)


@dataclass(frozen=True)
class DeliveryProgress:
    """How far the broker has delivered delayed messages: by levels, and of timers up to which slot and queue offset."""

    delay_offsets: Mapping[int, int]
    level_problem: str | None
    read_time: int
    enqueued: int
    timer_problem: str | None

    @classmethod
    def of(cls, store: Location) -> Self:
        """The progress that `delayOffset.json` and `timercheck` in the folder `config/` of a store show."""
        folder = store / CONFIG
        offsets, level_problem = read_config(lambda: load_config(store, DELAY_OFFSETS, parse_delay_offsets))
        if offsets is None and level_problem is None:
            level_problem = f"there is no file {folder / DELAY_OFFSETS}"
        timers = timer_checkpoint(store)
        if timers is None:
            return cls(offsets or {}, level_problem, 0, 0, f"{folder / 'timercheck'} is missing or too short")
        return cls(offsets or {}, level_problem, timers.read_time, timers.enqueued, None)
