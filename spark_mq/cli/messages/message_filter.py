"""Which messages are printed: by store time, tag, property, key, and text of the body; and why none was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from spark_mq.cli.output.value_text import local_time_of
from spark_mq.errors import OptionError, first_names, similar
from spark_mq.format.dispatch import record_keys
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import unique_key_time
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.lifecycle.life.event import body_of
from spark_mq.store.log.segment_files import CorruptRange

if TYPE_CHECKING:
    from spark_mq.filters.expression import Expression
    from spark_mq.store.message_store import MessageStore

_MOST_TAGS = 10_000
"""Different tags that are remembered, for a person who asked for a tag that no message has."""


def why_no_match(store: MessageStore, topic: str, queue_id: int | None, selection: Selection, has_times: bool) -> str:
    """Why `print-message` found no message, as text for a person; `has_times` says whether times were asked for."""
    unknown = store.why_no_topic(topic) if queue_id is None else store.why_no_queue(topic, queue_id)
    if selection.read == 0:
        if unknown is not None:
            return unknown
        when = "was stored in the time asked for" if has_times else "of it is in the log"
        return f"no message {when}{_stored(store, topic)}"
    tags = {tag for tag in selection.tags if tag is not None}
    asked = selection.message_filter.tags
    if asked is not None and not asked & tags:
        read = f"none of the {selection.read} messages that were read has"
        if not tags:
            return f"{read} a tag"
        meant = "".join(similar(name, tags) for name in sorted(asked))
        return f"{read} tag {' || '.join(sorted(asked))}{meant}; their tags: {first_names(tags)}"
    if selection.read == 1:
        return "1 message was read, and it does not match"
    return f"{selection.read} messages were read, and none of them matches"


def why_no_key(store: MessageStore, topic: str, key: str, begin: int | None, end: int | None) -> str:
    """Why `query-by-key` found no message, as text for a person."""
    reason = store.why_no_message(topic, key, begin, end)
    is_known = store.why_no_topic(topic) is None
    return f"{reason}{_made(key)}{_stored(store, topic) if is_known else ''}"


def why_no_unique_key(store: MessageStore, topic: str | None, unique_key: str) -> str:
    """Why `query-by-unique-key` found no message, as text for a person."""
    if topic is not None:
        stored = _stored(store, topic) if store.why_no_topic(topic) is None else ""
        return f"{store.why_no_unique_key(topic, unique_key)}{_made(unique_key)}{stored}"
    reason = "no topic of the store has it"
    by_id = store.why_no_offset_message_id(unique_key)
    return f"{reason}{'' if by_id is None else f'; {by_id}'}{_made(unique_key)}{_stored(store)}"


def why_no_key_or_id(store: MessageStore, topic: str | None, key_or_id: str) -> str:
    """Why `life` found no message, as text for a person."""
    unknown = None if topic is None else store.why_no_topic(topic)
    expired = None if topic is None else store.index.expired_timestamp(topic, key_or_id)
    if expired is not None:
        return store.why_no_message(topic or "", key_or_id)
    reason = unknown or why_no_unique_key(store, None, key_or_id)
    return reason if topic is None or unknown else f"{reason}; only messages of topic {topic} were asked for"


def _made(unique_key: str) -> str:
    """The time that a unique key contains. It is only a hint: the key does not contain the month or the zone."""
    time = unique_key_time(unique_key)
    if time is None:
        return ""
    hours, seconds = divmod(time.seconds, 3600)
    moment = f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}"
    upper = "" if unique_key.isupper() else f"; clients write unique keys in capital letters: {unique_key.upper()}"
    return f"{upper}; by the client's clock, it was made on day {time.days + 1} of a month, at {moment}"


def _stored(store: MessageStore, topic: str | None = None) -> str:
    times = store.stored_times(topic)
    if times is None:
        return ""
    whose = "the store's messages" if topic is None else f"the messages of {topic}"
    return f"; {whose} were stored from {local_time_of(times[0])} to {local_time_of(times[1])}"


@dataclass(frozen=True)
class MessageFilter:
    """A rule that selects messages. All conditions must be true; None or an empty one always is."""

    first: int = EARLIEST_MILLIS
    last: int = LATEST_MILLIS
    tags: frozenset[str] | None = None
    properties: Sequence[tuple[str, str]] = ()
    key: str | None = None
    body_text: str | None = None
    condition: Expression | None = None

    @classmethod
    def between(cls, begin: int | None, end: int | None, **conditions: Any) -> Self:
        """The rule for a range of store times; None for no bound."""
        first, last = EARLIEST_MILLIS if begin is None else begin, LATEST_MILLIS if end is None else end
        return cls(first, last, **conditions)

    def matches(self, record: Record) -> bool:
        """Whether a message matches."""
        if not self.first <= record.store_timestamp <= self.last:
            return False
        if self.tags is not None and tag_of(record) not in self.tags:
            return False
        if self.key is not None and self.key not in record_keys(record):
            return False
        if self.properties or self.condition is not None:
            stored = record.text_properties
            if any(stored.get(name) != value for name, value in self.properties):
                return False
            if self.condition is not None:
                from spark_mq.filters.conditions import evaluate
                from spark_mq.filters.truth import Truth

                if evaluate(self.condition, stored) != Truth.TRUE:
                    return False
        if self.body_text is None:
            return True
        body = body_of(record)
        return body is not None and self.body_text.encode("utf-8", "surrogateescape") in body


@dataclass
class Selection:
    """The messages that match a filter, and what was read besides; a damaged part of the log gives a line of damage."""

    message_filter: MessageFilter
    on_damage: Callable[[str], None]
    read: int = 0
    tags: Counter[str | None] = field(default_factory=Counter)

    def of(self, parts: Iterable[Record | CorruptRange]) -> Iterator[Record]:
        """The messages among the parts that match, in their order."""
        for part in parts:
            if not isinstance(part, Record):
                self.on_damage(part.describe())
                continue
            if self.message_filter.first <= part.store_timestamp <= self.message_filter.last:
                self.read += 1
                tag = tag_of(part) if self.message_filter.tags is not None else None
                if tag in self.tags or len(self.tags) < _MOST_TAGS:
                    self.tags[tag] += 1
            if self.message_filter.matches(part):
                yield part


def tag_of(record: Record) -> str | None:
    """The tags of a message as one text; None if it has none."""
    stored = parse_properties(record.properties).get(TAGS)
    return None if stored is None else decode_utf8(stored)


def asked_tags(text: str | None) -> frozenset[str] | None:
    """The tags of `--tag`: `a || b`; None for all messages, which `*` alone also stands for."""
    if text is None:
        return None
    if not text.strip("| "):
        raise OptionError(f"--tag {text!r} names no tag: give one, or several as 'a || b', or leave --tag out")
    from spark_mq.filters.parser import parse_tags

    return parse_tags(text)
