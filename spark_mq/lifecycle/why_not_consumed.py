"""Why a consumer group did not consume a message: the question, and the answer.

Only look-ups: the message by its queue offset, its retries and dead letters by its key (`life`), the group's offset,
its filter, and the notes of a broker about messages that were popped (`life.pop_notes`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_mq.errors import ConfigError, OptionError, similar
from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.filters.parser import parse_sql92
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import Record
from spark_mq.lifecycle.life.event import Event, EventKind, text_properties, time_text
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.lifecycle.life.message_consumers import ConsumerOffsets, find_pops, pop_text
from spark_mq.lifecycle.life.situation import TAGS, UNIQUE_KEY
from spark_mq.lifecycle.popped_messages import PopState, Position
from spark_mq.lifecycle.retry_topic import RETRY_PREFIX, consumer_groups, parse_retry_topic
from spark_mq.lifecycle.subscription import FilterStep, MessageFacts, Verdict, sql_verdict, tag_verdict
from spark_mq.store.config.consumer_filters import CONSUMER_FILTERS, load_consumer_filters
from spark_mq.store.message_selection import known_topics
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of


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


_FILTERED = {
    FilterStep.TAG_HASH: NotConsumed.FILTERED_BY_TAG_HASH,
    FilterStep.TAG: NotConsumed.FILTERED_BY_TAG,
    FilterStep.SQL: NotConsumed.FILTERED_BY_SQL,
    FilterStep.BIT_MAP: NotConsumed.FILTERED_BY_BIT_MAP,
}
_POPPED = {
    PopState.CONSUMED: NotConsumed.CONSUMED,
    PopState.POPPED: NotConsumed.POPPED,
    PopState.UNKNOWN: NotConsumed.UNKNOWN,
}


def why_not_consumed(
    store: MessageStore,
    consumer_group: str,
    topic: str,
    queue_id: int,
    queue_offset: int,
    tags: str | None = None,
    expression: str | None = None,
    at: int | datetime | None = None,
) -> WhyNotConsumed:
    """Why a group did not consume a message: the first reason that holds.

    The reasons are tried in the order of `NotConsumed`. A SQL92 filter is the one that the broker keeps, unless one is
    given. A store does not know subscriptions to tags.

    Args:
        store: The store.
        consumer_group: The group.
        topic: The topic.
        queue_id: The queue id.
        queue_offset: The offset of the message in the queue.
        tags: The tags to which the group subscribed, such as `paid || shipped`.
        expression: The SQL92 expression with which it subscribed.
        at: The time of the question: epoch milliseconds or an aware datetime; None for now.

    Raises:
        OptionError: `tags` and `expression` are both given, one of them is refused, or the queue offset is negative.

    Example:
        >>> why_not_consumed(MessageStore("/data/store"), "billing", "orders", 0, 17, tags="paid").reason
        <NotConsumed.FILTERED_BY_TAG_HASH: 'FILTERED_BY_TAG_HASH'>
    """
    if tags is not None and expression is not None:
        raise OptionError("tags and an expression are two kinds of subscriptions: give one of them")
    if queue_offset < 0:
        raise OptionError(f"queue offset {queue_offset} is negative: give 0 or more")
    first = store.get_min_offset_in_queue(topic, queue_id, read_log=True)
    stop = store.get_max_offset_in_queue(topic, queue_id, read_log=True)
    question = _Question(store, consumer_group, topic, queue_id, queue_offset, first, stop, moment_of(at))
    answer = question.answer(tags, expression)
    return replace(answer, unknown=(*answer.unknown, *store.queue_notes(topic)))


@dataclass
class _Question:
    store: MessageStore
    group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_offset: int
    max_offset: int
    at: int
    record: Record | None = None
    subscription: str | None = None
    evidence: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.offsets = ConsumerOffsets(self.store.location, "")
        self.consumer_offset = self.offsets.offset(self.group, self.topic, self.queue_id)

    @property
    def place(self) -> str:
        return f"{self.topic}/{self.queue_id}"

    def answer(self, tags: str | None, expression: str | None) -> WhyNotConsumed:
        self._note_group()
        if self.queue_offset >= self.max_offset:
            no_queue = None if self.max_offset else self.store.why_no_queue(self.topic, self.queue_id)
            ends = f"{self.place} has no message at offset {self.queue_offset} yet: it ends at {self.max_offset}"
            return self._answer(NotConsumed.OUT_OF_RANGE, no_queue or ends)
        self.record = next(self._cover().messages(self.queue_offset, self.queue_offset + 1), None)
        if self.record is None:
            return self._without_message()
        verdict = self._verdict(self.record, tags, expression)
        if verdict is not None and verdict.step is None:
            self.evidence.append(f"its filter lets it pass: {verdict.text}")
        return (
            self._retried()
            or self._not_yet(verdict)
            or self._filtered(verdict)
            or self._popped()
            or self._past_it(verdict)
        )

    def _cover(self) -> Any:
        return self.store.queue_cover(self.topic, self.queue_id)

    def _note_group(self) -> None:
        """Say if the group is not known, or its offsets cannot be read."""
        if self.offsets.problem is not None:
            self.unknown.append(self.offsets.problem.replace("which consumer groups are past it", "its offset"))
        groups = consumer_groups(self.store.location)
        if self.group not in groups.names:
            hint = similar(self.group, groups.names)
            self.unknown.append(f"no file in config/ names a group {self.group}{hint}")

    def _without_message(self) -> WhyNotConsumed:
        if self.queue_offset < self.min_offset:
            if self.consumer_offset is None:
                had = "the group has no offset there"
            elif self.consumer_offset > self.queue_offset:
                had = f"the group's offset is {self.consumer_offset}, past it"
            else:
                had = f"the group had not reached it: its offset is {self.consumer_offset}"
            begins = f"{self.place} begins at offset {self.min_offset}"
            return self._answer(NotConsumed.EXPIRED, f"it is not in the store any more: {begins}; {had}")
        why = self._cover().why_not(self.queue_offset) or "no unit and no record of the log has this offset"
        return self._answer(NotConsumed.UNKNOWN, f"the log does not have the message: {why}")

    def _verdict(self, record: Record, tags: str | None, expression: str | None) -> Verdict | None:
        """What the group's subscription says; None if it is not known."""
        queue = self.store.find_queue(self.topic, self.queue_id)
        own_unit = queue is not None and queue.unit(self.queue_offset)[:2] == (record.commit_log_offset, record.size)
        code = queue.tags_code(self.queue_offset) if queue is not None and own_unit else None
        ext = queue.ext.unit(queue.unit(self.queue_offset)[2]) if queue is not None and own_unit else None
        facts = MessageFacts(text_properties(record), code, ext)
        if tags is not None:
            self.subscription = tags
            return tag_verdict(tags, facts)
        stored = self._stored_filter()
        if expression is not None:
            parsed = parse_sql92(expression)
            if parsed.ignored:
                raise OptionError(f"{parsed.warning}: write the whole condition")
            self.subscription = expression
            is_stored = stored is not None and stored.expression == expression
            given = stored if is_stored and stored else ConsumerFilter(self.group, self.topic, expression)
            return sql_verdict(given, facts, is_stored)
        if stored is None:
            return None
        self.subscription = stored.expression
        if stored.born_time > record.store_timestamp:
            self.evidence.append(
                f"the broker got the expression at {time_text(stored.born_time)}, after the message was stored at "
                f"{time_text(record.store_timestamp)}: the group can have had another one"
            )
        return sql_verdict(stored, facts, is_stored=True)

    def _stored_filter(self) -> ConsumerFilter | None:
        try:
            filters = load_consumer_filters(self.store.location)
        except ConfigError as error:
            self.unknown.append(f"its filter: {error}")
            return None
        mine = (one for one in filters if (one.consumer_group, one.topic) == (self.group, self.topic))
        return next(mine, None)

    def _retried(self) -> WhyNotConsumed | None:
        """The answer if the group returned the message or gave it up; None if it did not, or consumed a retry."""
        last = self._last_attempt()
        if last is None:
            return None
        if last.kind is EventKind.DEAD:
            letter = f"the group gave it up at {time_text(last.timestamp)}"
            return self._answer(NotConsumed.DEAD, f"{letter}: {last.text}")
        retry_topic = last.topic if last.topic and not _is_waiting(last) else last.real_topic
        if _is_waiting(last):
            return self._answer(NotConsumed.IN_RETRY, f"the group returned it: {last.text}")
        offset = self.offsets.offset(self.group, retry_topic or "", last.queue_id or 0)
        if offset is None or offset <= (last.queue_offset or 0):
            has = "has no offset there" if offset is None else f"has offset {offset} there"
            return self._answer(NotConsumed.IN_RETRY, f"the group returned it, and {has}: {last.text}")
        parsed = parse_retry_topic(retry_topic or "", consumer_groups(self.store.location))
        if parsed is not None and parsed.origin_topic is not None:
            place = (retry_topic or "", last.queue_id or 0, last.queue_offset or 0)
            state, text = self._pop(place, last.commit_log_offset or 0)
            if state is not None:
                return self._answer(_POPPED[state], f"{text}: {last.text}")
        return self._answer(NotConsumed.CONSUMED, f"the group returned it, and is past the last retry: {last.text}")

    def _last_attempt(self) -> Event | None:
        """The newest record of the message in which the group gets it again, or gives it up."""
        assert self.record is not None
        id_ = encode_offset_message_id(self.record.store_host, self.record.commit_log_offset)
        told = next(iter(life(self.store, id_, limit=1, at=self.at).lives), None)
        if told is None:
            return None
        self.unknown += [text for text in told.unknown if text != self.offsets.problem]
        mine = [one for one in told.events if one.consumer_group == self.group and one.commit_log_offset is not None]
        attempts = [one for one in mine if one.kind in (EventKind.RETRIED, EventKind.DELIVERED, EventKind.DEAD)]
        return max(attempts, key=lambda one: one.commit_log_offset or 0, default=None)

    def _not_yet(self, verdict: Verdict | None) -> WhyNotConsumed | None:
        if self.consumer_offset is None or self.consumer_offset > self.queue_offset:
            return None
        before = self.queue_offset - max(self.consumer_offset, self.min_offset)
        many = "it is the next one" if before == 0 else f"{before} message{'' if before == 1 else 's'} before it"
        if verdict is not None and verdict.step is not None:
            self.evidence.append(f"when the group comes to it, it does not get it ({verdict.step}): {verdict.text}")
        self._note_subscription(verdict)
        text = f"not yet: the group's offset in {self.place} is {self.consumer_offset}, {many}"
        return self._answer(NotConsumed.NOT_YET, text)

    def _filtered(self, verdict: Verdict | None) -> WhyNotConsumed | None:
        if verdict is None or verdict.step is None:
            return None
        return self._answer(_FILTERED[verdict.step], verdict.text)

    def _popped(self) -> WhyNotConsumed | None:
        assert self.record is not None
        place = (self.topic, self.queue_id, self.queue_offset)
        state, text = self._pop(place, self.record.commit_log_offset, self._pops_the_topic())
        return None if state is None else self._answer(_POPPED[state], text)

    def _pop(self, place: Position, after: int, is_popping: bool = True) -> tuple[PopState | None, str]:
        """What became of the group's last pop of a message; None if it was not popped, or acknowledged in memory.

        `is_popping` is whether the group pops the topic, even if no note tells that.
        """
        store = LifeStore(self.store)
        pops, cuts = find_pops(store, {place: after})
        last = pops.last(self.group, place)
        is_open = is_popping if last is None else last.state is PopState.POPPED
        if is_open and (missing := store.missing()) is not None:
            cuts = (*cuts, missing)
        self.unknown += [f"whether it was popped: {cut}" for cut in cuts]
        if cuts and is_open:
            return (
                PopState.UNKNOWN,
                f"the group is past it, and a note about its pop can be missing: {cuts[0]}",
            )
        return (None, "") if last is None else (last.state, pop_text(last))

    def _pops_the_topic(self) -> bool:
        """Whether the group has a retry topic for messages that it popped of the topic."""
        names = {f"{RETRY_PREFIX}{self.group}{mark}{self.topic}" for mark in "_+"}
        return not names.isdisjoint(known_topics(self.store))

    def _past_it(self, verdict: Verdict | None) -> WhyNotConsumed:
        if self.consumer_offset is None:
            others = self.offsets.of(self.topic, self.queue_id, self.queue_offset)
            elsewhere = any(one.consumer_group == self.group for one in others)
            where = f"; it has offsets in other queues of {self.topic}" if elsewhere else ""
            text = f"the group has no offset in {self.place}{where}: it did not consume there, or in broadcast mode"
            return self._answer(NotConsumed.NO_OFFSET, text)
        self._note_subscription(verdict)
        text = f"the group's offset in {self.place} is {self.consumer_offset}, past it"
        if verdict is None:
            text += "; it got the message, unless its subscription does not select it"
        return self._answer(NotConsumed.CONSUMED, text)

    def _note_subscription(self, verdict: Verdict | None) -> None:
        """Say if it is not known whether a filter drops the message."""
        if verdict is None:
            self.unknown.append(
                f"its subscription: config/{CONSUMER_FILTERS} has no filter of the group, and no file has "
                "subscriptions to tags; --tag gives its tags"
            )

    def _answer(self, reason: NotConsumed, text: str) -> WhyNotConsumed:
        record = self.record
        properties = {} if record is None else text_properties(record)
        return WhyNotConsumed(
            reason,
            text,
            self.group,
            self.topic,
            self.queue_id,
            self.queue_offset,
            self.min_offset,
            self.max_offset,
            self.consumer_offset,
            None if record is None else record.commit_log_offset,
            properties.get(UNIQUE_KEY),
            properties.get(TAGS),
            None if record is None else record.store_timestamp,
            self.subscription,
            tuple(self.evidence),
            tuple(dict.fromkeys(self.unknown)),
        )


def _is_waiting(attempt: Event) -> bool:
    """Whether the retry still waits for its delay: no delivered copy follows it."""
    return attempt.kind is EventKind.RETRIED and attempt.due_timestamp is not None
