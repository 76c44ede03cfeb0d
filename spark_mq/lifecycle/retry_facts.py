"""What a store shows about retries besides the copies of messages: offsets, settings, due times and pops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.array_types import Int64s
from spark_mq.format.system_topic import REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.log_source import DelayedPlaces, LogSource
from spark_mq.lifecycle.message_arrays import int64s, positions_of
from spark_mq.lifecycle.popped_messages import NOTE_TAGS, PoppedMessages, parse_pop_note, unread_pops
from spark_mq.lifecycle.retry_topic import RETRY_PREFIX, RetryTopic, consumer_groups, parse_retry_topic
from spark_mq.lifecycle.selected_messages import SOUND_COLUMNS, SelectedMessages, Selection, TopicRule, sound_messages
from spark_mq.store.config.config_file import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    load_config,
    load_consumer_offsets,
    parse_delay_offsets,
)
from spark_mq.store.config.topics import configured_topics
from spark_mq.store.log.corrupt_range import CorruptRange
from spark_mq.store.metadata_tables import load_subscription_groups

NOTES = Selection(
    TopicRule(names=frozenset({TIMER_TOPIC}), prefixes=(REVIVE_PREFIX,), tags=NOTE_TAGS),
    ("commit_log_offset", "topic", "tags", "body", "_corrupt_record", *SOUND_COLUMNS),
    ("REAL_TOPIC",),
    check_crc=True,
)


def popped_messages(source: LogSource, topics: Iterable[str]) -> PoppedMessages:
    """The pops of the messages of some topics, by one read of the log.

    Args:
        topics: The topics whose messages were popped, such as retry topics.

    Raises the errors of `LogSource.selections_of`.
    """
    (found,) = source.selections_of(NOTES)
    messages, damage = sound_messages(found)
    is_timer = pc.equal(messages["topic"], TIMER_TOPIC)
    real = pc.if_else(is_timer, messages["REAL_TOPIC"], messages["topic"])
    messages = messages.filter(pc.fill_null(pc.starts_with(real, REVIVE_PREFIX), False))
    wanted = frozenset(topics)
    notes, unreadable = [], list(damage)
    for offset, tags, body in _candidates(messages, wanted):
        note = parse_pop_note(tags, body)
        if note is None:
            unreadable.append(CorruptRange("commitlog", offset, 1, "CONTENT", "a note about popped messages"))
        elif note.topic in wanted:
            notes.append(note)
    return PoppedMessages(notes, damage=tuple(unreadable))


def _candidates(messages: pa.Table, topics: frozenset[str]) -> Iterable[tuple[int, str, bytes]]:
    """The offset, the tags and the body of notes that can be about the topics.

    Most notes are not about retry topics, and need not be parsed: the name of a topic is in the body as it is, unless
    the body has a backslash.
    """
    common = RETRY_PREFIX if all(topic.startswith(RETRY_PREFIX) for topic in topics) else ""
    is_one = pc.match_substring(messages["body"], "\\")
    is_one = pc.or_(is_one, pc.match_substring(messages["body"], common))
    found = messages.filter(is_one)
    columns = (found[name].to_pylist() for name in ("commit_log_offset", "tags", "body"))
    return zip(*columns, strict=True)


@dataclass(frozen=True)
class DueTimes:
    """When delayed messages are due: milliseconds by commit log offset, which ascends."""

    commit_log_offsets: Int64s
    millis: Int64s

    def at(self, commit_log_offsets: Int64s) -> Int64s:
        """The due times of messages; -1 for a message that is not among them."""
        found = positions_of(commit_log_offsets, self.commit_log_offsets)
        return np.where(found >= 0, self.millis[found] if self.millis.size else -1, -1)


@dataclass(frozen=True)
class RetryFacts:
    """What a store knows about retries besides its messages.

    Attributes:
        consumer_offsets: The offset of a group in a queue of a topic, by group, topic and queue id; None if
            `config/consumerOffset.json` cannot be read.
        delay_offsets: The queue offset of the next delayed message of each level; None if `config/delayOffset.json`
            cannot be read.
        retry_max_times: The largest number of attempts by group.
        due: When delayed messages are due.
        popped: The pops of messages of retry topics.
        unread_pops: Why pops can be missing there; None if they are not.
        lost_end: Why messages at the end of the log can be missing; None if the log has its end.
        config_end: The commit log offset up to which the offsets can speak of messages; None for the whole log.
    """

    retry_topics: Mapping[str, RetryTopic]
    consumer_offsets: Mapping[tuple[str, str, int], int] | None
    delay_offsets: Mapping[int, int] | None
    retry_max_times: Mapping[str, int]
    due: DueTimes
    popped: PoppedMessages = field(default_factory=PoppedMessages)
    unread_pops: str | None = None
    lost_end: str | None = None
    config_end: int | None = None


def retry_facts(source: LogSource, selected: SelectedMessages) -> RetryFacts:
    """What a source knows about retries besides the messages that were selected."""
    topics = retry_topics(source.location, selected)
    stored = set(pc.unique(selected.messages["topic"]).to_pylist())
    popped = [name for name, topic in topics.items() if topic.origin_topic is not None and name in stored]
    return RetryFacts(
        topics,
        _consumer_offsets(source.location),
        _delay_offsets(source.location),
        _retry_max_times(source.location),
        _due_times(source, selected),
        popped_messages(source, popped) if popped else PoppedMessages(),
        unread_pops(source.location),
        source.lost_end(selected.newest_timestamp),
        source.config_end,
    )


def retry_topics(store: Location, selected: SelectedMessages) -> dict[str, RetryTopic]:
    """The meaning of each retry topic that selected messages are in, or will be in after their delay."""
    groups, topics = consumer_groups(store), configured_topics(store)
    names: set[str | None] = set()
    for column in ("topic", "REAL_TOPIC"):
        names.update(pc.unique(selected.messages[column]).to_pylist())
    parsed = {name: parse_retry_topic(name, groups, topics) for name in names if name is not None}
    return {name: topic for name, topic in sorted(parsed.items()) if topic is not None}


def _consumer_offsets(store: Location) -> dict[tuple[str, str, int], int] | None:
    try:
        if load_config(store, CONSUMER_OFFSETS, lambda _: True) is None:
            return None
        offsets = load_consumer_offsets(store)
    except (ConfigError, UnsupportedStoreError):
        return None
    return {(one.consumer_group, one.topic, one.queue_id): one.offset for one in offsets}


def _delay_offsets(store: Location) -> dict[int, int] | None:
    try:
        return load_config(store, DELAY_OFFSETS, parse_delay_offsets)
    except (ConfigError, UnsupportedStoreError):
        return None


def _retry_max_times(store: Location) -> dict[str, int]:
    try:
        groups = load_subscription_groups(store)
    except (ConfigError, UnsupportedStoreError):
        return {}
    return dict(zip(groups["consumer_group"].to_pylist(), groups["retry_max_times"].to_pylist(), strict=True))


def _due_times(source: LogSource, selected: SelectedMessages) -> DueTimes:
    """When the selected messages of SCHEDULE_TOPIC_XXXX are due, if the source shows it."""
    messages = selected.messages
    delayed = messages.filter(pc.equal(messages["topic"], SCHEDULE_TOPIC)).combine_chunks()
    stored = int64s(delayed["store_timestamp"].cast(pa.int64())) // 1000
    offset, queue_id, queue_offset = (
        int64s(delayed[name]) for name in ("commit_log_offset", "queue_id", "queue_offset")
    )
    millis, is_known = source.due_times(DelayedPlaces(offset, queue_id, queue_offset, stored))
    return DueTimes(offset[is_known], millis[is_known])
