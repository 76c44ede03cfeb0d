"""Which messages `print-message` prints: by store time, tag, property, key, and text of the body."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.filters.expression import Expression
from spark_mq.filters.one_message import evaluate
from spark_mq.filters.tags import parse_tags as parse_subscription
from spark_mq.filters.truth import Truth
from spark_mq.format.compression import decompress_or_reason
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_keys import record_keys
from spark_mq.format.properties import TAGS, parse_properties
from spark_mq.format.record import Record
from spark_mq.format.sys_flag import COMPRESSED_FLAG
from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS
from spark_mq.store.log.corrupt_range import CorruptRange

_MOST_TAGS = 10_000
"""Different tags that are remembered, for a person who asked for a tag that no message has."""


@dataclass(frozen=True)
class MessageFilter:
    """A rule that selects messages. All conditions must hold; None or an empty one always does.

    Attributes:
        first: The earliest store time in milliseconds, included.
        last: The latest store time in milliseconds, included.
        key: The messages have this key, in KEYS or as unique key.
        body_text: The decompressed body contains the bytes of this text in UTF-8.
        condition: The parsed SQL92 expression is TRUE for the messages' properties.
    """

    first: int = EARLIEST_MILLIS
    last: int = LATEST_MILLIS
    tags: frozenset[str] | None = None
    properties: Sequence[tuple[str, str]] = ()
    key: str | None = None
    body_text: str | None = None
    condition: Expression | None = None

    def matches(self, record: Record) -> bool:
        """Whether a message matches."""
        if not self.first <= record.store_timestamp <= self.last:
            return False
        if self.tags is not None and tag_of(record) not in self.tags:
            return False
        if self.key is not None and self.key not in record_keys(record):
            return False
        return self._has_properties(record) and self._has_text(record)

    def _has_properties(self, record: Record) -> bool:
        if not self.properties and self.condition is None:
            return True
        stored = {decode_utf8(name): decode_utf8(value) for name, value in parse_properties(record.properties).items()}
        if self.condition is not None and evaluate(self.condition, stored) != Truth.TRUE:
            return False
        return all(stored.get(name) == value for name, value in self.properties)

    def _has_text(self, record: Record) -> bool:
        if self.body_text is None:
            return True
        body: bytes | None = record.body
        if record.sys_flag & COMPRESSED_FLAG and body:
            body, _ = decompress_or_reason(body, record.sys_flag)
        return body is not None and self.body_text.encode("utf-8", "surrogateescape") in body


class Selection:
    """The messages that match a filter, and what was read besides.

    Attributes:
        read: The number of messages that were read in the time range of the filter.
        tags: How many of them have each tag; None counts those without a tag.
    """

    def __init__(self, message_filter: MessageFilter, on_damage: Callable[[str], None]) -> None:
        """`on_damage` gets a line for each damaged part of the log."""
        self.read = 0
        self.tags: Counter[str | None] = Counter()
        self._filter = message_filter
        self._on_damage = on_damage

    def of(self, parts: Iterable[Record | CorruptRange]) -> Iterator[Record]:
        """The messages among the parts that match, in their order."""
        for part in parts:
            if not isinstance(part, Record):
                self._on_damage(part.describe())
                continue
            if self._filter.first <= part.store_timestamp <= self._filter.last:
                self.read += 1
                tag = tag_of(part) if self._filter.tags is not None else None
                if tag in self.tags or len(self.tags) < _MOST_TAGS:
                    self.tags[tag] += 1
            if self._filter.matches(part):
                yield part


def tag_of(record: Record) -> str | None:
    """The tags of a message as one text; None if it has none."""
    stored = parse_properties(record.properties).get(TAGS)
    return None if stored is None else decode_utf8(stored)


def parse_tags(text: str | None) -> frozenset[str] | None:
    """The tags of `--tag`: `a || b`; None for all messages, which `*` alone also stands for."""
    if text is None:
        return None
    if not text.strip("| "):
        raise OptionError(f"--tag {text!r} names no tag: give one, or several as 'a || b', or leave --tag out")
    return parse_subscription(text)
