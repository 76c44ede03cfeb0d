"""The bytes after the live end of the log: zeros, an unfinished record, or old records that look like live ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog, Segment
from spark_mq.verifier.finding import findings
from spark_mq.verifier.sink import FindingSink


@dataclass
class LiveLog:
    """The log as it was when the check began; a broker may be appending to it.

    Attributes:
        store: The store.
        last: The last segment.
        end: The commit log offset at which the log ended.
        newest: The store time of the last message, in milliseconds.

    """

    store: Location
    last: Segment
    end: int
    newest: int
    _has_grown: bool = field(default=False, compare=False)

    def has_grown(self) -> bool:
        """Whether the log has live records after its end now."""
        from spark_mq.store.log.live_reader import LiveReader
        from spark_mq.store.log.record_reader import RecordChunk
        from spark_mq.store.log.segment_source import SegmentSource

        if not self._has_grown:
            last = CommitLog.open(self.store).segments[-1]
            if last.base > self.last.base:
                self._has_grown = True
            elif last.base == self.last.base:
                with SegmentSource(last) as source:
                    reader = LiveReader(source, self.end - last.base, self.newest)
                    self._has_grown = any(isinstance(part, RecordChunk) for part in reader.read(last.data_end))
        return self._has_grown


@dataclass(frozen=True)
class LogEndCheck:
    """The check of the bytes after the live end."""

    log: LiveLog

    def __call__(self, sink: FindingSink) -> None:
        """Put what is wrong into `sink`."""
        sink.add(log_end_findings(self.log.last, self.log.end, self.log.has_grown))


def log_end_findings(last: Segment, end: int, has_grown: Callable[[], bool]) -> Iterator[pa.RecordBatch]:
    """What is after the live end of the log.

    Args:
        last: The last segment.
        end: The commit log offset at which the log ends.
        has_grown: Says whether a broker is appending; then nothing is wrong.

    Yields:
        At most one finding.

    """
    from spark_mq.format.record import MIN_RECORD_SIZE
    from spark_mq.store.log.record_reader import RecordChunk, RecordReader
    from spark_mq.store.log.segment_source import SegmentSource

    position = end - last.base
    if position >= last.data_end:
        return
    records, first, stop = 0, -1, position
    with SegmentSource(last) as source:
        reader = RecordReader(source, position)
        for part in reader.read(last.data_end) if last.data_end - position >= MIN_RECORD_SIZE else ():
            if isinstance(part, RecordChunk):
                records += part.frames.size
                first = part.base + int(part.frames[0].position) if first < 0 else first
                stop = part.base + int(part.frames[-1].position) + int(part.frames[-1].store_size)
    if has_grown():
        return
    file = f"commitlog/{last.location.name}"
    if records:
        yield findings(
            "LOG_STALE_TAIL",
            file=file,
            position=position,
            commit_log_offset=first,
            expected=f"zeros from the live end {end} on",
            found=f"{records} old records between {first} and {stop}",
        )
    else:
        yield findings(
            "LOG_UNFINISHED",
            file=file,
            position=position,
            commit_log_offset=end,
            expected=f"zeros from the live end {end} on",
            found=f"{last.data_end - position} bytes that are not a whole record",
        )
