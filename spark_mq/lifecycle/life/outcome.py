"""What became of a message in one store: whether its transaction was committed, and whether its delay is over.

A state is only said if messages that would change it cannot be missing; else it is UNKNOWN, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from spark_mq.lifecycle.life.event import EventKind, Step, record_event, time_text
from spark_mq.lifecycle.life.life_store import Cut, LifeStore
from spark_mq.lifecycle.life.pairing import Copy, cancels, next_half, place_text
from spark_mq.lifecycle.life.situation import Kind, body_of, text_properties
from spark_mq.lifecycle.op_message import REMOVE_TAG, half_queue_offsets
from spark_mq.store.config.config_file import DELAY_OFFSETS, load_config, load_consumer_offsets, parse_delay_offsets

_OPS_AFTER_COMMIT = 1_000
"""Op messages after a commit among which its own is searched for: it follows soon (`transactionOpBatchInterval`)."""

_TIMER_PRECISION = 1_000
"""Milliseconds by which a timer ends after TIMER_OUT_MS at most (`timerPrecisionMs`@5.3.3)."""

_CHECK_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets say up to where half messages and op messages are done (`TransactionalMessageUtil`@5.3.3)."""


Doubt: TypeAlias = Callable[[], str | None]
"""Tells why copies of a message can be missing; None if none is missing. It is asked only if the answer matters."""


class LifeState(StrEnum):
    """What became of a message."""

    STORED = "STORED"
    """It was sent, and consumers could get it at once."""
    PENDING = "PENDING"
    """It is a half message whose transaction is not decided."""
    COMMITTED = "COMMITTED"
    """Its transaction was committed."""
    ROLLED_BACK = "ROLLED_BACK"
    """Its transaction was rolled back."""
    DISCARDED = "DISCARDED"
    """The broker gave up asking about its transaction."""
    WAITING = "WAITING"
    """It is delayed, and not due yet."""
    OVERDUE = "OVERDUE"
    """It is due, and was not delivered: the broker has stopped, or is late."""
    DELIVERED = "DELIVERED"
    """It was delayed, and then delivered."""
    CANCELLED = "CANCELLED"
    """It was a timer that was cancelled."""
    UNKNOWN = "UNKNOWN"
    """The store does not show it."""


@dataclass(frozen=True)
class Outcome:
    """A state, and for UNKNOWN the reason."""

    state: LifeState
    reason: str | None = None


class Outcomes:
    """Decides what became of messages of one store, by further look-ups. Settings are read when they are needed."""

    def __init__(self, store: LifeStore, name: str, at: int) -> None:
        """The store, its name in events, and the time of the question, milliseconds since the epoch."""
        self._store = store
        self._name = name
        self._at = at

    def of(self, copy: Copy, copies: Sequence[Copy], doubt: Doubt, steps: list[Step]) -> Outcome:
        """What became of the message that was stored first as `copy`."""
        if copy.kind is Kind.HALF:
            return self._transaction(copy, copies, doubt, steps)
        if copy.kind in (Kind.DELAYED, Kind.TIMER):
            return self.delivery(copy, doubt, steps)
        if copy.kind is Kind.DISCARDED:
            return Outcome(LifeState.DISCARDED)
        if copy.kind is Kind.COMMIT:
            return Outcome(LifeState.COMMITTED)
        if copy.kind is Kind.NORMAL:
            return Outcome(LifeState.DELIVERED if copy.situation.text else LifeState.STORED)
        return Outcome(LifeState.UNKNOWN, f"the log has only a record of another kind: {copy.situation.text}")

    def _transaction(self, first: Copy, copies: Sequence[Copy], doubt: Doubt, steps: list[Step]) -> Outcome:
        halves = [first]
        while (following := next_half(halves[-1])) is not None:
            halves.append(following)
        discarded = [after for half in halves for after in half.after if after.kind is Kind.DISCARDED]
        commits = [after for half in halves for after in half.after if after.step.event.kind is EventKind.COMMITTED]
        ops, cut = self._op_messages(halves, commits, is_any_copy=bool(commits or discarded))
        steps += ops
        if discarded and not commits and not ops:
            return Outcome(LifeState.DISCARDED)
        if commits:
            later = [self.delivery(one, doubt, steps) for one in commits if one.kind in (Kind.DELAYED, Kind.TIMER)]
            return later[0] if later else Outcome(LifeState.COMMITTED)
        if (missing := doubt()) is not None:
            return Outcome(LifeState.UNKNOWN, f"a commit can be missing: {missing}")
        if ops:
            return Outcome(LifeState.ROLLED_BACK)
        if cut is not None:
            return Outcome(LifeState.UNKNOWN, f"an op message can be missing: {cut}")
        last = halves[-1].record
        checked_to = self._half_offsets.get(last.queue_id)
        if checked_to is not None and last.queue_offset < checked_to:
            return Outcome(
                LifeState.UNKNOWN,
                f"the broker is done with it (offset {checked_to} of {_CHECK_GROUP} in {HALF_TOPIC}/{last.queue_id}), "
                "but neither an op message nor another copy of it is in the log",
            )
        return Outcome(LifeState.PENDING)

    def _op_messages(
        self, halves: Sequence[Copy], commits: Sequence[Copy], *, is_any_copy: bool
    ) -> tuple[list[Step], str | None]:
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
                continue
            if parse_properties(message.properties).get(TAGS) != REMOVE_TAG.encode():
                continue
            for offset in half_queue_offsets(body_of(message) or b""):
                if offset in wanted:
                    return [self._op_step(message, offset, wanted[offset])], None
        return [], cut

    def _op_step(self, message: Record, half_offset: int, half: Copy) -> Step:
        text = f"op message, {place_text(message)}: half message {half_offset} is decided"
        return Step(record_event(EventKind.DECIDED, message, text, self._name), half.step)

    def delivery(self, copy: Copy, doubt: Doubt, steps: list[Step]) -> Outcome:
        """What became of a delayed message or a timer; arguments as `of`."""
        while True:
            following = next((one for one in copy.after if one.step.event.kind is EventKind.ROLLED), None)
            if following is None:
                break
            copy = following
        if any(after.step.event.kind is EventKind.DELIVERED for after in copy.after):
            return Outcome(LifeState.DELIVERED)
        cancelled = [after for after in copy.after if after.step.event.kind is EventKind.CANCELLED]
        cut = None
        if copy.kind is Kind.TIMER and not cancelled:
            note, cut = self._cancelling(copy)
            if note is not None:
                steps.append(note)
                return Outcome(LifeState.CANCELLED)
        if cancelled:
            return Outcome(LifeState.CANCELLED)
        due = copy.situation.due
        if due is None:
            return Outcome(LifeState.UNKNOWN, "the record does not say when it is due")
        if cut is not None:
            return Outcome(LifeState.UNKNOWN, f"a note that cancels the timer can be missing: {cut}")
        if due <= self._at and (missing := doubt()) is not None:
            return Outcome(LifeState.UNKNOWN, f"it was due at {time_text(due)}; its delivery can be missing: {missing}")
        if copy.kind is Kind.DELAYED:
            problem = self._is_past(copy)
            if problem is not None:
                return Outcome(LifeState.UNKNOWN, problem)
        latest = due + _TIMER_PRECISION if copy.kind is Kind.TIMER else due
        return Outcome(LifeState.WAITING if latest > self._at else LifeState.OVERDUE)

    def _cancelling(self, timer: Copy) -> tuple[Step | None, str | None]:
        """A later note in the timer's queue that cancels it, and why one can be missing."""
        cut = None
        for message in self._store.messages_after(TIMER_TOPIC, timer.record.queue_id, timer.record.commit_log_offset):
            if isinstance(message, Cut):
                cut = cut or message.reason
            elif cancels(text_properties(message), timer):
                text = f"a note cancels the timer: {place_text(message)}"
                return Step(record_event(EventKind.CANCELLED, message, text, self._name), timer.step), None
        return None, cut

    def _is_past(self, copy: Copy) -> str | None:
        """Why the state of a delayed message that was not delivered is not known; None if nothing contradicts it."""
        level = copy.situation.level or 0
        offsets = self._delay_offsets
        if offsets is None or offsets.get(level, 0) <= copy.record.queue_offset:
            return None
        return (
            f"the broker is past it (offset {offsets[level]} of level {level} in config/{DELAY_OFFSETS}), but the "
            "delivered message is not in the log"
        )

    @cached_property
    def _delay_offsets(self) -> Mapping[int, int] | None:
        try:
            return load_config(self._store.location, DELAY_OFFSETS, parse_delay_offsets)
        except (ConfigError, UnsupportedStoreError):
            return None

    @cached_property
    def _half_offsets(self) -> Mapping[int, int]:
        """The queue offset up to which the broker is done with half messages, by queue id."""
        try:
            offsets = load_consumer_offsets(self._store.location)
        except (ConfigError, UnsupportedStoreError):
            return {}
        mine = (one for one in offsets if (one.topic, one.consumer_group) == (HALF_TOPIC, _CHECK_GROUP))
        return {one.queue_id: one.offset for one in mine}
