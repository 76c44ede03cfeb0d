r"""Small stores for tests of programs that read stores: a commit log, record by record, at chosen offsets and times.

`spark-mq rebuild` or `spark_mq.rebuild` adds the queues and the index. `df.write.format("rocketmq")` makes a whole
store out of rows, and needs Spark.

`corpus` has stores of real brokers. `plain_log`, `plain_queue`, `plain_index` and `plain_check` model what a program
must read, make, lose and find. `strategies` are those of Hypothesis. `disk` has what a power loss can
leave of a folder.

Examples:
    >>> writer = LogWriter(segment_size=64 << 10)
    >>> writer.append(1_795_248_093_336, b"paid", topic=b"orders", properties=b"KEYS\1order-42\2")
    0
    >>> store = writer.write(tmp_path / "store")
    >>> MessageStore(str(store)).find_record(0).body
    b'paid'
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from spark_mq.format.record import Record, encode_blank
from spark_mq.io.location import Location


def write_store(folder: Path, segments: dict[int, bytes], segment_size: int | None = None) -> Location:
    """A store that has these segments.

    Args:
        folder: The store directory to make.
        segments: The content of each segment, by its first commit log offset.
        segment_size: The size to which each segment is filled with zeros; None for the size of its content.
    """
    (folder / "commitlog").mkdir(parents=True)
    for base, data in segments.items():
        (folder / "commitlog" / f"{base:020d}").write_bytes(data.ljust(segment_size or len(data), b"\0"))
    return Location.resolve(str(folder))


class LogWriter:
    """Appends records as a broker does: own offsets, queue offsets, blanks, segments of one size.

    Attributes:
        segments: The bytes of each segment so far, by its first commit log offset; a test can damage them.
        offsets: The commit log offsets of the records.
    """

    def __init__(self, segment_size: int, first_segment: int = 0) -> None:
        """An empty log whose first segment begins at offset `first_segment`; sizes are bytes."""
        self.segment_size = segment_size
        self.segments: dict[int, bytearray] = {first_segment: bytearray()}
        self.offsets: list[int] = []
        self._base = first_segment
        self._queue_offsets: dict[tuple[bytes, int], int] = {}

    @property
    def next_offset(self) -> int:
        """The commit log offset of the next record, if it fits into the segment."""
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
        """Append one record; returns its commit log offset.

        Args:
            store_timestamp: The store time and the born time, in milliseconds since the epoch.
            body: The body as it is stored.
            topic: The topic.
            queue_id: The queue id.
            queue_offset: The queue offset; None for the next one of the queue.
            properties: The properties as they are stored (`spark_mq.format.properties.encode_properties`).
            sys_flag: The system flag.
        """
        record = Record(
            topic,
            queue_id,
            self._queue_offsets.get((topic, queue_id), 0) if queue_offset is None else queue_offset,
            body=body,
            properties=properties,
            sys_flag=sys_flag,
            born_timestamp=store_timestamp,
            store_timestamp=store_timestamp,
        )
        self._queue_offsets[topic, queue_id] = record.queue_offset + 1
        if len(self.segments[self._base]) + record.size + 8 > self.segment_size:
            self.roll()
        self.offsets.append(self.next_offset)
        return self.append_bytes(replace(record, commit_log_offset=self.next_offset).encode())

    def append_bytes(self, data: bytes) -> int:
        """Append bytes that need not be a record; returns their commit log offset."""
        offset = self.next_offset
        self.segments[self._base] += data
        return offset

    def roll(self) -> None:
        """End the segment with a blank, and begin the next one."""
        segment = self.segments[self._base]
        segment += encode_blank(self.segment_size - len(segment))
        self._base += self.segment_size
        self.segments[self._base] = bytearray()

    def write(self, folder: Path) -> Location:
        """Write the store, each segment at its full size, into a folder that does not exist; returns its location."""
        return write_store(folder, {base: bytes(data) for base, data in self.segments.items()}, self.segment_size)
