"""The end of a queue's units: a plain count says where it is, for sparse files of brokers and for copies of them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
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
        files.close()


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
