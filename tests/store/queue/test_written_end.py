"""The end of a queue's units: a plain count says where it is, for sparse files of brokers and for copies of them."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_mq.format.consume_queue import UNIT_DTYPE, UNIT_SIZE
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import queue_folder

CAPACITY = 3000
counts = st.integers(0, CAPACITY) | st.sampled_from([0, 1, 127, 128, 129, 204, 205, 409, 410, 2999, 3000])


@settings(deadline=None, max_examples=60)
@given(counts, st.booleans(), st.booleans())
def test_the_end_is_after_the_last_written_unit(count: int, is_sparse: bool, is_second: bool) -> None:
    units = np.array([(100 * number, 100, number) for number in range(CAPACITY)], UNIT_DTYPE)
    with tempfile.TemporaryDirectory() as folder:
        queue_path = Path(folder, "consumequeue", "T", "0")
        queue_path.mkdir(parents=True)
        if is_second:
            (queue_path / f"{0:020d}").write_bytes(units.tobytes())
        first = CAPACITY * is_second
        with (queue_path / f"{first * UNIT_SIZE:020d}").open("wb") as stream:
            stream.write(units[:count].tobytes())
            if is_sparse:
                stream.truncate(CAPACITY * UNIT_SIZE)
            else:
                stream.write(bytes((CAPACITY - count) * UNIT_SIZE))
        found = queue_folder(Location.resolve(folder) / "consumequeue", "T", 0)
        assert found is not None
        files = FileReaders()
        queue = ConsumeQueue(found, files)
        assert queue.written_end == first + count
        assert queue.unit(first + count - 1)[1] == (100 if first + count else 0)
        assert queue.units(first, first + count).tolist() == units[:count].tolist()
        assert queue.units(first + count // 3, first + count).tolist() == units[count // 3 : count].tolist()
        files.close()


@pytest.mark.parametrize("by_halving", [True, False])
def test_the_ends_of_a_queue_follow_from_those_of_the_log(by_halving: bool, tmp_path: Path) -> None:
    (tmp_path / "consumequeue/T/0").mkdir(parents=True)
    units = np.array([(100 * number, 100, number) for number in range(10)], UNIT_DTYPE)
    (tmp_path / "consumequeue/T/0" / f"{0:020d}").write_bytes(units.tobytes())
    found = queue_folder(Location.resolve(str(tmp_path)) / "consumequeue", "T", 0)
    assert found is not None
    with closing(FileReaders()) as files:
        queue = ConsumeQueue(found, files)
        for number in range(11):
            assert queue.end_before(100 * number) == number
            assert queue.end_before(100 * number + 99) == number
        for number in range(1, 10):
            for log_start in (100 * number - 99, 100 * number):
                assert queue.min_offset(10, log_start, by_halving=by_halving) == number
        assert queue.min_offset(10, 901, by_halving=by_halving) == (10 if by_halving else 0)


def test_one_queue_is_found_as_among_all(tmp_path: Path) -> None:
    for topic, name in (("T", "1"), ("T", "01"), ("T", "x"), ("U", "2")):
        (tmp_path / topic / name).mkdir(parents=True)
        (tmp_path / topic / name / f"{0:020d}").write_bytes(bytes(20))
    store = Location.resolve(str(tmp_path))
    found = queue_folder(store, "T", 1)
    assert found is not None
    assert (found.topic, found.queue_id, found.location.name) == ("T", 1, "1")
    for topic, queue_id in (("T", 2), ("../T", 1), ("..", 1), ("", 1), ("none", 1)):
        assert queue_folder(store, topic, queue_id) is None
