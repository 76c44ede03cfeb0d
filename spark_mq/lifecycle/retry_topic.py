"""The names of retry topics and dead letter topics, and the consumer groups that they belong to.

A consumer group G that returns messages has topics `%RETRY%G` and `%DLQ%G` (`MixAll.getRetryTopic`@5.3.3). A group
that pops messages of topic T has `%RETRY%G_T`, or with `enableRetryTopicV2` `%RETRY%G+T`
(`KeyBuilder.buildPopRetryTopic`@5.3.3). `_` can also be part of the name of a group or a topic, so only the names of
the groups show how `%RETRY%a_b_c` is divided. `+` cannot (`TopicValidator`, `Validators`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from spark_mq.format.system_topic import RETRY_PREFIX
from spark_mq.io.location import Location
from spark_mq.store.config.config_file import (
    CONSUMER_OFFSETS,
    as_integer,
    load_config,
    load_consumer_offsets,
    read_config,
)

DLQ_PREFIX = "%DLQ%"
_V1, _V2 = "_", "+"


@dataclass(frozen=True)
class ConsumerGroups:
    """The consumer groups that `config/` names."""

    names: frozenset[str]
    are_all: bool


@dataclass(frozen=True)
class RetryTopic:
    """The meaning of the name of a retry topic."""

    name: str
    consumer_group: str | None
    origin_topic: str | None = None
    reason: str | None = None


def consumer_offsets(store: Location) -> dict[tuple[str, str, int], int] | None:
    """The offset of each group, topic and queue id; None if `config/consumerOffset.json` does not exist."""
    found = load_consumer_offsets(store)
    if not found and load_config(store, CONSUMER_OFFSETS, lambda _: True) is None:
        return None
    return {(one.consumer_group, one.topic, one.queue_id): one.offset for one in found}


def consumer_groups(store: Location) -> ConsumerGroups:
    """The groups of `config/subscriptionGroup.json` and `config/consumerOffset.json`.

    A file that is missing or cannot be read names no group.
    """
    configured, _ = read_config(lambda: load_config(store, "subscriptionGroup.json", _groups))
    offsets, _ = read_config(lambda: load_consumer_offsets(store))
    consuming = frozenset(offset.consumer_group for offset in offsets or ())
    return ConsumerGroups(consuming.union(configured or ()), configured is not None)


def _groups(content: dict[str, Any]) -> dict[str, Any]:
    return {str(name): settings for name, settings in (content.get("subscriptionGroupTable") or {}).items()}


def retry_max_times(store: Location) -> dict[str, int]:
    """`retryMaxTimes` of each group; empty if the file is missing or cannot be read."""
    name = "retryMaxTimes"

    def times(content: dict[str, Any]) -> dict[str, int]:
        return {group: as_integer(of[name], 32) for group, of in _groups(content).items() if name in of}

    return read_config(lambda: load_config(store, "subscriptionGroup.json", times))[0] or {}


def parse_retry_topic(name: str, groups: ConsumerGroups, topics: Collection[str] | None = None) -> RetryTopic | None:
    """The meaning of a retry topic's name; None for another topic.

    A name that is `%RETRY%` and the name of a group is that group's. Otherwise, `_` divides it so that the first part
    is a group. If `topics` are given, the second part must be one of them.
    """
    if not name.startswith(RETRY_PREFIX):
        return None
    rest = name.removeprefix(RETRY_PREFIX)
    if _V2 in rest:
        group, _, topic = rest.partition(_V2)
        return RetryTopic(name, group, topic)
    if rest in groups.names:
        return RetryTopic(name, rest)
    # Each way to divide it at a `_` into two parts that are not empty.
    pairs = [(rest[:at], rest[at + 1 :]) for at in range(1, len(rest) - 1) if rest[at] == _V1]
    divided = [
        (group, topic) for group, topic in pairs if group in groups.names and (topics is None or topic in topics)
    ]
    if len(divided) == 1 and groups.are_all:
        return RetryTopic(name, *divided[0])
    if len(divided) > 1:
        which = " or ".join(f"group {group} and topic {topic}" for group, topic in divided)
        return RetryTopic(name, None, None, f"the topic can be that of {which}")
    if _V1 in rest and not groups.are_all:
        missing = "config/subscriptionGroup.json cannot be read"
        return RetryTopic(name, None, None, f"{missing}, so the group is not certain: {rest}, or a part of it")
    return RetryTopic(name, rest)
