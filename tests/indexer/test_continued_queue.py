"""A queue's files that are continued, against what the log and the expired units are. No Spark here."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE, pre_blank, queue_file_name
from spark_mq.indexer.queue_files import missing_ranges, missing_text, unit_findings
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import Run
from spark_mq.indexer.queue_writer import COMPLETED, NEW, STAGED, UNTOUCHED, QueueWriter, WrittenQueueFile
from spark_mq.io.location import Location
from tests.support.stores import tree_of

UNITS_PER_FILE = 4
FILE_SIZE = UNITS_PER_FILE * UNIT_SIZE


def unit(queue_offset: int, of_log: int = 0) -> bytes:
    """The unit of a message; `of_log` tells apart what different logs have at one queue offset."""
    return np.array([(1000 * queue_offset + of_log, 100, 7)], UNIT_DTYPE).tobytes()


def write_queue(folder: Path, units: list[bytes], first_file: int = 0) -> None:
    """Queue files that hold these units from the first file's start on, zeros behind them."""
    for start in range(first_file * UNITS_PER_FILE, len(units), UNITS_PER_FILE):
        file = folder / "orders" / "0" / f"{start * UNIT_SIZE:020d}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"".join(units[start : start + UNITS_PER_FILE]).ljust(FILE_SIZE, b"\0"))


@dataclass(frozen=True)
class Job:
    """The queue offsets that the log has, and where the queue that is there ends."""

    start: int
    stop: int
    existing_end: int

    def run(self, folder: Path, is_resumed: bool = False) -> list[WrittenQueueFile]:
        """Write below `growing`, continuing what is below `there`."""
        runs = []
        for file_number in range(self.start // UNITS_PER_FILE, (self.stop - 1) // UNITS_PER_FILE + 1):
            first = max(self.start, file_number * UNITS_PER_FILE)
            stop = min(self.stop, (file_number + 1) * UNITS_PER_FILE)
            units = b"".join(unit(offset) for offset in range(first, stop))
            runs.append(
                Run("orders", 0, file_number, 1000 * first, first, 1, units, self.start, self.stop, self.existing_end)
            )
        writer = QueueWriter(
            Location.resolve(str(folder / "growing")),
            Location.resolve(str(folder / "there")),
            FILE_SIZE,
            1000 * self.start,
            is_resumed,
        )
        return list(writer.write(runs))


@given(st.data())
def test_any_queue_becomes_whole(data: st.DataObject) -> None:
    """Units before the log stay, those of the log are there once, and stale ones behind the end are gone."""
    stop = data.draw(st.integers(1, 14))
    start = data.draw(st.integers(0, stop - 1))
    end = data.draw(st.integers(start, stop))
    stale = [unit(end + number, of_log=1) for number in range(data.draw(st.integers(0, 3)))]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_queue(folder / "there", [unit(offset) for offset in range(end)] + stale)
        write_queue(folder / "whole", [unit(offset) for offset in range(stop)])
        before, whole = tree_of(folder / "there"), tree_of(folder / "whole")
        written = Job(start, stop, end).run(folder)
        grown = tree_of(folder / "growing") if (folder / "growing").exists() else {}
        again = Job(start, stop, end).run(folder, is_resumed=True)
    there = {**before, **grown}
    assert {name: there[name] for name in whole} == whole
    assert not any(file.contradicted for file in written)
    files = [f"orders/0/{queue_file_name(file.file_number, FILE_SIZE)}" for file in written]
    states = [UNTOUCHED if before.get(n) == whole[n] else COMPLETED if n in before else NEW for n in files]
    assert [file.state for file in written] == states
    assert sorted(grown) == [name for name, state in zip(files, states, strict=True) if state != UNTOUCHED]
    assert [file.state for file in again] == [STAGED if state == NEW else state for state in states]


@pytest.mark.parametrize(
    ("wrong", "is_contradiction"),
    [
        (unit(5, of_log=1), True),  # another message at the same queue offset
        (pre_blank(1).tobytes(), False),  # a job that skipped damage left a place for it
        (bytes(UNIT_SIZE), False),
        (unit(0, of_log=10), True),  # an expired message where the log has one
    ],
)
def test_what_the_log_says_counts_and_a_contradiction_is_reported(
    tmp_path: Path, wrong: bytes, is_contradiction: bool
) -> None:
    units = [unit(offset) for offset in range(7)]
    write_queue(tmp_path / "whole", units)
    write_queue(tmp_path / "there", [*units[:5], wrong, units[6]])
    written = Job(2, 7, 7).run(tmp_path)
    assert [file.contradicted for file in written] == [0, int(is_contradiction)]
    if is_contradiction:
        assert written[1].first_contradicted == int(np.frombuffer(wrong, UNIT_DTYPE)["commit_log_offset"][0])
        (found,) = unit_findings(QueuePlan((), UNITS_PER_FILE), written)
        assert (found.code, found.file) == ("CONTRADICTED_UNITS", "orders/0")
        assert found.reason.startswith(f"1 units of {FILE_SIZE:020d} are not what the log says, the first names ")
    (file,) = tree_of(tmp_path / "growing").items()
    assert file in tree_of(tmp_path / "whole").items()


def test_units_of_the_log_that_it_does_not_have_are_a_contradiction(tmp_path: Path) -> None:
    write_queue(tmp_path / "there", [unit(offset) for offset in range(4)])
    (wrong,) = Job(2, 3, 4).run(tmp_path)
    assert (wrong.contradicted, wrong.first_contradicted) == (1, 3000)


def test_a_file_of_another_size_is_not_continued(tmp_path: Path) -> None:
    write_queue(tmp_path / "there", [unit(0)])
    (file,) = (tmp_path / "there").rglob("0???*")
    file.write_bytes(unit(0))
    assert [file.state for file in Job(0, 2, 1).run(tmp_path)] == [NEW]


@given(st.sets(st.integers(0, 14), min_size=1))
def test_the_offsets_that_no_message_has(taken: set[int]) -> None:
    queue = range(min(taken), max(taken) + 1)
    runs = [
        Run("orders", 0, offset // UNITS_PER_FILE, 1000 * offset, offset, 1, unit(offset), queue.start, queue.stop, 0)
        for offset in sorted(taken)
    ]
    with tempfile.TemporaryDirectory() as name:
        written = list(QueueWriter(Location.resolve(name), None, FILE_SIZE, 0, False).write(runs))
    ranges = missing_ranges(written, UNITS_PER_FILE)
    assert [offset for one in ranges for offset in one] == sorted(set(queue) - taken)
    assert all(before.stop < after.start for before, after in pairwise(ranges))


def test_what_is_said_of_them() -> None:
    assert missing_text([range(3, 4)], 1) == "queue offset 3 has no message"
    assert missing_text([range(3, 5), range(9, 10)], 3) == "queue offsets 3 to 4, 9 have no message (3 in all)"
    many = [range(start, start + 1) for start in range(0, 40, 2)]
    assert missing_text(many, 30).endswith("16, 18 and 20 more have no message (30 in all)")
