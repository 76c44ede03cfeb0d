"""Messages of a consume queue from a queue offset on (`DefaultMessageStore.getMessage`@5.3.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.format.message_row import Row, corrupt_row, message_row, message_table
from spark_mq.format.properties import INNER_MULTI_DISPATCH, parse_properties
from spark_mq.format.record import Record
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.consume_queue import ConsumeQueue

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
    """An answer of `get_message`; offsets are queue offsets."""

    status: GetMessageStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    messages: pa.Table


def get_message(
    queue: ConsumeQueue | None, ends: tuple[int, int], records: RecordLookup, offset: int, max_num: int
) -> GetMessageResult:
    """Messages of `queue` from queue offset `offset` on, at most `max_num`; `ends` are its first offset and its next.

    Messages whose segment is gone are passed over. Where a unit points to no record, or to a record of another place
    in a queue, there is a row with `_corrupt_record`.
    """
    min_offset, max_offset = ends

    def result(status: GetMessageStatus, next_offset: int, rows: Sequence[Row] = ()) -> GetMessageResult:
        return GetMessageResult(status, next_offset, min_offset, max_offset, message_table(rows))

    if queue is None:
        return result(GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, 0)
    if max_offset == 0:
        return result(GetMessageStatus.NO_MESSAGE_IN_QUEUE, 0)
    if offset < min_offset:
        return result(GetMessageStatus.OFFSET_TOO_SMALL, min_offset)
    if offset == max_offset:
        return result(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset)
    if offset > max_offset:
        return result(GetMessageStatus.OFFSET_OVERFLOW_BADLY, max_offset)
    rows, next_offset = _rows(queue, records, offset, max_offset, max(max_num, 1))
    return result(GetMessageStatus.FOUND if rows else GetMessageStatus.MESSAGE_WAS_REMOVING, next_offset, rows)


def _rows(queue: ConsumeQueue, records: RecordLookup, start: int, stop: int, most: int) -> tuple[list[Row], int]:
    """At most `most` messages from `start` to `stop`, but for those that are gone, and the offset to go on from."""
    rows: list[Row] = []
    while start < stop:
        units = queue.units(start, min(start + min(most - len(rows), _BATCH_UNITS), stop)).tolist()
        for queue_offset, (commit_log_offset, store_size, _) in enumerate(units, start):
            if store_size != PRE_BLANK_SIZE and commit_log_offset >= records.min_offset:
                rows.append(_row_of_unit(queue, records, queue_offset, commit_log_offset, store_size))
        start += len(units)
        if len(rows) == most:
            break
    return rows, start


def _row_of_unit(
    queue: ConsumeQueue, records: RecordLookup, queue_offset: int, commit_log_offset: int, store_size: int
) -> Row:
    try:
        record = records.record(commit_log_offset, store_size)
    except CorruptLogError as error:
        return corrupt_row(commit_log_offset, store_size, f"NO_RECORD: {error}")
    row = message_row(record)
    said = f"unit {queue_offset} of {queue.topic}/{queue.queue_id}"
    is_of_queue = (row["topic"], record.queue_id) == (queue.topic, queue.queue_id)
    if record.size != store_size:
        reason = f"OTHER_RECORD: {said} has size {store_size}, the record {record.size}"
    elif is_of_queue and record.queue_offset != queue_offset:
        reason = f"OTHER_RECORD: {said} points to the message with queue offset {record.queue_offset}"
    elif not is_of_queue and not _is_dispatched_to(record, queue.topic):
        reason = f"OTHER_RECORD: {said} points to a message of {row['topic']}/{record.queue_id}"
    else:
        return row
    return corrupt_row(commit_log_offset, store_size, reason)


def _is_dispatched_to(record: Record, topic: str) -> bool:
    """Whether the record names a queue that it goes to besides its own (`MultiDispatch`@5.3.3)."""
    names = parse_properties(record.properties).get(INNER_MULTI_DISPATCH, b"")
    return topic.encode("utf-8") in names.split(b",")
