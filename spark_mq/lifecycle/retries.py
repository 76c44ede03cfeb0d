"""Messages that consumer groups returned: tables `retries` and `dead_letters`, a row for each attempt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import timestamps
from spark_mq.format.system_topic import SCHEDULE_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.message_arrays import by_value, flags, integers, numbered, numbers, positions_of, ranks, taken
from spark_mq.lifecycle.popped_messages import PoppedMessages, PopState, unread_pops
from spark_mq.lifecycle.retry_copies import (
    message_chains,
    number_of_attempts,
    popped_messages,
    retry_copies,
    selected_copies,
)
from spark_mq.lifecycle.retry_topic import RetryTopic, consumer_groups, parse_retry_topic, retry_max_times
from spark_mq.lifecycle.selected_messages import LogSource, SelectedMessages
from spark_mq.store.config.config_file import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    configured_topics,
    load_config,
    load_consumer_offsets,
    parse_delay_offsets,
)
from spark_mq.store.log.segment_files import STRAY
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import DEAD_LETTERS, RETRIES

STATES = ("UNKNOWN", "OVERDUE", "WAITING", "READY", "POPPED", "DEAD", "CONSUMED", "RETRIED")
"""The states of an attempt. The final state of a message is the first of these that one of its attempts has."""
_UNKNOWN, _OVERDUE, _WAITING, _READY, _POPPED, _DEAD, _CONSUMED, _RETRIED = range(len(STATES))


@dataclass(frozen=True)
class RetryFacts:
    """What a store knows about retries besides its messages.

    `consumer_offsets` are by group, topic and queue id; `delay_offsets` are the offset of the next delayed message of
    each level. Both are None if the file cannot be read. `due` has the due times in milliseconds by commit log
    offset, as two arrays, the first of which ascends. `unread_pops` and `lost_end` say why pops, or messages at the end
    of the log, can be missing. `config_end` is the offset up to which the files can speak of messages.
    """

    retry_topics: Mapping[str, RetryTopic]
    consumer_offsets: Mapping[tuple[str, str, int], int] | None
    delay_offsets: Mapping[int, int] | None
    retry_max_times: Mapping[str, int]
    due: tuple[Int64s, Int64s]
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
        retry_max_times(source.location),
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


def _due_times(source: LogSource, selected: SelectedMessages) -> tuple[Int64s, Int64s]:
    """When the selected messages of SCHEDULE_TOPIC_XXXX are due, if the source shows it."""
    messages = selected.messages
    delayed = messages.filter(pc.equal(messages["topic"], SCHEDULE_TOPIC)).combine_chunks()
    stored = integers(delayed["store_timestamp"].cast(pa.int64())) // 1000
    offset, queue_id, queue_offset = (
        integers(delayed[name]) for name in ("commit_log_offset", "queue_id", "queue_offset")
    )
    millis, is_known = source.due_times(offset, queue_id, queue_offset, stored)
    return offset[is_known], millis[is_known]


def dead_letters_rows(store: MessageStore | LogSource, consumer_group: str | None = None) -> pa.Table:
    """The rows of table `dead_letters`, in the order of the log; see `dead_letters`."""
    source = LogSource.of(store)
    selected = selected_copies(source)
    table = dead_letters(selected, retry_topics(source.location, selected))
    return table if consumer_group is None else table.filter(pc.equal(table["consumer_group"], consumer_group))


def dead_letters(selected: SelectedMessages, topics: dict[str, RetryTopic]) -> pa.Table:
    """The dead letters of consumer groups, in the order of the log.

    `reconsume_times` is how often the message was consumed in vain, and `retries_found` the number of its retries in
    the log: fewer if some expired, or if the group gave up the message before. `origin_...` is the message that was
    returned first, NULL if the dead letter does not say that.
    """
    groups = {name: topic.consumer_group for name, topic in topics.items()}
    copies = retry_copies(selected.messages, groups)
    chains, has_chain = message_chains(copies)
    rows = np.flatnonzero(flags(copies["is_dead_letter"]))
    attempts = number_of_attempts(copies, chains, rows)
    dead = copies.take(pa.array(rows))
    columns = {name: dead[name] for name in DEAD_LETTERS.schema.names if name in dead.column_names}
    columns["retries_found"] = pa.array(attempts, mask=~has_chain[rows])
    columns["origin_topic"] = pc.coalesce(dead["RETRY_TOPIC"], dead["DLQ_ORIGIN_TOPIC"])
    return pa.table([columns[name] for name in DEAD_LETTERS.schema.names], schema=DEAD_LETTERS.schema)


def retries_rows(store: MessageStore | LogSource, consumer_group: str | None = None, at: int | None = None) -> pa.Table:
    """The rows of table `retries`, in the order of the log; copies are due or not at `at`, in milliseconds."""
    source = LogSource.of(store)
    moment = source.moment(at)
    selected = selected_copies(source)
    table = retries(selected, retry_facts(source, selected), moment)
    return table if consumer_group is None else table.filter(pc.equal(table["consumer_group"], consumer_group))


def retries(selected: SelectedMessages, facts: RetryFacts, at: int) -> pa.Table:
    """The attempts to consume messages that groups returned, in the order of the log.

    `attempt` is the number of the retry, from 1 on, and `retry_max_times` the largest number by the group's settings.
    `due_timestamp` is when the delayed copy is due. `delay_...` is the copy in SCHEDULE_TOPIC_XXXX, `retry_...` the one
    in the retry topic; NULL if the log does not have it. `state` of an attempt:

    - WAITING: the delayed copy is not due yet; OVERDUE: it is due, and was not delivered.
    - READY: it was delivered to the retry topic, and the group's offset there is not past it.
    - POPPED: the group's offset is past it, because the group popped it, and the group has not acknowledged it
      (`popped_messages`).
    - CONSUMED: the group's offset is past it, and the group did not return it.
    - RETRIED: the group returned it, and there is a later attempt.
    - DEAD: the group returned it, and the message is in the dead letter topic.
    - UNKNOWN: `reason` says why.

    `final_state` is the state of the message: that of its last attempt.
    """
    groups = {name: topic.consumer_group for name, topic in facts.retry_topics.items()}
    copies = retry_copies(selected.messages, groups)
    chains, has_chain = message_chains(copies)
    has_chain &= flags(pc.is_valid(copies["consumer_group"]))
    delayed, delivered = _attempts(copies, chains, facts.delay_offsets)
    first, last = np.where(delayed >= 0, delayed, delivered), np.where(delivered >= 0, delivered, delayed)
    states = _States(first.size)
    _set_returned(states, copies, chains, has_chain, first)
    _set_uncertain(states, copies, has_chain, first, facts)
    _set_unread(states, integers(copies["commit_log_offset"])[last], selected, facts.lost_end)
    due_offsets, due_millis = facts.due
    position = positions_of(integers(copies["commit_log_offset"])[delayed], due_offsets)
    due = np.where((delayed >= 0) & (position >= 0), np.append(due_millis, -1)[position], -1)
    _set_waiting(states, copies, np.where(delivered < 0, delayed, -1), due, facts.delay_offsets, at)
    _set_delivered(states, copies, delivered, facts)
    levels = np.where(
        delayed >= 0, integers(copies["queue_id"])[delayed] + 1, numbers(copies["DELAY"], 9, -1, -1)[delivered]
    )
    taken_first = copies.take(pa.array(first))
    columns = {
        "consumer_group": taken_first["consumer_group"],
        "retry_topic": taken_first["retry_topic"],
        "attempt": taken_first["reconsume_times"],
        "retry_max_times": by_value(taken_first["consumer_group"], facts.retry_max_times, pa.int32()),
        "state": pa.array(STATES).take(pa.array(states.codes)),
        "final_state": pa.array(STATES).take(pa.array(_final_states(states.codes, chains[first], has_chain[first]))),
        "delay_level": pa.array(levels.astype(np.int32), mask=levels <= 0),
        "due_timestamp": timestamps(due, due >= 0),
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
    return pa.table([columns[field.name] for field in RETRIES.schema], schema=RETRIES.schema)


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
    levels, of_levels = np.unique(integers(copies["queue_id"]) + 1, return_inverse=True)
    ends = np.array([delay_offsets.get(level, 0) for level in levels.tolist()], np.int64)
    return np.asarray(integers(copies["queue_offset"]) < ends[of_levels], np.bool_)


def _set_returned(states: _States, copies: pa.Table, chains: Int64s, has_chain: Flags, first: Int64s) -> None:
    """Set RETRIED and DEAD: of attempts after which the log has a later attempt, or a dead letter."""
    attempts, is_dead = integers(copies["reconsume_times"]), flags(copies["is_dead_letter"])
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
    is_past = integers(copies["queue_offset"]) < ends[queues]
    _set_popped(states, copies, np.where(is_delivered & (is_past & popped[queues])[delivered], delivered, -1), facts)
    states.set(is_delivered & is_past[delivered], _CONSUMED)
    if facts.config_end is not None:
        is_later = integers(copies["commit_log_offset"]) >= facts.config_end
        states.set(is_delivered & is_later[delivered], _UNKNOWN, _OLD_OFFSETS)
    states.set(is_delivered, _READY)


def _set_popped(states: _States, copies: pa.Table, passed: Int64s, facts: RetryFacts) -> None:
    """Set the states of attempts that a group popped; `passed` is -1 for all other attempts."""
    rows = np.flatnonzero((passed >= 0) & (states.codes < 0))
    if facts.unread_pops is not None:
        states.set(passed >= 0, _UNKNOWN, facts.unread_pops)
        return
    end = max((one.commit_log_offset for one in facts.popped.damage), default=-1)
    is_before = (passed >= 0) & (integers(copies["commit_log_offset"])[passed] < end)
    states.set(is_before, _UNKNOWN, f"a later note about popped messages cannot be read: commit log offset {end}")
    names = ("consumer_group", "retry_topic", "queue_id", "queue_offset")
    found = copies.select(names).take(pa.array(passed[rows]))
    is_popped = np.zeros(passed.size, np.bool_)
    is_popped[rows] = [
        last is not None and last.state == PopState.POPPED
        for group, *place in zip(*(found[name].to_pylist() for name in names), strict=True)
        for last in [facts.popped.last(group, (place[0], place[1], place[2]))]
    ]
    states.set(is_popped, _POPPED)


_OLD_OFFSETS = f"it was stored after the moment from which config/{CONSUMER_OFFSETS} is"


def _final_states(states: Int64s, chains: Int64s, has_chain: Flags) -> Int64s:
    least = np.full(chains.max(initial=-1) + 1, _RETRIED, np.int64)
    np.minimum.at(least, chains, states)
    return np.where(has_chain, least[chains], states)
