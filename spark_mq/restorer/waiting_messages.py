"""Messages that wait for a delay, placed as a broker does that takes them (`HookUtils.handleScheduleMessage`@5.3.3).

A message with a delay level is kept in SCHEDULE_TOPIC_XXXX, in the queue of its level. Its properties REAL_TOPIC and
REAL_QID say where it belongs. A level above the last one is the last one (also `CommitLog.asyncPutMessage`@4.9.7).

The log and queues of a broker's timer (5.x) are not written, so a message that has to wait there is refused.

A broker keeps these properties in the message that it delivers. So a message with the REAL_TOPIC in which it is, or
with TIMER_OUT_MS, was delivered before, and stays; so do messages in topics of the broker, and those of transactions
that are not committed.
"""

from __future__ import annotations

import numpy as np

from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.kernels.gather import gathered
from spark_mq.format.kernels.properties import parse_decimal, places_of
from spark_mq.format.kernels.property_writer import put_values
from spark_mq.format.pieces import Pieces, pieces_of_bytes
from spark_mq.format.properties import DELAY_TIME_LEVEL, REAL_QUEUE_ID, REAL_TOPIC, TIMER_OUT, TIMER_PROPERTIES
from spark_mq.format.system_topic import SCHEDULE_TOPIC, is_system_topic
from spark_mq.restorer.record_columns import RowQueues
from spark_mq.restorer.source_columns import SourceColumns


def place_waiting(
    columns: SourceColumns, queues: RowQueues, properties: Pieces, is_new: Flags, last_level: int
) -> tuple[RowQueues, Pieces]:
    """The queues in which messages are kept, and their properties; `queues` are those to which the messages belong.

    A broker would place those that are new (`is_new`). A message that has to wait for a timer is an error.
    """
    if (places_of(properties, DELAY_TIME_LEVEL, *TIMER_PROPERTIES)[1] < 0).all():
        return queues, properties
    is_new = is_new & ~np.array([is_system_topic(name) for name in queues.names], np.bool_)[queues.topics]
    for name in TIMER_PROPERTIES:
        columns.check(
            is_new & _has(properties, name) & ~_has(properties, TIMER_OUT),
            f"property {name.decode()} asks for a delivery by a broker's timer, whose files a write does not make: "
            "give a delay level instead, leave the property out, or send the message to a running broker",
        )
    levels = _levels(columns, properties, is_new & _has(properties, DELAY_TIME_LEVEL))
    rows = np.flatnonzero((levels > 0) & ~_is_in_real_topic(queues, properties))
    if not rows.size:
        return queues, properties
    levels = np.minimum(levels[rows], last_level)
    of_rows = queues.take(rows)
    known, choice = np.unique(of_rows.numbers, return_inverse=True)
    real = [queues.queue(number) for number in known.tolist()]
    for name, texts, of_row in (
        (REAL_TOPIC, [topic for topic, _ in real], choice),
        (REAL_QUEUE_ID, [str(queue_id) for _, queue_id in real], choice),
        (DELAY_TIME_LEVEL, list(map(str, range(last_level + 1))), levels),
    ):
        values = pieces_of_bytes([text.encode() for text in texts]).take(of_row)
        starts, lengths = np.zeros(properties.size, np.int64), np.full(properties.size, -1, np.int32)
        starts[rows], lengths[rows] = values.starts, values.lengths
        properties = put_values(properties, name, Pieces(values.buffer, starts, lengths))
    return queues.moved(rows, SCHEDULE_TOPIC, levels - 1), properties


def _has(properties: Pieces, name: bytes) -> Flags:
    has: Flags = places_of(properties, name)[1] > 0
    return has


def _levels(columns: SourceColumns, properties: Pieces, is_given: Flags) -> Int64s:
    """The delay level of each message; 0 for those without one."""
    starts, lengths = places_of(properties, DELAY_TIME_LEVEL)
    texts = gathered(Pieces(properties.buffer, starts, np.where(is_given, lengths, -1))).dictionary_encode()
    known = texts.dictionary.to_pylist()
    found = [parse_decimal(np.frombuffer(text, np.uint8), 0, len(text)) for text in known]
    numbers = texts.indices.to_numpy()
    is_number = np.array([is_number for is_number, _ in found], np.bool_)
    columns.check(
        is_given & ~is_number[numbers],
        lambda row: (
            f"delay level {known[numbers[row]][:40].decode('utf-8', 'replace')!r} (property DELAY) is not an INT"
        ),
    )
    levels: Int64s = np.array([level for _, level in found], np.int64)[numbers]
    return levels


def _is_in_real_topic(queues: RowQueues, properties: Pieces) -> Flags:
    """Which messages are in the topic that their REAL_TOPIC names."""
    topics = gathered(Pieces(properties.buffer, *places_of(properties, REAL_TOPIC))).dictionary_encode()
    names = [name.encode() for name in queues.names]
    known = np.array([names.index(name) if name in names else -1 for name in topics.dictionary.to_pylist()], np.int64)
    is_same: Flags = known[topics.indices.to_numpy()] == queues.topics
    return is_same
