"""What the subscription of a consumer group says about one message, as broker and client decide it.

A broker compares hashes of tags, and the client then the tags (`ExpressionMessageFilter.isMatchedByConsumeQueue`,
`PullAPIWrapper.processPullResult`@5.3.3). Of SQL92, the broker first looks at the bits of the message, if it keeps
them, and then evaluates the expression (`isMatchedByCommitLog`). 4.9.7 has the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum

from spark_mq.filters.conditions import evaluate
from spark_mq.filters.consumer_filter import ConsumerFilter
from spark_mq.filters.expression import Property
from spark_mq.filters.parser import parse_tags
from spark_mq.filters.truth import Truth
from spark_mq.format.bloom_filter import has_bits
from spark_mq.format.consume_queue_ext import ExtUnit
from spark_mq.format.java_text import hash_code
from spark_mq.lifecycle.life.event import time_text

_SHOWN_VALUE = 60


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


@dataclass(frozen=True)
class MessageFacts:
    """What filters look at."""

    properties: Mapping[str, str]
    tags_code: int | None
    ext: ExtUnit | None = None


def tag_verdict(subscription: str, message: MessageFacts) -> Verdict:
    """What a subscription to tags says about a message."""
    wanted = parse_tags(subscription)
    tag = message.properties.get("TAGS")
    name = "without a tag" if tag is None else f"with tag {tag}"
    if wanted is None:
        return Verdict(None, "the subscription is to all messages")
    if message.tags_code is not None:
        code = (message.tags_code + (1 << 31)) % (1 << 32) - (1 << 31)  # `Long.intValue`
        hashes = {hash_code(one): one for one in wanted}
        if code not in hashes:
            codes = ", ".join(f"{one} ({hash_code(one)})" for one in sorted(wanted)) or "no tag"
            return Verdict(FilterStep.TAG_HASH, f"it is {name}, hash {code}; the subscription is to {codes}")
    if tag in wanted:
        return Verdict(None, f"it is {name}, which the subscription names")
    same = [one for one in sorted(wanted) if tag is not None and hash_code(one) == hash_code(tag)]
    collision = f": its hash is that of {same[0]}, so the broker sends it" if same else ""
    return Verdict(FilterStep.TAG, f"it is {name}, which the subscription {subscription!r} does not name{collision}")


def sql_verdict(one: ConsumerFilter, message: MessageFacts, is_stored: bool) -> Verdict:
    """What a SQL92 expression says about a message."""
    condition = one.condition
    if condition is None:
        # `isMatchedByCommitLog`: a broker without a compiled expression sends everything.
        return Verdict(None, f"{one.problem}; so it sends all messages")
    answer = evaluate(condition, message.properties)
    if answer != Truth.TRUE:
        values = ", ".join(_value_text(name, message.properties) for name in property_names(condition))
        return Verdict(FilterStep.SQL, f"{one.expression} {_ANSWERS[answer]}{f': {values}' if values else ''}")
    lacking = _lacking_bits(one, message.ext) if is_stored else ()
    if lacking and message.ext is not None:
        stored = time_text(message.ext.store_timestamp)
        return Verdict(
            FilterStep.BIT_MAP,
            f"{one.expression} is TRUE, but its bit map lacks {list(lacking)} of the group's bits; it was stored at "
            f"{stored}, after the filter was born at {time_text(one.born_time)}",
        )
    return Verdict(None, f"{one.expression} is TRUE")


_ANSWERS = {Truth.FALSE: "is FALSE", Truth.NULL: "is unknown", Truth.ERROR: "cannot be evaluated"}


def property_names(expression: object) -> list[str]:
    """The names of the properties in a parsed expression, in their order."""
    if isinstance(expression, Property):
        return [expression.name]
    if isinstance(expression, tuple):
        return list(dict.fromkeys(name for part in expression for name in property_names(part)))
    if not is_dataclass(expression):
        return []
    return property_names(tuple(getattr(expression, field.name) for field in fields(expression)))


def _value_text(name: str, properties: Mapping[str, str]) -> str:
    value = properties.get(name)
    if value is None:
        return f"{name} is missing"
    return f"{name} is {value[:_SHOWN_VALUE]!r}{'...' if len(value) > _SHOWN_VALUE else ''}"


def _lacking_bits(one: ConsumerFilter, ext: ExtUnit | None) -> tuple[int, ...]:
    """The group's bits that a message lacks; none if the broker does not look at them."""
    positions = one.bit_positions
    if ext is None or not positions or ext.store_timestamp <= one.born_time or 8 * len(ext.bit_map) != one.bit_count:
        return ()
    return tuple(position for position in positions if not has_bits(ext.bit_map, (position,)))
