"""Small stores made by hand, damage to real ones, and plain readers to compare with. No Spark here."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import strategies as st

from spark_mq.errors import CorruptLogError
from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels import resync
from spark_mq.format.kernels.frames import Frames, new_frames, scan_records
from spark_mq.format.record import (
    HOST_V4_SIZE,
    HOST_V6_SIZE,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    Record,
    decode_record,
    encode_blank,
)
from spark_mq.io.location import Location
from spark_mq.store.log import split_reader
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.segment_source import SegmentSource
from spark_mq.store.log.split_reader import read_split
from spark_mq.store.log.splits import Split, plan_splits

WITHOUT_JIT = os.environ.get("NUMBA_DISABLE_JIT") == "1"

Part = tuple[str, int, int, str]
"""A record (`RECORD`, its offset, its size, its bytes in hex) or a corrupt range (its code, offset, length, reason)."""


def examples(number: int) -> int:
    """How many examples to try: a tenth where kernels run as Python."""
    return max(number // 10, 3) if WITHOUT_JIT else number


def array(data: bytes) -> Bytes:
    """The bytes as the array that kernels take."""
    return np.frombuffer(data, np.uint8)


def frames_of(data: bytes, base: int = 0) -> Frames:
    """The frames of `data`, which must hold whole records and nothing else."""
    frames = new_frames(len(data) // 91 + 1)
    count, position, _ = scan_records(array(data), 0, len(data), base, len(data), frames)
    assert position == len(data), f"no whole records: the hop ended at {position} of {len(data)}"
    return frames[:count]


def records(
    offset: int = 0, max_text: int = 40, timestamps: st.SearchStrategy[int] | None = None
) -> st.SearchStrategy[Record]:
    """Any record that fits its fields, at `offset`."""
    int32, int64 = st.integers(-(1 << 31), (1 << 31) - 1), st.integers(-(1 << 63), (1 << 63) - 1)
    hosts = st.sampled_from((HOST_V4_SIZE, HOST_V6_SIZE)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
    return st.builds(
        Record,
        topic=st.binary(max_size=max_text),
        queue_id=int32,
        queue_offset=int64,
        commit_log_offset=st.just(offset),
        body=st.binary(max_size=max_text),
        properties=st.binary(max_size=max_text),
        flag=int32,
        sys_flag=int32,
        born_timestamp=timestamps or int64,
        born_host=hosts,
        store_timestamp=timestamps or int64,
        store_host=hosts,
        reconsume_times=int32,
        prepared_transaction_offset=int64,
        magic=st.sampled_from((MAGIC_V1, MAGIC_V2)),
    )


@st.composite
def hostile_segments(
    draw: st.DrawFn, size: int, most: int, most_blank: int | None = None, base: int = 1 << 20
) -> bytes:
    """A segment of `size` bytes: messages, of which many hold what looks like records and blanks, and damage.

    Nothing in it is a record of more than `most` bytes on purpose, or a blank of more than `most_blank`. Bodies are
    mostly zeros, in which a made-up record of any length can end: so those reach out of bodies over other records, and
    end with them.
    """
    numbers = st.integers(0, 1 << 20)
    data = bytearray()
    framing: list[int] = []
    while True:
        body = bytearray(draw(numbers) % (most - 100))
        topic = draw(st.sampled_from([b"", b"T"]))
        start = len(data)
        record_size = 91 + len(topic) + len(body)
        if start + record_size + 8 > size:
            break
        place = 0
        for number in draw(st.lists(numbers, max_size=4)):
            place += number % 50
            at = start + 88 + place
            if number % 7 == 0 and size - at <= (most_blank or size):
                content = encode_blank(size - at)[:8]
            else:
                length = number // 50 % (most - 91)
                content = Record(b"", body=bytes(length), commit_log_offset=base + at, store_timestamp=number).encode()
                content = content[:88]
            if place + len(content) <= len(body):
                body[place : place + len(content)] = content
            place += len(content)
        framing += [start + at for at in (0, 2, 3, 4, 7, 28, 35, 39, 84, 86, 87)]
        framing += [start + 88 + len(body), start + record_size - 1]
        data += Record(topic, body=bytes(body), commit_log_offset=base + start, store_timestamp=start).encode()
    data += encode_blank(size - len(data))
    for number in draw(st.lists(numbers, max_size=4)):
        match number % 4:
            case 0 | 1:
                data[framing[number // 4 % len(framing)]] ^= draw(st.integers(1, 255))
            case 2:
                place, length = number // 4 % size, draw(numbers) % 500
                data[place : min(place + length, size)] = bytes(min(length, size - place))
            case 3:
                data[number // 4 % size] ^= draw(st.integers(1, 255))
    return bytes(data)


def plausible_frames(segment: bytes, base: int) -> dict[int, int]:
    """Every position of a segment at which a whole record or a blank lies, with its end; in plain Python."""
    frames = {}
    for position in range(len(segment) - 7):
        size, magic = struct.unpack_from(">ii", segment, position)
        if magic == MAGIC_BLANK and size == len(segment) - position:
            frames[position] = len(segment)
        elif magic in (MAGIC_V1, MAGIC_V2):
            with suppress(CorruptLogError):
                decode_record(segment, position, base + position)
                frames[position] = position + size
    return frames


def write_store(folder: Path, segments: dict[int, bytes], segment_size: int | None = None) -> Location:
    """A store with these segments, each filled with zeros up to `segment_size`."""
    (folder / "commitlog").mkdir(parents=True)
    for base, data in segments.items():
        (folder / "commitlog" / f"{base:020d}").write_bytes(data.ljust(segment_size or len(data), b"\0"))
    return Location.resolve(str(folder))


class LogWriter:
    """Appends records as a broker does: own offsets, queue offsets, blanks, segments of one size."""

    def __init__(self, segment_size: int, first_segment: int = 0) -> None:
        self.segment_size = segment_size
        self.segments: dict[int, bytearray] = {first_segment: bytearray()}
        self.offsets: list[int] = []
        self._base = first_segment
        self._queue_offsets: dict[tuple[bytes, int], int] = {}

    @property
    def next_offset(self) -> int:
        """Where a record would go that fits."""
        return self._base + len(self.segments[self._base])

    def append(
        self,
        store_timestamp: int,
        body: bytes = b"",
        topic: bytes = b"T",
        queue_id: int = 0,
        queue_offset: int | None = None,
        properties: bytes = b"TAGS\1a\2",
        sys_flag: int = 0,
    ) -> int:
        """Append one record; returns its commit log offset."""
        record = Record(topic, body=body, properties=properties)
        if len(self.segments[self._base]) + record.size + 8 > self.segment_size:
            self.roll()
        if queue_offset is None:
            queue_offset = self._queue_offsets.get((topic, queue_id), 0)
        self._queue_offsets[topic, queue_id] = queue_offset + 1
        offset = self.next_offset
        self.segments[self._base] += Record(
            topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            commit_log_offset=offset,
            body=body,
            properties=properties,
            sys_flag=sys_flag,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
        ).encode()
        self.offsets.append(offset)
        return offset

    def append_bytes(self, data: bytes) -> int:
        """Append bytes as they are; returns where they lie."""
        offset = self.next_offset
        self.segments[self._base] += data
        return offset

    def roll(self) -> None:
        """End the segment with a blank and begin the next."""
        segment = self.segments[self._base]
        segment += encode_blank(self.segment_size - len(segment))
        self._base += self.segment_size
        self.segments[self._base] = bytearray()

    def write(self, folder: Path) -> Location:
        """The store, every segment at its full size."""
        return write_store(folder, {base: bytes(data) for base, data in self.segments.items()}, self.segment_size)


@contextmanager
def small_windows(most: int, most_blank: int | None = None) -> Iterator[None]:
    """Find the starts of splits of small segments as those of large ones, by the bytes before them.

    No record in them may have more than `most` bytes, no blank more than `most_blank` (`most` too, if it is not said).
    """
    with (
        mock.patch.object(resync, "MAX_RECORD_SIZE", most),
        mock.patch.multiple(
            split_reader, MAX_RECORD_SIZE=most, LOOK_BACK=most + most // 4, MAX_BLANK_SIZE=most_blank or most
        ),
    ):
        yield


@contextmanager
def limited_reads(most: int = 200_000) -> Iterator[None]:
    """Fail, rather than hang, where code reads a segment again and again."""
    reads = 0
    read = SegmentSource.read

    def counted(self: SegmentSource, position: int, length: int) -> Bytes:
        nonlocal reads
        reads += 1
        assert reads <= most, f"more than {most} reads: the reader does not get on"
        return read(self, position, length)

    with mock.patch.object(SegmentSource, "read", counted):
        yield


def parts_of(items: Iterable[object]) -> Iterator[Part]:
    """What a reader gave, as plain values."""
    for item in items:
        if isinstance(item, RecordChunk):
            for frame in item.frames:
                position, size = int(frame.position), int(frame.store_size)
                content = item.buffer[position : position + size].tobytes().hex()
                yield "RECORD", item.base + position, size, content
        else:
            yield item.code, item.commit_log_offset, item.length, item.reason  # type: ignore[attr-defined]


def by_splits(log: CommitLog, split_size: int) -> list[Part]:
    """The log, read split by split."""
    return [part for split in plan_splits(log, split_size) for part in one_split(split, f"splits of {split_size}")]


def one_split(split: Split, plan: str) -> list[Part]:
    """One split."""
    return list(parts_of(read_split(split, plan)))


def by_hopping(log: CommitLog) -> list[Part]:
    """The log, every segment read from its start in one go."""
    parts: list[Part] = []
    for segment in log.segments:
        with SegmentSource(segment) as source:
            reader = LiveReader(source) if segment.is_last else RecordReader(source, 0)
            parts += parts_of(reader.read(segment.data_end))
    return parts


def offsets_of(parts: Iterable[Part]) -> list[int]:
    """The offsets of the records."""
    return [part[1] for part in parts if part[0] == "RECORD"]


def segment_files(store: Path) -> list[Path]:
    """The files of a store's commit log."""
    return sorted((store / "commitlog").iterdir())


def split_sizes(log: CommitLog, smallest: int = 0) -> Sequence[int]:
    """Sizes of splits to try with a log; none smaller than `smallest`."""
    largest = max((segment.size for segment in log.segments), default=0) + 1
    return [size for size in (1 << 10, 1000, 4 << 10, 64 << 10, largest) if size >= smallest]
