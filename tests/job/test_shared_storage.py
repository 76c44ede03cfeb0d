"""Tasks that see another store or output than the driver: each stands for another machine."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from spark_mq.errors import NotSharedError
from spark_mq.io.location import Location
from spark_mq.job.tasks import SharedStorageCheck, checked_task
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.testing import LogWriter
from tests.support.stores import tree_of

START = 1_795_000_000_000
NUMBERS = pa.RecordBatch.from_pydict({"id": [1, 2]})


def write_log(folder: Path, first_time: int, records: int = 3) -> CommitLog:
    """A log of two segments, the second with `records` records."""
    log = LogWriter(segment_size=4096)
    log.append(first_time)
    log.roll()
    for number in range(records):
        log.append(first_time + number)
    return CommitLog.open(log.write(folder))


@pytest.fixture
def work_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out" / ".spark_mq"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def check(tmp_path: Path, work_folder: Path) -> SharedStorageCheck:
    return SharedStorageCheck.record(write_log(tmp_path / "store", START), Location.resolve(str(work_folder)))


def test_a_task_that_sees_the_same_begins(check: SharedStorageCheck) -> None:
    copy = pickle.loads(pickle.dumps(check))
    checked = checked_task([NUMBERS, NUMBERS], copy, lambda batches: (batch.slice(1) for batch in batches))
    assert [batch.to_pylist() for batch in checked] == [[{"id": 2}], [{"id": 2}]]


def test_nothing_is_written_to_the_store(tmp_path: Path, work_folder: Path) -> None:
    log = write_log(tmp_path / "store", START)
    before = tree_of(tmp_path / "store")
    SharedStorageCheck.record(log, Location.resolve(str(work_folder))).check()
    assert tree_of(tmp_path / "store") == before


def test_an_output_that_is_not_there(check: SharedStorageCheck, work_folder: Path) -> None:
    (nonce,) = work_folder.iterdir()
    nonce.unlink()
    with pytest.raises(NotSharedError, match=rf"{nonce}: .* cannot open it; give a store and an output that every"):
        check.check()


def test_an_output_of_another_job(check: SharedStorageCheck, work_folder: Path) -> None:
    (nonce,) = work_folder.iterdir()
    nonce.write_bytes(bytes(32))
    with pytest.raises(NotSharedError, match=rf"{nonce}: .* sees another file there"):
        check.check()


def test_a_store_that_is_not_there(check: SharedStorageCheck, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    with pytest.raises(NotSharedError, match=f"{tmp_path}/store/commitlog/{4096:020d}: .* cannot open it"):
        check.check()


def test_a_store_of_another_broker_with_the_same_file_names(check: SharedStorageCheck, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    write_log(tmp_path / "store", START + 1)
    with pytest.raises(NotSharedError, match=f"{tmp_path}/store/commitlog/{4096:020d}: .* sees another file there"):
        check.check()


def test_a_broker_may_go_on_writing(check: SharedStorageCheck, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "before")
    write_log(tmp_path / "store", START, records=20)
    check.check()


def test_a_task_does_not_begin_where_it_sees_something_else(check: SharedStorageCheck, work_folder: Path) -> None:
    begun = []

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        begun.append(True)
        yield from batches

    (nonce,) = work_folder.iterdir()
    nonce.unlink()
    with pytest.raises(NotSharedError):
        list(checked_task([NUMBERS], check, task))
    assert begun == []
