"""Messages of one queue by queue offset, as a broker answers a pull (`DefaultMessageStore.getMessage`@5.3.3).

`get_message` answers by the queue's units alone, as a broker does; `read_messages` reads the log for what they do not
prove.
"""

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
from spark_mq.store.log.scan import FIRST
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.lookup import ProvenUnit, QueueCover, UncoveredOffsets

_BATCH_UNITS = 1024


class GetMessageStatus(StrEnum):
    """The position of a queue offset in its queue (`store.GetMessageStatus`@5.3.3, the values for a store at rest)."""

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
    """An answer of `get_message`. All offsets are queue offsets.

    Attributes:
        uncovered: The parts of the log that were not read and can contain more of the requested messages: those from
            the requested offset to `next_begin_offset` (not included) about which no unit of the queue proves anything.
            If the answer reaches the end of the queue, the log after the queue's last unit is one of these parts. Empty
            if all messages were found by proven units, or if the log was read.
        notes: What a broker's answer can have in addition, or without it, because of the store's form; a sentence each.
    """

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: pa.Table
    uncovered: tuple[LogRange, ...] = ()
    notes: tuple[str, ...] = ()


def get_message(
    queue: ConsumeQueue | None, cover: QueueCover, ends: tuple[int, int], offset: int, max_num: int
) -> GetMessageResult:
    """At most `max_num` messages of a queue from queue offset `offset` on, by the queue's units alone.

    Messages whose segment has expired are skipped. If a unit does not point to a record, or points to a record with
    another queue offset, the result has a row with `_corrupt_record`.
    """
    min_offset, max_offset = ends
    status = status_of(offset, min_offset, max_offset) if queue is not None else GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    if queue is None or status != GetMessageStatus.FOUND:
        is_end = status != GetMessageStatus.OFFSET_TOO_SMALL
        uncovered = cover.uncovered(offset) if is_end else cover.uncovered(offset, min_offset)
        return no_messages(status, offset, ends, _with_bytes([uncovered]))
    rows, gaps, next_offset = _rows(queue, cover, offset, max_offset, max_num)
    status = GetMessageStatus.FOUND if rows else GetMessageStatus.MESSAGE_WAS_REMOVING
    return GetMessageResult(status, next_offset, min_offset, max_offset, message_table(rows), _with_bytes(gaps))


def read_messages(cover: QueueCover, ends: tuple[int, int], offset: int, max_num: int) -> GetMessageResult:
    """At most `max_num` messages of a queue from queue offset `offset` on, by the queue's units and the log.

    As `get_message`, but messages that the units do not prove are read from the log. So the rows are those of a scan of
    the log. If `offset` is before the first message, messages are returned, too, with the status OFFSET_TOO_SMALL, and
    `next_begin_offset` is after them. `min_offset` and `max_offset` are those of `ends`, widened by the messages that
    were found. If none was found, both are those of the queue's messages in the log.
    """
    min_offset, max_offset = ends
    records = list(islice(cover.messages(offset), max_num))
    if records:
        offsets = [offset_in_queue(record, cover.topic, cover.queue_id) or 0 for record in records]
        min_offset, max_offset = min(min_offset, offsets[0]), max(max_offset, offsets[-1] + 1)
        next_offset = offsets[-1] + 1 if len(records) == max_num else max(max_offset, offsets[-1] + 1)
        rows = message_table([message_row(record) for record in records])
        return GetMessageResult(status_of(offset, min_offset, max_offset), next_offset, min_offset, max_offset, rows)
    min_offset, max_offset = read_ends(cover, ends)
    status = status_of(offset, min_offset, max_offset)
    if status == GetMessageStatus.FOUND:
        status = GetMessageStatus.MESSAGE_WAS_REMOVING
    elif cover.queue is None and max_offset == 0:
        status = GetMessageStatus.NO_MATCHED_LOGIC_QUEUE
    return no_messages(status, offset, (min_offset, max_offset))


def read_ends(cover: QueueCover, ends: tuple[int, int]) -> tuple[int, int]:
    """The queue offset of the queue's first message in the log, and the one after the last; `ends` if it has none."""
    first, last = next(cover.messages(FIRST), None), cover.last_message()
    if first is None or last is None:
        return ends
    offsets = [offset_in_queue(record, cover.topic, cover.queue_id) or 0 for record in (first, last)]
    return offsets[0], offsets[1] + 1


def status_of(offset: int, min_offset: int, max_offset: int) -> GetMessageStatus:
    """The status of a queue offset; FOUND between the ends of its queue (`DefaultMessageStore.getMessage`@5.3.3)."""
    if max_offset == 0:
        return GetMessageStatus.NO_MESSAGE_IN_QUEUE
    if offset < min_offset:
        return GetMessageStatus.OFFSET_TOO_SMALL
    if offset == max_offset:
        return GetMessageStatus.OFFSET_OVERFLOW_ONE
    return GetMessageStatus.OFFSET_OVERFLOW_BADLY if offset > max_offset else GetMessageStatus.FOUND


def no_messages(
    status: GetMessageStatus, offset: int, ends: tuple[int, int], uncovered: tuple[LogRange, ...] = ()
) -> GetMessageResult:
    """An answer without messages, and where a consumer continues after it (`DefaultMessageStore.getMessage`@5.3.3)."""
    next_offsets = {
        GetMessageStatus.OFFSET_TOO_SMALL: ends[0],
        GetMessageStatus.OFFSET_OVERFLOW_ONE: offset,
        GetMessageStatus.OFFSET_OVERFLOW_BADLY: ends[1],
        GetMessageStatus.MESSAGE_WAS_REMOVING: ends[1],
    }
    return GetMessageResult(status, next_offsets.get(status, 0), *ends, message_table([]), uncovered)


def _rows(
    queue: ConsumeQueue, cover: QueueCover, start: int, stop: int, max_rows: int
) -> tuple[list[Row], list[UncoveredOffsets], int]:
    """At most `max_rows` rows from `start` to `stop` without expired messages, uncovered offsets, the next offset."""
    rows: list[Row] = []
    gaps: list[UncoveredOffsets] = []
    for part in cover.parts(start, stop):
        if isinstance(part, ProvenUnit):
            rows.append(message_row(part.record))
            next_offset = part.queue_offset + 1
        else:
            gaps.append(part)
            wrong = islice(_wrong_units(queue, cover, part), max_rows - len(rows))
            for queue_offset, row in wrong:
                rows.append(row)
                next_offset = queue_offset + 1
        if len(rows) == max_rows:
            return rows, gaps, next_offset
    return rows, [*gaps, cover.uncovered(stop)], stop


def _wrong_units(queue: ConsumeQueue, cover: QueueCover, gap: UncoveredOffsets) -> Iterator[tuple[int, Row]]:
    """Queue offset and row of each unit of uncovered offsets that should lead to a message of the log, but does not."""
    for file in queue.files:
        first, last = max(gap.start, file.first), min(gap.stop, file.first + file.count)
        for start in range(first, last, _BATCH_UNITS):
            units = queue.units(start, min(start + _BATCH_UNITS, last)).tolist()
            for queue_offset, (commit_log_offset, store_size, _) in enumerate(units, start):
                is_written = (commit_log_offset, store_size) != (0, 0) and store_size != PRE_BLANK_SIZE
                if is_written and commit_log_offset >= cover.log.start:
                    reason = cover.why_not(queue_offset)
                    if reason is not None:
                        yield queue_offset, corrupt_row(commit_log_offset, store_size, reason)


def _with_bytes(gaps: Iterable[UncoveredOffsets]) -> tuple[LogRange, ...]:
    """The parts of the log that uncovered offsets need, each once."""
    return tuple(dict.fromkeys(gap.log for gap in gaps if gap.log.size))
