"""The life of a message: everything that stores have of it, in the order of time.

Nothing but look-ups: the key in the index (`life_store`), single records by their offsets, and a few units of the
broker's own queues (`life_store`). What no index file covers is read in the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import chain
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.format.dispatch import undispatched_queues
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import is_offset_message_id
from spark_mq.format.record import Record
from spark_mq.format.system_topic import RETRY_PREFIX, TRACE_TOPIC
from spark_mq.lifecycle.life.event import Event, EventKind, Step, TracedStep, numbered, time_text, traced_steps
from spark_mq.lifecycle.life.life_store import FoundMessages, LifeStore, MessageExpiry, life_store
from spark_mq.lifecycle.life.outcome import (
    ConsumerState,
    LifeSource,
    MessageConsumer,
    Outcome,
    Outcomes,
    find_pops,
    pop_text,
)
from spark_mq.lifecycle.life.pairing import RETRIES, Copy, copies_of, join_retries
from spark_mq.lifecycle.life.situation import KEYS, ORIGIN_MESSAGE_ID, TAGS, UNIQUE_KEY, RecordKind
from spark_mq.lifecycle.outcomes import State
from spark_mq.lifecycle.popped_messages import PoppedMessages
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import CONSUMER_OFFSETS
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.message_store import MessageStore

_MAX_COPIES = 1_000
"""Records of one message that are told; a message with more is not an ordinary one."""
_MAX_CONSUMED = 10
"""Copies of a message for which consumer groups are told: a key can be sent many times."""
DEFAULT_LIMIT = 10
_NO_MESSAGE = Outcome(State.UNKNOWN, "the log does not have the message itself")


@dataclass(frozen=True)
class MessageLife:
    """The life of one message: what happened, in the order of time, what became of it, and the groups of its topic.

    `reason` is why the state is UNKNOWN. `expiries` are of all segments that have a record of it. For a person, `next`
    says what happens next, and `unknown` what cannot be known.
    """

    unique_key: str | None
    topic: str | None
    queue_id: int | None
    keys: tuple[str, ...]
    tags: str | None
    state: State
    reason: str | None
    events: tuple[Event, ...]
    consumers: tuple[MessageConsumer, ...]
    expiries: tuple[MessageExpiry, ...]
    next: tuple[str, ...]
    unknown: tuple[str, ...]


@dataclass
class FoundMessage:
    """What one store has of one message: its records in the order of the log, and its trace events."""

    source: LifeSource
    records: list[Record]
    traces: list[TracedStep]


def message_life(found: Sequence[FoundMessage], record: Record | None = None) -> MessageLife:
    """The life of one message out of what all stores have of it.

    The messages of a batch have one unique key, and a producer can send a key again: then this tells of all of them.
    """
    parts = [_LifeInStore(one) for one in (found if record is None else _connected(found, record))]
    copies = [copy for part in parts for copy in part.copies]
    join_retries(copies)
    for part in parts:
        part.note_what_is_not_known()
    outcomes = [part.outcome for part in parts if part.outcome is not None]
    _, outcome = max(outcomes, key=lambda one: one[0], default=(0, _NO_MESSAGE))
    first = min(copies, key=lambda copy: copy.order, default=None)
    properties = {} if first is None else first.properties
    traced = next((trace.unique_key for one in found for trace in one.traces), None)
    expiries = [expiry for part in parts for expiry in part.expiries()]
    coming = [text for part in parts for text in part.coming()]
    return MessageLife(
        unique_key=properties.get(UNIQUE_KEY, traced),
        topic=None if first is None else first.situation.real_topic,
        queue_id=None if first is None else first.situation.real_queue_id,
        keys=tuple(dict.fromkeys(key for copy in copies for key in copy.properties.get(KEYS, "").split(" ") if key)),
        tags=properties.get(TAGS),
        state=outcome.state,
        reason=outcome.reason,
        events=numbered([step for part in parts for step in part.steps]),
        consumers=tuple(one for part in parts for one in part.consumers()),
        expiries=tuple(expiries),
        next=(*coming, *(expiry.text for expiry in expiries)),
        unknown=tuple(dict.fromkeys(text for part in parts for text in part.unknown)),
    )


class _LifeInStore:
    """The copies of a message in one store, and what became of them."""

    def __init__(self, found: FoundMessage) -> None:
        self.source = found.source
        self.copies = _copies(found)
        self.steps: list[Step] = [*self.copies, *found.traces]
        self.unknown: list[str] = []
        self.waiting: list[tuple[Copy, Outcome]] = []
        self.outcome: tuple[int, Outcome] | None = None
        """When the last message was stored of which an outcome is known, and the outcome."""
        left_out = len(found.records) - len(self.copies)
        if left_out:
            self.unknown.append(f"{left_out:,} more records of the message, which are not told")
        outcomes = Outcomes(self.source, lambda: self.unknown[0] if left_out else self.source.missing, self.steps)
        for copy in self.copies:
            kind = copy.event.kind
            if kind is EventKind.RETRIED and copy.kind is RecordKind.DELAYED:
                self._add(copy, outcomes.delivery(copy))
            elif copy.parent is None and kind not in RETRIES:
                outcome = outcomes.of(copy)
                if kind is not EventKind.OTHER:
                    self._add(copy, outcome)
                    self.outcome = copy.record.store_timestamp, outcome
                elif self.outcome is None:
                    self.outcome = -1, outcome
        self._note_retries()

    def _add(self, copy: Copy, outcome: Outcome) -> None:
        if outcome.reason is not None:
            self.unknown.append(f"what became of {copy.name}: {outcome.reason}")
        self.waiting.append((copy, outcome))

    def _note_retries(self) -> None:
        """Say in the events of retries whether their group has consumed them."""
        for copy in self.copies:
            group, event = copy.situation.consumer_group, copy.event
            if copy.kind is not RecordKind.RETRY or group is None:
                continue
            offset = self.source.consumers.offset(group, event.topic or "", copy.record.queue_id)
            if offset is not None and (offset > copy.record.queue_offset or not self._is_later(copy)):
                is_past = offset > copy.record.queue_offset
                has = f"the group is past it (offset {offset})" if is_past else "the group has not consumed it yet"
                popped = self._pops.last(group, copy.position) if is_past and self._is_popped(copy) else None
                has += "" if popped is None else f"; {pop_text(popped)}"
                copy.event = replace(event, text=f"{event.text}; {has}", consumer_group=group)

    def note_what_is_not_known(self) -> None:
        """Add the reasons for events whose origin is not there, and for what cannot be known of this store."""
        for copy in self.copies:
            kind = copy.event.kind
            if copy.parent is not None:
                continue
            if kind is EventKind.COMMITTED:
                half = self.source.store.find_record(copy.record.prepared_transaction_offset)
                reason = half.reason if isinstance(half, NoRecord) else "the record there is another one"
                self.unknown.append(f"when its half message was stored: {reason}")
            elif kind in RETRIES:
                self.unknown.append(f"when {copy.name} was delivered first: {self._why_no_origin(copy)}")
            elif kind is EventKind.SENT and copy.situation.text:
                self.unknown.append("when it was sent: the log does not have the delayed message")
            elif kind is EventKind.DISCARDED:
                self.unknown.append("when its half message was stored: the log does not have it")
        for damage in self.source.damage:
            self.unknown.append(f"messages that can be missing: {damage}")
        if any(self._is_later(copy) for copy in self.copies):
            self.unknown.append(f"which consumer groups are past it: it was stored after config/{CONSUMER_OFFSETS}")
        if self.source.consumers.problem is not None:
            self.unknown.append(self.source.consumers.problem)
        self.unknown += self.source.store.not_known

    def _why_no_origin(self, copy: Copy) -> str:
        origin_id = copy.properties.get(ORIGIN_MESSAGE_ID)
        if origin_id is None:
            return "the record does not name the message"
        try:
            origin = self.source.store.find_record_by_id(origin_id)
        except OptionError as error:
            return str(error)
        return origin.reason if isinstance(origin, NoRecord) else f"message {origin_id} has another unique key"

    def consumers(self) -> Iterator[MessageConsumer]:
        """The groups of the copies that consumers get, the last copies of them."""
        for copy in self._consumed:
            for one in chain.from_iterable(self.source.consumers.of(*position) for position in copy.positions):
                if one.state is ConsumerState.PAST:
                    yield one.with_pops(self._pops)
                elif not self._is_later(copy):
                    yield one

    @property
    def _consumed(self) -> list[Copy]:
        return [copy for copy in self.copies if copy.kind in (RecordKind.NORMAL, RecordKind.COMMIT)][-_MAX_CONSUMED:]

    @cached_property
    def _pops(self) -> PoppedMessages:
        """The pops of the copies that some group is past."""
        passed = [copy for copy in self.copies if self._is_popped(copy)]
        for copy in self._consumed:
            if any(one.state is ConsumerState.PAST for one in self.source.consumers.of(*copy.position)):
                passed.append(copy)
        pops, cuts = find_pops(self.source.store, {copy.position: copy.record.commit_log_offset for copy in passed})
        self.unknown += [f"whether a group popped it: {cut}" for cut in cuts]
        if pops.are_acknowledged:
            return pops
        missing = self.source.missing
        if missing is not None:
            self.unknown.append(f"whether a group acknowledged it: {missing}")
        return pops.only_acknowledged() if cuts or missing is not None else pops

    def _is_popped(self, copy: Copy) -> bool:
        """Whether a copy is in a retry topic whose messages the group pops."""
        group = copy.situation.consumer_group
        return copy.kind is RecordKind.RETRY and group is not None and copy.event.topic != f"{RETRY_PREFIX}{group}"

    def _is_later(self, copy: Copy) -> bool:
        """Whether the files of `config/` are older than a copy, as those of an archive's newest snapshot can be."""
        end = self.source.store.config_end
        return end is not None and copy.record.commit_log_offset >= end

    def expiries(self) -> Sequence[MessageExpiry]:
        """When the segments of the copies expire."""
        offsets = [copy.record.commit_log_offset for copy in self.copies]
        source = self.source
        return source.store.expiries(offsets, source.conf, source.name, source.at) if offsets else ()

    def coming(self) -> Iterator[str]:
        """What the broker does next, as texts for a person."""
        for copy, outcome in self.waiting:
            due = copy.situation.due
            if outcome.state is State.WAITING and due is not None:
                yield f"{copy.name} is delivered at {time_text(due)}"
            elif outcome.state is State.OVERDUE:
                yield f"{copy.name} is delivered as soon as its broker runs"
            elif outcome.state is State.PENDING:
                group = copy.properties.get("PGROUP")
                yield f"the broker asks producer group {group} about the transaction, or gives it up"
        for name in dict.fromkeys(chain.from_iterable(undispatched_queues(copy.record) for copy in self.copies)):
            yield f"consumers of {name} never get it: the list with this name has another number of queue offsets"


def _copies(found: FoundMessage) -> list[Copy]:
    situations = found.source.situations
    return copies_of([(one, situations.of(one)) for one in found.records[:_MAX_COPIES]], found.source.name)


def _connected(found: Sequence[FoundMessage], record: Record) -> list[FoundMessage]:
    """What was found, without messages that only have the same unique key as a record."""
    copies = [copy for one in found for copy in _copies(one)]
    join_retries(copies)
    start = next((copy for copy in copies if copy.record == record), None)
    if start is None:
        return list(found)
    while isinstance(start.parent, Copy):
        start = start.parent
    kept, waiting = set(), [start]
    while waiting:
        copy = waiting.pop()
        kept.add((copy.event.store, copy.record.commit_log_offset))
        waiting += copy.after
    return [
        replace(one, records=[each for each in one.records if (one.source.name, each.commit_log_offset) in kept])
        for one in found
    ]


@dataclass(frozen=True)
class Lives:
    """The answer of `life`, the newest message first.

    `more` further messages have the key. `has_even_more` is whether there are still more, which were not looked at.
    """

    lives: tuple[MessageLife, ...]
    more: int = 0
    has_even_more: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The answer as values that JSON can have; times are milliseconds since the epoch."""
        return asdict(self)


def life(
    store: MessageStore | LifeStore | Mapping[str, MessageStore | LifeStore],
    key_or_id: str,
    topic: str | None = None,
    limit: int = DEFAULT_LIMIT,
    at: int | datetime | None = None,
    broker_conf: str | None = None,
    any_host: bool = False,
    trace_topic: str = TRACE_TOPIC,
) -> Lives:
    """The lives of the messages that have a key or an id.

    Args:
        store: The store, or several by the names that events give them: a message can be sent in one, and be retried
            in another.
        key_or_id: A unique key, one key of KEYS, or an offset message id.
        topic: Only messages that belong to this topic; None for all.
        limit: The largest number of messages to tell of.
        at: The time of the question: epoch milliseconds or an aware datetime; None for now, or for the
            newest time of which an archive knows the store.
        broker_conf: The file of the broker's settings, for `messageDelayLevel`, `fileReservedTime` and `deleteWhen`;
            None for those with which each store was opened.
        any_host: Whether the host of an offset message id is ignored; see `MessageStore.find_record_by_id`.
        trace_topic: The topic of trace messages.

    Raises:
        OptionError: An argument, or a setting of the broker, is not valid.

    Examples:
        >>> for event in life(MessageStore("/data/store"), "7F0000010B5F18B4AAC28F1B3B6D0000").lives[0].events:
        ...     print(event.timestamp, event.text)
    """
    if not key_or_id:
        raise OptionError("the key or id is empty")
    stores = store if isinstance(store, Mapping) else {"": store}
    conf = None if broker_conf is None else BrokerConf.of(broker_conf)
    opened = {name: life_store(one) for name, one in stores.items()}
    sources = [
        LifeSource(one, name, conf or one.broker_conf, one.moment(at), trace_topic) for name, one in opened.items()
    ]
    groups: dict[object, list[FoundMessage]] = {}
    has_even_more = False
    key, record = _resolved(sources, key_or_id, any_host)
    for source in sources:
        if isinstance(key, Record):
            own = source.store.find_record(key.commit_log_offset)
            found = FoundMessages((own,) if own == key else ())
        else:
            found = source.store.find_key(key, (trace_topic,))
            source.damage = found.damage
        has_even_more |= found.has_more
        for name, one in _messages(source, found, key).items():
            groups.setdefault(name, []).append(one)
    if record is not None and isinstance(key, str):
        groups = {name: found for name, found in groups.items() if name == key}
    lives = sorted(groups.values(), key=_newest, reverse=True)
    if topic is not None:
        lives = [one for one in lives if _belongs_to(one, topic)]
    shown = tuple(message_life(one, record) for one in lives[: max(limit, 0)])
    return Lives(shown, len(lives) - len(shown), has_even_more)


def _resolved(sources: Sequence[LifeSource], key_or_id: str, any_host: bool) -> tuple[str | Record, Record | None]:
    """What to look up, and the record that has the text as its offset message id; None if there is none.

    What to look up is the unique key of that record, or the record if it has none; else the text.
    """
    if not is_offset_message_id(key_or_id):
        return key_or_id, None
    for source in sources:
        record = source.store.find_record_by_id(key_or_id, any_host)
        if isinstance(record, Record):
            return record.text_properties.get(UNIQUE_KEY) or record, record
    return key_or_id, None


def _messages(source: LifeSource, found: FoundMessages, key: str | Record) -> dict[object, FoundMessage]:
    """What was found, by message: by its unique key, or a record by its offset if it has none."""
    messages: dict[object, FoundMessage] = {}
    traces: list[TracedStep] = []
    for record in found.records:
        if source.situations.of(record).kind is RecordKind.TRACE:
            traces += traced_steps(record, source.name)
            continue
        name = record.text_properties.get(UNIQUE_KEY, (source.name, record.commit_log_offset))
        messages.setdefault(name, FoundMessage(source, [], [])).records.append(record)
    for traced in traces:
        if traced.unique_key in messages or traced.unique_key == key or key in traced.keys:
            messages.setdefault(traced.unique_key, FoundMessage(source, [], [])).traces.append(traced)
    return messages


def _newest(found: Sequence[FoundMessage]) -> tuple[int, int]:
    """The store time and the offset of the first record of a message: the newest message is told first."""
    firsts = [(one.records[0].store_timestamp, one.records[0].commit_log_offset) for one in found if one.records]
    return min(firsts, key=lambda first: first[0], default=(0, 0))


def _belongs_to(found: Sequence[FoundMessage], topic: str) -> bool:
    return any(
        topic in (decode_utf8(record.topic), one.source.situations.of(record).real_topic)
        for one in found
        for record in one.records
    )
