"""Messages that consumer groups returned: tables `retries` and `dead_letters`, a row for each attempt.

A broker that gets a message back writes a copy of it to topic SCHEDULE_TOPIC_XXXX, with one more `reconsume_times`, and
delivers it to `%RETRY%GROUP` after the delay (`AbstractSendMessageProcessor.consumerSendMsgBack`@5.3.3,
`SendMessageProcessor.asyncConsumerSendMsgBack`@4.9.7). After the last attempt it writes a copy to `%DLQ%GROUP`. A
message that a group popped and did not acknowledge is written to the retry topic without a delay
(`PopReviveService.reviveRetry`@5.3.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.arrow_array import timestamps
from spark_mq.format.system_topic import RETRY_PREFIX, REVIVE_PREFIX, SCHEDULE_TOPIC, TIMER_TOPIC
from spark_mq.io.location import Location
from spark_mq.lifecycle.message_arrays import (
    by_number,
    by_value,
    extremes,
    first_cases,
    flags,
    integers,
    numbered,
    numbers,
    positions_of,
    ranks,
    taken,
)
from spark_mq.lifecycle.outcomes import Case
from spark_mq.lifecycle.popped_messages import NOTE_TAGS, PoppedMessages, PopState, parse_pop_note, unread_pops
from spark_mq.lifecycle.retry_copies import message_chains, number_of_attempts, retry_copies, selected_copies
from spark_mq.lifecycle.retry_topic import (
    RetryTopic,
    consumer_groups,
    consumer_offsets,
    parse_retry_topic,
    retry_max_times,
)
from spark_mq.lifecycle.selected_messages import (
    SOUND_COLUMNS,
    LogSource,
    ReadableLog,
    SelectedMessages,
    Selection,
    TopicRule,
    sound_messages,
)
from spark_mq.store.config.config_file import (
    CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    configured_topics,
    load_config,
    parse_delay_offsets,
    read_config,
)
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.lifecycle import DEAD_LETTERS, RETRIES

NOTES = Selection(
    TopicRule(names=frozenset({TIMER_TOPIC}), prefixes=(REVIVE_PREFIX,), tags=NOTE_TAGS),
    ("commit_log_offset", "topic", "tags", "body", "_corrupt_record", *SOUND_COLUMNS),
    ("REAL_TOPIC",),
    check_crc=True,
)
STATES = ("UNKNOWN", "OVERDUE", "WAITING", "READY", "POPPED", "DEAD", "CONSUMED", "RETRIED")
"""The states of an attempt. The final state of a message is the first of these that one of its attempts has."""
_UNKNOWN = "UNKNOWN"
_UNREAD = "a later part of the log cannot be read"
_OLD_OFFSETS = f"it was stored after the moment from which config/{CONSUMER_OFFSETS} is"


def popped_messages(source: LogSource, topics: Iterable[str]) -> PoppedMessages:
    """The pops of the messages of some topics, by one read of the log."""
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
        read_config(lambda: consumer_offsets(source.location))[0],
        read_config(lambda: load_config(source.location, DELAY_OFFSETS, parse_delay_offsets))[0],
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


def _due_times(source: LogSource, selected: SelectedMessages) -> tuple[Int64s, Int64s]:
    messages = selected.messages
    delayed = messages.filter(pc.equal(messages["topic"], SCHEDULE_TOPIC)).combine_chunks()
    stored = integers(delayed["store_timestamp"].cast(pa.int64())) // 1000
    offset = integers(delayed["commit_log_offset"])
    millis, is_known = source.due_times(
        offset, integers(delayed["queue_id"]), integers(delayed["queue_offset"]), stored
    )
    return offset[is_known], millis[is_known]


def dead_letters_rows(store: MessageStore | LogSource, consumer_group: str | None = None) -> pa.Table:
    """The rows of table `dead_letters`, in the order of the log; see `dead_letters`."""
    source = LogSource.of(store)
    selected = selected_copies(source)
    return _of_group(dead_letters(selected, retry_topics(source.location, selected)), consumer_group)


def dead_letters(selected: SelectedMessages, topics: dict[str, RetryTopic]) -> pa.Table:
    """The dead letters of consumer groups, in the order of the log; table `dead_letters` describes them."""
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
    return _of_group(retries(selected, retry_facts(source, selected), moment), consumer_group)


def _of_group(table: pa.Table, consumer_group: str | None) -> pa.Table:
    return table if consumer_group is None else table.filter(pc.equal(table["consumer_group"], consumer_group))


def retries(selected: SelectedMessages, facts: RetryFacts, at: int) -> pa.Table:
    """The attempts to consume messages that groups returned, in the order of the log: table `retries`."""
    groups = {name: topic.consumer_group for name, topic in facts.retry_topics.items()}
    copies = retry_copies(selected.messages, groups)
    chains, has_chain = message_chains(copies)
    has_chain &= flags(pc.is_valid(copies["consumer_group"]))
    delayed, delivered = _attempts(copies, chains, facts.delay_offsets)
    first, last = np.where(delayed >= 0, delayed, delivered), np.where(delivered >= 0, delivered, delayed)
    offset = integers(copies["commit_log_offset"])
    due_offsets, due_millis = facts.due
    due = np.append(due_millis, -1)[positions_of(offset[delayed], due_offsets)]
    due[delayed < 0] = -1
    reasons = {name: topic.reason for name, topic in facts.retry_topics.items()}
    unsure = by_value(copies["retry_topic"], reasons, pa.string()).take(pa.array(first))
    log = ReadableLog.of(selected)
    cases = [
        *_returned(copies, chains, has_chain, first),
        (flags(unsure.is_valid()), _UNKNOWN, unsure),
        (~has_chain[first], _UNKNOWN, "the copy has no ORIGIN_MESSAGE_ID, and no unique key that is certainly its own"),
        (log.is_damaged_after(offset[last]), _UNKNOWN, log.damage_reasons(_UNREAD, offset[last])),
        (facts.lost_end is not None, _UNKNOWN, facts.lost_end),
        *_waiting(copies, np.where(delivered < 0, delayed, -1), due, facts.delay_offsets, at),
    ]
    is_known: Flags = np.logical_or.reduce(np.broadcast_arrays(*(condition for condition, _, _ in cases)))
    cases += _delivered(copies, delivered, is_known, facts)
    state, reason = first_cases(cases)
    codes = integers(pc.index_in(state, pa.array(STATES)))
    least, _ = extremes(chains[first], codes, copies.num_rows)
    final_codes = np.where(has_chain[first], least[chains[first]], codes)
    levels = np.where(
        delayed >= 0, integers(copies["queue_id"])[delayed] + 1, numbers(copies["DELAY"], 9, -1, -1)[delivered]
    )
    taken_first = copies.take(pa.array(first))
    of_log = ("commit_log_offset", "store_timestamp")
    columns = {
        **{name: taken_first[name] for name in ("consumer_group", "retry_topic", "unique_key", "origin_message_id")},
        "attempt": taken_first["reconsume_times"],
        "retry_max_times": by_value(taken_first["consumer_group"], facts.retry_max_times, pa.int32()),
        "state": state,
        "final_state": pa.array(STATES).take(pa.array(final_codes)),
        "delay_level": pa.array(levels.astype(np.int32), mask=levels <= 0),
        "due_timestamp": timestamps(due, due >= 0),
        "origin_topic": taken_first["RETRY_TOPIC"],
        "origin_commit_log_offset": taken_first["origin_commit_log_offset"],
        **{f"delay_{name}": taken(copies[name], delayed) for name in of_log},
        **{f"retry_{name}": taken(copies[name], delivered) for name in ("queue_id", "queue_offset", *of_log)},
        "reason": reason,
    }
    return pa.table([columns[field.name] for field in RETRIES.schema], schema=RETRIES.schema)


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
    ends = by_number(integers(copies["queue_id"]) + 1, delay_offsets, 0)
    return np.asarray(integers(copies["queue_offset"]) < ends, np.bool_)


def _returned(copies: pa.Table, chains: Int64s, has_chain: Flags, first: Int64s) -> list[Case]:
    """The attempts after which the log has a later attempt, or a dead letter."""
    attempts, is_dead = integers(copies["reconsume_times"]), flags(copies["is_dead_letter"])
    least = np.iinfo(np.int32).min
    later = _greatest_after(chains, np.where(is_dead, least, attempts)) > attempts
    dead = _greatest_after(chains, np.where(is_dead, attempts, least)) > attempts
    return [((later & has_chain)[first], "RETRIED", None), ((dead & has_chain)[first], "DEAD", None)]


def _greatest_after(chains: Int64s, values: Int64s) -> Int64s:
    """For each row, the greatest value of the rows of its chain from that row on; values have 32 bits."""
    order = np.lexsort((np.arange(chains.size), chains))[::-1]
    # Chains descend in this order, so each begins above all before.
    above = (chains.max(initial=0) - chains[order]) << 32
    result = np.empty(chains.size, np.int64)
    result[order] = np.maximum.accumulate(above + values[order] + (1 << 31)) - above - (1 << 31)
    return result


def _waiting(
    copies: pa.Table, delayed: Int64s, due: Int64s, delay_offsets: Mapping[int, int] | None, at: int
) -> list[Case]:
    """The delayed copies that were not delivered; `delayed` is -1 for all other attempts."""
    waits = delayed >= 0
    lost = f"it was delivered according to config/{DELAY_OFFSETS}, but the log has no message of that"
    return [
        (waits & (delay_offsets is None), _UNKNOWN, f"config/{DELAY_OFFSETS} cannot be read"),
        (waits & _is_past(copies, delay_offsets or {})[delayed], _UNKNOWN, lost),
        (waits & (due < 0), _UNKNOWN, "no unit of its queue tells when it is due"),
        (waits & (due <= at), "OVERDUE", None),
        (waits, "WAITING", None),
    ]


def _delivered(copies: pa.Table, delivered: Int64s, is_known: Flags, facts: RetryFacts) -> list[Case]:
    """The delivered attempts, by the offsets of their groups; the state of others `is_known`."""
    queues = numbered(copies["retry_topic"], copies["queue_id"])
    firsts = pa.array(np.unique(queues, return_index=True)[1])
    offsets, ends, popped = facts.consumer_offsets or {}, [], []
    names, ids = (copies[column].take(firsts).to_pylist() for column in ("retry_topic", "queue_id"))
    for name, queue_id in zip(names, ids, strict=True):
        topic = facts.retry_topics.get(name)
        ends.append(0 if topic is None else offsets.get((topic.consumer_group or "", name, queue_id), 0))
        popped.append(topic is not None and topic.origin_topic is not None)
    is_past: Flags = integers(copies["queue_offset"]) < np.array(ends, np.int64)[queues]
    passed = is_past[delivered] & ~is_known
    is_later = integers(copies["commit_log_offset"])[delivered] >= (facts.config_end or 0)
    return [
        (facts.consumer_offsets is None, _UNKNOWN, f"config/{CONSUMER_OFFSETS} cannot be read"),
        *_popped(copies, delivered, passed & np.array(popped, np.bool_)[queues][delivered], facts),
        (passed, "CONSUMED", None),
        ((facts.config_end is not None) & is_later, _UNKNOWN, _OLD_OFFSETS),
        (True, "READY", None),
    ]


def _popped(copies: pa.Table, delivered: Int64s, passed: Flags, facts: RetryFacts) -> list[Case]:
    """The attempts that a group popped, of those that `passed` chooses."""
    if facts.unread_pops is not None or facts.consumer_offsets is None:
        return [(passed, _UNKNOWN, facts.unread_pops)]
    end = max((one.commit_log_offset for one in facts.popped.damage), default=-1)
    is_before = passed & (integers(copies["commit_log_offset"])[delivered] < end)
    names = ("consumer_group", "retry_topic", "queue_id", "queue_offset")
    rows = np.flatnonzero(passed & ~is_before)
    found = copies.select(names).take(pa.array(delivered[rows]))
    is_popped = np.zeros(passed.size, np.bool_)
    is_popped[rows] = [
        last is not None and last.state == PopState.POPPED
        for group, *position in zip(*(found[name].to_pylist() for name in names), strict=True)
        for last in [facts.popped.last(group, (position[0], position[1], position[2]))]
    ]
    unread = f"a later note about popped messages cannot be read: commit log offset {end}"
    return [(is_before, _UNKNOWN, unread), (is_popped, "POPPED", None)]
