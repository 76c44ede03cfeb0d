"""The offset of a stream, as Spark stores it in a checkpoint: JSON with a fixed order of keys.

Spark compares offsets as text, so equal offsets have the same text.

| version | keys, in this order |
| --- | --- |
| 1 | `version`, `commit_log_offset`, `lost_bytes` |
| 2 | the keys of version 1, `read_from`, `marks`: a list of `[commit_log_offset, store_size, store_timestamp, crc]`,
the newest first |

An offset without a mark is written as version 1, the version that earlier releases of spark-mq wrote.

A broker that recovers from a crash truncates its log and then continues to write
(`CommitLog.recoverAbnormally`@5.3.3); so does a replica that joins a new master. New records can have the sizes of the
lost ones, and then every later offset looks right. A record itself never changes, and two records have different bytes:
their store times differ, and so does their content. So the offset has *marks* of records that were read.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Self

from spark_mq.errors import OptionError
from spark_mq.format.record import MAX_RECORD_SIZE, MIN_RECORD_SIZE
from spark_mq.store.log.record_lookup import RecordLookup

_WITHOUT_MARKS = 1
_WITH_MARKS = 2
_VERSIONS = (_WITHOUT_MARKS, _WITH_MARKS)
NOTHING_YET = -1
"""The commit log offset of a stream over an empty log; the stream starts with the first message that is written."""


@dataclass(frozen=True)
class RecordMark:
    """One record: its offset and size in bytes, its store time in milliseconds, and the CRC-32 of its bytes."""

    commit_log_offset: int
    store_size: int
    store_timestamp: int
    crc: int

    @property
    def end_offset(self) -> int:
        """The commit log offset after the record."""
        return self.commit_log_offset + self.store_size

    def is_valid(self) -> bool:
        """Whether a record can have these values: they may come from a file."""
        return self.commit_log_offset >= 0 and MIN_RECORD_SIZE <= self.store_size <= MAX_RECORD_SIZE


def mark_of(records: RecordLookup, commit_log_offset: int) -> RecordMark | None:
    """The mark of the record at the offset; None if there is none."""
    record = records.find(commit_log_offset)
    if record is None:
        return None
    content = records.read(commit_log_offset, record.size)
    return RecordMark(commit_log_offset, record.size, record.store_timestamp, zlib.crc32(content))


def is_lost(records: RecordLookup, mark: RecordMark, live_end: int) -> bool:
    """Whether the log, which ends at `live_end`, no longer has the marked record at its offset.

    False if no segment contains the offset: the record expired, and nothing shows that it was lost.
    """
    if mark.end_offset > live_end:
        return True  # its bytes can still be there: a broker that truncates its log does not clear them
    if records.segment_of(mark.commit_log_offset) is None:
        return False
    return zlib.crc32(records.read(mark.commit_log_offset, mark.store_size)) != mark.crc


def thin_out(marks: Sequence[RecordMark], end: int) -> tuple[RecordMark, ...]:
    """A few of the marks (the newest first) of a log that was read up to `end`, denser towards the end.

    The newest mark is kept. Of the other marks, the oldest in each block of the log is kept. The size of a block is a
    power of four bytes, and larger than its distance from `end`. So a log of any length has about 30 blocks, and a
    kept mark stays the oldest of its block while the log grows, until an older mark falls into the same block.
    """
    oldest: dict[tuple[int, int], RecordMark] = {}
    for mark in marks[1:]:
        bits = (end - mark.commit_log_offset).bit_length() // 2 * 2 + 2
        oldest[bits, mark.commit_log_offset >> bits] = mark
    return (*marks[:1], *oldest.values())


@dataclass(frozen=True)
class StreamOffset:
    """The end of a batch: every record that starts before `commit_log_offset` was read.

    `lost_bytes` before it were gone before they were read. The batch starts at `read_from` if the broker lost the end
    of its log, and the batch before ended after it. `marks` are records that were read, the newest first.
    """

    commit_log_offset: int
    lost_bytes: int = 0
    read_from: int | None = None
    marks: tuple[RecordMark, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The offset for Spark."""
        values = {"commit_log_offset": self.commit_log_offset, "lost_bytes": self.lost_bytes}
        if not self.marks and self.read_from is None:
            return {"version": _WITHOUT_MARKS, **values}
        marks = [list(astuple(mark)) for mark in self.marks]
        return {"version": _WITH_MARKS, **values, "read_from": self.read_from, "marks": marks}

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """The offset of a checkpoint. Raises `OptionError` for values that no known version wrote."""
        version = values.get("version")
        if version not in _VERSIONS:
            raise OptionError(
                f"the checkpoint's offset {dict(values)} has version {version}, this spark-mq reads versions 1 and 2: "
                "use the spark-mq that wrote it or a later one, or another checkpointLocation"
            )
        offset, lost = _integer(values, "commit_log_offset", NOTHING_YET), _integer(values, "lost_bytes", 0)
        if version == _WITHOUT_MARKS:
            return cls(offset, lost)
        read_from = None if values.get("read_from") is None else _integer(values, "read_from", 0)
        return cls(offset, lost, read_from, _marks(values))


def _marks(values: Mapping[str, Any]) -> tuple[RecordMark, ...]:
    listed = values.get("marks")
    if not isinstance(listed, list):
        raise not_ours(values)
    for items in listed:
        if not isinstance(items, list) or len(items) != 4 or not all(type(item) is int for item in items):
            raise not_ours(values)
    marks = tuple(RecordMark(*items) for items in listed)
    if not all(mark.is_valid() for mark in marks):
        raise not_ours(values)
    return marks


def _integer(values: Mapping[str, Any], name: str, least: int) -> int:
    value = values.get(name)
    if type(value) is not int or value < least:
        raise not_ours(values)
    return value


def not_ours(values: Mapping[str, Any]) -> OptionError:
    """The error for an offset that no version of this source wrote."""
    return OptionError(f"the checkpoint's offset {dict(values)} was not written by this source: use its own checkpoint")
