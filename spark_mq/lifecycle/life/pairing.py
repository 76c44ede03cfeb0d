"""The steps of one message in one store: which record follows from which.

Records are paired by what a broker copies or writes into them, and by their order in the log; a key alone never pairs
two records, because a producer can send the same key again:

- The message of a commit has the commit log offset of its half message (`EndTransactionProcessor`@5.3.3).
- A half message that is written again has one more check, and the same birth (`renewHalfMessageInner`@5.3.3).
- A delivered message has the real topic and queue, the birth and the failed deliveries of the delayed one
  (`ScheduleMessageService.messageTimeUp`, `TimerMessageStore.convertMessage`@5.3.3).
- A retry and a dead letter have the id of the message that was delivered first (ORIGIN_MESSAGE_ID).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from spark_mq.format.amounts import duration_text
from spark_mq.format.dispatch import light_queues
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_row import host_text
from spark_mq.format.record import TRANSACTION_COMMIT_TYPE, Record
from spark_mq.format.system_topic import RETRY_PREFIX
from spark_mq.lifecycle.life.event import EventKind, Step, record_event
from spark_mq.lifecycle.life.situation import (
    ORIGIN_MESSAGE_ID,
    TIMER_DELETE,
    TIMER_OUT,
    TIMER_ROLLS,
    UNIQUE_KEY,
    RecordKind,
    Situation,
    integer,
)
from spark_mq.lifecycle.popped_messages import Position

RETRIES = (EventKind.RETRIED, EventKind.DEAD)
_LATE = 1000
"""Milliseconds after which a message is called late."""
_NO_DELIVERY = (
    RecordKind.HALF,
    RecordKind.DISCARDED,
    RecordKind.DELAYED,
    RecordKind.TIMER,
    RecordKind.TIMER_DELETE,
    RecordKind.DEAD_LETTER,
)
"""The kinds of records that are never the delivery of a delayed message."""


@dataclass(eq=False)
class Copy(Step):
    """One record with a key of the message, as a step of its life."""

    record: Record = field(kw_only=True)
    situation: Situation = field(kw_only=True)
    properties: dict[str, str] = field(kw_only=True)
    after: list[Copy] = field(default_factory=list)
    is_cancelled: bool = False

    @property
    def kind(self) -> RecordKind:
        """What kind of record it is."""
        return self.situation.kind

    @property
    def position(self) -> Position:
        """The topic, the queue id and the queue offset of the record."""
        return decode_utf8(self.record.topic), self.record.queue_id, self.record.queue_offset

    @property
    def positions(self) -> list[Position]:
        """`position`, and those in the light message queues that have the record, too."""
        return [self.position, *((topic, 0, offset) for topic, offset in light_queues(self.record).items())]

    @property
    def name(self) -> str:
        """What the record is of, in a few words."""
        if self.kind in (RecordKind.HALF, RecordKind.COMMIT):
            return "the transaction"
        if self.situation.attempt and self.situation.consumer_group is not None:
            return f"retry {self.situation.attempt} of group {self.situation.consumer_group}"
        return "the message"

    @property
    def is_commit(self) -> bool:
        """Whether it has transaction type COMMIT; a delayed or delivered message can have it, too."""
        return self.record.transaction_type == TRANSACTION_COMMIT_TYPE

    @property
    def prepared_queue_offset(self) -> int | None:
        """The queue offset of the first half message, if that was written again before it was asked about."""
        return integer(self.properties.get("TRAN_PREPARED_QUEUE_OFFSET"))

    def followed_by(self, *kinds: EventKind) -> list[Copy]:
        """The copies that follow from it by events of some kinds."""
        return [after for after in self.after if after.event.kind in kinds]

    def follows(self, before: Copy | None, kind: EventKind, text: str) -> None:
        """Make it follow from another copy, if there is one, and give its event another kind and text."""
        if before is not None:
            self.parent = before
            before.after.append(self)
        self.becomes(kind, text)

    def becomes(self, kind: EventKind, text: str) -> None:
        """Give its event another kind and text."""
        self.event = replace(self.event, kind=kind, text=text)


def copies_of(records: Sequence[tuple[Record, Situation]], store: str) -> list[Copy]:
    """The records of one message as copies that follow from one another, in the order of the log."""
    copies: list[Copy] = []
    for record, situation in records:
        event = record_event(
            EventKind.OTHER,
            record,
            situation.text,
            store,
            real_topic=situation.real_topic,
            real_queue_id=situation.real_queue_id,
            consumer_group=situation.consumer_group,
            attempt=situation.attempt,
            check=situation.check,
            due_timestamp=situation.due,
        )
        copy = Copy(event, record=record, situation=situation, properties=record.text_properties)
        if situation.kind in _NO_DELIVERY or not _as_delivery(copy, copies):
            _pair(copy, copies)
        copies.append(copy)
    return copies


def _pair(copy: Copy, earlier: Sequence[Copy]) -> None:
    """Say what a copy is that no delay delivered, and which of the earlier copies it follows."""
    match copy.kind:
        case RecordKind.HALF:
            _as_half(copy, earlier)
        case RecordKind.DISCARDED:
            # A message that is too old to be asked about is counted once more (`needDiscard`, `needSkip`@5.3.3).
            half = _last(earlier, lambda one: _is_last_half(one, copy) and _more_checks(copy, one) in (0, 1))
            copy.follows(half, EventKind.DISCARDED, _what(copy))
        case RecordKind.COMMIT:
            half, offset = _half_of(copy, earlier), copy.record.prepared_transaction_offset
            lacks = "" if half is not None else f"; half message at commit log offset {offset}"
            copy.follows(half, EventKind.COMMITTED, f"committed: {place_text(copy.record)}{lacks}")
        case RecordKind.DELAYED if not copy.situation.real_topic.startswith(RETRY_PREFIX):
            _as_waiting(copy, earlier)
        case RecordKind.DELAYED | RecordKind.RETRY | RecordKind.DEAD_LETTER:
            _as_retried(copy, earlier)
        case RecordKind.TIMER:
            _as_timer(copy, earlier)
        case RecordKind.TIMER_DELETE:
            timer = _last(earlier, lambda one: one.kind is RecordKind.TIMER and cancels(copy.properties, one))
            if timer is not None:
                timer.is_cancelled = True
            copy.follows(timer, EventKind.OTHER if timer is None else EventKind.CANCELLED, _what(copy))
        case RecordKind.NORMAL:
            what = f"; {copy.situation.text}" if copy.situation.text else ""
            copy.becomes(EventKind.SENT, f"{_sent_text(copy.record)}: {place_text(copy.record)}{what}")
        case _:  # a note of the broker; it can have been delayed, too, such as a check point of popped messages
            copy.becomes(EventKind.OTHER, _what(copy))


def join_retries(copies: Sequence[Copy]) -> None:
    """Let retries in one store follow from the message that was delivered first in another one."""
    by_id = {copy.event.offset_message_id: copy for copy in copies}
    for copy in copies:
        origin = by_id.get(copy.properties.get(ORIGIN_MESSAGE_ID, "").upper())
        is_retry = copy.event.kind in RETRIES and copy.parent is None
        if is_retry and origin is not None and origin.event.kind not in RETRIES:
            copy.follows(origin, copy.event.kind, copy.event.text)


def place_text(record: Record) -> str:
    """Topic, queue id and queue offset of a record, for a person."""
    return f"{decode_utf8(record.topic)}/{record.queue_id} offset {record.queue_offset}"


def _what(copy: Copy) -> str:
    return f"{copy.situation.text}: {place_text(copy.record)}"


def _sent_text(record: Record) -> str:
    late = record.store_timestamp - record.born_timestamp
    if late >= _LATE:
        how_late = f", stored {duration_text(late)} late"
    elif late >= 0:
        how_late = f", stored {duration_text(late)} after it was born"
    else:
        how_late = f", born {duration_text(-late)} after it was stored, by the clock of its sender"
    return f"sent by {host_text(record.born_host)}{how_late}"


def _last(earlier: Sequence[Copy], is_one: Callable[[Copy], bool]) -> Copy | None:
    return next(filter(is_one, reversed(earlier)), None)


def _is_same_birth(one: Copy, other: Copy) -> bool:
    return one.record.born_timestamp == other.record.born_timestamp


def _is_last_half(half: Copy, copy: Copy) -> bool:
    """Whether a copy can be what was written after a half message of the same birth."""
    return half.kind is RecordKind.HALF and _is_same_birth(copy, half) and next_half(half) is None


def _more_checks(copy: Copy, before: Copy) -> int:
    return (copy.situation.check or 0) - (before.situation.check or 0)


def next_half(copy: Copy) -> Copy | None:
    """The half message that was written again from this one; None if there is none."""
    return next((after for after in copy.after if after.kind is RecordKind.HALF), None)


def _as_half(copy: Copy, earlier: Sequence[Copy]) -> None:
    checks, queue_id = copy.situation.check or 0, copy.record.queue_id
    before = _last(
        earlier,
        lambda one: _is_last_half(one, copy) and one.record.queue_id == queue_id and _more_checks(copy, one) == 1,
    )
    if before is not None:
        again = "written again, too young to ask" if copy.prepared_queue_offset is not None else f"check {checks}"
        copy.follows(before, EventKind.CHECKED, f"{again}: half message, {place_text(copy.record)}")
    else:
        note = f", after {checks} checks whose half messages are not in the log" if checks else ""
        copy.becomes(EventKind.HALF, f"{_sent_text(copy.record)}: half message{note}, {place_text(copy.record)}")


def _half_of(copy: Copy, earlier: Sequence[Copy]) -> Copy | None:
    offset = copy.record.prepared_transaction_offset
    return next(
        (one for one in earlier if one.kind is RecordKind.HALF and one.record.commit_log_offset == offset), None
    )


def _as_waiting(copy: Copy, earlier: Sequence[Copy]) -> None:
    """A delayed message or a timer that its producer sent, or that a commit stored."""
    half = _half_of(copy, earlier) if copy.is_commit else None
    if half is not None or (copy.is_commit and copy.kind is RecordKind.DELAYED):
        copy.follows(half, EventKind.COMMITTED, f"committed, {_what(copy)}")
    else:
        copy.becomes(EventKind.DELAYED, f"{_sent_text(copy.record)}: {_what(copy)}")


def _as_timer(copy: Copy, earlier: Sequence[Copy]) -> None:
    rolls = _rolls(copy)
    before = _last(
        earlier, lambda one: one.kind is RecordKind.TIMER and _is_same_timer(copy, one) and _rolls(one) + 1 == rolls
    )
    if before is not None:
        copy.follows(before, EventKind.ROLLED, _what(copy))
    else:
        _as_waiting(copy, earlier)
    copy.is_cancelled = any(one.kind is RecordKind.TIMER_DELETE and cancels(one.properties, copy) for one in earlier)


def _rolls(copy: Copy) -> int:
    return integer(copy.properties.get(TIMER_ROLLS)) or 0


def _is_same_timer(one: Copy, other: Copy) -> bool:
    return one.properties.get(TIMER_OUT) == other.properties.get(TIMER_OUT) and _is_same_birth(one, other)


def cancels(properties: dict[str, str], timer: Copy) -> bool:
    """Whether a record with these properties cancels a timer: it names the timer, and has the same time.

    It names it by topic and unique key, up to 5.1 by unique key (`TimerMessageStore.buildDeleteKey`@5.3.3). Only a note
    in the same slot of the wheel is seen, whichever of the two was stored first (`TimerMessageStore.dequeue`@5.3.3).
    """
    deleted, unique_key = properties.get(TIMER_DELETE), timer.properties.get(UNIQUE_KEY)
    if deleted is None or unique_key is None or properties.get(TIMER_OUT) != timer.properties.get(TIMER_OUT):
        return False
    return deleted in (unique_key, f"{timer.situation.real_topic}+{unique_key}")


def _as_retried(copy: Copy, earlier: Sequence[Copy]) -> None:
    """Make a retry or a dead letter follow from the message that was delivered first."""
    kind = EventKind.DEAD if copy.kind is RecordKind.DEAD_LETTER else EventKind.RETRIED
    origin_id, real_topic = copy.properties.get(ORIGIN_MESSAGE_ID), copy.situation.real_topic

    def is_origin(one: Copy) -> bool:
        if origin_id is not None:
            return one.event.offset_message_id == origin_id.upper()
        return one.kind in (RecordKind.NORMAL, RecordKind.COMMIT) and one.situation.real_topic == real_topic

    copy.follows(_last(earlier, is_origin), kind, _what(copy))


def _as_delivery(copy: Copy, earlier: Sequence[Copy]) -> bool:
    """Whether the copy is what became of a delayed message; then it follows from that."""
    candidates = [before for before in earlier if _delivers(copy, before)]
    if not candidates:
        return False
    waiting = [before for before in candidates if not before.followed_by(EventKind.DELIVERED, EventKind.ROLLED)]
    before = waiting[0] if waiting else candidates[-1]
    due = before.situation.due
    late = "" if due is None else f", {duration_text(copy.record.store_timestamp - due)} after it was due"
    again = "" if waiting else " again"
    copy.follows(before, EventKind.DELIVERED, f"delivered{again} to {place_text(copy.record)}{late}")
    return True


def _delivers(copy: Copy, before: Copy) -> bool:
    if before.kind not in (RecordKind.DELAYED, RecordKind.TIMER) or not _is_same_birth(copy, before):
        return False
    if before.kind is RecordKind.TIMER and not _is_same_timer(copy, before):
        return False
    is_there = copy.position[:2] == (before.situation.real_topic, before.situation.real_queue_id)
    return is_there and copy.record.reconsume_times == before.record.reconsume_times
