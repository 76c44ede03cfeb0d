"""Scanning the records of a byte range: the positions of each record's parts, as kernels.

A *frame* is the positions of one record's parts in the buffer. Only framing decides what a record is: the size, the
magic number, the record's own offset, which must be its position, and lengths that add up to the size
(`CommitLog.checkMessageAndReturnSize`@5.3.3). Java does not check the own offset; without this check, stale bytes of
reused files would be records. Body CRC, text and properties are not checked here. A scan steps over the heads of
DLedger entries before records. `spark_mq.format.record` is the twin for one record.

In this module, `buffer` contains bytes of one segment. `base` is the commit log offset of `buffer[0]`. `end` is the
index at which the segment ends; it can be past the end of the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol, TypeVar, cast, overload

import numpy as np
import numpy.typing as npt

from spark_mq.format import record
from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.dledger import BLANK_MAGIC, HEAD_SIZE, MAGIC_CONFIG_CHANGE
from spark_mq.format.kernels.big_endian import byte_at, read_i16, read_i32, read_i64
from spark_mq.format.kernels.entries import after_heads
from spark_mq.format.kernels.kernel import FRAME_DTYPE, kernel

_Int64 = TypeVar("_Int64")
_Int32 = TypeVar("_Int32")


class _Parts(Protocol[_Int64, _Int32]):
    """The fields of `FRAME_DTYPE`."""

    position: _Int64
    store_size: _Int32
    sys_flag: _Int32
    store_timestamp_at: _Int64
    store_host_at: _Int64
    after_hosts_at: _Int64
    body_start: _Int64
    body_length: _Int32
    topic_length: _Int32
    topic_start: _Int64
    properties_start: _Int64
    properties_length: _Int32


class Frame(_Parts[int, int], Protocol):
    """One frame, an element of `Frames`.

    A kernel reads and writes machine integers. Plain Python gets NumPy scalars: convert a value with `int` before it
    leaves NumPy.
    """


class Frames(_Parts[Int64s, Int32s], Protocol):
    """n frames: a record array of `FRAME_DTYPE`, whose fields are attributes of n values each."""

    size: int

    @overload
    def __getitem__(self, index: int) -> Frame: ...
    @overload
    def __getitem__(self, index: slice | npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Frames: ...
    def __iter__(self) -> Iterator[Frame]: ...


def _field(name: str) -> property:
    return property(lambda frames: frames.view(np.ndarray)[name])


# A field of NumPy's own record arrays takes ten microseconds, and a chunk of a log sixty of them.
_FrameArray = type("_FrameArray", (np.ndarray,), {name: _field(name) for name in FRAME_DTYPE.names or ()})
_RECORD_DTYPE = np.dtype((np.record, FRAME_DTYPE))


def new_frames(count: int) -> Frames:
    """An array of `count` frames that a kernel can fill. The values are not initialised."""
    return cast(Frames, np.empty(count, _RECORD_DTYPE).view(_FrameArray))


class ScanStatus(IntEnum):
    """What is at a position of the log, or why a scan ended."""

    RECORD = 0
    BLANK = 1
    """The blank that ends a segment."""
    ZEROS = 2
    """Size and magic number are zero: nothing was ever written here."""
    MORE = 3
    """Not decided: the buffer ends before the record does."""
    BAD_SIZE = 4
    BAD_MAGIC = 5
    BAD_OFFSET = 6
    BAD_LENGTHS = 7
    STOP = 8
    """The scan has reached the position at which the caller asked it to stop."""
    FULL = 9
    """The frame array is full."""


CORRUPTION_REASONS = {
    ScanStatus.ZEROS: "zeros instead of a record",
    ScanStatus.BAD_SIZE: (
        "the size is too small, points past the segment, or is above 16 MiB + 128 KiB (only brokers whose "
        "com.rocketmq.remoting.frameMaxLength was raised accept a larger message, which cannot be read)"
    ),
    ScanStatus.BAD_MAGIC: "the magic number is not a record's",
    ScanStatus.BAD_OFFSET: "the record's own commit log offset is another one",
    ScanStatus.BAD_LENGTHS: "the lengths of body, topic and properties do not add up to the size",
}

RECORD, BLANK, ZEROS, MORE, BAD_SIZE, BAD_MAGIC, BAD_OFFSET, BAD_LENGTHS, STOP, FULL = map(int, ScanStatus)

_BLOCK_SIZE = 64
"""Positions that a search checks together."""


@kernel
def host_size(sys_flag: int, bit: int) -> int:
    """The bytes of a host; this bit of the sysFlag says whether it has an IPv6 address."""
    return record.HOST_V6_SIZE if sys_flag & bit else record.HOST_V4_SIZE


@kernel
def read_frame(buffer: Bytes, position: int, base: int, end: int, frame: Frame) -> int:
    """What is at `position`, as a `ScanStatus` number. If this is a record, its positions are written to `frame`."""
    if end - position < record.BLANK_SIZE:
        return BAD_SIZE
    available = buffer.size - position
    if available < record.BLANK_SIZE:
        return MORE
    size = read_i32(buffer, position)
    magic = read_i32(buffer, position + record.MAGIC_AT)
    if magic == record.MAGIC_BLANK:
        return BLANK if size == end - position and size <= record.MAX_BLANK_SIZE else BAD_SIZE
    if size == 0 and magic == 0:
        return ZEROS
    if size == BLANK_MAGIC and magic == end - position and magic <= record.MAX_BLANK_SIZE:
        return BLANK
    if magic != record.MAGIC_V1 and magic != record.MAGIC_V2:
        is_cut_head = 0 < size <= MAGIC_CONFIG_CHANGE and available < HEAD_SIZE <= end - position
        return MORE if is_cut_head else BAD_MAGIC
    if size < record.MIN_RECORD_SIZE or size > record.MAX_RECORD_SIZE or size > end - position:
        return BAD_SIZE
    if available < record.MIN_RECORD_SIZE:
        return MORE
    if read_i64(buffer, position + record.COMMIT_LOG_OFFSET_AT) != base + position:
        return BAD_OFFSET
    sys_flag = read_i32(buffer, position + record.SYS_FLAG_AT)
    store_timestamp_at = record.BORN_HOST_AT + host_size(sys_flag, record.BORN_HOST_V6_FLAG)
    store_host_at = store_timestamp_at + record.TIMESTAMP_SIZE
    after_hosts_at = store_host_at + host_size(sys_flag, record.STORE_HOST_V6_FLAG)
    body_start = after_hosts_at + 16
    topic_width = 2 if magic == record.MAGIC_V2 else 1
    if body_start + topic_width + 2 > size:
        return BAD_LENGTHS
    if available < body_start:
        return MORE
    body_length = read_i32(buffer, position + after_hosts_at + 12)
    if body_length < 0:
        body_length = 0
    topic_start = body_start + body_length + topic_width
    if topic_start + 2 > size:
        return BAD_LENGTHS
    if available < size:
        return MORE
    if topic_width == 2:
        topic_length = read_i16(buffer, position + topic_start - 2)
    else:
        topic_length = byte_at(buffer, position + topic_start - 1)
        topic_length = topic_length - 256 if topic_length >= 128 else topic_length
    properties_start = topic_start + topic_length + 2
    if topic_length < 0 or properties_start > size:
        return BAD_LENGTHS
    properties_length = read_i16(buffer, position + properties_start - 2)
    if properties_length < 0:
        properties_length = 0
    if properties_start + properties_length != size:
        return BAD_LENGTHS
    frame.position = position
    frame.store_size = size
    frame.sys_flag = sys_flag
    frame.store_timestamp_at = position + store_timestamp_at
    frame.store_host_at = position + store_host_at
    frame.after_hosts_at = position + after_hosts_at
    frame.body_start = position + body_start
    frame.body_length = body_length
    frame.topic_start = position + topic_start
    frame.topic_length = topic_length
    frame.properties_start = position + properties_start
    frame.properties_length = properties_length
    return RECORD


@kernel
def scan_records(buffer: Bytes, position: int, stop: int, base: int, end: int, frames: Frames) -> tuple[int, int, int]:
    """Scan the records from `position` on that start before `stop`, and write their frames to `frames`.

    Returns the number of frames written, the position at which the scan ended, and why (a `ScanStatus` number other
    than RECORD).
    """
    count = 0
    while position < stop:
        if count == frames.size:
            return count, position, FULL
        position = after_heads(buffer, position, base)
        if position >= stop:
            break
        status = read_frame(buffer, position, base, end, frames[count])
        if status != RECORD:
            return count, position, status
        position += int(frames[count].store_size)
        count += 1
    return count, position, STOP


@kernel
def scan_sent_records(buffer: Bytes, frames: Frames) -> tuple[int, int, int]:
    """Scan records that a broker sent, one after the other, whose own offsets can be any. `frames` has room for all.

    Returns the number of frames written, the position at which the scan ended, and why (`ScanStatus`): STOP at the end.
    """
    count, position = 0, 0
    while position < buffer.size:
        if buffer.size - position < record.MIN_RECORD_SIZE:
            return count, position, BAD_SIZE
        base = read_i64(buffer, position + record.COMMIT_LOG_OFFSET_AT) - position
        status = read_frame(buffer, position, base, buffer.size, frames[count])
        if status != RECORD:
            return count, position, status
        position += int(frames[count].store_size)
        count += 1
    return count, position, STOP


def skip_records(buffer: Bytes, stop: int, data_end: int, base: int, end: int, newest: int) -> tuple[int, int]:
    """Skip the records from index 0 on that start before `stop`, as long as nothing has to be decided about them.

    The first record that was stored before `newest`, or before the record in front of it, is not skipped, nor one that
    reaches `data_end`, nor what is not a whole record. Returns the position reached, and the store time of the last
    record skipped (`newest` if none was).
    """
    return _skip_records(buffer, stop, data_end, base, end, newest, new_frames(1))


@kernel
def _skip_records(
    buffer: Bytes, stop: int, data_end: int, base: int, end: int, newest: int, frames: Frames
) -> tuple[int, int]:
    position = 0
    while position < stop:
        if read_frame(buffer, position, base, end, frames[0]) != RECORD:
            break
        size, time = int(frames[0].store_size), read_i64(buffer, frames[0].store_timestamp_at)
        if time < newest or position + size >= data_end:
            break
        newest = time
        position += size
    return position, newest


@kernel
def find_frame(buffer: Bytes, position: int, stop: int, base: int, end: int, frames: Frames) -> tuple[int, int]:
    """The first position from `position` to `stop` - 1 that has a whole record or a blank, with RECORD or BLANK.

    Returns a position with MORE if the buffer ends before this is decided, and (`stop`, STOP) if no position has a
    record or a blank. The frame of a record is written to `frames[0]`.
    """
    last = buffer.size - record.BLANK_SIZE + 1
    if stop < last:
        last = stop
    while position < last:
        block_end = position + _BLOCK_SIZE
        if last < block_end:
            block_end = last
        if block_end - position == _BLOCK_SIZE and not _contains_magic(buffer, position + record.MAGIC_AT):
            position = block_end
        while position < block_end:
            magic = read_i32(buffer, position + record.MAGIC_AT)
            if magic == record.MAGIC_V1 or magic == record.MAGIC_V2 or magic == record.MAGIC_BLANK:
                status = read_frame(buffer, position, base, end, frames[0])
                if status == RECORD or status == BLANK or status == MORE:  # noqa: SIM109 (a kernel)
                    return position, status
            position += 1
    return (position, MORE) if position < stop else (stop, STOP)


@kernel
def _contains_magic(buffer: Bytes, start: int) -> bool:
    """Whether the first two bytes of a magic number are at one of the `_BLOCK_SIZE` positions from `start` on.

    The loop has a fixed length, no early exit and only operations on bytes. So the compiler uses vector instructions,
    and a search runs at the speed of memory.
    """
    block = buffer[start : start + _BLOCK_SIZE + 1]
    contains = np.uint8(0)
    for index in range(_BLOCK_SIZE):
        first, second = block[np.uint64(index)], block[np.uint64(index + 1)]
        is_record = np.uint8(first == np.uint8(0xDA)) & np.uint8(second == np.uint8(0xA3))
        is_blank = np.uint8(first == np.uint8(0xCB)) & np.uint8(second == np.uint8(0xD4))
        contains = np.uint8(contains | is_record | is_blank)
    return bool(contains)


@kernel
def read_frames_at(buffer: Bytes, positions: Int64s, offsets: Int64s, sizes: Int64s, frames: Frames) -> int:
    """Write the frames of records at known positions, which have known commit log offsets and sizes, to `frames`.

    Returns the number of frames written: the index of the first position that has no such record, or all positions.
    """
    for index in range(positions.size):
        position = positions[index]
        status = read_frame(buffer, position, offsets[index] - position, position + sizes[index], frames[index])
        if status != RECORD or frames[index].store_size != sizes[index]:
            return index
    return int(positions.size)
