"""What became of a message in one store: the facts for the rules of `outcomes`, by look-ups.

Consumer groups are past a message by their offsets in its queue, or by what they popped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from spark_mq.format.amounts import counted
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.system_topic import (
    HALF_TOPIC,
    OP_TOPIC,
    REVIVE_PREFIX,
    ROCKSDB_HALF_TOPIC,
    ROCKSDB_OP_TOPIC,
    TIMER_TOPIC,
    TRANS_OFFSET,
)
from spark_mq.io.location import Location
from spark_mq.lifecycle.life.event import EventKind, Step, body_of, record_event, time_text
from spark_mq.lifecycle.life.life_store import Cut, LifeStore
from spark_mq.lifecycle.life.pairing import Copy, cancels, next_half, place_text
from spark_mq.lifecycle.life.situation import RecordKind, Situations, integer
from spark_mq.lifecycle.outcomes import (
    NO_DOUBT,
    NOT_IN_LOG,
    REMOVE_TAG,
    SLOT_IS_READ,
    TIMER_PRECISION,
    TRANSACTION_GROUP,
    Case,
    DeliveryProgress,
    State,
    delivery_cases,
    half_queue_offsets,
    transaction_cases,
)
from spark_mq.lifecycle.popped_messages import (
    NOTE_TAGS,
    PopNote,
    Popped,
    PoppedMessages,
    PopState,
    Position,
    parse_pop_note,
)
from spark_mq.lifecycle.retry_topic import consumer_offsets
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.config_file import CONSUMER_OFFSETS, DELAY_OFFSETS, read_config

_OPS_AFTER_COMMIT = 1_000
"""Op messages after a commit among which its own is searched for: it follows soon (`transactionOpBatchInterval`)."""


def find_pops(store: LifeStore, positions: Mapping[Position, int]) -> tuple[PoppedMessages, tuple[str, ...]]:
    """The pops of some messages, and why notes about pops can be missing, as texts for a person."""
    if not positions:
        return PoppedMessages(), ()
    unread = store.unread_pops()
    cuts = [] if unread is None else [unread]
    notes = []
    for part in store.revive_messages(min(positions.values())):
        note = part if isinstance(part, Cut) else _note_of(part)
        if isinstance(note, Cut):
            cuts.append(note.reason)
        elif note is not None:
            notes.append(note)
    return PoppedMessages(notes, positions.__contains__), tuple(dict.fromkeys(cuts))


def pop_text(popped: Popped) -> str:
    """The pop in a few words."""
    text = f"the group popped it at {time_text(popped.pop_timestamp)}"
    if popped.is_acknowledged:
        return f"{text}, and acknowledged it"
    visible = time_text(popped.visible_timestamp)
    return f"{text}, and has not acknowledged it: from {visible} on, the broker gives it to the group again"


def _note_of(message: Record) -> PopNote | Cut | None:
    """The note in a message of the timer or of a revive topic; None if it is another message."""
    properties = parse_properties(message.properties)
    if b"\0" in message.properties:  # see `sound_messages`
        return Cut(f"the message at commit log offset {message.commit_log_offset} is damaged")
    topic = properties.get(b"REAL_TOPIC", b"") if decode_utf8(message.topic) == TIMER_TOPIC else message.topic
    tags = decode_utf8(properties.get(TAGS, b""))
    if tags not in NOTE_TAGS or not topic.startswith(REVIVE_PREFIX.encode()):
        return None
    note = parse_pop_note(tags, body_of(message) or b"")
    return note or Cut(f"the note at commit log offset {message.commit_log_offset} cannot be read")


class ConsumerState(StrEnum):
    """Whether a consumer group has consumed a message."""

    PAST = "PAST"  # its offset is after the message: it has consumed it, or has given it back for a retry
    POPPED = "POPPED"  # its offset is after the message, because it popped it, and it has not acknowledged it
    NOT_YET = "NOT_YET"  # its offset is at the message, or before it
    NO_OFFSET = "NO_OFFSET"  # it has offsets in other queues of the topic, and none in this queue


@dataclass(frozen=True)
class MessageConsumer:
    """One consumer group of a message; it consumes `messages_before` first, and `popped` is its last pop."""

    consumer_group: str
    topic: str
    queue_id: int
    queue_offset: int
    state: ConsumerState
    consumer_offset: int | None = None
    messages_before: int | None = None
    store: str = ""
    popped: Popped | None = None

    @property
    def text(self) -> str:
        """The state in a few words."""
        offset = f"its offset in {self.topic}/{self.queue_id} is {self.consumer_offset}"
        if self.state in (ConsumerState.PAST, ConsumerState.POPPED):
            return f"past it: {offset}" + ("" if self.popped is None else f"; {pop_text(self.popped)}")
        if self.state is ConsumerState.NO_OFFSET:
            return f"not known: it has an offset in other queues of {self.topic}, and none in queue {self.queue_id}"
        return f"not yet: {offset}, {before_text(self.messages_before or 0)}"

    def with_pops(self, pops: PoppedMessages) -> MessageConsumer:
        """The group with what is known of its pops of the message."""
        popped = pops.last(self.consumer_group, (self.topic, self.queue_id, self.queue_offset))
        if self.state is not ConsumerState.PAST or popped is None:
            return self
        state = ConsumerState.POPPED if popped.state is PopState.POPPED else self.state
        return replace(self, state=state, popped=popped)


def before_text(count: int) -> str:
    """How many messages are before one, for a person."""
    return "it is the next one" if count == 0 else f"{counted(count, 'message')} before it"


class ConsumerOffsets:
    """The consumer offsets of a store, read once."""

    def __init__(self, store: Location, name: str) -> None:
        """The offsets of a store, which has a folder `config`; `name` is its name in the results."""
        self._name = name
        offsets, self.unread = read_config(lambda: consumer_offsets(store))
        if self.unread is None and offsets is None:
            self.unread = f"there is no config/{CONSUMER_OFFSETS}"
        self._offsets = offsets or {}

    @property
    def problem(self) -> str | None:
        """What is not known because the file cannot be read; None if it can."""
        return None if self.unread is None else f"which consumer groups are past it: {self.unread}"

    def of(self, topic: str, queue_id: int, queue_offset: int) -> list[MessageConsumer]:
        """The groups that consume a topic, by name, with their states for the message at an offset of a queue."""
        found = []
        for group in sorted({group for group, name, _ in self._offsets if name == topic}):
            offset = self.offset(group, topic, queue_id)
            state, before = ConsumerState.NO_OFFSET, None
            if offset is not None:
                state = ConsumerState.PAST if offset > queue_offset else ConsumerState.NOT_YET
                before = None if offset > queue_offset else queue_offset - offset
            found.append(MessageConsumer(group, topic, queue_id, queue_offset, state, offset, before, self._name))
        return found

    def offset(self, consumer_group: str, topic: str, queue_id: int) -> int | None:
        """The offset of one group in one queue; None if there is none."""
        return self._offsets.get((consumer_group, topic, queue_id))


class Outcome(NamedTuple):
    """A state, and for UNKNOWN the reason."""

    state: State
    reason: str | None = None


def _first(cases: Sequence[Case]) -> Outcome:
    """The outcome of one message by a rule."""
    return next(Outcome(State(state), reason) for is_true, state, reason in cases if is_true)


def _unknown(reason: str) -> Outcome:
    return Outcome(State.UNKNOWN, reason)


class LifeSource:
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

    @cached_property
    def missing(self) -> str | None:
        """Why messages can be missing from what was found; None if none is missing."""
        return self.damage[0] if self.damage else self.store.missing()

    @cached_property
    def deliveries(self) -> DeliveryProgress:
        """How far the broker has delivered delayed messages."""
        return self.store.deliveries()


class Outcomes:
    """Decides what became of the copies of one message in one store, by further look-ups."""

    def __init__(self, source: LifeSource, missing: Callable[[], str | None], steps: list[Step]) -> None:
        """`missing` is why copies can be missing: it is asked only if the answer matters. `steps` get what is found."""
        self._store, self._source, self._missing, self._steps = source.store, source, missing, steps

    def of(self, copy: Copy) -> Outcome:
        """What became of the message that was stored first as `copy`."""
        if copy.kind is RecordKind.HALF:
            return self._transaction(copy)
        if copy.kind in (RecordKind.DELAYED, RecordKind.TIMER):
            return self.delivery(copy)
        if copy.kind is RecordKind.DISCARDED:
            return Outcome(State.DISCARDED)
        if copy.kind is RecordKind.COMMIT:
            return Outcome(State.COMMITTED)
        if copy.kind is RecordKind.NORMAL:
            return Outcome(State.DELIVERED if copy.situation.text else State.STORED)
        return _unknown(f"the log has only a record of another kind: {copy.situation.text}")

    def _transaction(self, first: Copy) -> Outcome:
        halves = [first]
        while (following := next_half(halves[-1])) is not None:
            halves.append(following)
        discarded = [after for half in halves for after in half.after if after.kind is RecordKind.DISCARDED]
        commits = [after for half in halves for after in half.followed_by(EventKind.COMMITTED)]
        op, cut = self._op_message(halves, commits, is_any_copy=bool(commits or discarded))
        if op is not None:
            self._steps.append(op)
        if commits:
            later = [self.delivery(one) for one in commits if one.kind in (RecordKind.DELAYED, RecordKind.TIMER)]
            return later[0] if later else Outcome(State.COMMITTED)
        is_discarded = bool(discarded) and op is None
        missing = None if is_discarded else self._missing()
        last, consumers = halves[-1].record, self._source.consumers
        damage = None if op is not None or cut is None else f"an op message can be missing: {cut}"
        damage = damage if missing is None else f"a commit can be missing: {missing}"
        in_rocksdb = first.position[0] == ROCKSDB_HALF_TOPIC
        decided = None if in_rocksdb else consumers.offset(TRANSACTION_GROUP, HALF_TOPIC, last.queue_id)
        passed = (
            f"the broker is done with it (offset {decided} of {TRANSACTION_GROUP} in {HALF_TOPIC}/{last.queue_id}), "
            "but neither an op message nor another copy of it is in the log"
        )
        older = "older copies of the half message are not in the log: one of them can have been committed"
        return _first(
            transaction_cases(
                is_committed=False,
                is_discarded=is_discarded,
                is_rolled_back=op is not None,
                damage=(damage is not None, damage),
                lacks_copies=(bool(first.situation.check) or first.prepared_queue_offset is not None, older),
                passed=(decided is not None and last.queue_offset < decided, passed),
                lost_end=(in_rocksdb, NOT_IN_LOG),
                not_read=(consumers.unread is not None, f"how far the broker has decided: {consumers.unread}"),
            )
        )

    def _op_message(
        self, halves: Sequence[Copy], commits: Sequence[Copy], *, is_any_copy: bool
    ) -> tuple[Step | None, str | None]:
        """The step of the op message that decides the last half message, or any copy; why it can be missing."""
        in_rocksdb = halves[0].position[0] == ROCKSDB_HALF_TOPIC
        chosen = halves if is_any_copy else halves[-1:]
        wanted = {one.record.commit_log_offset if in_rocksdb else one.record.queue_offset: one for one in chosen}
        for half in list(wanted.values()):
            prepared = half.prepared_queue_offset
            if prepared is not None:  # `checkPrepareQueueOffset`@5.3.3
                wanted.setdefault(prepared, half)
        # A broker commits first, and writes the op message then (`EndTransactionProcessor`@5.3.3).
        after = min(one.record.commit_log_offset for one in commits or wanted.values())
        cut, topic = None, ROCKSDB_OP_TOPIC if in_rocksdb else OP_TOPIC
        following = self._store.messages_after(topic, halves[0].record.queue_id, after)
        for message in islice(following, _OPS_AFTER_COMMIT if commits else None):
            if isinstance(message, Cut):
                cut = cut or message.reason
            elif (properties := message.text_properties).get("TAGS") == REMOVE_TAG:
                named = integer(properties.get(TRANS_OFFSET))
                in_body = half_queue_offsets(b"" if in_rocksdb else body_of(message) or b"")
                for offset in in_body if named is None else [named]:
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
            return Outcome(State.DELIVERED)
        is_timer, is_cancelled, cut = copy.kind is RecordKind.TIMER, copy.is_cancelled, None
        if is_timer and not is_cancelled:
            note, cut = self._cancelling(copy)
            is_cancelled = note is not None
            self._steps += [note] if note is not None else []
        due, at, record, deliveries = copy.situation.due, self._source.at, copy.record, self._source.deliveries
        missing, level = self._missing(), copy.situation.level or 0
        delivery = "" if due is None or due > at else f"it was due at {time_text(due)}; "
        reached = deliveries.delay_offsets.get(level, record.queue_offset)
        passed = (
            f"the broker is past it (offset {reached} of level {level} in config/{DELAY_OFFSETS}), but the delivered "
            "message is not in the log"
        )
        is_read = is_timer and record.queue_offset < deliveries.enqueued and (due or 0) < deliveries.read_time
        problem = deliveries.timer_problem if is_timer else deliveries.level_problem
        return _first(
            delivery_cases(
                is_delivered=False,
                is_cancelled=is_cancelled,
                is_due=due is not None and due + (TIMER_PRECISION if is_timer else 0) <= at,
                damage=(missing is not None, f"{delivery}its delivery can be missing: {missing}"),
                lost_end=NO_DOUBT,
                passed=(not is_timer and record.queue_offset < reached, passed),
                no_time=(due is None, "the record does not say when it is due"),
                read=(is_read, SLOT_IS_READ),
                not_read=(
                    (cut is not None, f"a note that cancels the timer can be missing: {cut}"),
                    (problem is not None, problem),
                ),
            )
        )

    def _cancelling(self, timer: Copy) -> tuple[Step | None, str | None]:
        """A later note in the timer's queue that cancels it, and why one can be missing."""
        cut = None
        for message in self._store.messages_after(TIMER_TOPIC, timer.record.queue_id, timer.record.commit_log_offset):
            if isinstance(message, Cut):
                cut = cut or message.reason
            elif cancels(message.text_properties, timer):
                text = f"a note cancels the timer: {place_text(message)}"
                return self._step(EventKind.CANCELLED, message, text, timer), None
        return None, cut
