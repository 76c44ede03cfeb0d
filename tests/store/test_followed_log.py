"""New messages of a growing log: each once, when it is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.errors import LogCutError
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.store.log.scan import InQueue
from spark_mq.store.message_selection import FollowedLog
from spark_mq.testing import LogWriter

SEGMENT_SIZE = 1024


def save(writer: LogWriter, folder: Path, unfinished: int = 0) -> None:
    """The store as a broker leaves it that has yet to write the last `unfinished` bytes."""
    for base, data in writer.segments.items():
        file = folder / "commitlog" / f"{base:020d}"
        file.parent.mkdir(exist_ok=True)
        is_last = base == max(writer.segments)
        written = data[: len(data) - unfinished] if is_last and unfinished else data
        file.write_bytes(bytes(written).ljust(SEGMENT_SIZE, b"\0"))


def bodies(log: FollowedLog) -> list[bytes]:
    return [part.body for part in log.new_parts() if isinstance(part, Record)]


def test_each_message_is_returned_once_when_it_is_whole(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    writer.append(1000, b"old")
    save(writer, tmp_path)
    log = FollowedLog(Location.resolve(str(tmp_path)), InQueue("T", 1), writer.next_offset)
    assert bodies(log) == []
    for number in range(12):  # more than a segment
        writer.append(1001 + number, b"new %d" % number, queue_id=number % 2)
    writer.append(1020, b"unfinished", queue_id=1)
    save(writer, tmp_path, unfinished=5)
    assert bodies(log) == [b"new %d" % number for number in range(1, 12, 2)]
    save(writer, tmp_path)
    assert bodies(log) == [b"unfinished"]
    assert bodies(log) == []
    assert log.position == writer.next_offset


def test_a_log_that_lost_its_end_is_an_error(tmp_path: Path) -> None:
    writer = LogWriter(SEGMENT_SIZE)
    writer.append(1000, b"old")
    end = writer.next_offset
    save(writer, tmp_path)
    with pytest.raises(LogCutError, match=f"up to commit log offset {end + 100}, and ends at {end} now"):
        bodies(FollowedLog(Location.resolve(str(tmp_path)), InQueue("T"), end + 100))
