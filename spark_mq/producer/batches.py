"""Rows as the bodies of requests: messages that share a request, and those that need one of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import InvalidMessageError
from spark_mq.format.array_types import Bytes, Int64s
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.encode import BATCH_MESSAGE_OVERHEAD, write_batch
from spark_mq.format.kernels.frames import Frames, new_frames, scan_sent_records
from spark_mq.format.pieces import Pieces, pieces_of_array
from spark_mq.format.properties import DELAY_TIME_LEVEL, SHARDING_KEY, TIMER_PROPERTIES
from spark_mq.restorer.encode_messages import encode_messages
from spark_mq.restorer.source_columns import EncodingRules

_ALONE = [DELAY_TIME_LEVEL, *TIMER_PROPERTIES]
"""Properties of messages that wait: a broker accepts no batch with one."""
_TRANSACTION = b"TRAN_MSG"


@dataclass(frozen=True)
class Request:
    """A request: one message, or several of a topic and a queue.

    Attributes:
        properties: The properties of the one message; None for a batch.
        flag: The flag of the one message; 0 for a batch.
        rows: How many messages it has.
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
    def of(cls, rows: pa.RecordBatch, topic: str | None, partition: int, first_row: int) -> SentMessages:
        """The messages of rows.

        Args:
            topic: The topic of rows that have none; None if all have one.

        Raises:
            InvalidMessageError: A row cannot be a message.
        """
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
