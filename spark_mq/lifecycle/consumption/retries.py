"""Messages that consumer groups returned: table `retries`, a row for each attempt; see `retry_copies`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.message_schema import MAX_TIMESTAMP_MILLIS, TIMESTAMP
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.format.timestamp import NANOS_PER_MILLI
from spark_mq.lifecycle.consumption.retry_copies import message_chains, retry_copies, selected_copies
from spark_mq.lifecycle.consumption.retry_topic import RetryTopic, consumer_groups, parse_retry_topic
from spark_mq.lifecycle.messages.arrays import flags, numbered
from spark_mq.lifecycle.messages.lost_end import lost_end
from spark_mq.lifecycle.messages.row_numbers import by_value, int64s, is_valid, positions_of, ranks, taken
from spark_mq.lifecycle.messages.selected_messages import SelectedMessages
from spark_mq.store.config.config_file import load_config
from spark_mq.store.config.consumer_offsets import CONSUMER_OFFSETS, load_consumer_offsets
from spark_mq.store.config.delay_offsets import DELAY_OFFSETS, parse_delay_offsets
from spark_mq.store.config.topic_names import configured_topics
from spark_mq.store.log.corrupt_range import STRAY
from spark_mq.store.message_store import MessageStore
from spark_mq.store.metadata_tables import subscription_groups

RETRIES_SCHEMA = pa.schema(
    [
        ("consumer_group", pa.string()),
        ("retry_topic", pa.string()),
        ("attempt", pa.int32()),
        ("retry_max_times", pa.int32()),
        ("state", pa.string()),
        ("final_state", pa.string()),
        ("delay_level", pa.int32()),
        ("due_timestamp", TIMESTAMP),
        ("unique_key", pa.string()),
        ("origin_topic", pa.string()),
        ("origin_message_id", pa.string()),
        ("origin_commit_log_offset", pa.int64()),
        ("delay_commit_log_offset", pa.int64()),
        ("delay_store_timestamp", TIMESTAMP),
        ("retry_queue_id", pa.int32()),
        ("retry_queue_offset", pa.int64()),
        ("retry_commit_log_offset", pa.int64()),
        ("retry_store_timestamp", TIMESTAMP),
        ("reason", pa.string()),
    ]
)
STATES = ("UNKNOWN", "OVERDUE", "WAITING", "READY", "POPPED", "DEAD", "CONSUMED", "RETRIED")
"""The states of an attempt. The final state of a message is the first of these that one of its attempts has."""
_UNKNOWN, _OVERDUE, _WAITING, _READY, _POPPED, _DEAD, _CONSUMED, _RETRIED = range(len(STATES))
_UNITS = 1 << 18
"""Units of one read."""


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
        retry_topics: The meaning of each retry topic.
        consumer_offsets: The offset of a group in a queue of a topic, by group, topic and queue id; None if
            `config/consumerOffset.json` cannot be read.
        delay_offsets: The queue offset of the next delayed message of each level; None if `config/delayOffset.json`
            cannot be read.
        retry_max_times: The largest number of attempts by group.
        due: When delayed messages are due.
        lost_end: Why messages at the end of the log can be missing; None if the log has its end.

    """

    retry_topics: Mapping[str, RetryTopic]
    consumer_offsets: Mapping[tuple[str, str, int], int] | None
    delay_offsets: Mapping[int, int] | None
    retry_max_times: Mapping[str, int]
    due: DueTimes
    lost_end: str | None = None


def retries_rows(store: MessageStore, consumer_group: str | None = None, at: int | None = None) -> pa.Table:
    """The attempts to consume messages that groups returned, in the order of the log; see `retries`.

    Args:
        store: The store.
        consumer_group: Only the attempts of this group; None for all.
        at: The time to which WAITING and OVERDUE refer, milliseconds since the epoch; None for now.

    Returns:
        A table with `RETRIES_SCHEMA`.

    Raises:
        UnsupportedStoreError: The queues are in RocksDB.
        CorruptLogError: A segment was removed or became shorter while it was read.

    Example:
        >>> retries_rows(MessageStore("/data/store"), "billing")["state"].to_pylist()
        ['RETRIED', 'WAITING']
    """
    selected = selected_copies(store)
    table = retries(selected, retry_facts(store, selected), time.time_ns() // NANOS_PER_MILLI if at is None else at)
    return table if consumer_group is None else table.filter(pc.equal(table["consumer_group"], consumer_group))


def retries(selected: SelectedMessages, facts: RetryFacts, at: int) -> pa.Table:
    """The attempts to consume messages that groups returned, in the order of the log.

    `attempt` is the number of the retry, from 1 on, and `retry_max_times` the largest number by the group's settings.
    `due_timestamp` is when the delayed copy is due. `delay_...` is the copy in SCHEDULE_TOPIC_XXXX, `retry_...` the one
    in the retry topic; NULL if the log does not have it. `state` of an attempt:

    - WAITING: the delayed copy is not due yet; OVERDUE: it is due, and was not delivered.
    - READY: it was delivered to the retry topic, and the group's offset there is not past it.
    - POPPED: a group that pops messages popped it, and the log has no later attempt. Such a group has its offset past
      messages that it has not acknowledged.
    - CONSUMED: the group's offset is past it, and the group did not return it.
    - RETRIED: the group returned it, and there is a later attempt.
    - DEAD: the group returned it, and the message is in the dead letter topic.
    - UNKNOWN: `reason` says why.

    `final_state` is the state of the message: that of its last attempt.

    Args:
        selected: The result of `selected_copies`.
        facts: What else the store knows.
        at: The time to which WAITING and OVERDUE refer, milliseconds since the epoch.

    """
    groups = {name: topic.consumer_group for name, topic in facts.retry_topics.items()}
    copies = retry_copies(selected.messages, groups)
    chains, has_chain = message_chains(copies)
    has_chain &= is_valid(copies["consumer_group"])
    delayed, delivered = _attempts(copies, chains, facts.delay_offsets)
    first, last = np.where(delayed >= 0, delayed, delivered), np.where(delivered >= 0, delivered, delayed)
    states = _States(first.size)
    _set_returned(states, copies, chains, has_chain, first)
    _set_uncertain(states, copies, has_chain, first, facts)
    _set_unread(states, int64s(copies["commit_log_offset"])[last], selected, facts.lost_end)
    due = np.where(delayed >= 0, facts.due.at(int64s(copies["commit_log_offset"])[delayed]), -1)
    _set_waiting(states, copies, np.where(delivered < 0, delayed, -1), due, facts.delay_offsets, at)
    _set_delivered(states, copies, delivered, facts)
    levels = np.where(delayed >= 0, int64s(copies["queue_id"])[delayed] + 1, _numbers(copies["DELAY"])[delivered])
    taken_first = copies.take(pa.array(first))
    is_due = (due >= 0) & (due <= MAX_TIMESTAMP_MILLIS)
    due_times = pa.array(np.where(is_due, due, 0) * 1000, mask=~is_due).cast(TIMESTAMP)
    columns = {
        "consumer_group": taken_first["consumer_group"],
        "retry_topic": taken_first["retry_topic"],
        "attempt": taken_first["reconsume_times"],
        "retry_max_times": by_value(taken_first["consumer_group"], facts.retry_max_times, pa.int32()),
        "state": pa.array(STATES).take(pa.array(states.codes)),
        "final_state": pa.array(STATES).take(pa.array(_final_states(states.codes, chains[first], has_chain[first]))),
        "delay_level": pa.array(levels.astype(np.int32), mask=levels <= 0),
        "due_timestamp": due_times,
        "unique_key": taken_first["unique_key"],
        "origin_topic": taken_first["RETRY_TOPIC"],
        "origin_message_id": taken_first["origin_message_id"],
        "origin_commit_log_offset": taken_first["origin_commit_log_offset"],
        "delay_commit_log_offset": taken(copies["commit_log_offset"], delayed),
        "delay_store_timestamp": taken(copies["store_timestamp"], delayed),
        "retry_queue_id": taken(copies["queue_id"], delivered),
        "retry_queue_offset": taken(copies["queue_offset"], delivered),
        "retry_commit_log_offset": taken(copies["commit_log_offset"], delivered),
        "retry_store_timestamp": taken(copies["store_timestamp"], delivered),
        "reason": states.reasons(),
    }
    return pa.table([columns[field.name] for field in RETRIES_SCHEMA], schema=RETRIES_SCHEMA)


class _States:
    """The state of each attempt, and the reason of an unknown one; the first state that is set remains."""

    def __init__(self, size: int) -> None:
        self.codes = np.full(size, -1, np.int64)
        self._reason_codes = np.full(size, -1, np.int64)
        self._texts: list[str] = []

    def set(self, rows: Flags, state: int, reason: str | None = None) -> None:
        """Set the state of the rows that have none."""
        rows = rows & (self.codes < 0)
        self.codes[rows] = state
        if reason is not None:
            self._reason_codes[rows] = len(self._texts)
            self._texts.append(reason)

    def reasons(self) -> pa.Array:
        """The reasons; NULL for a state that is known."""
        return taken(pa.array(self._texts, pa.string()), self._reason_codes)


def _attempts(copies: pa.Table, chains: Int64s, delay_offsets: Mapping[int, int] | None) -> tuple[Int64s, Int64s]:
    """The delayed copy and the one in the retry topic of each attempt, as rows of `copies`; -1 for a missing one.

    A consumer can return a message twice with the same number of attempts. Then the delayed copies and the delivered
    ones are paired in the order of the log. Copies that the delay offset is not past come last.
    """
    is_delayed, is_dead = flags(copies["is_delayed"]), flags(copies["is_dead_letter"])
    keys = numbered(copies["retry_topic"], pa.array(chains), copies["reconsume_times"])
    waits = is_delayed & ~_is_past(copies, delay_offsets or {})
    order = np.lexsort((np.arange(keys.size), waits, is_delayed))
    number = np.empty(keys.size, np.int64)
    number[order] = ranks(numbered(pa.array(keys), copies["is_delayed"])[order])
    pairs = numbered(pa.array(keys), pa.array(number))
    delayed, delivered = np.flatnonzero(is_delayed), np.flatnonzero(~is_delayed & ~is_dead)
    at = positions_of(pairs[delayed], pairs[delivered])
    of_delayed = np.where(at >= 0, delivered[at] if delivered.size else -1, -1)
    of_delayed[of_delayed < delayed] = -1  # a copy is delivered after it was delayed
    alone = np.setdiff1d(delivered, of_delayed)
    delayed = np.concatenate([delayed, np.full(alone.size, -1, np.int64)])
    delivered = np.concatenate([of_delayed, alone])
    order = np.argsort(np.where(delayed >= 0, delayed, delivered), kind="stable")
    return delayed[order], delivered[order]


def _is_past(copies: pa.Table, delay_offsets: Mapping[int, int]) -> Flags:
    """Whether the delay offset of a delayed copy's level is past it. A level without an offset begins at 0."""
    levels, of_levels = np.unique(int64s(copies["queue_id"]) + 1, return_inverse=True)
    ends = np.array([delay_offsets.get(level, 0) for level in levels.tolist()], np.int64)
    return np.asarray(int64s(copies["queue_offset"]) < ends[of_levels], np.bool_)


def _set_returned(states: _States, copies: pa.Table, chains: Int64s, has_chain: Flags, first: Int64s) -> None:
    """Set RETRIED and DEAD: of attempts after which the log has a later attempt, or a dead letter."""
    attempts, is_dead = int64s(copies["reconsume_times"]), flags(copies["is_dead_letter"])
    least = np.iinfo(np.int32).min
    later = _greatest_after(chains, np.where(is_dead, least, attempts)) > attempts
    dead = _greatest_after(chains, np.where(is_dead, attempts, least)) > attempts
    states.set((later & has_chain)[first], _RETRIED)
    states.set((dead & has_chain)[first], _DEAD)


def _greatest_after(chains: Int64s, values: Int64s) -> Int64s:
    """For each row, the greatest value of the rows of its chain from that row on; values have 32 bits."""
    order = np.lexsort((np.arange(chains.size), chains))[::-1]
    above = (
        chains.max(initial=0) - chains[order]
    ) << 32  # chains descend in this order, so each begins above all before
    result = np.empty(chains.size, np.int64)
    result[order] = np.maximum.accumulate(above + values[order] + (1 << 31)) - above - (1 << 31)
    return result


def _set_uncertain(states: _States, copies: pa.Table, has_chain: Flags, first: Int64s, facts: RetryFacts) -> None:
    for name, topic in facts.retry_topics.items():
        if topic.reason is not None:
            is_topic = flags(pc.equal(copies["retry_topic"], name))
            states.set(is_topic[first], _UNKNOWN, topic.reason)
    reason = "the copy has no ORIGIN_MESSAGE_ID, and no unique key that is certainly its own"
    states.set(~has_chain[first], _UNKNOWN, reason)


def _set_unread(states: _States, last: Int64s, selected: SelectedMessages, lost: str | None) -> None:
    """Set UNKNOWN for attempts after which a part of the log is missing: what followed can have been there."""
    damage = [one for one in selected.damage if one.code != STRAY]
    if damage:
        end = max(damage, key=lambda one: one.commit_log_offset + one.length)
        is_before = last < end.commit_log_offset + end.length
        states.set(is_before, _UNKNOWN, f"a later part of the log cannot be read: {end.describe()}")
    if lost is not None:
        states.set(np.ones(last.size, np.bool_), _UNKNOWN, lost)


def _set_waiting(
    states: _States, copies: pa.Table, delayed: Int64s, due: Int64s, delay_offsets: Mapping[int, int] | None, at: int
) -> None:
    """Set the states of delayed copies that were not delivered; `delayed` is -1 for all other attempts."""
    waits = delayed >= 0
    if delay_offsets is None:
        states.set(waits, _UNKNOWN, f"config/{DELAY_OFFSETS} cannot be read")
        return
    reason = f"it was delivered according to config/{DELAY_OFFSETS}, but the log has no message of that"
    states.set(waits & _is_past(copies, delay_offsets)[delayed], _UNKNOWN, reason)
    states.set(waits & (due < 0), _UNKNOWN, "no unit of its queue tells when it is due")
    states.set(waits & (due <= at), _OVERDUE)
    states.set(waits, _WAITING)


def _set_delivered(states: _States, copies: pa.Table, delivered: Int64s, facts: RetryFacts) -> None:
    """Set the states of delivered attempts by the offsets of their groups."""
    is_delivered = delivered >= 0
    if facts.consumer_offsets is None:
        states.set(is_delivered, _UNKNOWN, f"config/{CONSUMER_OFFSETS} cannot be read")
        return
    queues = numbered(copies["retry_topic"], copies["queue_id"])
    firsts = np.unique(queues, return_index=True)[1]
    names = copies["retry_topic"].take(pa.array(firsts)).to_pylist()
    queue_ids = copies["queue_id"].take(pa.array(firsts)).to_pylist()
    ends, popped = np.zeros(firsts.size, np.int64), np.zeros(firsts.size, np.bool_)
    for number, (name, queue_id) in enumerate(zip(names, queue_ids, strict=True)):
        topic = facts.retry_topics.get(name)
        if topic is not None:
            ends[number] = facts.consumer_offsets.get((topic.consumer_group or "", name, queue_id), 0)
            popped[number] = topic.origin_topic is not None
    is_past = int64s(copies["queue_offset"]) < ends[queues]
    is_popped = popped[queues]
    states.set(is_delivered & (is_past & is_popped)[delivered], _POPPED)
    states.set(is_delivered & is_past[delivered], _CONSUMED)
    states.set(is_delivered, _READY)


def _final_states(states: Int64s, chains: Int64s, has_chain: Flags) -> Int64s:
    least = np.full(chains.max(initial=-1) + 1, _RETRIED, np.int64)
    np.minimum.at(least, chains, states)
    return np.where(has_chain, least[chains], states)


def _numbers(column: pa.ChunkedArray) -> Int64s:
    """The texts as numbers; -1 if one is not a number of at most nine digits."""
    texts = column.combine_chunks()
    is_number = flags(pc.match_substring_regex(texts, "^[0-9]{1,9}$"))
    return int64s(pc.if_else(pa.array(is_number), texts, None).cast(pa.int64()))


def retry_facts(store: MessageStore, selected: SelectedMessages) -> RetryFacts:
    """What a store knows about retries besides the messages that were selected."""
    return RetryFacts(
        retry_topics(store, selected),
        _consumer_offsets(store),
        _delay_offsets(store),
        _retry_max_times(store),
        _due_times(store),
        lost_end(store, selected.newest_timestamp),
    )


def retry_topics(store: MessageStore, selected: SelectedMessages) -> dict[str, RetryTopic]:
    """The meaning of each retry topic that selected messages are in, or will be in after their delay."""
    groups, topics = consumer_groups(store.location), configured_topics(store.location)
    names: set[str | None] = set()
    for column in ("topic", "REAL_TOPIC"):
        names.update(pc.unique(selected.messages[column]).to_pylist())
    parsed = {name: parse_retry_topic(name, groups, topics) for name in names if name is not None}
    return {name: topic for name, topic in sorted(parsed.items()) if topic is not None}


def _consumer_offsets(store: MessageStore) -> dict[tuple[str, str, int], int] | None:
    try:
        if load_config(store.location, CONSUMER_OFFSETS, lambda _: True) is None:
            return None
        offsets = load_consumer_offsets(store.location)
    except (ConfigError, UnsupportedStoreError):
        return None
    return {(one.consumer_group, one.topic, one.queue_id): one.offset for one in offsets}


def _delay_offsets(store: MessageStore) -> dict[int, int] | None:
    try:
        return load_config(store.location, DELAY_OFFSETS, parse_delay_offsets)
    except (ConfigError, UnsupportedStoreError):
        return None


def _retry_max_times(store: MessageStore) -> dict[str, int]:
    try:
        groups = subscription_groups(store)
    except (ConfigError, UnsupportedStoreError):
        return {}
    return dict(zip(groups["consumer_group"].to_pylist(), groups["retry_max_times"].to_pylist(), strict=True))


def _due_times(store: MessageStore) -> DueTimes:
    """When delayed messages are due: the tags code of their units (`CommitLog.checkMessageAndReturnSize`@5.3.3)."""
    offsets, millis = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for name in store.queues:
        if name[0] != SCHEDULE_TOPIC:
            continue
        queue, stop = store.queues[name], store.get_max_offset_in_queue(*name)
        for start in range(store.get_min_offset_in_queue(*name), stop, _UNITS):
            units = queue.units(start, min(start + _UNITS, stop))
            codes, is_known = queue.tags_codes(units)
            offsets.append(units["commit_log_offset"][is_known].astype(np.int64))
            millis.append(codes[is_known])
    every = np.concatenate(offsets)
    order = np.argsort(every, kind="stable")
    return DueTimes(every[order], np.concatenate(millis)[order])
