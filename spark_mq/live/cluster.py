"""The brokers of a live cluster that answer, their topics, and the ranges of queues that a read has."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from spark_mq.errors import CorruptLogError, ProtocolError, RefusedError, RemotingError
from spark_mq.format.dispatch import LIGHT_PREFIX, offset_in_queue
from spark_mq.format.record import Record, decode_record
from spark_mq.live.options import LiveOptions
from spark_mq.remoting.client import RemotingClient, shown
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.pull import ALL_MESSAGES, QueueRange, Subscription, is_gone, pull
from spark_mq.remoting.requests import (
    CONFIG_REQUESTS,
    READABLE,
    Broker,
    TopicQueues,
    broker_config,
    config_text,
    find_brokers,
    offset_by_time,
    queue_ends,
)
from spark_mq.source.predicate import IntegerSet
from spark_mq.store.config.config_file import parse_fastjson

_LOG = logging.getLogger(__name__)
_MAX_QUERIED = 64
"""The default of `maxMsgsNumBatch`."""
_MAX_QUEUES = 1 << 20
"""More queues than any broker has."""
_AT_ONCE = 8
"""Requests of one planner that may be on the way."""


@dataclass(frozen=True)
class LiveBroker:
    """A broker that is read: its master or one of its slaves."""

    client: RemotingClient
    broker: Broker
    address: str

    @property
    def names(self) -> tuple[str, str, str]:
        """The values of the columns cluster, broker and store."""
        return self.broker.cluster, self.broker.name, self.address

    @cached_property
    def topics(self) -> Mapping[str, TopicQueues]:
        """The topics of the broker, by name."""
        text = config_text(self.client, self.address, "topics.json")
        try:
            content: Any = parse_fastjson(text.decode("utf-8"))
            table = sorted(content["topicConfigTable"].items())
            topics = {str(name): TopicQueues.of(self.broker.name, one) for name, one in table}
            if sum(max(topic.read_queue_nums, 0) for topic in topics.values()) > _MAX_QUEUES:
                raise ValueError(f"more than {_MAX_QUEUES:,} queues")
            return topics
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            code = CONFIG_REQUESTS["topics.json"].name
            raise ProtocolError(f"{self.address}: the answer to {code} cannot be read: {shown(repr(error))}") from error

    @cached_property
    def _settings(self) -> Mapping[str, str]:
        return broker_config(self.client, self.address)

    @property
    def max_queried(self) -> int:
        """How many messages the broker returns at most for one query by key (`maxMsgsNumBatch`)."""
        value = self._settings.get("maxMsgsNumBatch", "")
        return int(value) if re.fullmatch("[1-9][0-9]{0,8}", value) else _MAX_QUERIED

    @property
    def has_index(self) -> bool:
        """Whether the broker finds messages by key (`messageIndexEnable`)."""
        return self._settings.get("messageIndexEnable", "true").lower() == "true"

    def queues(self, *topics: str) -> list[QueueRange]:
        """The queues of topics that consumers can read, each from its first offset to its end.

        A broker does not list light message queues: one that it does not have has no message.
        """
        found = [
            (topic, queue_id)
            for topic in topics
            if topic in self.topics and self.topics[topic].perm & READABLE
            for queue_id in range(self.topics[topic].read_queue_nums)
        ] + [(topic, 0) for topic in topics if topic.startswith(LIGHT_PREFIX)]
        ends = queue_ends(self.client, self.address, found)
        return [self.range(*queue, *of_queue) for queue, of_queue in zip(found, ends, strict=True)]

    def queue(self, topic: str, queue_id: int) -> QueueRange:
        """A queue, from its first offset to its end."""
        (ends,) = queue_ends(self.client, self.address, [(topic, queue_id)])
        return self.range(topic, queue_id, *ends)

    def range(self, topic: str, queue_id: int, start: int, stop: int) -> QueueRange:
        """A range of a queue."""
        return QueueRange(self.broker.name, self.address, topic, queue_id, start, stop, self.broker.master)


def live_brokers(client: RemotingClient, from_slave: bool = False) -> list[LiveBroker]:
    """The brokers of the cluster, by name. Raises `RemotingError` if there is none, or if one has no such member."""
    found = find_brokers(client)
    if not found:
        servers = ", ".join(client.settings.name_servers)
        raise RemotingError(f"{servers}: GET_BROKER_CLUSTER_INFO: the name servers know no broker: does one run?")
    return [LiveBroker(client, broker, broker.address(from_slave)) for broker in found]


def known_brokers(client: RemotingClient, from_slave: bool = False) -> list[LiveBroker]:
    """The brokers of the cluster that the name servers know now, by name: none while all of them start again.

    A broker without the member that is wanted is left out with a warning.
    """
    brokers = []
    for broker in find_brokers(client):
        try:
            brokers.append(LiveBroker(client, broker, broker.address(from_slave)))
        except RemotingError as error:
            _LOG.warning("%s; its messages come with a later batch", error)
    return brokers


def selected_topics(broker: LiveBroker, options: LiveOptions) -> list[str]:
    """The topics of a broker that are read, by name."""
    return [topic for topic in broker.topics if options.selects(topic)]


def planned_queues(broker: LiveBroker, options: LiveOptions) -> Iterator[QueueRange]:
    """The ranges of queues of a broker that can have messages that match."""
    predicate = options.read.predicate

    def matching(queue: QueueRange) -> QueueRange:
        start = max(queue.start, options.queue_starts.get((queue.topic, queue.queue_id), 0))
        rest = replace(queue, start=min(start, queue.stop))
        narrow = narrowed(broker, rest, predicate.queue_offset, predicate.store_timestamp)
        return in_log_range(broker, narrow, predicate.offsets)

    queues = [
        queue
        for queue in broker.queues(*selected_topics(broker, options))
        if predicate.queue_ids is None or queue.queue_id in predicate.queue_ids
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(matching, queues)


def narrowed(broker: LiveBroker, queue: QueueRange, offsets: IntegerSet, times: IntegerSet) -> QueueRange:
    """The part of a queue that can have the offsets and the store times.

    The broker looks for times by its own binary search (`ConsumeQueue.getOffsetInQueueByTime`), so store times of the
    queue must not decrease. 4.9 chooses a file of the queue by its mtime, returns any message that has the time, or the
    nearest of two messages. So what it finds counts only if the message there, or before it, shows that it is right.
    """
    start, stop = queue.start, queue.stop
    if start < stop and times.first is not None and times.first > 0:
        found = offset_by_time(broker.client, broker.address, queue.topic, queue.queue_id, times.first - 1)
        if start < found <= stop and stored_before(broker, queue, found - 1, times.first):
            start = found
    if start < stop and times.last is not None:
        found = 1 + offset_by_time(broker.client, broker.address, queue.topic, queue.queue_id, times.last + 1)
        if start <= found < stop and stored_before(broker, queue, found, times.last + 1) is False:
            stop = found
    start = start if offsets.first is None else max(start, offsets.first)
    stop = stop if offsets.last is None else min(stop, offsets.last + 1)
    return replace(queue, start=start, stop=max(start, stop))


def in_log_range(broker: LiveBroker, queue: QueueRange, commit_log_offsets: IntegerSet) -> QueueRange:
    """The part of a queue that can have the commit log offsets, which increase in every queue."""
    if commit_log_offsets.is_all or commit_log_offsets.is_empty:
        return queue
    first, last = commit_log_offsets.bounds
    start = queue.start if first is None else place_in_log(broker, queue, first)[0]
    stop = queue.stop if last is None else place_in_log(broker, queue, last + 1)[1]
    return replace(queue, start=start, stop=max(start, stop))


def place_in_log(broker: LiveBroker, queue: QueueRange, commit_log_offset: int) -> tuple[int, int]:
    """The queue offset of the first message at a commit log offset or after it, twice; a range if messages are missing.

    The search begins at the end of the queue, in steps that double: most often, the newest messages are looked for.
    """
    low, high, step = queue.start, queue.stop, 1
    while low < high:
        middle = max(high - step, (low + high) // 2)
        record = message_at(broker, queue, middle)
        if record is None:
            break
        if record.commit_log_offset < commit_log_offset:
            low = middle + 1
        else:
            high, step = middle, 2 * step
    return low, high


def stored_before(broker: LiveBroker, queue: QueueRange, offset: int, time: int) -> bool | None:
    """Whether the message at a queue offset was stored before a time in milliseconds; None if it is not there."""
    record = message_at(broker, queue, offset)
    return None if record is None else record.store_timestamp < time


def message_at(broker: LiveBroker, queue: QueueRange, offset: int) -> Record | None:
    """The message at a queue offset; None if the broker has none there."""
    pulled = pull(broker.client, replace(queue, start=offset, stop=offset + 1), offset)
    if not pulled.records:
        return None
    try:
        record = decode_record(pulled.records)
    except CorruptLogError as error:
        raise ProtocolError(f"{queue.address}: PULL_MESSAGE of {queue} at queue offset {offset}: {error}") from error
    is_own = (record.topic, record.queue_id) == (queue.topic.encode(), queue.queue_id)
    place = record.queue_offset if is_own else offset_in_queue(record, queue.topic, queue.queue_id)
    if place is None:
        raise ProtocolError(f"{queue.address}: PULL_MESSAGE of {queue} was answered with a message of another queue")
    return record if place == offset else None


def understood(broker: LiveBroker, queue: QueueRange, subscription: Subscription) -> Subscription:
    """The subscription, if the broker applies it; else all messages.

    A broker without `enablePropertyFilter` refuses SQL92, and one of 4.9 refuses the functions of 5.x.
    """
    if subscription.type != "SQL92":
        return subscription
    try:
        pull(broker.client, queue, queue.start, subscription)
    except RefusedError as error:
        if is_gone(error):
            return subscription  # whoever pulls the range finds that, too
        if error.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.SUBSCRIPTION_PARSE_FAILED):
            return ALL_MESSAGES
        raise
    return subscription
