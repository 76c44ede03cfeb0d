"""What became of a message in one store: whether its transaction was committed, and whether its delay is over.

A state is only said if messages that would change it cannot be missing; else it is UNKNOWN, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from spark_mq.lifecycle.life.event import EventKind, Step, body_of, record_event, text_properties, time_text
from spark_mq.lifecycle.life.life_store import Cut, LifeStore
from spark_mq.lifecycle.life.message_consumers import ConsumerOffsets
from spark_mq.lifecycle.life.pairing import Copy, cancels, next_half, place_text
from spark_mq.lifecycle.life.situation import Kind, Situations
from spark_mq.lifecycle.op_message import REMOVE_TAG, TIMER_PRECISION, TRANSACTION_GROUP, half_queue_offsets
from spark_mq.lifecycle.retry_topic import read_config
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import DELAY_OFFSETS, load_config, parse_delay_offsets

_OPS_AFTER_COMMIT = 1_000
"""Op messages after a commit among which its own is searched for: it follows soon (`transactionOpBatchInterval`)."""


class LifeState(StrEnum):
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


class Outcome(NamedTuple):
    """A state, and for UNKNOWN the reason."""

    state: LifeState
    reason: str | None = None


def _unknown(reason: str) -> Outcome:
    return Outcome(LifeState.UNKNOWN, reason)


class Source:
    """One store of a question, and what is read of it once."""

    def __init__(self, store: LifeStore, name: str, conf: BrokerConf, at: int, trace_topic: str) -> None:
        """A store with its name in events, its broker's settings, and the time of the question in milliseconds."""
        self.store = store
        self.name = name
        self.conf = conf
        self.at = at
        self.situations = Situations(store, conf, trace_topic)
        self.consumers = ConsumerOffsets(store.location, name)
        self.damage: tuple[str, ...] = ()

    def missing(self) -> str | None:
        """Why messages can be missing from what was found; None if none is missing."""
        return self.damage[0] if self.damage else self._missing

    @cached_property
    def _missing(self) -> str | None:
        return self.store.missing()

    @cached_property
    def delay_offsets(self) -> Mapping[int, int]:
        """The queue offset of the next delayed message of each level; empty if the file cannot be read."""
        return read_config(lambda: load_config(self.store.location, DELAY_OFFSETS, parse_delay_offsets))[0] or {}


class Outcomes:
    """Decides what became of the copies of one message in one store, by further look-ups."""

    def __init__(self, source: Source, missing: Callable[[], str | None], steps: list[Step]) -> None:
        """`missing` is why copies can be missing: it is asked only if the answer matters. `steps` get what is found."""
        self._store, self._source, self._missing, self._steps = source.store, source, missing, steps

    def of(self, copy: Copy) -> Outcome:
        """What became of the message that was stored first as `copy`."""
        if copy.kind is Kind.HALF:
            return self._transaction(copy)
        if copy.kind in (Kind.DELAYED, Kind.TIMER):
            return self.delivery(copy)
        if copy.kind is Kind.DISCARDED:
            return Outcome(LifeState.DISCARDED)
        if copy.kind is Kind.COMMIT:
            return Outcome(LifeState.COMMITTED)
        if copy.kind is Kind.NORMAL:
            return Outcome(LifeState.DELIVERED if copy.situation.text else LifeState.STORED)
        return _unknown(f"the log has only a record of another kind: {copy.situation.text}")

    def _transaction(self, first: Copy) -> Outcome:
        halves = [first]
        while (following := next_half(halves[-1])) is not None:
            halves.append(following)
        discarded = [after for half in halves for after in half.after if after.kind is Kind.DISCARDED]
        commits = [after for half in halves for after in half.followed_by(EventKind.COMMITTED)]
        op, cut = self._op_message(halves, commits, is_any_copy=bool(commits or discarded))
        if op is not None:
            self._steps.append(op)
        if discarded and not commits and op is None:
            return Outcome(LifeState.DISCARDED)
        if commits:
            later = [self.delivery(one) for one in commits if one.kind in (Kind.DELAYED, Kind.TIMER)]
            return later[0] if later else Outcome(LifeState.COMMITTED)
        if (missing := self._missing()) is not None:
            return _unknown(f"a commit can be missing: {missing}")
        if op is not None:
            return Outcome(LifeState.ROLLED_BACK)
        if cut is not None:
            return _unknown(f"an op message can be missing: {cut}")
        last = halves[-1].record
        checked_to = self._source.consumers.offset(TRANSACTION_GROUP, HALF_TOPIC, last.queue_id)
        if checked_to is not None and last.queue_offset < checked_to:
            return _unknown(
                f"the broker is done with it (offset {checked_to} of {TRANSACTION_GROUP} in "
                f"{HALF_TOPIC}/{last.queue_id}), but neither an op message nor another copy of it is in the log"
            )
        return Outcome(LifeState.PENDING)

    def _op_message(
        self, halves: Sequence[Copy], commits: Sequence[Copy], *, is_any_copy: bool
    ) -> tuple[Step | None, str | None]:
        """The step of the op message that decides the last half message, or any copy; why it can be missing."""
        wanted = {half.record.queue_offset: half for half in (halves if is_any_copy else halves[-1:])}
        for half in list(wanted.values()):
            prepared = half.prepared_queue_offset
            if prepared is not None:  # `checkPrepareQueueOffset`@5.3.3
                wanted.setdefault(prepared, half)
        # A broker commits first, and writes the op message then (`EndTransactionProcessor`@5.3.3).
        after = min(one.record.commit_log_offset for one in commits or wanted.values())
        cut = None
        following = self._store.messages_after(OP_TOPIC, halves[0].record.queue_id, after)
        for message in islice(following, _OPS_AFTER_COMMIT if commits else None):
            if isinstance(message, Cut):
                cut = cut or message.reason
            elif parse_properties(message.properties).get(TAGS) == REMOVE_TAG.encode():
                for offset in half_queue_offsets(body_of(message) or b""):
                    if offset in wanted:
                        text = f"op message, {place_text(message)}: half message {offset} is decided"
                        return self._step(EventKind.DECIDED, message, text, wanted[offset]), None
        return None, cut

    def _step(self, kind: EventKind, message: Record, text: str, parent: Copy) -> Step:
        return Step(record_event(kind, message, text, self._source.name), parent)

    def delivery(self, copy: Copy) -> Outcome:
        """What became of a delayed message or a timer."""
        while rolled := copy.followed_by(EventKind.ROLLED):
            copy = rolled[0]
        if copy.followed_by(EventKind.DELIVERED):
            return Outcome(LifeState.DELIVERED)
        if copy.followed_by(EventKind.CANCELLED):
            return Outcome(LifeState.CANCELLED)
        note, cut = self._cancelling(copy) if copy.kind is Kind.TIMER else (None, None)
        if note is not None:
            self._steps.append(note)
            return Outcome(LifeState.CANCELLED)
        due, at = copy.situation.due, self._source.at
        if due is None:
            return _unknown("the record does not say when it is due")
        if cut is not None:
            return _unknown(f"a note that cancels the timer can be missing: {cut}")
        if due <= at and (missing := self._missing()) is not None:
            return _unknown(f"it was due at {time_text(due)}; its delivery can be missing: {missing}")
        level = copy.situation.level or 0
        level_offset = self._source.delay_offsets.get(level, copy.record.queue_offset)
        if copy.record.queue_offset < level_offset and copy.kind is Kind.DELAYED:
            return _unknown(
                f"the broker is past it (offset {level_offset} of level {level} in config/{DELAY_OFFSETS}), but the "
                "delivered message is not in the log"
            )
        latest = due + TIMER_PRECISION if copy.kind is Kind.TIMER else due
        return Outcome(LifeState.WAITING if latest > at else LifeState.OVERDUE)

    def _cancelling(self, timer: Copy) -> tuple[Step | None, str | None]:
        """A later note in the timer's queue that cancels it, and why one can be missing."""
        cut = None
        for message in self._store.messages_after(TIMER_TOPIC, timer.record.queue_id, timer.record.commit_log_offset):
            if isinstance(message, Cut):
                cut = cut or message.reason
            elif cancels(text_properties(message), timer):
                text = f"a note cancels the timer: {place_text(message)}"
                return self._step(EventKind.CANCELLED, message, text, timer), None
        return None, cut
