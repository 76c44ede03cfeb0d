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


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot open it; give a store and an output that every"), (bytes(32), "sees another file there")],
    ids=["not there", "of another job"],
)
def test_another_output(content: bytes | None, said: str, check: SharedStorageCheck, work_folder: Path) -> None:
    (nonce,) = work_folder.iterdir()
    nonce.unlink()
    if content is not None:
        nonce.write_bytes(content)
    with pytest.raises(NotSharedError, match=rf"{nonce}: .* {said}"):
        check.check()


@pytest.mark.parametrize(
    ("time", "said"),
    [(None, "cannot open it"), (START + 1, "sees another file there")],
    ids=["not there", "of another broker with the same file names"],
)
def test_another_store(time: int | None, said: str, check: SharedStorageCheck, tmp_path: Path) -> None:
    (tmp_path / "store").rename(tmp_path / "elsewhere")
    if time is not None:
        write_log(tmp_path / "store", time)
    with pytest.raises(NotSharedError, match=f"{tmp_path}/store/commitlog/{4096:020d}: .* {said}"):
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
