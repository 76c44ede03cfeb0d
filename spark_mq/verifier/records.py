"""Soundness of records, as far as a record can be checked alone: checksums, flags, properties, times, other queues.

Where records start, and what is between them, is decided by `store/log`: damaged framing is a corrupt range.

A broker before 5.3.2 with enableMultiDispatch puts a message also into these queues, at the offsets in
INNER_MULTI_QUEUE_OFFSET (`ConsumeQueue.multiDispatchLmqQueue`@4.9.7). Which of the units are there depends on settings
and on the version. So these units are not checked: no finding says that one is extra, or leads to another queue's
message. The units of the queue's own messages are checked as in any queue, and light message queues are, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Bytes, Flags, Int32s
from spark_mq.format.consume_queue import Queue
from spark_mq.format.dispatch import LIGHT_PREFIX, undispatched_queues
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.big_endian import int32s_at, int64s_at
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.kernels.crc import wrong_body_crcs, wrong_property_crcs
from spark_mq.format.kernels.frames import Frames
from spark_mq.format.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from spark_mq.format.record import (
    BODY_CRC_AT,
    COMPRESSED_FLAG,
    COMPRESSION_TYPE_MASK,
    COMPRESSION_TYPE_SHIFT,
    decode_record,
)
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.verifier.finding import findings, text

NOT_COMPARABLE = ("QUEUE_NO_MESSAGE", "QUEUE_PRE_BLANK", "QUEUE_UNIT_EXTRA")
"""Findings about units that are not of the queue's own messages."""
KNOWN_FLAGS = 0x7FF
"""All bits of sysFlag that a broker knows (`MessageSysFlag`@5.3.3)."""

TIME_CODES = ("RECORD_TIME_BACK", "RECORD_TIME_FAR_BACK")
"""Findings that are about a record and the one before it."""
FAR_BACK_MILLIS = 60_000
"""A range of times relies on the broker's clock never having been set back by more than that."""

_ZLIB = 0x78
_CONTAINERS = (None, 0x04224D18, 0x28B52FFD, None)
"""The first four bytes of a compressed body, by compression type; None for zlib, whose first byte is 0x78."""


def dispatched_queues(buffer: Bytes, frames: Frames, has_light_queues: bool) -> set[Queue]:
    """The queues that messages name, besides light message queues if there are some."""
    which = MessageColumns(buffer, frames).has_property(INNER_MULTI_DISPATCH)
    if not which.any():
        return set()
    messages = MessageColumns(buffer, frames[which])
    names = pc.split_pattern(messages.property_text(INNER_MULTI_DISPATCH), ",")
    queue_ids = messages.column("queue_id").take(pc.list_parent_indices(names))
    queues = pa.table([names.flatten(), queue_ids], ["topic", "queue_id"])
    if has_light_queues:
        queues = queues.filter(pc.invert(pc.starts_with(queues["topic"], LIGHT_PREFIX)))
    found = queues.group_by(["topic", "queue_id"]).aggregate([])
    return {(row["topic"], row["queue_id"]) for row in found.to_pylist() if row["topic"]}


def undispatched_findings(buffer: Bytes, frames: Frames, file: str, segment: int) -> Iterator[pa.RecordBatch]:
    """A note for each message that names light message queues in which it never gets a unit."""
    messages = MessageColumns(buffer, frames)
    names, offsets = (
        pc.utf8_rtrim(pc.fill_null(texts, ""), ",")
        for texts in messages.property_texts([INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET])
    )
    is_usual = pc.and_(
        pc.match_substring_regex(offsets, "^[0-9]+(,[0-9]+)*$"),
        pc.equal(pc.count_substring(names, ","), pc.count_substring(offsets, ",")),
    )
    is_named = pc.match_substring(names, LIGHT_PREFIX)
    for position in frames.position[pc.and_not(is_named, is_usual).to_numpy(zero_copy_only=False)].tolist():
        record = decode_record(buffer.data, position)
        if left_out := undispatched_queues(record):
            yield findings(
                "LIGHT_QUEUE_LEFT_OUT",
                file,
                f"a unit in {', '.join(left_out)}",
                f"queue offsets {record.text_properties.get('INNER_MULTI_QUEUE_OFFSET', '')!r}",
                queue=(decode_utf8(record.topic), record.queue_id),
                position=record.commit_log_offset - segment,
                commit_log_offset=record.commit_log_offset,
            )


def not_checked_queues(queues: Iterable[Queue]) -> Iterator[pa.RecordBatch]:
    """A note for each of the queues."""
    found = "units of messages that name this queue in INNER_MULTI_DISPATCH are not checked"
    for queue in sorted(queues):
        yield findings("NOT_CHECKED", f"{CONSUME_QUEUE}/{queue[0]}/{queue[1]}", found=found, queue=queue)


def record_findings(
    buffer: Bytes, frames: Frames, wrong_pieces: Int32s, file: str, segment: int, newest: int | None = None
) -> Iterator[pa.RecordBatch]:
    """What is wrong with records, in the order of the log.

    Args:
        wrong_pieces: How many pieces of each record's properties are not a named value in UTF-8 (`checked_pieces`).
        newest: The store time, in milliseconds, of the record before.
    """

    def batch(code: str, which: Flags, expected: pa.Array | str, found: pa.Array | str) -> pa.RecordBatch:
        columns = MessageColumns(buffer, frames[which])
        offsets = columns.column("commit_log_offset").to_numpy()
        return findings(
            code,
            file,
            expected,
            found,
            queue=(columns.column("topic"), columns.column("queue_id")),
            position=offsets - segment,
            commit_log_offset=offsets,
        )

    wrong = wrong_body_crcs(buffer, frames)
    if wrong.any():
        stored = int32s_at(buffer, frames.position[wrong] + BODY_CRC_AT)
        yield batch("RECORD_BODY_CRC", wrong, text("body CRC ", stored), "a body with another CRC")
    wrong = wrong_property_crcs(buffer, frames)
    if wrong.any():
        yield batch("RECORD_CRC", wrong, "the CRC in property __CRC32#", "a record with another")
    wrong = wrong_pieces > 0
    if wrong.any():
        found = text(wrong_pieces[wrong], " pieces without a name, without a separator, or not in UTF-8")
        yield batch("RECORD_PROPERTIES", wrong, "properties of the form name=value", found)
    wrong = frames.sys_flag & ~KNOWN_FLAGS != 0
    if wrong.any():
        yield batch("RECORD_SYS_FLAG", wrong, "bits 0x7ff", text("sysFlag ", frames.sys_flag[wrong]))
    wrong = _wrong_containers(buffer, frames)
    if wrong.any():
        found = text("sysFlag ", frames.sys_flag[wrong], ", a body that does not begin so")
        yield batch("RECORD_COMPRESSION", wrong, "a body in the form that sysFlag names", found)
    times = int64s_at(buffer, frames.store_timestamp_at)
    before = np.concatenate((times[:1] if newest is None else [newest], times[:-1]))
    back = before - times
    far = back > FAR_BACK_MILLIS
    for code, which in (("RECORD_TIME_BACK", (back > 0) & ~far), ("RECORD_TIME_FAR_BACK", far)):
        if which.any():
            expected = text("a store time of ", before[which], " or later")
            yield batch(code, which, expected, text("store time ", times[which]))


def _wrong_containers(buffer: Bytes, frames: Frames) -> Flags:
    """Which records have a body that does not begin as the compression of their sysFlag does."""
    wrong = np.zeros(frames.size, np.bool_)
    compressed = np.flatnonzero(frames.sys_flag & COMPRESSED_FLAG != 0)
    if not compressed.size:
        return wrong
    of_type = (frames.sys_flag[compressed] & COMPRESSION_TYPE_MASK) >> COMPRESSION_TYPE_SHIFT
    known = of_type < len(_CONTAINERS)
    long_enough = frames.body_length[compressed] >= 4
    heads = np.zeros(compressed.size, np.int64)
    heads[long_enough] = int32s_at(buffer, frames.body_start[compressed[long_enough]]).astype(np.int64) & 0xFFFFFFFF
    fits = heads >> 24 == _ZLIB
    for number, head in enumerate(_CONTAINERS):
        if head is not None:
            fits = np.where(of_type == number, heads == head, fits)
    # A compressed body shorter than four bytes cannot be: the shortest zlib stream has eight.
    wrong[compressed] = ~(known & long_enough & fits)
    return wrong
