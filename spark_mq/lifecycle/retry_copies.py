"""Copies of messages that consumer groups returned, and which of them are of one message.

The copies of one message have the same ORIGIN_MESSAGE_ID: the offset message id of the message that was returned first.
Copies that a client sent, and those of popped messages, can lack it, or have the unique key there
(`DefaultMQPushConsumerImpl.sendMessageBack`, `ConsumeMessageOrderlyService.sendMessageBack`@5.3.3). They have the same
unique key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.system_topic import RETRY_PREFIX, SCHEDULE_TOPIC
from spark_mq.lifecycle.message_arrays import by_value, extremes, flags, integers, numbered, ranks
from spark_mq.lifecycle.retry_topic import DLQ_PREFIX
from spark_mq.lifecycle.selected_messages import (
    POSITION_COLUMNS,
    LogSource,
    SelectedMessages,
    Selection,
    TopicRule,
    sound_messages,
)

RETRY_RULE = TopicRule(names=frozenset({SCHEDULE_TOPIC}), prefixes=(RETRY_PREFIX, DLQ_PREFIX))
RETRY_COLUMNS = (*POSITION_COLUMNS, "tags", "store_timestamp", "reconsume_times", "body_crc")
RETRY_PROPERTIES = ("REAL_TOPIC", "DELAY", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC")

RECORDS = Selection(RETRY_RULE, RETRY_COLUMNS, RETRY_PROPERTIES)
"""The copies of returned messages, and other messages of their topics."""
_ID = "^([0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})$"
_OFFSET_DIGITS = 16


def selected_copies(source: LogSource) -> SelectedMessages:
    """The messages of a source that match `RETRY_RULE`; those with damaged contents are among the damage."""
    (found,) = source.selections_of(RECORDS)
    sound, damaged = sound_messages(found)
    return replace(found, messages=sound, damage=(*found.damage, *damaged))


def retry_copies(messages: pa.Table, groups: Mapping[str, str | None]) -> pa.Table:
    """The messages that are copies of returned messages, in the order of the log."""
    topics = messages["topic"].combine_chunks()
    is_dead = pc.starts_with(topics, DLQ_PREFIX)
    is_delayed = pc.equal(topics, SCHEDULE_TOPIC)
    retry_topics = pc.if_else(is_delayed, messages["REAL_TOPIC"].combine_chunks(), topics)
    is_copy = pc.or_(is_dead, pc.fill_null(pc.starts_with(retry_topics, RETRY_PREFIX), False))
    of_dead = pc.utf8_slice_codeunits(topics, len(DLQ_PREFIX))
    consumer_groups = pc.if_else(is_dead, of_dead, by_value(retry_topics, groups, pa.string()))
    ids, offsets = _origins(messages["ORIGIN_MESSAGE_ID"].combine_chunks(), messages["unique_key"].combine_chunks())
    columns: dict[str, pa.Array] = {
        "is_delayed": is_delayed,
        "is_dead_letter": is_dead,
        "retry_topic": pc.if_else(is_dead, pa.scalar(None, pa.string()), retry_topics),
        "consumer_group": consumer_groups,
        "origin_message_id": ids,
        "origin_commit_log_offset": offsets,
    }
    for name, column in columns.items():
        messages = messages.append_column(name, column)
    return messages.filter(is_copy).combine_chunks()


def _origins(ids: pa.Array, unique_keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The ids that are offset message ids, in upper case, and their commit log offsets; else NULL."""
    is_id = flags(pc.match_substring_regex(ids, _ID)) & ~flags(pc.equal(ids, unique_keys))
    ids = pc.ascii_upper(pc.if_else(pa.array(is_id), ids, None))
    digits = pc.utf8_slice_codeunits(pc.drop_null(ids), -_OFFSET_DIGITS, None)
    text = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(digits)], pa.int32()), digits), "")
    offsets = np.full(len(ids), -1, np.int64)
    offsets[is_id] = np.frombuffer(bytes.fromhex(text[0].as_py()), ">i8")
    # An offset has 63 bits; a text with a higher one is rather a unique key.
    is_offset = offsets >= 0
    return pc.if_else(pa.array(is_offset), ids, None), pa.array(offsets, mask=~is_offset)


def message_chains(copies: pa.Table) -> tuple[Int64s, Flags]:
    """A number for each copy, the same for copies of one message in one group; and whether a copy has such a number.

    The copies of a message have one origin. If the origin of a copy is itself a copy, or is not known, the unique key
    leads to the other copies, and to their origin if they have only one. A copy has no number if it lacks both, or if
    several messages can have its unique key.
    """
    groups, keys = copies["consumer_group"], copies["unique_key"]
    offsets = integers(copies["origin_commit_log_offset"])
    is_copy = np.isin(offsets, integers(copies["commit_log_offset"]))
    origins = np.where(is_copy | (offsets < 0), -1, numbered(copies["origin_message_id"]))
    by_key = numbered(groups, keys)
    known = origins >= 0
    least, most = extremes(by_key[known], origins[known], by_key.max(initial=-1) + 1)
    has_key = flags(pc.is_valid(keys))
    is_one = has_key & (least[by_key] == most[by_key])
    origins = np.where(known, origins, np.where(is_one, most[by_key], -1))
    chains = numbered(groups, pa.array(origins), pa.array(np.where(origins >= 0, -1, by_key)))
    return chains, ((origins >= 0) | has_key) & ~_are_several(copies, chains, ~known)[chains]


def _are_several(copies: pa.Table, chains: Int64s, by_key: Flags) -> Flags:
    """Which chains can be those of several messages: 5.3.3 gives the messages of a batch one unique key.

    A chain without a copy that only its unique key leads to (`by_key`) is one message. Others are if all copies have
    one body, and no attempt has two copies of a kind.
    """
    count = chains.max(initial=-1) + 1
    least, most = extremes(chains, integers(copies["body_crc"]), count)
    kinds = numbered(pa.array(chains), copies["reconsume_times"], copies["is_delayed"], copies["is_dead_letter"])
    is_again, is_by_key = (np.isin(np.arange(count), chains[chosen]) for chosen in (ranks(kinds) > 0, by_key))
    return np.asarray(is_by_key & (is_again | (least != most)), np.bool_)


def number_of_attempts(copies: pa.Table, chains: Int64s, rows: Int64s) -> Int64s:
    """For each of some rows, the number of different attempts before it, of the same message, that the log has."""
    attempts = integers(copies["reconsume_times"])
    others = np.flatnonzero(~flags(copies["is_dead_letter"]))
    # The first copy of each attempt stands for it: the delayed one, if the log has it.
    first = others[np.unique(numbered(pa.array(chains[others]), pa.array(attempts[others])), return_index=True)[1]]
    order = first[np.lexsort((first, chains[first]))]
    begin = np.searchsorted(chains[order], chains[rows], side="left")
    places = chains[order] * (chains.size + 1) + order
    return np.searchsorted(places, chains[rows] * (chains.size + 1) + rows, side="left") - begin
