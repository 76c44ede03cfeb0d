"""Messages that one broker finds by key or by commit log offset, and parts of its queues, as plain records.

Neither Spark nor numba is needed. A broker finds a key by its index, which knows hashes of keys, and times by the
second.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import TypeVar

from spark_mq.errors import CorruptLogError, DataLossError, ProtocolError, RemotingError
from spark_mq.format.dispatch import offset_in_queue
from spark_mq.format.message_id import decode_offset_message_id
from spark_mq.format.record import Record, decode_record
from spark_mq.live.options import LiveOptions
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.codes import RequestCode
from spark_mq.remoting.pull import QueueGoneError, QueueRange, Rate, Subscription, pull_range
from spark_mq.remoting.requests import earliest_store_time, max_offset, min_offset, query_messages, view_message
from spark_mq.source.predicate import ALL, IntegerSet

_INDEX_MILLIS = 1000
"""The index knows store times by the second."""
_LATEST = (1 << 63) - 1
_WAITS = 30
_WAIT_SECONDS = 1.0
"""How often and how long a reader waits for a broker that deletes files to correct the first offset of a queue."""
_Part = TypeVar("_Part")

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class SentRecord:
    """A record that a broker sent, and its bytes."""

    record: Record
    stored: bytes


def sent_records(body: bytes, address: str, code: RequestCode) -> list[SentRecord]:
    """The records that a broker sent for a request. Raises `ProtocolError` if the bytes are anything else."""
    found, position = [], 0
    while position < len(body):
        try:
            record = decode_record(body, position)
        except CorruptLogError as error:
            raise ProtocolError(f"{address}: the answer to {code.name} has no whole record: {error}") from error
        found.append(SentRecord(record, body[position : position + record.size]))
        position += record.size
    return found


def address_in_id(offset_message_id: str) -> tuple[str, int]:
    """The address of the broker that an offset message id names, and the commit log offset in it."""
    host, commit_log_offset = decode_offset_message_id(offset_message_id)
    return host_address(host), commit_log_offset


def host_address(store_host: bytes) -> str:
    """A stored host as name servers write the address of a broker."""
    host, port = ip_address(store_host[:-4]), int.from_bytes(store_host[-4:], "big")
    return f"{host}:{port}" if host.version == 4 else f"[{host}]:{port}"


def at_commit_log_offset(client: RemotingClient, address: str, offset: int) -> list[SentRecord]:
    """The message at a commit log offset of a broker; none if the broker finds none there."""
    code = RequestCode.VIEW_MESSAGE_BY_ID
    found = sent_records(view_message(client, address, offset), address, code)
    offsets = [one.record.commit_log_offset for one in found]
    if offsets not in ([], [offset]):
        raise ProtocolError(f"{address}: {code.name} of {offset} was answered with other messages: {offsets[:9]}")
    return found


def with_key(
    client: RemotingClient,
    address: str,
    topic: str,
    key: str,
    max_queried: int,
    times: IntegerSet = ALL,
    needs_all: bool = False,
) -> Iterator[list[SentRecord]]:
    """The messages of a topic that a broker's index finds for a key, newest first; others with its hash are among them.

    A broker returns only so many at once. So the query is sent again for the time up to the oldest message that was
    found, and then for the seconds before it, until nothing is found. If the broker cannot show all messages of a
    second, a warning says "at least".

    Args:
        max_queried: How many messages the broker returns at most for one query.
        times: The range of store times, in milliseconds; messages up to a second before it can be found, too.
        needs_all: An error takes the place of the warning.
    """
    code = RequestCode.QUERY_MESSAGE
    begin, end = times.bounds
    begin, end = max((begin or 0) - _INDEX_MILLIS, 0), _LATEST if end is None else end
    seen: set[int] = set()
    while end >= begin:
        sent = sent_records(query_messages(client, address, topic, key, max_queried, begin, end), address, code)
        if not sent:
            return
        newest = max(one.record.store_timestamp for one in sent)
        if newest - _INDEX_MILLIS >= end:
            raise ProtocolError(f"{address}: {code.name} until {end} was answered with a message of {newest}")
        oldest = min(end, *(one.record.store_timestamp for one in sent))
        new = []
        for one in sent:
            # A message that has a key twice is in the index twice, and a broker returns it twice. One of another topic
            # can have the same hash.
            if one.record.commit_log_offset not in seen and one.record.topic == topic.encode():
                new.append(one)
            seen.add(one.record.commit_log_offset)
        if new:
            yield new
            if oldest < end:
                end = oldest
                continue
        if len(sent) >= max_queried:
            what = (
                f"{address}: topic {topic} has at least {len(sent)} messages with key {key!r} (or another key with its "
                "hash) within a second, and the broker shows no more: "
            )
            if needs_all:
                raise RemotingError(f"{what}write exists(keys, k -> k = ...) in the query to read the topic instead")
            _LOG.warning("%sread the topic without the key to be sure of all", what)
        end = oldest - _INDEX_MILLIS


def read_range(
    client: RemotingClient,
    queue: QueueRange,
    subscription: Subscription,
    options: LiveOptions,
    decode: Callable[[bytes, QueueRange], tuple[_Part, Sequence[int]]],
    rate: Rate | None = None,
) -> Iterator[_Part]:
    """The parts of a range (`pull_range`). Messages that expired before are a `DataLossError`, or left out.

    `decode` returns what the records of a part are, and the queue offsets of its messages.
    """
    while queue.start < queue.stop:
        pulls = pull_range(client, queue, subscription, options.pulls_at_once, rate)
        try:
            with closing(pulls):
                for part, records in pulls:
                    decoded, offsets = decode(records, part)
                    if len(offsets) < part.stop - part.start and (lost := _expired(client, part, offsets)):
                        what = f"{part.address}: {part}: up to {lost:,} messages expired before they were pulled"
                        if options.fail_on_data_loss:
                            raise DataLossError(what)
                        _LOG.warning("%s; the read has the others", what)
                    yield decoded
                    queue = replace(queue, start=part.stop)
            return
        except DataLossError as error:
            if options.fail_on_data_loss:
                raise DataLossError(f"{error}; read again, or with failOnDataLoss=false") from error
            kept = replace(queue, start=queue.stop) if isinstance(error, QueueGoneError) else _kept(client, queue)
            lost = queue.stop - queue.start - (kept.stop - kept.start)
            _LOG.warning("%s; up to %d messages are lost, the read has the others", error, lost)
            queue = kept


def _expired(client: RemotingClient, part: QueueRange, offsets: Sequence[int]) -> int:
    """How many messages of a part, which has only some offsets, can have expired before they were pulled.

    While a broker deletes files, it leaves out messages that it does not have any more, and continues in the next file
    (`DefaultMessageStore.getMessage`@5.3.3; the same in 4.9.7). If the first message of the queue is in the log after
    that, all later messages are, too: other offsets are those of no message, or of one that a filter leaves out.
    """
    missing = part.start + bisect_left(range(len(offsets)), True, key=lambda index: offsets[index] > part.start + index)
    for _ in range(_WAITS):
        first = min_offset(client, part.address, part.topic, part.queue_id)
        if first > missing:
            return min(first, part.stop) - part.start - bisect_left(offsets, first)
        if earliest_store_time(client, part.address, part.topic, part.queue_id) is not None:
            return 0
        time.sleep(_WAIT_SECONDS)
    return part.stop - part.start - len(offsets)


def _kept(client: RemotingClient, queue: QueueRange) -> QueueRange:
    """The part of a range that the broker still has."""
    first = min_offset(client, queue.address, queue.topic, queue.queue_id)
    last = max_offset(client, queue.address, queue.topic, queue.queue_id)
    start = max(queue.start, first)
    return replace(queue, start=start, stop=max(start, min(queue.stop, last)))


def records_of_range(body: bytes, queue: QueueRange) -> tuple[list[Record], list[int]]:
    """The records of a range among those sent, and their queue offsets.

    Raises `ProtocolError` if one is of another queue, or before it.
    """
    records, offsets = list[Record](), list[int]()
    for one in sent_records(body, queue.address, RequestCode.PULL_MESSAGE):
        offset = offset_in_queue(one.record, queue.topic, queue.queue_id)
        if offset is None or offset <= (offsets[-1] if offsets else queue.start - 1):
            raise other_messages(queue)
        records.append(one.record)
        offsets.append(offset)
    kept = bisect_left(offsets, queue.stop)
    return records[:kept], offsets[:kept]


def other_messages(queue: QueueRange) -> ProtocolError:
    """The error of an answer to a pull that has messages of another queue, or of offsets that do not follow."""
    return ProtocolError(
        f"{queue.address}: PULL_MESSAGE of {queue} from queue offset {queue.start} was answered with messages of "
        "another queue, or of other offsets"
    )
