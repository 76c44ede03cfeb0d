"""The stream reader of messages of a live cluster: one process of the query finds the ends of queues, tasks pull.

Spark requests the end of the next batch, writes this end to the checkpoint, and reads from the last end to this one;
after a failure it reads the same ranges again. A range of a queue always has the same messages, unless they expire, or
the topic is deleted and made again.

Spark stores the offset of a stream in the checkpoint, as JSON with a fixed order of keys:
`{"version": 1, "queues": {BROKER: {TOPIC: {QUEUE_ID: OFFSET}}}, "began": {BROKER: {TOPIC: {QUEUE_ID: OFFSET}}}}`: every
message before the offset of its queue was read. `began` has the queues that the batch that ends here does not begin
where the batch before ended: queues that are new, or that no longer have that offset.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Self

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from spark_mq._compat import HAS_READ_LIMITS, ReadAllAvailable, SupportsTriggerAvailableNow, limited_read
from spark_mq.errors import DataLossError, OptionError, RefusedError, RemotingError
from spark_mq.live.cluster import LiveBroker, known_brokers, live_brokers, narrowed, selected_topics, understood
from spark_mq.live.messages import LiveMessagesReader, Pulls, pulls_partitions
from spark_mq.live.options import COMMITTED, LiveStreamOptions
from spark_mq.remoting.client import BUSY, RemotingClient
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.pull import QueueRange, pull
from spark_mq.remoting.requests import consumer_offset
from spark_mq.remoting.writes import update_consumer_offset
from spark_mq.source.options import EARLIEST, LATEST
from spark_mq.source.predicate import ALL, IntegerSet

_PAUSE = 0.5
"""Seconds between two questions whether a broker runs again."""

_LOG = logging.getLogger(__name__)
_VERSION = 1
QueueKey = tuple[str, str, int]
"""Broker, topic and queue id."""


@dataclass(frozen=True)
class LiveOffset:
    """The end of a batch."""

    queues: Mapping[QueueKey, int]
    began: Mapping[QueueKey, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark."""
        return {"version": _VERSION, "queues": _nested(self.queues), "began": _nested(self.began)}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The offset of a checkpoint. Raises `OptionError` for values that this version does not write."""
        try:
            if values["version"] != _VERSION:
                raise ValueError(f"version {values['version']}, not {_VERSION}")
            return cls(_flat(values["queues"]), _flat(values["began"]))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise OptionError(
                f"the checkpoint's offset {dict(values)} was not written by a stream of a live cluster of this "
                f"spark-mq ({error!r}): use its own checkpoint"
            ) from error


def _nested(offsets: Mapping[QueueKey, int]) -> dict[str, dict[str, dict[str, int]]]:
    nested: dict[str, dict[str, dict[str, int]]] = {}
    for (broker, topic, queue_id), offset in sorted(offsets.items()):
        nested.setdefault(broker, {}).setdefault(topic, {})[str(queue_id)] = offset
    return nested


def _flat(nested: Mapping[str, Mapping[str, Mapping[str, int]]]) -> dict[QueueKey, int]:
    flat = {
        (broker, topic, int(queue_id)): offset
        for broker, topics in nested.items()
        for topic, queues in topics.items()
        for queue_id, offset in queues.items()
    }
    if not all(type(offset) is int and offset >= 0 for offset in flat.values()):
        raise ValueError("an offset is not a number of at least 0")
    return flat


class LiveMessagesStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader; `columns` are the columns that the query reads."""

    def __init__(self, options: LiveStreamOptions, columns: list[str]) -> None:
        """Raise `OptionError` if this Spark does not support the options."""
        if not HAS_READ_LIMITS and (options.max_bytes is not None or options.max_messages is not None):
            raise OptionError("options maxBytesPerTrigger and maxMessagesPerTrigger need Spark 4.2 or later")
        self._options = options
        self._rows = LiveMessagesReader(options.read, columns)
        self._last = LiveOffset({})
        self._ends: dict[QueueKey, QueueRange] | None = None
        """The queues as they were when the reader last asked."""
        self._topics: dict[str, Set[str]] = {}
        """The topics of each broker that answered then."""
        self._is_fixed = False
        self._committed: dict[QueueKey, int] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """The start of a new stream."""
        options = self._options
        with RemotingClient(options.read.client) as client:
            brokers = {broker.broker.name: broker for broker in live_brokers(client, options.read.from_slave)}
            # A queue that appears later is read from its first message on.
            needs_all = options.starting_offsets != EARLIEST or options.starting_timestamp is not None
            queues = self._queues(brokers.values(), needs_all)
            self._last = LiveOffset({key: self._start(brokers[key[0]], queue) for key, queue in queues.items()})
        return self._last.to_json()

    def latestOffset(  # noqa: N802
        self, start: Mapping[str, Any] | None = None, limit: object = None
    ) -> dict[str, Any]:
        """The end of the batch that starts at `start`; `start` itself if there is no new message.

        Spark before 4.2 passes no arguments.
        """
        begin = self._last if start is None else LiveOffset.of_json(start)
        is_limited = limit is not None and not isinstance(limit, ReadAllAvailable)
        with RemotingClient(self._options.read.client) as client:
            self._last = self._next(client, begin, is_limited)
        return self._last.to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of a batch, from the options."""
        if self._options.max_bytes is None and self._options.max_messages is None:
            return ReadAllAvailable()
        return limited_read(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: messages that are stored from now on are for the next query."""
        with RemotingClient(self._options.read.client) as client:
            self._ends = self._queues(known_brokers(client, self._options.read.from_slave))
        self._is_fixed = True

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues when the reader last asked for them, for the query's progress."""
        if self._ends is None:
            return None
        return LiveOffset({key: queue.stop for key, queue in self._ends.items()}).to_json()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """The ranges of queues of the batch."""
        first, last, options = LiveOffset.of_json(start), LiveOffset.of_json(end), self._options.read
        self._last = last
        found: list[Pulls] = []
        with RemotingClient(options.client) as client:
            starts = {key: last.began.get(key, first.queues.get(key, 0)) for key in last.queues}
            ranges = [(*key, starts[key], stop) for key, stop in last.queues.items() if starts[key] < stop]
            brokers = self._brokers_of(client, {name for name, *_ in ranges})
            for name, topic, queue_id, position, stop in ranges:
                if name not in brokers:
                    raise RemotingError(
                        f"the name servers do not know broker {name}, whose messages are read: start it"
                    )
                broker = brokers[name]
                queue = broker.range(topic, queue_id, position, stop)
                subscription = understood(broker, queue, options.subscription(topic))
                found.append(Pulls(broker.names, queue, subscription))
        return pulls_partitions(found)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one partition. Raises `DataLossError` if messages expired since the batch was planned."""
        yield from self._rows.read(partition)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Set the offsets of the group of option `commitOffsets`: the batch that ends here is done.

        Raises `RefusedError` if a broker does not know the group: 5.x makes none (mqadmin updateSubGroup does).
        """
        group = self._options.commit_group
        if group is None:
            return
        settings = self._options.read.client
        with RemotingClient(settings) as client, RemotingClient(replace(settings, repeats=False)) as hasty:
            addresses = {one.broker.name: one.address for one in known_brokers(client)}
            for key, offset in LiveOffset.of_json(end).queues.items():
                broker, topic, queue_id = key
                if broker not in addresses or self._committed.get(key) == offset:
                    continue  # a broker that does not run gets the offsets after a later batch
                try:
                    update_consumer_offset(hasty, addresses[broker], group, topic, queue_id, offset)
                except RemotingError as error:
                    if isinstance(error, RefusedError) and error.code not in (ResponseCode.TOPIC_NOT_EXIST, *BUSY):
                        raise
                    _LOG.warning("%s; group %s does not get the offset of this batch there", error, group)
                    if not isinstance(error, RefusedError):
                        del addresses[broker]
                else:
                    self._committed[key] = offset

    def _brokers_of(self, client: RemotingClient, names: Set[str]) -> dict[str, LiveBroker]:
        """The brokers with these names; waits for those that start again, and leaves out those that do not."""
        until = time.monotonic() + client.settings.patience
        while True:
            found = {one.broker.name: one for one in known_brokers(client, self._options.read.from_slave)}
            if names <= found.keys() or time.monotonic() >= until:
                return found
            time.sleep(_PAUSE)

    def _queues(self, brokers: Iterable[LiveBroker], needs_all: bool = False) -> dict[QueueKey, QueueRange]:
        """The queues that the stream reads, of brokers that answer at once; or of all, which may start again."""
        options = self._options.read
        found: dict[QueueKey, QueueRange] = {}
        self._topics = {}
        with RemotingClient(replace(options.client, repeats=False)) as hasty:
            for broker in brokers:
                asked = broker if needs_all else replace(broker, client=hasty)
                try:
                    queues = asked.queues(*selected_topics(asked, options))
                except RemotingError as error:
                    if needs_all or (isinstance(error, RefusedError) and error.code not in BUSY):
                        raise
                    _LOG.warning("%s; its messages come with a later batch", error)
                    continue
                self._topics[broker.broker.name] = asked.topics.keys()
                ids = options.read.predicate.queue_ids
                found.update(
                    ((queue.broker, queue.topic, queue.queue_id), queue)
                    for queue in queues
                    if ids is None or queue.queue_id in ids
                )
        return found

    def _start(self, broker: LiveBroker, queue: QueueRange) -> int:
        """Where a new stream starts in a queue."""
        options = self._options
        if options.starting_timestamp is not None:
            return narrowed(broker, queue, ALL, IntegerSet(first=options.starting_timestamp)).start
        if options.starting_offsets == LATEST:
            return queue.stop
        if options.starting_offsets == COMMITTED:
            group = options.consumer_group or ""
            found = consumer_offset(broker.client, broker.address, group, queue.topic, queue.queue_id)
            if found is not None and not queue.start <= found <= queue.stop:
                self._lose(f"group {group} has offset {found} in {queue}, which has", queue, found)
                return queue.start
            return queue.start if found is None else found
        return queue.start

    def _next(self, client: RemotingClient, begin: LiveOffset, is_limited: bool) -> LiveOffset:
        if self._ends is None or not self._is_fixed:
            self._ends = self._queues(known_brokers(client, self._options.read.from_slave))
        kept = self._without_deleted(begin.queues)
        starts, began = {}, {}
        for key, queue in self._ends.items():
            position = begin.queues.get(key)
            if position is None:
                began[key] = queue.start
            elif not queue.start <= position <= queue.stop and not (self._is_fixed and position > queue.stop):
                self._lose(f"{queue} was read up to {position}, and has now", queue, position)
                began[key] = queue.start
            starts[key] = began.get(key, position or 0)
        ends = {key: max(queue.stop, starts[key]) for key, queue in self._ends.items()}
        if is_limited:
            ends = self._limited(client, starts, ends)
        if kept | ends == begin.queues and not began:
            return begin
        return LiveOffset(kept | ends, began)

    def _without_deleted(self, queues: Mapping[QueueKey, int]) -> dict[QueueKey, int]:
        """The queues without those of topics that their broker deleted; one that is made again is read from its start.

        A slave gets the topics of its master some time after its start.
        """
        options = self._options.read
        kept = {
            (broker, topic, queue_id): position
            for (broker, topic, queue_id), position in queues.items()
            if topic in self._topics.get(broker, (topic,)) or options.from_slave or not options.selects(topic)
        }
        for broker, topic in sorted({key[:2] for key in queues.keys() - kept.keys()}):
            self._report_loss(f"topic {topic} was deleted in broker {broker}: messages that were not read are lost")
        return kept

    def _limited(
        self, client: RemotingClient, starts: Mapping[QueueKey, int], ends: Mapping[QueueKey, int]
    ) -> dict[QueueKey, int]:
        """The ends of a batch within the limits, which queues share by the number of messages that they have."""
        options = self._options
        counts = {key: end - starts[key] for key, end in ends.items()}
        total = sum(counts.values())
        share = 1.0 if options.max_messages is None or not total else min(1.0, options.max_messages / total)
        if options.max_bytes is not None:
            size = sum(count * self._message_size(client, key, starts[key]) for key, count in counts.items() if count)
            share = min(share, options.max_bytes / size) if size else share
        # At least one message of one queue, so that the stream goes on.
        parts = {key: int(count * share) for key, count in counts.items()}
        if total and not any(parts.values()):
            parts[max(counts, key=lambda key: counts[key])] = 1
        return {key: starts[key] + part for key, part in parts.items()}

    def _message_size(self, client: RemotingClient, key: QueueKey, offset: int) -> float:
        """The mean size of the next messages of a queue, in bytes."""
        queue = (self._ends or {})[key]
        pulled = pull(client, queue, offset)
        return len(pulled.records) / max(pulled.next_offset - offset, 1)

    def _lose(self, what: str, queue: QueueRange, position: int) -> None:
        """Report that a queue does not have an offset."""
        lost = queue.start - position
        why = (
            f"{lost:,} messages expired before they were read"
            if lost > 0
            else "the topic was deleted and made again, or the queue lost its end"
        )
        self._report_loss(f"{what} {queue.start} to {queue.stop - 1}: {why}")

    def _report_loss(self, reason: str) -> None:
        """Raise an error for messages that are gone, or log them, as option `failOnDataLoss` says."""
        if self._options.read.fail_on_data_loss:
            raise DataLossError(f"{reason}. With failOnDataLoss=false the stream continues with those that are there")
        _LOG.warning("%s; the stream continues with those that are there", reason)
