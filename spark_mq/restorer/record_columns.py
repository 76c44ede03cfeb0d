"""Topics, queues, hosts and bodies of rows, as the bytes that records have; and what decides about their places."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_mq.errors import UnsafeNameError
from spark_mq.format.array_types import ArrayRows, Flags, Int32s, Int64s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.message_id import V4_MAPPED, host_fault, parse_host
from spark_mq.format.pieces import Pieces, pieces_of_bytes
from spark_mq.format.properties import SHARDING_KEY
from spark_mq.format.record import COMPRESSED_FLAG, COMPRESSION_TYPE_MASK, HOST_V4_SIZE
from spark_mq.format.system_topic import is_system_topic
from spark_mq.restorer.queue_choice import QueueSelector, StoreQueues, choose_queues
from spark_mq.restorer.source_columns import EncodingRules, SourceColumns, is_fault
from spark_mq.store.config.config_file import check_topic_name, new_topic_fault

_REPLACED = "\ufffd"
_MAX_QUEUE_ID = (1 << 31) - 2


@dataclass(frozen=True)
class ChunkRows(ArrayRows):
    """What is known of the records of a chunk, in their order: the offsets are those of the source, -1 for none.

    `queue_number` is that of the queue in the chunk, `store_timestamp` is in milliseconds. A prepared or rolled back
    message has no unit in a queue, and queue offset 0 (`MessageExtEncoder.encode`,
    `CommitLogDispatcherBuildConsumeQueue`@5.3.3). An inner batch has several `messages`: so many queue offsets follow
    each other (`CommitLog.getMessageNum`@5.3.3).
    """

    store_size: Int32s
    commit_log_offset: Int64s
    queue_offset: Int64s
    queue_number: Int32s
    has_unit: Flags
    store_timestamp: Int64s
    messages: Int32s

    @property
    def starts(self) -> Int64s:
        """The position of each record in the chunk's bytes, and the end of the last one."""
        starts = np.zeros(self.store_size.size + 1, np.int64)
        np.cumsum(self.store_size, out=starts[1:])
        return starts


@dataclass(frozen=True)
class RowQueues:
    """The queue of each row: `topics` are indexes into `names`. A queue id of -1 is not chosen yet."""

    names: tuple[str, ...]
    topics: Int64s
    queue_ids: Int32s

    @property
    def numbers(self) -> Int64s:
        """A number for each row, which is the same for rows of the same queue."""
        numbers: Int64s = (self.topics << 32) | self.queue_ids
        return numbers

    def queue(self, number: int) -> Queue:
        """The queue with one of `numbers`."""
        return self.names[number >> 32], number & 0xFFFFFFFF

    def take(self, rows: Int64s) -> RowQueues:
        """The queues of some rows."""
        return RowQueues(self.names, self.topics[rows], self.queue_ids[rows])

    def chosen(self, queues: StoreQueues, properties: Pieces, first_turn: int) -> RowQueues:
        """The queues in which a store gets these messages; those in topics of a broker keep their queue ids."""
        from spark_mq.format.kernels.properties import places_of

        if queues.selector == QueueSelector.QUEUE_ID and (self.queue_ids >= 0).all():
            return self
        sharding_keys = Pieces(properties.buffer, *places_of(properties, SHARDING_KEY))
        counts = queues.counts_of(self.names)
        order = np.argsort(self.topics, kind="stable")
        sizes = np.bincount(self.topics, minlength=len(self.names))
        turns = np.empty(self.topics.size, np.int64)
        turns[order] = first_turn + np.arange(order.size) - np.repeat(sizes.cumsum() - sizes, sizes)
        given = self.queue_ids.astype(np.int64)
        chosen, _ = choose_queues(counts[self.topics], given, sharding_keys, queues.selector, turns)
        is_own = np.array([is_system_topic(name) for name in self.names], np.bool_)[self.topics]
        return RowQueues(self.names, self.topics, np.where(is_own, np.maximum(given, 0), chosen).astype(np.int32))

    def moved(self, rows: Int64s, topic: str, queue_ids: Int64s) -> RowQueues:
        """The queues after some rows moved to queues of another topic."""
        names, topics, new_ids = tuple(dict.fromkeys((*self.names, topic))), self.topics.copy(), self.queue_ids.copy()
        topics[rows], new_ids[rows] = names.index(topic), queue_ids
        return RowQueues(names, topics, new_ids)


def read_queues(columns: SourceColumns, rules: EncodingRules, is_from_source: Flags) -> RowQueues:
    """The queue of each row, with the new name of its topic, and queue id -1 if the row has none.

    A topic that a store had (`is_from_source`) needs only be the name of a folder.
    """
    columns.check(~columns.is_given("topic"), "topic is NULL: every message needs a topic")
    distinct = columns.array("topic").cast(pa.string()).dictionary_encode()
    indices = distinct.indices.to_numpy()
    old = [text.decode("utf-8", "replace") for text in distinct.dictionary.cast(pa.binary()).to_pylist()]
    faults = [None if topic in rules.topics else _folder_fault(topic) for topic in old]
    new_faults = [None if topic in rules.topics else new_topic_fault(topic) for topic in old]
    is_wrong = np.where(is_from_source, is_fault(faults)[indices], is_fault(new_faults)[indices])
    columns.check(
        is_wrong,
        lambda row: (
            f"the topic {(faults if is_from_source[row] else new_faults)[indices[row]]}: "
            "rename it (topic map), or leave out its rows"
        ),
    )
    names = [rules.topics.get(topic, topic) for topic in old]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    topics: Int64s = np.array([numbers[name] for name in names], np.int64)[indices]
    return RowQueues(tuple(numbers), topics, columns.numbers("queue_id", 0, _MAX_QUEUE_ID, -1).astype(np.int32))


def _folder_fault(topic: str) -> str | None:
    if _REPLACED in topic:
        return "has bytes that are not UTF-8, which its text does not show"
    try:
        check_topic_name(topic)
    except UnsafeNameError:
        return "cannot be the name of a folder"
    return None


def read_hosts(columns: SourceColumns, name: str, default: str, was_v6: Flags, is_from_source: Flags) -> Pieces:
    """The hosts of a column. Hosts are few, so each one is parsed once.

    If a row says in its sysFlag that the address is IPv6 (`was_v6`), and the text is an IPv4 address, the host was an
    IPv4-mapped address, which Java prints so.
    """
    if not columns.has(name):
        return pieces_of_bytes([parse_host(default)]).take(np.zeros(columns.size, np.int64))
    distinct = columns.array(name).cast(pa.string()).dictionary_encode()
    texts = [text.decode("utf-8", "replace") for text in distinct.dictionary.cast(pa.binary()).to_pylist()]
    texts.append(default)
    indices = distinct.indices.fill_null(len(texts) - 1).to_numpy()
    faults = [host_fault(text, any_port=True) for text in texts]
    new_faults = [host_fault(text) for text in texts]
    is_wrong = np.where(is_from_source, is_fault(faults)[indices], is_fault(new_faults)[indices])
    columns.check(is_wrong, lambda row: f"{name} {faults[indices[row]] or new_faults[indices[row]]}")
    parsed = [
        parse_host(text, any_port=True) if fault is None else b"" for text, fault in zip(texts, faults, strict=True)
    ]
    mapped = [V4_MAPPED + host if len(host) == HOST_V4_SIZE else host for host in parsed]
    return pieces_of_bytes(parsed + mapped).take(indices + np.where(was_v6 & columns.is_given(name), len(parsed), 0))


def read_bodies(
    columns: SourceColumns, rules: EncodingRules, sys_flags: Int32s, is_from_source: Flags
) -> tuple[Pieces, Pieces, Int32s]:
    """The contents of the bodies, the stored bodies of rows that have them, and the new sysFlags.

    They are of columns `body` and `stored_body`, or else `encoded_body`. A body with bit 0x1 in its sysFlag, of which
    there is only the content, was compressed: the bits of compression are cleared.
    """
    contents = columns.pieces("body")
    stored = columns.pieces("stored_body" if columns.has("stored_body") else "encoded_body")
    has_stored = stored.is_given()
    was_compressed = ~has_stored & (contents.lengths > 0) & (sys_flags & COMPRESSED_FLAG != 0)
    if rules.is_faithful:
        columns.check(
            was_compressed,
            "the body is compressed in its store, and the row has only its content: read column stored_body, too, or "
            "give messages new offsets (renumber)",
        )
    columns.check(
        ~has_stored & (was_compressed | ~is_from_source) & (contents.lengths > rules.max_body_size),
        lambda row: (
            f"the body has {contents.lengths[row]} bytes: a broker takes {rules.max_body_size} at most (maxMessageSize)"
        ),
    )
    plain = np.where(was_compressed, sys_flags & ~(COMPRESSED_FLAG | COMPRESSION_TYPE_MASK), sys_flags)
    return contents, stored, plain.astype(np.int32)
