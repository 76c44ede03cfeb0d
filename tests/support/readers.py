"""Plain ways to read a log, to compare with, and the parts that a reader gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from spark_mq.format.array_types import Bytes
from spark_mq.format.kernels import resync
from spark_mq.store.log import split_reader
from spark_mq.store.log.commit_log import CommitLog, SegmentSource, Split, plan_splits
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.store.log.split_reader import read_split

Part = tuple[str, int, int, str]
"""A record (`RECORD`, its offset, its size, its bytes in hex) or a corrupt range (its code, offset, length, reason)."""


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
            sizes = item.frames.store_size.tolist()
            for position, size in zip(item.frames.position.tolist(), sizes, strict=True):
                content = item.buffer[position : position + size].tobytes().hex()
                yield "RECORD", item.base + position, size, content
        else:
            yield item.code, item.commit_log_offset, item.length, item.reason  # type: ignore[attr-defined]


def by_splits(log: CommitLog, split_size: int) -> list[Part]:
    """The log, read split by split."""
    return [part for split in plan_splits(log, split_size) for part in one_split(split)]


def with_known_end(log: CommitLog) -> CommitLog:
    """The log up to its live end, as the planner of a read makes it."""
    last = log.segments[-1]
    with SegmentSource(last) as source:
        reader = LiveReader(source)
        reader.skip(last.data_end)
        return log.ending_at(last.base + reader.position)


def one_split(split: Split) -> list[Part]:
    """One split."""
    return list(parts_of(read_split(split)))


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


def split_sizes(log: CommitLog, smallest: int = 0) -> Sequence[int]:
    """Sizes of splits to try with a log; none smaller than `smallest`."""
    largest = max((segment.size for segment in log.segments), default=0) + 1
    return [size for size in (1 << 10, 1000, 4 << 10, 64 << 10, largest) if size >= smallest]
