"""Messages of a consume queue from a queue offset on (`DefaultMessageStore.getMessage`@5.3.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

import pyarrow as pa

from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.dispatch import offset_in_queue
from spark_mq.format.message_row import Row, corrupt_row, message_row, message_table
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import Hole, Proven, QueueCover

_BATCH_UNITS = 1024


class GetMessageStatus(StrEnum):
    """What a queue offset is to its queue (`store.GetMessageStatus`@5.3.3, those that a store at rest can give)."""

    FOUND = "FOUND"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    """There is no such queue."""
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    """The offset is that of the next message to come."""
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    """The queue has units from the offset on, but the log has none of their messages."""


@dataclass(frozen=True)
class GetMessageResult:
    """An answer of `get_message`; offsets are queue offsets.

    `uncovered`: parts of the log that were not read and can have more of the messages that were asked for, because no
    unit of the queue proves anything about them: messages from the queue offset that was asked for on, and before
    `next_begin_offset`. The log after the queue's last unit is one, if the answer comes to the end of the queue. Empty
    where all messages were found by proven units, or the log was read.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: pa.Table
    uncovered: tuple[LogRange, ...] = ()


def get_message(
    queue: ConsumeQueue | None,
    cover: QueueCover,
    ends: tuple[int, int],
    offset: int,
    max_num: int,
) -> GetMessageResult:
    """The messages of a queue from queue offset `offset` on, at most `max_num`, by the queue's units alone.

    Args:
        queue: the queue; None where there is none.
        cover: what its units prove.
        ends: the queue offset of its first message, and the one of the next message to come, as its units have them.
        offset: a queue offset.
        max_num: at least 1.

    Messages whose segment is gone are passed over. Where a unit points to no record, or to a record of another place
    in a queue, there is a row with `_corrupt_record`.

    """
    min_offset, max_offset = ends
    status = status_of(offset, min_offset, max_offset) if queue is not None else GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    if queue is None or status != GetMessageStatus.FOUND:
        next_offset = next_begin_offset(status, offset, min_offset, max_offset)
        is_end = status != GetMessageStatus.OFFSET_TOO_SMALL
        uncovered = _with_bytes([cover.hole(offset) if is_end else cover.hole(offset, next_offset)])
        return GetMessageResult(status, next_offset, min_offset, max_offset, message_table([]), uncovered)
    rows, holes, next_offset = _rows(queue, cover, offset, max_offset, max_num)
    status = GetMessageStatus.FOUND if rows else GetMessageStatus.MESSAGE_WAS_REMOVING
    return GetMessageResult(status, next_offset, min_offset, max_offset, message_table(rows), _with_bytes(holes))


def read_messages(cover: QueueCover, ends: tuple[int, int], offset: int, max_num: int) -> GetMessageResult:
    """The messages of a queue from queue offset `offset` on, at most `max_num`, by the queue's units and the log.

    As `get_message`, but what the units do not prove is read from the log, so the rows are those of a scan of the log.
    An `offset` before the first message gives messages, too. `min_offset` and `max_offset` are those of `ends`, as
    far as no message says more; where there is no message, they are those of the queue's messages in the log.
    """
    min_offset, max_offset = ends
    found = list(islice(cover.messages(offset), max_num))
    if found:
        places = [offset_in_queue(record, cover.topic, cover.queue_id) or 0 for record in found]
        min_offset, max_offset = min(min_offset, places[0]), max(max_offset, places[-1] + 1)
        next_offset = places[-1] + 1 if len(found) == max_num else max(max_offset, places[-1] + 1)
        rows = message_table([message_row(record) for record in found])
        return GetMessageResult(GetMessageStatus.FOUND, next_offset, min_offset, max_offset, rows)
    min_offset, max_offset = read_ends(cover, ends)
    status = status_of(offset, min_offset, max_offset)
    if status == GetMessageStatus.FOUND:
        status = GetMessageStatus.MESSAGE_WAS_REMOVING
    elif not cover.has_units and max_offset == 0:
        status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    next_offset = next_begin_offset(status, offset, min_offset, max_offset)
    return GetMessageResult(status, next_offset, min_offset, max_offset, message_table([]))


def read_ends(cover: QueueCover, ends: tuple[int, int]) -> tuple[int, int]:
    """The queue offset of the queue's first message in the log, and the one after the last; `ends` if it has none."""
    first, last = cover.first_message(), cover.last_message()
    if first is None or last is None:
        return ends
    places = [offset_in_queue(record, cover.topic, cover.queue_id) or 0 for record in (first, last)]
    return places[0], places[1] + 1


def status_of(offset: int, min_offset: int, max_offset: int) -> GetMessageStatus:
    """How a queue offset is to the ends of its queue; FOUND between them (`DefaultMessageStore.getMessage`@5.3.3)."""
    if max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE
    if offset < min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL
    if offset == max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE
    return GetMessageStatus.OFFSET_OVERFLOW_BADLY if offset > max_offset else GetMessageStatus.FOUND


def next_begin_offset(status: GetMessageStatus, offset: int, min_offset: int, max_offset: int) -> int:
    """Where a consumer continues after an answer without messages (`DefaultMessageStore.getMessage`@5.3.3)."""
    match status:
        case GetMessageStatus.OFFSET_TOO_SMALL:
            return min_offset
        case GetMessageStatus.OFFSET_OVERFLOW_ONE:
            return offset
        case GetMessageStatus.OFFSET_OVERFLOW_BADLY | GetMessageStatus.MESSAGE_WAS_REMOVING:
            return max_offset
        case _:
            return 0


def _rows(
    queue: ConsumeQueue, cover: QueueCover, start: int, stop: int, most: int
) -> tuple[list[Row], list[Hole], int]:
    """At most `most` messages from `start` to `stop`, except those that are gone; holes; the offset to continue from.

    The end of the queue is a hole, if it is reached before there are as many.
    """
    rows: list[Row] = []
    holes: list[Hole] = []
    for part in cover.parts(start, stop):
        if isinstance(part, Proven):
            rows.append(message_row(part.record))
            next_offset = part.queue_offset + 1
        else:
            holes.append(part)
            wrong = islice(_wrong_units(queue, cover, part), most - len(rows))
            for queue_offset, row in wrong:
                rows.append(row)
                next_offset = queue_offset + 1
        if len(rows) == most:
            return rows, holes, next_offset
    return rows, [*holes, cover.hole(stop)], stop


def _wrong_units(queue: ConsumeQueue, cover: QueueCover, hole: Hole) -> Iterator[tuple[int, Row]]:
    """Rows for the units of a hole that should lead to a message of the log, each with its queue offset."""
    for file in queue.files:
        first, last = max(hole.start, file.first), min(hole.stop, file.first + file.count)
        for start in range(first, last, _BATCH_UNITS):
            units = queue.units(start, min(start + _BATCH_UNITS, last)).tolist()
            for queue_offset, (commit_log_offset, store_size, _) in enumerate(units, start):
                is_written = (commit_log_offset, store_size) != (0, 0) and store_size != PRE_BLANK_SIZE
                if is_written and commit_log_offset >= cover.log.start:
                    reason = cover.why_not(queue_offset)
                    if reason is not None:
                        yield queue_offset, corrupt_row(commit_log_offset, store_size, reason)


def _with_bytes(holes: Iterable[Hole]) -> tuple[LogRange, ...]:
    """The parts of the log of holes, each once."""
    return tuple(dict.fromkeys(hole.log for hole in holes if hole.log.size))
