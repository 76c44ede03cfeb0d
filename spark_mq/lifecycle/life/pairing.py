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

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_row import host_text
from spark_mq.format.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_TYPE_MASK, Record
from spark_mq.lifecycle.life.event import EventKind, Step, duration_text, record_event
from spark_mq.lifecycle.life.situation import (
    ORIGIN_MESSAGE_ID,
    PREPARED_QUEUE_OFFSET,
    TIMER_DELETE,
    TIMER_OUT,
    TIMER_ROLLS,
    Kind,
    Situation,
    integer,
    text_properties,
)
from spark_mq.lifecycle.popped_messages import Place
from spark_mq.lifecycle.retry_topic import RETRY_PREFIX

_LATE = 1000
"""Milliseconds after which a message is called late."""


@dataclass(eq=False)
class Copy:
    """One record with a key of the message, and its step."""

    record: Record
    situation: Situation
    properties: dict[str, str]
    step: Step
    before: Copy | None = None
    after: list[Copy] = field(default_factory=list)

    @property
    def kind(self) -> Kind:
        """What kind of record it is."""
        return self.situation.kind

    @property
    def place(self) -> Place:
        """The topic, the queue id and the queue offset of the record."""
        return decode_utf8(self.record.topic), self.record.queue_id, self.record.queue_offset

    @property
    def is_commit(self) -> bool:
        """Whether it has transaction type COMMIT; a delayed or delivered message can have it, too."""
        return self.record.sys_flag & TRANSACTION_TYPE_MASK == TRANSACTION_COMMIT_TYPE

    @property
    def prepared_queue_offset(self) -> int | None:
        """The queue offset of the first half message, if that was written again before it was asked about."""
        return integer(self.properties.get(PREPARED_QUEUE_OFFSET))

    @property
    def is_over(self) -> bool:
        """Whether a delayed message was delivered, or a timer was written again."""
        return any(after.step.event.kind in (EventKind.DELIVERED, EventKind.ROLLED) for after in self.after)

    def follows(self, before: Copy, kind: EventKind, text: str) -> None:
        """Make it follow from another copy."""
        self.before, self.step.parent = before, before.step
        before.after.append(self)
        self.becomes(kind, text)

    def becomes(self, kind: EventKind, text: str) -> None:
        """Give its event another kind and text."""
        self.step.event = replace(self.step.event, kind=kind, text=text)


def copies_of(records: Sequence[tuple[Record, Situation]], store: str) -> list[Copy]:
    """The records of one message as copies that follow from one another, in the order of the log."""
    copies = [_copy(record, situation, store) for record, situation in records]
    for index, copy in enumerate(copies):
        _PAIRING.get(copy.kind, _as_other)(copy, copies[:index])
    return copies


def place_text(record: Record) -> str:
    """Topic, queue id and queue offset of a record, for a person."""
    return f"{decode_utf8(record.topic)}/{record.queue_id} offset {record.queue_offset}"


def _copy(record: Record, situation: Situation, store: str) -> Copy:
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
    return Copy(record, situation, text_properties(record), Step(event))


def _sent_text(record: Record) -> str:
    late = record.store_timestamp - record.born_timestamp
    if late >= _LATE:
        how_late = f", stored {duration_text(late)} late"
    elif late >= 0:
        how_late = f", stored {duration_text(late)} after it was born"
    else:
        how_late = f", born {duration_text(-late)} after it was stored, by the clock of its sender"
    return f"sent by {host_text(record.born_host)}{how_late}"


def _is_same_birth(one: Copy, other: Copy) -> bool:
    return one.record.born_timestamp == other.record.born_timestamp


def _as_half(copy: Copy, earlier: Sequence[Copy]) -> None:
    checks = copy.situation.check or 0
    for before in reversed(earlier):
        if before.kind is not Kind.HALF or not _is_same_birth(copy, before) or next_half(before) is not None:
            continue
        if before.record.queue_id != copy.record.queue_id or checks != (before.situation.check or 0) + 1:
            continue
        again = "written again, too young to ask" if copy.prepared_queue_offset is not None else f"check {checks}"
        copy.follows(before, EventKind.CHECKED, f"{again}: half message, {place_text(copy.record)}")
        return
    note = f", after {checks} checks whose half messages are not in the log" if checks else ""
    copy.becomes(EventKind.HALF, f"{_sent_text(copy.record)}: half message{note}, {place_text(copy.record)}")


def next_half(copy: Copy) -> Copy | None:
    """The half message that was written again from this one; None if there is none."""
    return next((after for after in copy.after if after.kind is Kind.HALF), None)


def _as_discarded(copy: Copy, earlier: Sequence[Copy]) -> None:
    text = f"{copy.situation.text}: {place_text(copy.record)}"
    for before in reversed(earlier):
        is_last = before.kind is Kind.HALF and _is_same_birth(copy, before) and next_half(before) is None
        # A message that is too old to be asked about is counted once more (`needDiscard`, `needSkip`@5.3.3).
        if is_last and (copy.situation.check or 0) - (before.situation.check or 0) in (0, 1):
            copy.follows(before, EventKind.DISCARDED, text)
            return
    copy.becomes(EventKind.DISCARDED, text)


def _half_of(copy: Copy, earlier: Sequence[Copy]) -> Copy | None:
    offset = copy.record.prepared_transaction_offset
    return next((one for one in earlier if one.kind is Kind.HALF and one.record.commit_log_offset == offset), None)


def _as_commit(copy: Copy, earlier: Sequence[Copy]) -> None:
    if _as_delivery(copy, earlier):
        return
    half = _half_of(copy, earlier)
    text = f"committed: {place_text(copy.record)}"
    if half is None:
        offset = copy.record.prepared_transaction_offset
        copy.becomes(EventKind.COMMITTED, f"{text}; half message at commit log offset {offset}")
        return
    copy.follows(half, EventKind.COMMITTED, text)


def _as_delayed(copy: Copy, earlier: Sequence[Copy]) -> None:
    what = f"{copy.situation.text}: {place_text(copy.record)}"
    if copy.situation.consumer_group is not None or copy.situation.real_topic.startswith(RETRY_PREFIX):
        _as_retried(copy, earlier, EventKind.RETRIED, what)
        return
    half = _half_of(copy, earlier) if copy.is_commit else None
    if half is not None:
        copy.follows(half, EventKind.COMMITTED, f"committed, {what}")
    elif copy.is_commit:
        copy.becomes(EventKind.COMMITTED, f"committed, {what}")
    else:
        copy.becomes(EventKind.DELAYED, f"{_sent_text(copy.record)}: {what}")


def _as_timer(copy: Copy, earlier: Sequence[Copy]) -> None:
    rolls = integer(copy.properties.get(TIMER_ROLLS)) or 0
    what = f"{copy.situation.text}: {place_text(copy.record)}"
    for before in reversed(earlier):
        is_before = before.kind is Kind.TIMER and _is_same_timer(copy, before)
        if is_before and (integer(before.properties.get(TIMER_ROLLS)) or 0) + 1 == rolls:
            copy.follows(before, EventKind.ROLLED, what)
            return
    half = _half_of(copy, earlier) if copy.is_commit else None
    if half is not None:
        copy.follows(half, EventKind.COMMITTED, f"committed, {what}")
    else:
        copy.becomes(EventKind.DELAYED, f"{_sent_text(copy.record)}: {what}")


def _is_same_timer(one: Copy, other: Copy) -> bool:
    is_same_time = one.properties.get(TIMER_OUT) == other.properties.get(TIMER_OUT)
    return is_same_time and _is_same_birth(one, other)


def _as_timer_delete(copy: Copy, earlier: Sequence[Copy]) -> None:
    what = f"{copy.situation.text}: {place_text(copy.record)}"
    for before in reversed(earlier):
        if before.kind is Kind.TIMER and cancels(copy.properties, before):
            copy.follows(before, EventKind.CANCELLED, what)
            return
    copy.becomes(EventKind.OTHER, what)


def cancels(properties: dict[str, str], timer: Copy) -> bool:
    """Whether a later record with these properties cancels a timer: it names the timer, and has the same time.

    It names it by topic and unique key, up to 5.1 by unique key (`TimerMessageStore.buildDeleteKey`@5.3.3). Only a note
    in the same slot of the wheel is seen (`TimerDequeueGetMessageService`@5.3.3).
    """
    deleted, unique_key = properties.get(TIMER_DELETE), timer.properties.get("UNIQ_KEY")
    if deleted is None or unique_key is None or properties.get(TIMER_OUT) != timer.properties.get(TIMER_OUT):
        return False
    return deleted in (unique_key, f"{timer.situation.real_topic}+{unique_key}")


def _as_retry(copy: Copy, earlier: Sequence[Copy]) -> None:
    if not _as_delivery(copy, earlier):
        _as_retried(copy, earlier, EventKind.RETRIED, f"{copy.situation.text}: {place_text(copy.record)}")


def _as_dead(copy: Copy, earlier: Sequence[Copy]) -> None:
    _as_retried(copy, earlier, EventKind.DEAD, f"{copy.situation.text}: {place_text(copy.record)}")


def _as_retried(copy: Copy, earlier: Sequence[Copy], kind: EventKind, text: str) -> None:
    """Make the copy follow from the message that was delivered first."""
    copy.becomes(kind, text)
    origin_id = copy.properties.get(ORIGIN_MESSAGE_ID)
    for before in reversed(earlier):
        is_consumed = before.kind in (Kind.NORMAL, Kind.COMMIT)
        if origin_id is None and is_consumed and before.situation.real_topic == copy.situation.real_topic:
            copy.follows(before, kind, text)
            return
        if origin_id is not None and before.step.event.offset_message_id == origin_id.upper():
            copy.follows(before, kind, text)
            return


def _as_normal(copy: Copy, earlier: Sequence[Copy]) -> None:
    if not _as_delivery(copy, earlier):
        what = f"; {copy.situation.text}" if copy.situation.text else ""
        copy.becomes(EventKind.SENT, f"{_sent_text(copy.record)}: {place_text(copy.record)}{what}")


def _as_delivery(copy: Copy, earlier: Sequence[Copy]) -> bool:
    """Whether the copy is what became of a delayed message; then it follows from that."""
    candidates = [before for before in earlier if _delivers(copy, before)]
    waiting = [before for before in candidates if not before.is_over]
    if not candidates:
        return False
    before = (waiting or candidates)[0 if waiting else -1]
    due = before.situation.due
    late = "" if due is None else f", {duration_text(copy.record.store_timestamp - due)} after it was due"
    again = "" if waiting else " again"
    copy.follows(before, EventKind.DELIVERED, f"delivered{again} to {place_text(copy.record)}{late}")
    return True


def _delivers(copy: Copy, before: Copy) -> bool:
    if before.kind not in (Kind.DELAYED, Kind.TIMER) or not _is_same_birth(copy, before):
        return False
    if before.kind is Kind.TIMER and not _is_same_timer(copy, before):
        return False
    place = decode_utf8(copy.record.topic), copy.record.queue_id
    is_there = place == (before.situation.real_topic, before.situation.real_queue_id)
    return is_there and copy.record.reconsume_times == before.record.reconsume_times


def _as_other(copy: Copy, earlier: Sequence[Copy]) -> None:
    """A note of the broker; it can have been delayed, too, such as a check point of popped messages."""
    if _as_delivery(copy, earlier):
        return
    copy.becomes(EventKind.OTHER, f"{copy.situation.text}: {place_text(copy.record)}")


_PAIRING = {
    Kind.HALF: _as_half,
    Kind.DISCARDED: _as_discarded,
    Kind.COMMIT: _as_commit,
    Kind.DELAYED: _as_delayed,
    Kind.TIMER: _as_timer,
    Kind.TIMER_DELETE: _as_timer_delete,
    Kind.RETRY: _as_retry,
    Kind.DEAD_LETTER: _as_dead,
    Kind.NORMAL: _as_normal,
}
