"""What one record means: its kind, its real topic and queue, and a short text for a person.

A broker stores a message that is not ready for consumers in a topic of its own, and puts the topic and queue id to
which it belongs into the properties REAL_TOPIC and REAL_QID (`HookUtils.handleScheduleMessage`,
`TransactionalMessageBridge.parseHalfMessageInner`@5.3.3; the same in 4.9). A retry and a dead letter have the topic of
the first delivery in RETRY_TOPIC (`AbstractSendMessageProcessor.consumerSendMsgBack`@5.3.3); the queue is not noted.

A record alone does not show what happened after it was stored: see `life`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING

from spark_mq.format.amounts import counted, duration_text
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.record import TRANSACTION_COMMIT_TYPE, TRANSACTION_PREPARED_TYPE, TRANSACTION_ROLLBACK_TYPE, Record
from spark_mq.format.system_topic import (
    DEFAULT_DELAY_LEVELS,
    DISCARD_TOPIC,
    HALF_TOPIC,
    LEFT_OUT_TOPIC,
    OP_TOPIC,
    RETRY_PREFIX,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_PREFIX,
    TRACE_TOPIC,
    TRANS_OFFSET,
    delay_level_millis,
)
from spark_mq.lifecycle.life.event import body_of, time_text
from spark_mq.lifecycle.retry_topic import (
    DLQ_PREFIX,
    ConsumerGroups,
    consumer_groups,
    parse_retry_topic,
    retry_max_times,
)
from spark_mq.store.config.broker_conf import BrokerConf

if TYPE_CHECKING:
    from spark_mq.lifecycle.life.life_store import LifeStore
    from spark_mq.store.message_store import MessageStore

REAL_TOPIC, RETRY_TOPIC, ORIGIN_MESSAGE_ID = "REAL_TOPIC", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
UNIQUE_KEY, KEYS, TAGS = "UNIQ_KEY", "KEYS", "TAGS"
TIMER_OUT, TIMER_ROLLS, TIMER_DELETE = "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TIMER_DEL_UNIQKEY"

_SHOWN_OFFSETS = 10


class RecordKind(StrEnum):
    """What kind of record it is."""

    NORMAL = "NORMAL"  # a message that consumers of its topic can get
    HALF = "HALF"  # a message of a transaction that was not decided when the record was stored
    OP = "OP"  # a note of the broker: half messages that are decided
    COMMIT = "COMMIT"  # the message of a committed transaction
    DISCARDED = "DISCARDED"  # a half message that the broker gave up
    PREPARED = "PREPARED"  # transaction type PREPARED, which no queue has; from 4.3 on there are half messages instead
    ROLLBACK = "ROLLBACK"  # a message of transaction type ROLLBACK, which no queue and no index has
    DELAYED = "DELAYED"  # a message that waits, or waited, for its delay level
    TIMER = "TIMER"  # a message that waits, or waited, for a time
    TIMER_DELETE = "TIMER_DELETE"  # a note that cancels a timer
    RETRY = "RETRY"  # a message that a consumer group gets again
    DEAD_LETTER = "DEAD_LETTER"  # a message that a consumer group gave up
    TRACE = "TRACE"  # trace events of clients
    REVIVE = "REVIVE"  # a note of the broker about messages that were popped
    LEFT_OUT = "LEFT_OUT"  # a record that takes the place of messages that a restore left out


@dataclass(frozen=True)
class SituationRules:
    """What a store's settings say about the meaning of its records."""

    delays: Sequence[int] = field(default_factory=lambda: delay_level_millis(DEFAULT_DELAY_LEVELS))
    groups: ConsumerGroups = field(default_factory=lambda: ConsumerGroups(frozenset(), are_all=False))
    topics: Collection[str] | None = None
    retry_max_times: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Situation:
    """What one record means."""

    kind: RecordKind
    real_topic: str
    real_queue_id: int | None
    text: str = ""
    consumer_group: str | None = None
    attempt: int | None = None
    check: int | None = None
    level: int | None = None
    due: int | None = None


class Situations:
    """What records of one store mean. The rules are asked for when the first retry or delayed message is.

    Without a store, nothing else than the records is known, and the settings are those that a store has by default.
    """

    def __init__(
        self, store: MessageStore | LifeStore | None, conf: BrokerConf | None = None, trace_topic: str = TRACE_TOPIC
    ) -> None:
        """`conf` is for `messageDelayLevel`; by default it is that of the store."""
        self._given = store
        self._conf = conf
        self._trace_topic = trace_topic

    @cached_property
    def _store(self) -> LifeStore | None:
        from spark_mq.lifecycle.life.life_store import life_store

        return None if self._given is None else life_store(self._given)

    @cached_property
    def rules(self) -> SituationRules:
        """The rules of the store."""
        store = self._store
        if store is None:
            return SituationRules()
        conf = self._conf or store.broker_conf
        return SituationRules(
            delay_level_millis(conf.message_delay_level),
            consumer_groups(store.location),
            frozenset(store.known_topics()),
            retry_max_times(store.location),
        )

    def of(self, record: Record) -> Situation:
        """What a record means; for a delayed message, its unit says when it is due."""
        is_delayed = decode_utf8(record.topic) == SCHEDULE_TOPIC
        due = self._store.due(record) if is_delayed and self._store else None
        return _Reading(record, lambda: self.rules, self._trace_topic, due).situation()


def integer(text: str | None) -> int | None:
    """The value of a property that a broker wrote as an integer; None for any other text, and without the property."""
    return int(text) if text is not None and len(text) <= 18 and re.fullmatch("-?[0-9]+", text) else None


class _Reading:
    def __init__(self, record: Record, rules: Callable[[], SituationRules], trace_topic: str, due: int | None) -> None:
        self._record, self._due = record, due
        self._rules, self._trace_topic = rules, trace_topic
        self._topic = decode_utf8(record.topic)
        self._properties = record.text_properties

    def situation(self) -> Situation:
        topic = self._topic
        known = {
            HALF_TOPIC: self._half,
            ROCKSDB_HALF_TOPIC: self._half,
            DISCARD_TOPIC: self._discarded,
            SCHEDULE_TOPIC: self._delayed,
            TIMER_TOPIC: self._timer,
        }
        if topic in known:
            return known[topic]()
        if topic == OP_TOPIC:
            from spark_mq.lifecycle.outcomes import half_queue_offsets

            return self._own(RecordKind.OP, _op_text(half_queue_offsets(body_of(self._record) or b"")))
        if topic == ROCKSDB_OP_TOPIC:
            half = self._number(TRANS_OFFSET)
            return self._own(RecordKind.OP, _op_text([] if half is None else [half]))
        if topic.startswith(RETRY_PREFIX):
            group, attempt, text = self._attempt(self._topic)
            parsed = parse_retry_topic(self._topic, self._rules().groups, self._rules().topics)
            origin = self._properties.get(RETRY_TOPIC) or (parsed.origin_topic if parsed else None) or self._topic
            return Situation(RecordKind.RETRY, origin, None, text, group, attempt)
        if topic.startswith(DLQ_PREFIX):
            return self._dead_letter()
        if topic == self._trace_topic or topic.startswith(TRACE_PREFIX):
            return self._own(RecordKind.TRACE, "trace message")
        if topic.startswith(REVIVE_PREFIX):
            return self._own(RecordKind.REVIVE, "note about popped messages")
        if topic == LEFT_OUT_TOPIC:
            return self._own(RecordKind.LEFT_OUT, "takes the place of messages that a restore left out")
        return self._delivered()

    def _own(self, kind: RecordKind, text: str) -> Situation:
        return Situation(kind, self._topic, self._record.queue_id, text)

    @property
    def _real(self) -> tuple[str, int | None]:
        """REAL_TOPIC and REAL_QID; those of the record if it has no REAL_TOPIC."""
        real = self._properties.get(REAL_TOPIC)
        return (self._topic, self._record.queue_id) if real is None else (real, self._number("REAL_QID"))

    def _number(self, name: str) -> int | None:
        return integer(self._properties.get(name))

    def _half(self) -> Situation:
        check = self._number("TRANSACTION_CHECK_TIMES")
        text = "half message" if check is None else f"half message, check {check}"
        return Situation(RecordKind.HALF, *self._real, text, check=check)

    def _discarded(self) -> Situation:
        check = self._number("TRANSACTION_CHECK_TIMES")
        after = "" if check is None else f" after {counted(check, 'check')}"
        return Situation(RecordKind.DISCARDED, *self._real, f"half message that the broker gave up{after}", check=check)

    def _delayed(self) -> Situation:
        # `ScheduleMessageService.queueId2DelayLevel`@5.3.3; the property can have a level above the highest one.
        level, delays, due = self._record.queue_id + 1, self._rules().delays, self._due
        delay = delays[level - 1] if 1 <= level <= len(delays) else None
        if due is None and delay is not None:
            due = self._record.store_timestamp + delay
        name = f"level {level}" if delay is None else f"level {level}, {duration_text(delay)}"
        text = f"delayed ({name}), due {_due_text(due)}"
        real_topic, real_queue_id = self._real
        group, attempt = None, None
        if real_topic.startswith(RETRY_PREFIX):
            group, attempt, before = self._attempt(real_topic)
            text = f"{before}, {text}"
        return Situation(RecordKind.DELAYED, real_topic, real_queue_id, text, group, attempt, level=level, due=due)

    def _timer(self) -> Situation:
        due, rolls = self._number(TIMER_OUT), self._number(TIMER_ROLLS)
        rolled = f" (rolled {counted(rolls, 'time')})" if rolls else ""
        deleted = self._properties.get(TIMER_DELETE)
        what = "timer" if deleted is None else f"cancels the timer of {deleted}"
        kind = RecordKind.TIMER if deleted is None else RecordKind.TIMER_DELETE
        return Situation(kind, *self._real, f"{what}{rolled}, due {_due_text(due)}", due=due)

    def _attempt(self, retry_topic: str) -> tuple[str | None, int, str]:
        """The group of a retry topic, the number of failed deliveries, and both as text."""
        parsed = parse_retry_topic(retry_topic, self._rules().groups, self._rules().topics)
        group = None if parsed is None else parsed.consumer_group
        if group is None and parsed is not None and parsed.reason is not None and "_" in retry_topic:
            # Only a message that was popped is without ORIGIN_MESSAGE_ID (`PopReviveService.reviveRetry`@5.3.3).
            group = retry_topic.removeprefix(RETRY_PREFIX) if ORIGIN_MESSAGE_ID in self._properties else None
        attempt = self._record.reconsume_times
        most = None if group is None else self._rules().retry_max_times.get(group)
        number = f"retry {attempt}" if most is None else f"retry {attempt} of {most}"
        owner = f"group {group}" if group is not None else f"the group of topic {retry_topic}"
        return group, attempt, f"{number} of {owner}"

    def _dead_letter(self) -> Situation:
        group = self._topic.removeprefix(DLQ_PREFIX)
        origin = self._properties.get(RETRY_TOPIC) or self._properties.get("DLQ_ORIGIN_TOPIC") or self._topic
        attempt = self._record.reconsume_times
        after = f" after {counted(attempt, 'failed delivery', 'failed deliveries')}" if attempt > 0 else ""
        return Situation(RecordKind.DEAD_LETTER, origin, None, f"dead letter of group {group}{after}", group, attempt)

    def _delivered(self) -> Situation:
        """A record in a topic of producers, or of transaction type PREPARED or ROLLBACK."""
        transaction = self._record.transaction_type
        if transaction == TRANSACTION_PREPARED_TYPE:
            return self._own(RecordKind.PREPARED, "transaction type PREPARED: in no queue")
        if transaction == TRANSACTION_ROLLBACK_TYPE:
            return self._own(RecordKind.ROLLBACK, "transaction type ROLLBACK: in no queue, and in no index")
        kind, texts = RecordKind.NORMAL, []
        if transaction == TRANSACTION_COMMIT_TYPE:
            half = self._record.prepared_transaction_offset
            kind = RecordKind.COMMIT
            texts.append(f"committed transaction, half message at commit log offset {half}")
        level = self._number("DELAY")
        if "TIMER_DEQUEUE_MS" in self._properties:
            texts.append("delivered by a timer")
        elif level is not None and level > 0 and self._properties.get(REAL_TOPIC) == self._topic:
            texts.append(f"delivered after a delay (level {level})")
        return self._own(kind, "; ".join(texts))


def _due_text(due: int | None) -> str:
    return "at a time that is not known" if due is None else time_text(due)


def _op_text(offsets: Sequence[int]) -> str:
    if not offsets:
        return "op message that names no half message"
    shown = ", ".join(map(str, offsets[:_SHOWN_OFFSETS]))
    if len(offsets) == 1:
        return f"op message: half message {shown} is decided"
    more = f" and {len(offsets) - _SHOWN_OFFSETS} more" if len(offsets) > _SHOWN_OFFSETS else ""
    return f"op message: half messages {shown}{more} are decided"
