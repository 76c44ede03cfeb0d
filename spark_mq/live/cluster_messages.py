"""Messages of a running cluster, found without Spark, as plain records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import merge
from itertools import chain

from spark_mq.errors import DataLossError, first_names, similar
from spark_mq.format.dispatch import LIGHT_PREFIX, KeyType, record_keys
from spark_mq.format.message_id import has_plausible_port
from spark_mq.format.record import Record
from spark_mq.lifecycle.life.situation import Situations
from spark_mq.live.broker_life import BrokerLife, messages_with_key
from spark_mq.live.cluster import LiveBroker, live_brokers, message_at, narrowed, understood
from spark_mq.live.look_ups import address_in_id, at_commit_log_offset, host_address, read_range, records_of_range
from spark_mq.live.options import LiveOptions
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.pull import QueueRange, Subscription, part_size
from spark_mq.remoting.requests import max_offset
from spark_mq.source.predicate import ALL, IntegerSet
from spark_mq.store.config.named_stores import NamedRecord

_Range = tuple[LiveBroker, QueueRange]

_FIRST_OFFSETS = 32
"""Offsets at the end of a queue that are read first, if the newest messages come first."""


class ClusterMessages:
    """The messages of a running cluster, with the look-ups of `ArchivedMessages`.

    Messages of one broker are found in the order of its log; those of several brokers in the order of their store
    times. A look-up asks the brokers when its result is read. It raises `RemotingError` if one does not answer.
    """

    def __init__(self, client: RemotingClient, options: LiveOptions) -> None:
        """Prepare look-ups; of the options, the subscription and what concerns the cluster are used."""
        self._client = client
        self._options = replace(options, pulls_at_once=1)  # a person may stop after a few messages
        self._followed: list[_Range] = []

    @cached_property
    def _brokers(self) -> list[LiveBroker]:
        return live_brokers(self._client, self._options.from_slave)

    def with_key(
        self,
        key: str,
        topic: str | None = None,
        is_unique: bool = False,
        begin: int | None = None,
        end: int | None = None,
    ) -> Iterator[NamedRecord]:
        """The messages that have a key, newest first, by the indexes of brokers, which know a key with its topic.

        Without `topic`, every topic of a broker is asked. If a broker cannot show all messages, a warning says so.
        """
        times = IntegerSet(begin, end)

        def of_broker(broker: LiveBroker) -> list[Record]:
            found = messages_with_key(broker, broker.topics if topic is None else [topic], key, times)
            kept = (one for one in found if not is_unique or record_keys(one)[key] == KeyType.UNIQ_KEY)
            return sorted(kept, key=lambda record: -record.commit_log_offset)

        return _in_order([_of(broker, of_broker(broker)) for broker in self._brokers], newest_first=True)

    def with_id(self, offset_message_id: str, any_host: bool = False) -> Iterator[NamedRecord]:
        """The messages that have an offset message id, of the broker that it names or of any."""
        address, offset = address_in_id(offset_message_id)
        for broker in self._brokers:
            if any_host or address in broker.broker.addresses.values():
                for one in at_commit_log_offset(self._client, broker.address, offset):
                    if any_host or host_address(one.record.store_host) == address:
                        yield NamedRecord(broker.names, one.record)

    def of_topic(
        self,
        topic: str,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        begin: int | None = None,
        end: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[NamedRecord]:
        """The messages of a topic, read as they are asked for; `begin` and `end` are milliseconds.

        All messages stored from `begin` to `end` are in the result; others can be, too.
        """
        if queue_offset is not None:
            return self._at(topic, queue_id or 0, queue_offset)
        self._followed = [
            (broker, queue) for broker in self._brokers for queue in self._queues(broker, topic, queue_id)
        ]
        times = IntegerSet(begin, end)
        ranges = [(broker, narrowed(broker, queue, ALL, times)) for broker, queue in self._followed]
        return self._of_ranges(ranges, newest_first)

    def new_messages(self) -> Iterator[NamedRecord]:
        """The messages that were stored since `of_topic`, or since the last call, in the same queues.

        Raises `DataLossError` if a queue ends earlier than before, or lost messages that were not read.
        """
        self._followed = [(broker, self._grown(queue)) for broker, queue in self._followed]
        return self._of_ranges(self._followed)

    def situations(self, names: tuple[str, str, str]) -> Situations:
        """What records mean of the broker with these names."""
        return self._situations[names]

    @cached_property
    def _situations(self) -> dict[tuple[str, str, str], Situations]:
        return {broker.names: Situations(BrokerLife(broker, self._options)) for broker in self._brokers}

    def why_nothing(
        self, topic: str | None = None, queue_id: int | None = None, offset_message_id: str | None = None
    ) -> str:
        """Why a look-up found no message, as text for a person; empty if there is nothing to say."""
        if offset_message_id is not None:
            return self._why_no_id(offset_message_id)
        known = {name for broker in self._brokers for name in broker.topics}
        if topic is not None and topic not in known and not topic.startswith(LIGHT_PREFIX):
            return f"no broker has topic {topic}{similar(topic, known) or f'; topics: {first_names(known)}'}"
        if topic is None or queue_id is None:
            return ""
        queues = [queue for broker in self._brokers for queue in self._queues(broker, topic, queue_id)]
        ends = (f"offsets {one.start} to {one.stop - 1}" if one.start < one.stop else "no message" for one in queues)
        has = "; ".join(f"{queue} has {text}" for queue, text in zip(queues, ends, strict=True))
        return has or f"no broker has a queue {topic}/{queue_id} that consumers can read"

    def _why_no_id(self, offset_message_id: str) -> str:
        if not has_plausible_port(offset_message_id):
            return "no topic has this unique key"
        address, offset = address_in_id(offset_message_id)
        if any(address in broker.broker.addresses.values() for broker in self._brokers):
            return f"broker {address} has no such message at commit log offset {offset}"
        return f"{address} is not a broker of this cluster; --any-host asks all of them"

    def _at(self, topic: str, queue_id: int, queue_offset: int) -> Iterator[NamedRecord]:
        for broker in self._brokers:
            for queue in self._queues(broker, topic, queue_id):
                found = message_at(broker, queue, queue_offset) if queue.start <= queue_offset < queue.stop else None
                if found is not None:
                    yield NamedRecord(broker.names, found)

    def _queues(self, broker: LiveBroker, topic: str, queue_id: int | None) -> list[QueueRange]:
        return [queue for queue in broker.queues(topic) if queue_id in (None, queue.queue_id)]

    def _grown(self, queue: QueueRange) -> QueueRange:
        """What has come after a range."""
        stop = max_offset(self._client, queue.address, queue.topic, queue.queue_id)
        if stop < queue.stop:
            raise DataLossError(
                f"{queue.address}: GET_MAX_OFFSET: {queue} was read up to queue offset {queue.stop}, and ends at "
                f"{stop} now: it lost its end, or the topic was deleted and made again; start again to read it"
            )
        return replace(queue, start=queue.stop, stop=stop)

    def _of_ranges(self, ranges: Sequence[_Range], newest_first: bool = False) -> Iterator[NamedRecord]:
        sign = -1 if newest_first else 1
        sources = []
        for broker in self._brokers:
            queues = [self._read(one, queue, newest_first) for one, queue in ranges if one is broker]
            sources.append(_of(broker, merge(*queues, key=lambda record: sign * record.commit_log_offset)))
        return _in_order(sources, newest_first)

    def _read(self, broker: LiveBroker, queue: QueueRange, newest_first: bool) -> Iterator[Record]:
        subscription = understood(broker, queue, self._options.subscription(queue.topic))
        if not newest_first:
            yield from chain.from_iterable(self._parts(queue, subscription))
        part = replace(queue, start=queue.stop)
        size = _FIRST_OFFSETS
        while newest_first and part.start > queue.start:
            part = replace(queue, start=max(queue.start, part.start - size), stop=part.start)
            records = list(chain.from_iterable(self._parts(part, subscription)))
            yield from reversed(records)
            size = part_size(part, sum(record.size for record in records))

    def _parts(self, queue: QueueRange, subscription: Subscription) -> Iterator[list[Record]]:
        return read_range(self._client, queue, subscription, self._options, records_of_range)


def _of(broker: LiveBroker, records: Iterable[Record]) -> Iterator[NamedRecord]:
    return (NamedRecord(broker.names, record) for record in records)


def _in_order(sources: Sequence[Iterator[NamedRecord]], newest_first: bool = False) -> Iterator[NamedRecord]:
    """The messages of all brokers by store time; those of one broker keep their order."""
    if len(sources) == 1:
        return sources[0]
    sign = -1 if newest_first else 1
    return merge(*sources, key=lambda message: sign * message.record.store_timestamp)
