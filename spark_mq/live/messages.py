"""The batch reader of messages of a live cluster: one process plans ranges of queues, tasks pull them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from spark_mq.errors import CorruptLogError, ProtocolError
from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels.batches import BODY_COLUMNS, message_batches
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.frames import CORRUPTION_REASONS, Frames, ScanStatus, new_frames, scan_sent_records
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.format.record import MIN_RECORD_SIZE
from spark_mq.live.cluster import LiveBroker, live_brokers, planned_queues, selected_topics, understood
from spark_mq.live.look_ups import SentRecord, address_in_id, at_commit_log_offset, other_messages, read_range, with_key
from spark_mq.live.options import LiveOptions
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.pull import QueueRange, Rate, Subscription
from spark_mq.source.messages import MAX_BATCH_ROWS, frozen_modules
from spark_mq.source.options import Mode
from spark_mq.source.predicate import matches_names
from spark_mq.source.row_filter import matching_messages
from spark_mq.store.config.named_stores import STORE_COLUMNS

PARTITION_OFFSETS = 1 << 16
"""Queue offsets that one task reads, unless there would be more than `_MAX_PARTITIONS` tasks."""
_MAX_PARTITIONS = 1 << 16

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pulls:
    """A range of a queue that is pulled; `names` are the values of the columns cluster, broker and store."""

    names: tuple[str, str, str]
    queue: QueueRange
    subscription: Subscription


@dataclass
class PullsPartition(InputPartition):
    """Ranges of queues that one task pulls, one after the other."""

    ranges: list[Pulls]


@dataclass
class KeyPartition(InputPartition):
    """Topics of a broker in which a task looks for keys, or for messages at commit log offsets.

    `max_queried` is how many messages the broker returns at most for one query by key.
    """

    names: tuple[str, str, str]
    topics: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    commit_log_offsets: tuple[int, ...] = ()
    max_queried: int = 0


class LiveMessagesReader(DataSourceReader):
    """The reader of messages; `columns` are the columns that the query reads."""

    def __init__(self, options: LiveOptions, columns: list[str]) -> None:
        self._options = options
        self._columns = columns
        self._of_message = [name for name in columns if name not in STORE_COLUMNS]

    def partitions(self) -> Sequence[InputPartition]:
        """A partition for each range of a queue, or for each broker if messages are found by a key or an id."""
        options = self._options
        if options.read.predicate.is_empty:
            return []
        with RemotingClient(options.client) as client:
            brokers = [
                broker
                for broker in live_brokers(client, options.from_slave)
                if matches_names(options.conditions or (), dict(zip(STORE_COLUMNS, broker.names, strict=True)))
            ]
            ids, is_query = options.read.predicate.offset_message_ids, options.conditions is not None
            if ids is not None and not is_query:  # the address in an id can be one that a broker does not have any more
                return _id_partitions(brokers, ids)
            known = {topic for broker in brokers for topic in broker.topics}
            for topic in () if is_query else options.topics or ():
                if topic not in known:
                    _LOG.warning("no broker of %s has topic %s", ", ".join(options.client.name_servers), topic)
            keys = options.read.predicate.keys or options.read.predicate.unique_keys
            by_key: list[InputPartition] = []
            pulls: list[Pulls] = []
            for broker in brokers:
                if keys is not None and (not is_query or broker.has_index):
                    topics = tuple(selected_topics(broker, options))
                    by_key.append(KeyPartition(broker.names, topics, tuple(keys), (), broker.max_queried))
                else:
                    pulls += (
                        Pulls(broker.names, queue, understood(broker, queue, options.subscription(queue.topic)))
                        for queue in planned_queues(broker, options)
                    )
            return [*by_key, *pulls_partitions(pulls)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Spark calls this method with None if there is no partition."""
        with frozen_modules(), RemotingClient(self._options.client) as client:
            if isinstance(partition, PullsPartition):
                limit = self._options.max_bytes_per_second
                rate = None if limit is None else Rate(limit)
                for one in partition.ranges:
                    for part in read_range(client, one.queue, one.subscription, self._options, _of_range, rate):
                        yield from self._batches(*part, one.names)
            elif isinstance(partition, KeyPartition):
                for found in filter(None, _found(client, partition, self._options)):
                    buffer = np.frombuffer(b"".join(one.stored for one in found), np.uint8)
                    frames = _frames(buffer, partition.names[2], RequestCode.VIEW_MESSAGE_BY_ID)
                    yield from self._batches(buffer, frames, partition.names)

    def _batches(self, buffer: Bytes, frames: Frames, names: tuple[str, str, str]) -> Iterator[pa.RecordBatch]:
        """The rows of the messages that match."""
        read = self._options.read
        fails = read.mode == Mode.FAILFAST
        check_crc = read.check_crc and (fails or not BODY_COLUMNS.isdisjoint(self._of_message))
        fields = {name: pa.field(name, pa.string()) for name in STORE_COLUMNS} | ALL_MESSAGE_FIELDS
        schema = pa.schema([fields[name] for name in self._columns])
        matching = matching_messages(read.predicate, MessageColumns(buffer, frames)).frames
        for messages in message_batches(buffer, matching, self._of_message, MAX_BATCH_ROWS, check_crc=check_crc):
            if fails and messages.bodies is not None and messages.bodies.reasons:
                raise CorruptLogError(f"{names[2]}: {min(messages.bodies.reasons.items())[1]}")
            columns = dict(zip(STORE_COLUMNS, (pa.repeat(name, messages.frames.size) for name in names), strict=True))
            batch = messages.record_batch(self._of_message)
            columns |= dict(zip(self._of_message, batch.columns, strict=True))
            yield pa.RecordBatch.from_pydict({name: columns[name] for name in self._columns}, schema)


def pulls_partitions(ranges: Iterable[Pulls]) -> list[InputPartition]:
    """The ranges in parts of about `PARTITION_OFFSETS`: a large range in several of them, small ones together."""
    ranges = list(ranges)
    size = max(PARTITION_OFFSETS, sum(one.queue.stop - one.queue.start for one in ranges) // _MAX_PARTITIONS)
    partitions: list[InputPartition] = []
    parts: list[Pulls] = []
    room = size
    for one in ranges:
        start = one.queue.start
        while start < one.queue.stop:
            stop = min(start + room, one.queue.stop)
            parts.append(replace(one, queue=replace(one.queue, start=start, stop=stop)))
            room, start = room - (stop - start), stop
            if not room:
                partitions.append(PullsPartition(parts))
                parts, room = [], size
    return [*partitions, PullsPartition(parts)] if parts else partitions


def _id_partitions(brokers: Sequence[LiveBroker], ids: Iterable[str]) -> list[InputPartition]:
    """A partition for each broker whose address is in an id; no other address is asked."""
    by_address = {address: broker for broker in brokers for address in broker.broker.addresses.values()}
    found: list[InputPartition] = []
    for one in ids:
        address, commit_log_offset = address_in_id(one)
        if address in by_address:
            found.append(KeyPartition(by_address[address].names, commit_log_offsets=(commit_log_offset,)))
        else:
            _LOG.warning("offset message id %s is of %s, which is not a broker of this cluster", one, address)
    return found


def _frames(buffer: Bytes, address: str, code: RequestCode) -> Frames:
    """The records that a broker sent for a request. Raises `ProtocolError` if the bytes are anything else."""
    frames = new_frames(buffer.size // MIN_RECORD_SIZE + 1)
    count, position, status = scan_sent_records(buffer, frames)
    if status != ScanStatus.STOP:
        reason = CORRUPTION_REASONS.get(ScanStatus(status), "a part of a record")
        raise ProtocolError(f"{address}: the answer to {code.name} has no record at byte {position}: {reason}")
    return frames[:count]


def _of_range(records: bytes, queue: QueueRange) -> tuple[tuple[Bytes, Frames], Sequence[int]]:
    """The records of a range, and their queue offsets.

    Raises `ProtocolError` if a record is of another queue, or before the range.
    """
    buffer = np.frombuffer(records, np.uint8)
    frames = _frames(buffer, queue.address, RequestCode.PULL_MESSAGE)
    messages = MessageColumns(buffer, frames)
    offsets = messages.column("queue_offset").to_numpy()
    is_own = messages.topic_is(queue.topic.encode()) & (messages.column("queue_id").to_numpy() == queue.queue_id)
    if not is_own.all() or (np.diff(offsets) <= 0).any() or (offsets.size and offsets[0] < queue.start):
        raise other_messages(queue)
    count = int(np.searchsorted(offsets, queue.stop))
    return (buffer, frames[:count]), offsets[:count]


def _found(client: RemotingClient, partition: KeyPartition, options: LiveOptions) -> Iterator[list[SentRecord]]:
    """The records that a broker finds; each message once."""
    address, times = partition.names[2], options.read.predicate.store_timestamp
    needs_all = options.conditions is not None
    for offset in partition.commit_log_offsets:
        yield at_commit_log_offset(client, address, offset)
    for topic in partition.topics:
        seen: set[int] = set()
        for key in partition.keys:
            for records in with_key(client, address, topic, key, partition.max_queried, times, needs_all):
                yield [one for one in records if one.record.commit_log_offset not in seen]
                seen.update(one.record.commit_log_offset for one in records)
