"""The rows of a DataFrame or a stream, sent to topics of a live cluster: requests with one message or many of a queue.

At least once: a request without an answer may have stored its messages, and is sent again; a task that fails is run
again by Spark, from its first row.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from spark_mq.errors import InvalidMessageError, OptionError, ProtocolError, RefusedError, RemotingError, similar
from spark_mq.format.amounts import parse_size
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.encode import BATCH_MESSAGE_OVERHEAD, write_batch
from spark_mq.format.kernels.frames import Frames, new_frames, scan_sent_records
from spark_mq.format.pieces import Pieces, pieces_of_array
from spark_mq.format.properties import DELAY_TIME_LEVEL, SHARDING_KEY, TIMER_PROPERTIES
from spark_mq.live.options import client_settings, given_options
from spark_mq.producer.message_queues import DEFAULT_GROUP, Brokers, MessageQueue, publish_queues, queue_numbers
from spark_mq.remoting.client import ClientSettings, RemotingClient
from spark_mq.remoting.codes import ResponseCode
from spark_mq.remoting.requests import find_route
from spark_mq.remoting.writes import send_message
from spark_mq.restorer.encode_messages import encode_messages
from spark_mq.restorer.queue_choice import QueueSelector, choose_queues, parse_queue_selector
from spark_mq.restorer.source_columns import OWN_COLUMNS, EncodingRules
from spark_mq.tables.live import LIVE_WRITE_OPTIONS
from spark_mq.tables.messages import MESSAGES

_CHECKPOINT = "checkpointlocation"
"""An option of Spark, which also the writer of a stream gets."""
_DEFAULT_BATCH = "512k"
_MAX_BATCH = 4 << 20
"""A broker refuses larger bodies (`maxMessageSize`)."""
_ALONE = [DELAY_TIME_LEVEL, *TIMER_PROPERTIES]
"""Properties of messages that wait: a broker accepts no batch with one."""
_TRANSACTION = b"TRAN_MSG"
READ_COLUMNS = ("topic", "body", "tags", "keys", "unique_key", "properties", "flag", "queue_id", *OWN_COLUMNS)
"""The columns that a write takes."""
_ATTEMPTS = 5
_AT_ONCE = 8
"""Queues to which a task sends at the same time; to each one request after the other."""
_AGAIN = (
    *(ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE),
    *(ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NOT_IN_CURRENT_UNIT),
    *(ResponseCode.FLOW_CONTROL, ResponseCode.GO_AWAY),
)
"""Answers after which a producer tries another queue (`DefaultMQProducer.retryResponseCodes`@5.3.3)."""


@dataclass(frozen=True)
class TopicWriteOptions:
    """The options of a write.

    Attributes:
        topic: The topic of rows without one; None if rows have to name it.
        batch_size: About the bytes of the messages that one request has at most.
    """

    client: ClientSettings
    topic: str | None = None
    selector: QueueSelector = QueueSelector.QUEUE_ID
    producer_group: str = DEFAULT_GROUP
    batch_size: int = 512 << 10


def parse_topic_write_options(options: Mapping[str, str]) -> TopicWriteOptions:
    """The options of a write. Raises `OptionError` if one is unknown, has an invalid value, or has no effect."""
    own = {name: value for name, value in options.items() if name.lower() != _CHECKPOINT}
    given = given_options(own, "a write to topics", [option.name for option in LIVE_WRITE_OPTIONS])
    if given.get("table", MESSAGES.name).lower() != MESSAGES.name:
        raise OptionError(f"table {given['table']} of a live cluster cannot be written, only {MESSAGES.name}")
    size = parse_size("option batchSize", given.get("batchSize", _DEFAULT_BATCH))
    if size > _MAX_BATCH:
        raise OptionError(f"option batchSize={given['batchSize']!r} is more than 4m, which a broker accepts at most")
    return TopicWriteOptions(
        client_settings(given),
        given.get("topic"),
        parse_queue_selector(given.get("queueSelector", QueueSelector.QUEUE_ID)),
        given.get("producerGroup", DEFAULT_GROUP),
        size,
    )


@dataclass(frozen=True)
class Request:
    """A request: one message, or several of a topic and a queue.

    Attributes:
        properties: The properties of the one message; None for a batch.
        flag: The flag of the one message; 0 for a batch.
    """

    body: bytes
    properties: str | None
    flag: int
    rows: int


@dataclass(frozen=True)
class SentMessages:
    """The messages of a batch of rows."""

    buffer: Bytes
    frames: Frames
    topics: pa.Array
    queue_ids: pa.Array
    sharding_keys: Pieces

    @classmethod
    def of(cls, rows: pa.RecordBatch, topic: str | None, partition: int, first_row: int) -> Self:
        """The messages of rows; `topic` is that of rows without one. Raises `InvalidMessageError` for a wrong row."""
        columns = {name: rows.column(name) for name in rows.schema.names}
        if topic is not None:
            own = columns.get("topic", pa.nulls(rows.num_rows, pa.string()))
            columns["topic"] = own.fill_null(topic)
        chosen = pa.RecordBatch.from_pydict(columns)
        rules = EncodingRules(is_faithful=False, now=int(time.time() * 1000))
        encoded = encode_messages(chosen, rules, partition, first_row)
        frames = new_frames(rows.num_rows)
        scan_sent_records(encoded.data, frames)
        messages = MessageColumns(encoded.data, frames)
        if messages.has_property(_TRANSACTION).any():
            row = first_row + int(np.argmax(messages.has_property(_TRANSACTION)))
            raise InvalidMessageError(f"row {row} has property TRAN_MSG, which begins a transaction: leave it out")
        if (frames.body_length == 0).any():  # `Validators.checkMessage`@4.9.7 and 5.3.3
            row = first_row + int(np.argmin(frames.body_length))
            raise InvalidMessageError(
                f"row {row} has no body: Java producers refuse such a message, and brokers of 5.x fail on it: leave it "
                "out, or give it a body"
            )
        ids = columns.get("queue_id", pa.nulls(rows.num_rows, pa.int32())).cast(pa.int32())
        keys = pieces_of_array(messages.property_text(SHARDING_KEY))
        return cls(encoded.data, frames, columns["topic"], ids, keys)

    def requests(self, rows: Int64s, batch_size: int) -> Iterator[Request]:
        """The requests for rows of one topic and queue, in their order."""
        frames = self.frames[rows]
        messages = MessageColumns(self.buffer, frames)
        retries = pc.starts_with(self.topics.take(pa.array(rows)), "%RETRY%").to_numpy(zero_copy_only=False)
        alone = messages.has_any_property(_ALONE) | retries
        sizes = BATCH_MESSAGE_OVERHEAD + frames.body_length.astype(np.int64) + frames.properties_length
        for first, stop in _runs(sizes, alone, batch_size):
            if stop - first == 1:
                yield self._one(int(rows[first]))
            else:
                out = np.empty(int(sizes[first:stop].sum()), np.uint8)
                write_batch(self.buffer, self.frames, rows[first:stop], out)
                yield Request(out.tobytes(), None, 0, stop - first)

    def _one(self, row: int) -> Request:
        message = MessageColumns(self.buffer, self.frames[row : row + 1])
        properties = message.column("properties_bytes")[0].as_py().decode("utf-8", "replace")
        return Request(message.column("stored_body")[0].as_py(), properties, message.column("flag")[0].as_py(), 1)


def _runs(sizes: Int64s, alone: np.ndarray, batch_size: int) -> Iterator[tuple[int, int]]:
    """The ranges of messages that share a request: about `batch_size` bytes, and one of those that wait."""
    steps = np.cumsum(sizes) // batch_size
    is_first = np.ones(sizes.size, np.bool_)
    is_first[1:] = (np.diff(steps) != 0) | alone[1:] | alone[:-1]
    starts = np.flatnonzero(is_first).tolist()
    yield from zip(starts, [*starts[1:], sizes.size], strict=True)


def topics_of(messages: SentMessages) -> Iterator[tuple[str, Int64s]]:
    """Each topic, with its rows."""
    coded = messages.topics.dictionary_encode()
    numbers = coded.indices.to_numpy()
    for number, topic in enumerate(coded.dictionary.to_pylist()):
        yield topic, np.flatnonzero(numbers == number)


def by_queue(numbers: Int64s, rows: Int64s) -> Sequence[tuple[int, Int64s]]:
    """Each queue number, with its rows in their order."""
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(numbers[order]) != 0])
    return [(int(numbers[part[0]]), rows[part]) for part in np.split(order, starts[1:])] if rows.size else []


@dataclass(frozen=True)
class TopicWriter(DataSourceArrowWriter):
    """Sends rows as messages."""

    options: TopicWriteOptions

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition."""
        context = TaskContext.get()
        partition, rows = 0 if context is None else context.partitionId(), 0
        with RemotingClient(self.options.client) as client:
            sender = _Sender(client, self.options)
            for batch in iterator:
                if batch.num_rows:
                    sender.send(SentMessages.of(batch, self.options.topic, partition, rows))
                rows += batch.num_rows
        return WriterCommitMessage()

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: the messages are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Nothing: a message that is stored stays."""


def topic_writer(options: TopicWriteOptions, columns: Sequence[str], overwrite: bool) -> TopicWriter:
    """The writer of rows with these columns. Raises the errors of a wrong save mode, or of wrong columns."""
    if overwrite:
        raise OptionError("messages of a live cluster cannot be overwritten: give mode append")
    for name in columns:
        if name not in READ_COLUMNS:
            raise InvalidMessageError(
                f"column {name!r} cannot be sent{similar(name, READ_COLUMNS)}: select some of {', '.join(READ_COLUMNS)}"
            )
    if "topic" not in columns and options.topic is None:
        raise InvalidMessageError("rows have no column topic, and there is no option topic: give one of them")
    return TopicWriter(options)


class _Sender:
    """Sends messages: those of one queue in their order, those of several queues at the same time."""

    def __init__(self, client: RemotingClient, options: TopicWriteOptions) -> None:
        self._client = client
        self._options = options
        self._queues: dict[str, list[MessageQueue]] = {}
        self._addresses: dict[str, str] = {}
        self._brokers = Brokers()
        self._turn = random.randrange(1 << 16)

    def send(self, messages: SentMessages) -> None:
        """Send the messages of a batch of rows. Raises `RemotingError` if a broker does not take them."""
        groups = []
        for topic, rows in topics_of(messages):
            queues = self._publish_queues(topic)
            numbers, is_in_turn = choose_queues(
                np.full(rows.size, len(queues)),
                queue_numbers(queues, messages.queue_ids.take(pa.array(rows))),
                messages.sharding_keys.take(rows),
                self._options.selector,
                self._turn + np.arange(rows.size),
            )
            self._turn += rows.size
            for is_fixed in (True, False):
                part = is_in_turn != is_fixed
                groups += [
                    (topic, queues[number], is_fixed, of_queue)
                    for number, of_queue in by_queue(numbers[part], rows[part])
                ]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="send") as pool:
            sent = [pool.submit(self._send_all, messages, *group) for group in groups]
            for one in sent:
                one.result()

    def _publish_queues(self, topic: str) -> list[MessageQueue]:
        if topic not in self._queues:
            route = find_route(self._client, topic)
            queues = [] if route is None else publish_queues(route)
            if route is None or not queues:
                raise InvalidMessageError(
                    f"no broker has a queue of topic {topic!r} to which messages can be sent: create the topic "
                    "(mqadmin updateTopic), or name another one"
                )
            self._queues[topic] = queues
            self._addresses |= {broker.name: broker.address() for broker in route.brokers if 0 in broker.addresses}
        return self._queues[topic]

    def _send_all(self, messages: SentMessages, topic: str, queue: MessageQueue, is_fixed: bool, rows: Int64s) -> None:
        for request in messages.requests(rows, self._options.batch_size):
            queue = self._send_request(topic, queue, is_fixed, request)

    def _send_request(self, topic: str, queue: MessageQueue, is_fixed: bool, request: Request) -> MessageQueue:
        """Send one request; returns the queue that took it, which is another one if the first did not answer."""
        for attempt in range(_ATTEMPTS):
            begin = time.monotonic()
            try:
                send_message(
                    self._client,
                    self._addresses[queue.broker],
                    queue.broker,
                    self._options.producer_group,
                    topic,
                    queue.queue_id,
                    request.body,
                    "WAIT\x01true\x02" if request.properties is None else request.properties,
                    request.flag,
                    is_batch=request.properties is None,
                )
            except ProtocolError:
                raise
            except RemotingError as error:
                is_refused = isinstance(error, RefusedError) and error.code not in _AGAIN
                if is_refused or attempt == _ATTEMPTS - 1:
                    raise
                now = int(time.monotonic() * 1000)
                self._brokers.note(queue.broker, None, now)
                if not is_fixed:
                    queues = self._queues[topic]
                    queue = self._brokers.choose(queues, queues.index(queue) + 1, queue.broker, now)
                time.sleep(0.2 * 2**attempt)
            else:
                end = time.monotonic()
                self._brokers.note(queue.broker, int((end - begin) * 1000), int(end * 1000))
                return queue
        raise AssertionError


class TopicStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each batch. At least once: a batch that failed is sent again, from its first row."""

    def __init__(self, writer: TopicWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Send the rows of one partition of a batch."""
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: the messages are stored."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing: a message that is stored stays."""
