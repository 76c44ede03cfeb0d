"""Why a consumer group did not consume a message: the question, and the answer.

Only look-ups: the message by its queue offset, its retries and dead letters by its key (`life`), the group's offset,
its filter, and the notes of a broker about messages that were popped (`message_consumers`).

A broker compares hashes of tags, and the client then the tags (`ExpressionMessageFilter.isMatchedByConsumeQueue`,
`PullAPIWrapper.processPullResult`@5.3.3). Of SQL92, the broker first looks at the bits of the message, if it keeps
them, and then evaluates the expression (`isMatchedByCommitLog`). 4.9.7 has the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from spark_mq.errors import ConfigError, OptionError, similar
from spark_mq.filters.conditions import evaluate
from spark_mq.filters.expression import Property
from spark_mq.filters.parser import parse_sql92, parse_tags
from spark_mq.filters.truth import Truth
from spark_mq.format.bloom_filter import has_bits
from spark_mq.format.consume_queue_ext import ExtUnit
from spark_mq.format.dispatch import light_queues
from spark_mq.format.java_text import hash_code
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.record import Record
from spark_mq.format.system_topic import RETRY_PREFIX
from spark_mq.lifecycle.life.event import Event, EventKind, time_text
from spark_mq.lifecycle.life.life import life
from spark_mq.lifecycle.life.life_store import LifeStore, life_store
from spark_mq.lifecycle.life.outcome import ConsumerOffsets, before_text, find_pops, pop_text
from spark_mq.lifecycle.life.situation import TAGS, UNIQUE_KEY
from spark_mq.lifecycle.popped_messages import PopState, Position
from spark_mq.lifecycle.retry_topic import consumer_groups, parse_retry_topic
from spark_mq.store.config.consumer_filters import ConsumerFilter
from spark_mq.store.log.record_lookup import NoRecord
from spark_mq.store.message_store import MessageStore
from spark_mq.store.retention import moment_of

_SHOWN_VALUE = 60
_ANSWERS = {Truth.FALSE: "is FALSE", Truth.NULL: "is unknown", Truth.ERROR: "cannot be evaluated"}


class FilterStep(StrEnum):
    """The step that drops a message."""

    TAG_HASH = "TAG_HASH"  # the broker: the hash of the message's tag is not one of the subscription's
    TAG = "TAG"  # the client: the hashes are equal, and the tags differ
    BIT_MAP = "BIT_MAP"  # the broker: the message lacks a bit of the group, although the expression is TRUE
    SQL = "SQL"  # the broker: the expression is not TRUE


@dataclass(frozen=True)
class Verdict:
    """What a subscription says about a message."""

    step: FilterStep | None
    text: str


def tag_verdict(subscription: str, tag: str | None, tags_code: int | None) -> Verdict:
    """What a subscription to tags says about a message with a tag; its tags code is None if that is not known."""
    wanted = parse_tags(subscription)
    name = "without a tag" if tag is None else f"with tag {tag}"
    if wanted is None:
        return Verdict(None, "the subscription is to all messages")
    if tags_code is not None:
        code = (tags_code + (1 << 31)) % (1 << 32) - (1 << 31)  # `Long.intValue`
        hashes = {hash_code(one): one for one in wanted}
        if code not in hashes:
            codes = ", ".join(f"{one} ({hash_code(one)})" for one in sorted(wanted)) or "no tag"
            return Verdict(FilterStep.TAG_HASH, f"it is {name}, hash {code}; the subscription is to {codes}")
    if tag in wanted:
        return Verdict(None, f"it is {name}, which the subscription names")
    same = [one for one in sorted(wanted) if tag is not None and hash_code(one) == hash_code(tag)]
    collision = f": its hash is that of {same[0]}, so the broker sends it" if same else ""
    return Verdict(FilterStep.TAG, f"it is {name}, which the subscription {subscription!r} does not name{collision}")


def sql_verdict(one: ConsumerFilter, properties: Mapping[str, str], ext: ExtUnit | None) -> Verdict:
    """What a SQL92 expression says about a message; `ext` has its bits, if the broker looks at them."""
    condition = one.condition
    if condition is None:
        # `isMatchedByCommitLog`: a broker without a compiled expression sends everything.
        return Verdict(None, f"{one.problem}; so it sends all messages")
    answer = evaluate(condition, properties)
    if answer != Truth.TRUE:
        values = ", ".join(_value_text(name, properties.get(name)) for name in property_names(condition))
        return Verdict(FilterStep.SQL, f"{one.expression} {_ANSWERS[answer]}{f': {values}' if values else ''}")
    # A broker looks at the bits of messages that were stored after the filter was born.
    if ext is not None and ext.store_timestamp > one.born_time and 8 * len(ext.bit_map) == one.bit_count:
        lacking = [position for position in one.bit_positions or () if not has_bits(ext.bit_map, (position,))]
        if lacking:
            return Verdict(
                FilterStep.BIT_MAP,
                f"{one.expression} is TRUE, but its bit map lacks {lacking} of the group's bits; it was stored at "
                f"{time_text(ext.store_timestamp)}, after the filter was born at {time_text(one.born_time)}",
            )
    return Verdict(None, f"{one.expression} is TRUE")


def property_names(expression: object) -> list[str]:
    """The names of the properties in a parsed expression, in their order."""
    if isinstance(expression, Property):
        return [expression.name]
    if isinstance(expression, tuple):
        return list(dict.fromkeys(name for part in expression for name in property_names(part)))
    if not is_dataclass(expression):
        return []
    return property_names(tuple(getattr(expression, field.name) for field in fields(expression)))


def _value_text(name: str, value: str | None) -> str:
    if value is None:
        return f"{name} is missing"
    return f"{name} is {value[:_SHOWN_VALUE]!r}{'...' if len(value) > _SHOWN_VALUE else ''}"


class NotConsumed(StrEnum):
    """The reason why a group did not consume a message, or that it did."""

    OUT_OF_RANGE = "OUT_OF_RANGE"  # the queue has no message with this offset yet
    EXPIRED = "EXPIRED"  # the message is not in the store any more
    DEAD = "DEAD"  # the group gave it up: it is a dead letter
    IN_RETRY = "IN_RETRY"  # the group returned it, and has not consumed it again
    NOT_YET = "NOT_YET"  # the group's offset is at the message, or before it
    FILTERED_BY_TAG_HASH = "FILTERED_BY_TAG_HASH"  # the hash of its tag is not one of the subscription's
    FILTERED_BY_TAG = "FILTERED_BY_TAG"  # its tag only has the hash of one of the subscription's: the client drops it
    FILTERED_BY_SQL = "FILTERED_BY_SQL"  # the group's SQL92 expression is not TRUE: the broker does not send it
    FILTERED_BY_BIT_MAP = "FILTERED_BY_BIT_MAP"  # its bit map lacks the group's bits: the broker does not send it
    POPPED = "POPPED"  # the group popped it, and has not acknowledged it
    NO_OFFSET = "NO_OFFSET"  # the group has no offset in the queue, so the store does not show that it ever read there
    CONSUMED = "CONSUMED"  # the group's offset is past it, and nothing shows that the group did not consume it
    UNKNOWN = "UNKNOWN"  # the store does not show it


@dataclass(frozen=True)
class WhyNotConsumed:
    """The answer for one group and one message: the reason, and as `text` for a person.

    A broker offers the offsets from `min_offset` on, before `max_offset`; the group consumes `consumer_offset` next.
    `evidence` is what else is known, and `unknown` what the store does not show.
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
        """The answer as values that JSON can have; times are milliseconds since the epoch."""
        return asdict(self)


def why_not_consumed(
    store: MessageStore | LifeStore,
    consumer_group: str,
    topic: str,
    queue_id: int,
    queue_offset: int,
    tags: str | None = None,
    expression: str | None = None,
    at: int | datetime | None = None,
) -> WhyNotConsumed:
    """Why a group did not consume a message: the first reason that is true.

    The reasons are tried in the order of `NotConsumed`. A SQL92 filter is the one that the broker keeps, unless one is
    given. A store does not know subscriptions to tags; a running broker knows those of connected consumers.

    Args:
        store: The store; `LifeStore` is for commands that ask a running broker.
        consumer_group: The group.
        topic: The topic.
        queue_id: The queue id.
        queue_offset: The offset of the message in the queue.
        tags: The tags to which the group subscribed, such as `paid || shipped`.
        expression: The SQL92 expression with which it subscribed.
        at: The time of the question: epoch milliseconds or an aware datetime; None for now.

    Raises:
        OptionError: `tags` and `expression` are both given, one of them is refused, or the queue offset is negative.

    Examples:
        >>> why_not_consumed(MessageStore("/data/store"), "billing", "orders", 0, 17, tags="paid").reason
        <NotConsumed.FILTERED_BY_TAG_HASH: 'FILTERED_BY_TAG_HASH'>
    """
    if tags is not None and expression is not None:
        raise OptionError("tags and an expression are two kinds of subscriptions: give one of them")
    if queue_offset < 0:
        raise OptionError(f"queue offset {queue_offset} is negative: give 0 or more")
    looked_up = life_store(store)
    question = _Question(looked_up, consumer_group, topic, queue_id, queue_offset, moment_of(at))
    answer = question.answer(tags, expression)
    return replace(answer, unknown=(*answer.unknown, *looked_up.queue_notes(topic)))


class _Question:
    def __init__(self, store: LifeStore, group: str, topic: str, queue_id: int, queue_offset: int, at: int) -> None:
        self.store, self.group, self.at = store, group, at
        self.topic, self.queue_id, self.queue_offset = topic, queue_id, queue_offset
        self.name = f"{topic}/{queue_id}"
        self.min_offset, self.max_offset = store.queue_ends(topic, queue_id)
        self.offsets = ConsumerOffsets(store.location, "")
        self.consumer_offset = self.offsets.offset(group, topic, queue_id)
        self.groups = consumer_groups(store.location)
        self.of_message: dict[str, Any] = {}
        """The fields of the answer that say what the message is, and the group's subscription."""
        self.evidence: list[str] = []
        self.unknown: list[str] = []

    def answer(self, tags: str | None, expression: str | None) -> WhyNotConsumed:
        if self.offsets.unread is not None:
            self.unknown.append(f"its offset: {self.offsets.unread}")
        if self.group not in self.groups.names:
            hint = similar(self.group, self.groups.names)
            self.unknown.append(f"no file in config/ names a group {self.group}{hint}")
        if self.queue_offset >= self.max_offset:
            no_queue = None if self.max_offset else self.store.why_no_queue(self.topic, self.queue_id)
            ends = f"{self.name} has no message at offset {self.queue_offset} yet: it ends at {self.max_offset}"
            return self._answer(NotConsumed.OUT_OF_RANGE, no_queue or ends)
        record = self.store.find_in_queue(self.topic, self.queue_id, self.queue_offset)
        if isinstance(record, NoRecord):
            return self._without_message(record)
        properties = record.text_properties
        self.of_message = {
            "commit_log_offset": record.commit_log_offset,
            "unique_key": properties.get(UNIQUE_KEY),
            "tags": properties.get(TAGS),
            "store_timestamp": record.store_timestamp,
        }
        verdict = self._verdict(record, properties, tags, expression)
        if verdict is not None and verdict.step is None:
            self.evidence.append(f"its filter lets it pass: {verdict.text}")
        return (
            self._retried(record)
            or self._not_yet(verdict)
            or (verdict and verdict.step and self._answer(NotConsumed(f"FILTERED_BY_{verdict.step}"), verdict.text))
            or self._popped(record)
            or self._past_it(verdict, record)
        )

    def _without_message(self, why: NoRecord) -> WhyNotConsumed:
        is_before = self.queue_offset < self.min_offset
        if is_before or why.is_expired:
            if self.consumer_offset is None:
                had = "the group has no offset there"
            elif self.consumer_offset > self.queue_offset:
                had = f"the group's offset is {self.consumer_offset}, past it"
            else:
                had = f"the group had not reached it: its offset is {self.consumer_offset}"
            begins = f"{self.name} begins at offset {self.min_offset}" if is_before else str(why)
            return self._answer(NotConsumed.EXPIRED, f"it is not in the store any more: {begins}; {had}")
        return self._answer(NotConsumed.UNKNOWN, f"the log does not have the message: {why}")

    def _verdict(
        self, record: Record, properties: Mapping[str, str], tags: str | None, expression: str | None
    ) -> Verdict | None:
        """What the group's subscription says; None if it is not known."""
        if tags is None and expression is None:
            tags, expression = self.store.subscription(self.group, self.topic)
        code, ext = self.store.filter_facts(record)
        if tags is not None:
            self.of_message["subscription"] = tags
            return tag_verdict(tags, properties.get(TAGS), code)
        stored = self._stored_filter()
        if expression is not None:
            parsed = parse_sql92(expression)
            if parsed.ignored:
                raise OptionError(f"{parsed.warning}: write the whole condition")
            self.of_message["subscription"] = expression
            if stored is not None and stored.expression == expression:
                return sql_verdict(stored, properties, ext)
            return sql_verdict(ConsumerFilter(self.group, self.topic, expression), properties, None)
        if stored is None:
            return None
        self.of_message["subscription"] = stored.expression
        if stored.born_time > record.store_timestamp:
            self.evidence.append(
                f"the broker got the expression at {time_text(stored.born_time)}, after the message was stored at "
                f"{time_text(record.store_timestamp)}: the group can have had another one"
            )
        return sql_verdict(stored, properties, ext)

    def _stored_filter(self) -> ConsumerFilter | None:
        try:
            filters = self.store.consumer_filters()
        except ConfigError as error:
            self.unknown.append(f"its filter: {error}")
            return None
        mine = (one for one in filters if (one.consumer_group, one.topic) == (self.group, self.topic))
        return next(mine, None)

    def _retried(self, record: Record) -> WhyNotConsumed | None:
        """The answer if the group returned the message or gave it up; None if it did not, or consumed a retry."""
        last = self._last_attempt(record)
        if last is None:
            return None
        if last.kind is EventKind.DEAD:
            letter = f"the group gave it up at {time_text(last.timestamp)}"
            return self._answer(NotConsumed.DEAD, f"{letter}: {last.text}")
        if last.kind is EventKind.RETRIED and last.due_timestamp is not None:  # no delivered copy follows it
            return self._answer(NotConsumed.IN_RETRY, f"the group returned it: {last.text}")
        position = last.topic or last.real_topic or "", last.queue_id or 0, last.queue_offset or 0
        offset = self.offsets.offset(self.group, *position[:2])
        if offset is None or offset <= position[2]:
            has = "has no offset there" if offset is None else f"has offset {offset} there"
            return self._answer(NotConsumed.IN_RETRY, f"the group returned it, and {has}: {last.text}")
        parsed = parse_retry_topic(position[0], self.groups)
        if parsed is not None and parsed.origin_topic is not None:
            state, text = self._pop(position, last.commit_log_offset or 0)
            if state is not None:
                return self._answer(NotConsumed(state), f"{text}: {last.text}")
        return self._answer(NotConsumed.CONSUMED, f"the group returned it, and is past the last retry: {last.text}")

    def _last_attempt(self, record: Record) -> Event | None:
        """The newest record of the message in which the group gets it again, or gives it up."""
        id_ = encode_offset_message_id(record.store_host, record.commit_log_offset)
        found = next(iter(life(self.store, id_, limit=1, at=self.at).lives), None)
        if found is None:
            return None
        self.unknown += [text for text in found.unknown if text != self.offsets.problem]
        kinds = (EventKind.RETRIED, EventKind.DELIVERED, EventKind.DEAD)
        attempts = [one for one in found.events if one.consumer_group == self.group and one.kind in kinds]
        return max(attempts, key=lambda one: one.commit_log_offset or 0, default=None)

    def _not_yet(self, verdict: Verdict | None) -> WhyNotConsumed | None:
        if self.consumer_offset is None or self.consumer_offset > self.queue_offset:
            return None
        before = self.queue_offset - max(self.consumer_offset, self.min_offset)
        if verdict is not None and verdict.step is not None:
            self.evidence.append(f"when the group comes to it, it does not get it ({verdict.step}): {verdict.text}")
        self._note_subscription(verdict)
        text = f"not yet: the group's offset in {self.name} is {self.consumer_offset}, {before_text(before)}"
        return self._answer(NotConsumed.NOT_YET, text)

    def _popped(self, record: Record) -> WhyNotConsumed | None:
        # Whether the group has a retry topic for messages that it popped of the topic.
        retry_topics = {f"{RETRY_PREFIX}{self.group}{mark}{self.topic}" for mark in "_+"}
        is_popping = not retry_topics.isdisjoint(self.store.known_topics())
        position = self.topic, self.queue_id, self.queue_offset
        state, text = self._pop(position, record.commit_log_offset, is_popping)
        return None if state is None else self._answer(NotConsumed(state), text)

    def _pop(self, position: Position, after: int, is_popping: bool = True) -> tuple[PopState | None, str]:
        """What became of the group's last pop of a message; None if it was not popped, or acknowledged in memory.

        `is_popping` is whether the group pops the topic, even if no note tells that.
        """
        pops, cuts = find_pops(self.store, {position: after})
        last = pops.last(self.group, position)
        is_open = is_popping if last is None else last.state is PopState.POPPED
        if is_open and (missing := self.store.missing()) is not None:
            cuts = (*cuts, missing)
        self.unknown += [f"whether it was popped: {cut}" for cut in cuts]
        if cuts and is_open:
            return PopState.UNKNOWN, f"the group is past it, and a note about its pop can be missing: {cuts[0]}"
        return (None, "") if last is None else (last.state, pop_text(last))

    def _past_it(self, verdict: Verdict | None, record: Record) -> WhyNotConsumed:
        if self.consumer_offset is None:
            others = self.offsets.of(self.topic, self.queue_id, self.queue_offset)
            elsewhere = any(one.consumer_group == self.group for one in others)
            where = f"; it has offsets in other queues of {self.topic}" if elsewhere else ""
            text = f"the group has no offset in {self.name}{where}: it did not consume there, or in broadcast mode"
            for topic, offset in light_queues(record).items():
                if (own := self.offsets.offset(self.group, topic, 0)) is not None:
                    self.evidence.append(
                        f"it is at offset {offset} of {topic}/0, too: the group has offset {own} there"
                    )
            return self._answer(NotConsumed.NO_OFFSET, text)
        self._note_subscription(verdict)
        text = f"the group's offset in {self.name} is {self.consumer_offset}, past it"
        if verdict is None:
            text += "; it got the message, unless its subscription does not select it"
        return self._answer(NotConsumed.CONSUMED, text)

    def _note_subscription(self, verdict: Verdict | None) -> None:
        """Say if it is not known whether a filter drops the message."""
        if verdict is None:
            self.unknown.append(f"its subscription: {self.store.no_filter}")

    def _answer(self, reason: NotConsumed, text: str) -> WhyNotConsumed:
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
            evidence=tuple(self.evidence),
            unknown=tuple(dict.fromkeys(self.unknown)),
            **self.of_message,
        )
