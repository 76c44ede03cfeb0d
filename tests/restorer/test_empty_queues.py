from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.restorer.finish import empty_queue_file, write_empty_queues
from spark_mq.testing import LogWriter
from tests.support.verified import check

UNITS = 10
FILE_SIZE = 20 * UNITS
LOG_START = 4096
MILLIS = 1_700_000_000_000


def store_with(folder: Path, next_offsets: dict[tuple[str, int], int], log_start: int = LOG_START) -> Location:
    """A store with one message of queue T/0, and queues without messages."""
    log = LogWriter(4096, first_segment=log_start)
    offset = log.append(MILLIS, queue_offset=0)
    store = log.write(folder / "store")
    queue = folder / "store" / "consumequeue" / "T" / "0"
    queue.mkdir(parents=True)
    unit = struct.pack(">qiq", offset, log.next_offset - offset, 97)
    (queue / f"{0:020d}").write_bytes(unit.ljust(FILE_SIZE, b"\0"))
    write_empty_queues(store / "consumequeue", next_offsets, FILE_SIZE, log_start, MILLIS)
    return store


@pytest.mark.parametrize("version", ["4.9", "5"])
@pytest.mark.parametrize("next_offset", [1, UNITS - 1, UNITS, UNITS + 1, 5 * UNITS + 3, 10**12])
def test_the_queue_goes_on_at_its_next_offset(tmp_path: Path, next_offset: int, version: str) -> None:
    with MessageStore(store_with(tmp_path, {("gone", 3): next_offset}).uri, broker_version=version) as store:
        assert store.get_max_offset_in_queue("gone", 3) == next_offset
        # 4.9 knows no first offset of a queue whose messages all expired (`ConsumeQueue.correctMinOffset`@4.9.7)
        assert store.get_min_offset_in_queue("gone", 3) == (0 if version == "4.9" else next_offset)
        at_end = store.get_message_result("gone", 3, next_offset)
        assert (at_end.status, at_end.messages.num_rows) == ("OFFSET_OVERFLOW_ONE", 0)
        before = store.get_message_result("gone", 3, next_offset - 1)
        assert before.messages.num_rows == 0


def test_a_check_of_the_store_finds_nothing(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue={FILE_SIZE}\n")
    store = store_with(tmp_path, {("gone", 3): 25, ("gone", 0): 20})
    _, findings = check(Path(store.path), conf)
    assert [finding for finding in findings if "consumequeue" in str(finding.file)] == []


@given(st.integers(1, 2**40), st.integers(1, 300))
def test_there_is_one_file_with_units_up_to_the_next_offset(next_offset: int, units: int) -> None:
    name, content = empty_queue_file(next_offset, 20 * units)
    assert len(name) == 20
    assert int(name) % (20 * units) == 0
    assert int(name) + len(content) == 20 * next_offset
    assert 0 < len(content) <= 20 * units
    *blank, last = struct.iter_unpack(">qiq", content)
    assert last == (1, 1, 0)
    assert set(blank) <= {(0, 0x7FFFFFFF, 0)}


@pytest.mark.parametrize(("next_offset", "size"), [(0, 200), (-1, 200), (1 << 60, 200), (5, 30), (5, 0)])
def test_other_offsets_and_sizes_are_errors(next_offset: int, size: int) -> None:
    with pytest.raises(OptionError, match="queue file"):
        empty_queue_file(next_offset, size)


def test_queues_that_cannot_be_kept_are_left_out(tmp_path: Path) -> None:
    folder = Location.resolve(str(tmp_path / "consumequeue"))
    names = {("../x", 0): 5, ("T" * 300, 0): 5, ("T", -1): 5, ("T", 1): 1 << 62, ("T", 2): 5, ("T", 3): 0}
    written, left_out = write_empty_queues(folder, names, FILE_SIZE, LOG_START, MILLIS)
    assert written == [("T", 2)]
    assert set(left_out) == set(names) - {("T", 2), ("T", 3)}
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()] == [
        f"consumequeue/T/2/{0:020d}"
    ]
    file = tmp_path / "consumequeue" / "T" / "2" / f"{0:020d}"
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (FILE_SIZE, MILLIS * 1_000_000)
    assert write_empty_queues(folder, {("U", 0): 5}, FILE_SIZE, 0, MILLIS) == ([], [("U", 0)])
