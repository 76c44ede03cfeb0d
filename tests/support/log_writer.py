"""Stores that a test writes record by record, and damages."""

from __future__ import annotations

from pathlib import Path

from spark_mq.format.record import (
    Record,
    encode_blank,
)
from spark_mq.io.location import Location


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


def segment_files(store: Path) -> list[Path]:
    """The files of a store's commit log."""
    return sorted((store / "commitlog").iterdir())
