"""Which files are deleted: against all units of the queues, and on damaged stores."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq import MessageStore
from spark_mq.errors import CorruptLogError
from spark_mq.expirer import ExpirePlan, expire, plan_expiry
from spark_mq.store.expiry import old_files
from tests.support.rocksdb import ROCKS
from tests.support.stores import STORES, Unpack

NAMES = ("workload-533", "workload-49x", "deleted-533")
UNIT = struct.Struct(">qiq")
HEADER = struct.Struct(">qqqqii")
PRE_BLANK = 0x7FFFFFFF


def units_of(file: Path) -> Iterator[tuple[int, int]]:
    """Offset and size of the units of messages."""
    for offset, size, _ in UNIT.iter_unpack(file.read_bytes()):
        if size > 0 and size != PRE_BLANK:
            yield offset, size


class Oracle:
    """What a store has in each file, read without the package: the judge of a plan."""

    def __init__(self, store: Path, log_end: int) -> None:
        self.segments = {int(path.name): path.stat().st_size for path in sorted((store / "commitlog").iterdir())}
        self.newest = max(base for base in self.segments if base < log_end)
        self.queues = {
            str(queue.relative_to(store)): [
                (file.name, max((offset for offset, _ in units_of(file)), default=-1))
                for file in sorted(queue.iterdir())
            ]
            for queue in sorted((store / "consumequeue").glob("*/*"))
        }
        self.index = [
            (file.name, HEADER.unpack(file.read_bytes()[:40])[3]) for file in sorted((store / "index").iterdir())
        ]

    def expected(self, gone: list[int]) -> list[list[str]]:
        """The files of a plan that deletes these segments: segments, queue files in any order, index files."""
        start = min(base for base in self.segments if base not in gone)
        queue_files = []
        for queue, files in self.queues.items():
            for name, largest in files[:-1]:
                if largest >= start:
                    break
                queue_files.append(f"{queue}/{name}")
        index = []
        for name, end in self.index[:-1]:
            if end >= start:
                break
            index.append(f"index/{name}")
        return [[f"commitlog/{base:020d}" for base in gone], queue_files, index]


@pytest.fixture(scope="module")
def oracles(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Oracle, MessageStore]]:
    """Gives a copy of a store by name, the times of whose segments a test may change."""

    @cache
    def oracle(name: str) -> tuple[Oracle, MessageStore]:
        folder = Path(shutil.copytree(unpacked(STORES[name]), tmp_path_factory.mktemp(name) / "store"))
        store = MessageStore(str(folder))
        return Oracle(folder, store.get_max_phy_offset()), store

    return oracle


def trees_of(plan: ExpirePlan) -> list[list[str]]:
    trees = ("commitlog", "consumequeue", "index")
    order = [trees.index(file.tree) for file in plan.files]
    assert order == sorted(order), "not in the broker's order"
    return [[file.path for file in plan.files if file.tree == tree] for tree in trees]


@given(st.sampled_from(NAMES), st.integers(0, 1 << 20))
def test_by_offset(oracles: Callable[[str], tuple[Oracle, MessageStore]], name: str, min_offset: int) -> None:
    oracle, store = oracles(name)
    min_offset = min(min_offset, store.get_max_phy_offset())
    plan = plan_expiry(store, min_offset)
    gone = [base for base, size in oracle.segments.items() if base + size <= min_offset and base < oracle.newest]
    assert trees_of(plan) == oracle.expected(gone)
    assert plan.problems == ()
    assert all(file.size == (store.location / file.path).info().size for file in plan.files)


@given(st.data())
def test_by_time(oracles: Callable[[str], tuple[Oracle, MessageStore]], data: st.DataObject) -> None:
    """Whatever the times of the files are, the newest segment stays, and the log has no gap."""
    oracle, store = oracles(data.draw(st.sampled_from(NAMES)))
    bases = list(oracle.segments)
    for base in bases:
        changed = data.draw(st.integers(1, 12)) * 1000
        os.utime(Path(store.location.path, "commitlog", f"{base:020d}"), (changed, changed))
    reserved, now = data.draw(st.integers(0, 5)) * 1000, data.draw(st.integers(0, 20)) * 1000
    gone = []
    for base in bases:
        changed = round(Path(store.location.path, "commitlog", f"{base:020d}").stat().st_mtime * 1000)
        if base == oracle.newest or now < changed + reserved:
            break
        gone.append(base)
    assert trees_of(plan_expiry(store, reserved=reserved, at=now)) == oracle.expected(gone)


@pytest.fixture
def workload(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORES["workload-533"]), tmp_path / "store"))


def plan_of(store: Path, min_offset: int = 524_288) -> ExpirePlan:
    with MessageStore(str(store)) as opened:
        return plan_expiry(opened, min_offset)


def queue_files(plan: ExpirePlan, queue: str) -> list[str]:
    return [file.path.rpartition("/")[2] for file in plan.files if file.path.startswith(f"consumequeue/{queue}/")]


ALL = ["00000000000000000000", "00000000000000002000"]
QUEUE = "user_activity/0"
"""A queue that has messages in the last segment, and two files before its newest."""


def test_the_queue_of_the_next_tests(workload: Path) -> None:
    assert queue_files(plan_of(workload), QUEUE) == ALL


def write_units(file: Path, first: int, units: bytes) -> None:
    with file.open("r+b") as opened:
        opened.seek(first * UNIT.size)
        opened.write(units)


def test_a_file_without_a_last_unit_is_kept_with_all_after_it(workload: Path) -> None:
    write_units(workload / "consumequeue" / QUEUE / ALL[0], 99, bytes(20))
    plan = plan_of(workload)
    assert queue_files(plan, QUEUE) == []
    assert [problem for problem in plan.problems if f"{QUEUE}/{ALL[0]} does not end with a unit" in problem]


def test_a_file_that_has_a_live_unit_out_of_order_is_kept(workload: Path) -> None:
    write_units(workload / "consumequeue" / QUEUE / ALL[1], 5, UNIT.pack(530_000, 100, 0))
    plan = plan_of(workload)
    assert queue_files(plan, QUEUE) == ALL[:1]
    assert [problem for problem in plan.problems if f"{QUEUE}/{ALL[1]} has a unit of the message at" in problem]


@pytest.mark.parametrize(("last", "expected"), [(500_000, ALL), (530_000, [])])
def test_a_file_that_ends_with_pre_blank_units(workload: Path, last: int, expected: list[str]) -> None:
    """`rebuild --mode permissive` writes them for messages that are lost. What is before them decides."""
    write_units(workload / "consumequeue" / QUEUE / ALL[0], 98, UNIT.pack(last, 100, 0) + UNIT.pack(0, PRE_BLANK, 0))
    assert queue_files(plan_of(workload), QUEUE) == expected
    with MessageStore(str(workload)) as store:
        (file,) = (file for file in old_files(store)[0] if file.path.endswith(f"{QUEUE}/{ALL[0]}"))
    assert file.release_offset == last


def test_files_that_end_with_the_first_message_that_is_kept(workload: Path) -> None:
    file = sorted((workload / "index").iterdir())[2]
    with file.open("r+b") as opened:
        opened.write(HEADER.pack(1, 2, 50, 524_288, 96, 500))
    write_units(workload / "consumequeue" / QUEUE / ALL[1], 99, UNIT.pack(524_288, 100, 0))
    plan = plan_of(workload)
    assert queue_files(plan, QUEUE) == ALL[:1]
    assert len([file for file in plan.files if file.tree == "index"]) == 2
    assert [problem for problem in plan.problems if QUEUE in problem] == []


def test_the_newest_index_file_stays_even_if_it_is_old(workload: Path) -> None:
    files = sorted((workload / "index").iterdir())
    for file in files[2:]:
        file.unlink()
    assert [file.path for file in plan_of(workload).files if file.tree == "index"] == [f"index/{files[0].name}"]


def test_a_hole_between_files(workload: Path) -> None:
    (workload / "consumequeue" / QUEUE / ALL[1]).unlink()
    plan = plan_of(workload)
    assert queue_files(plan, QUEUE) == []
    assert [problem for problem in plan.problems if "where the next file begins" in problem]


def test_a_stale_file_is_not_the_newest_of_its_queue(workload: Path) -> None:
    """The next boot deletes such a file. If the file before it were gone, the queue would begin again at 0."""
    newest = sorted((workload / "consumequeue" / "DirectTopic" / "0").iterdir())[-1]
    units = [UNIT.pack(offset, 100, 0) for offset, _ in list(units_of(newest))[:1]] * 100
    newest.write_bytes(b"".join(units))
    stale = newest.with_name(f"{int(newest.name) + 2000:020d}")
    stale.write_bytes((UNIT.pack(10**9, 100, 0)).ljust(2000, b"\0"))
    assert queue_files(plan_of(workload), "DirectTopic/0") == []
    stale.write_bytes(bytes(2000))  # a file that was just created counts, and keeps the queue's offsets
    assert queue_files(plan_of(workload), "DirectTopic/0") == [newest.name]


@pytest.mark.parametrize(
    "header",
    [bytes(40), HEADER.pack(1, 2, 50, 20, 96, 500), HEADER.pack(1, 2, 0, 20, 0, 1), HEADER.pack(1, 2, -5, 20, 96, 500)],
)
def test_a_damaged_header_keeps_the_index_from_there_on(workload: Path, header: bytes) -> None:
    files = sorted((workload / "index").iterdir())
    with files[2].open("r+b") as file:
        file.write(header)
    plan = plan_of(workload)
    assert [file.path for file in plan.files if file.tree == "index"] == [f"index/{file.name}" for file in files[:2]]
    assert [problem for problem in plan.problems if f"index/{files[2].name} has a damaged header" in problem]


def test_index_files_whose_names_are_not_in_order_are_kept(workload: Path) -> None:
    """A clock that was set back gives the newer file the older name."""
    files = sorted((workload / "index").iterdir())
    files[2].rename(files[2].with_name("20000101000000000"))
    plan = plan_of(workload)
    assert [file.path for file in plan.files if file.tree == "index"] == ["index/20000101000000000"]
    assert [problem for problem in plan.problems if f"index/{files[0].name} ends before the file before it" in problem]


def test_a_log_with_a_file_that_is_not_a_segment(workload: Path) -> None:
    (workload / "commitlog" / f"{77:020d}").write_bytes(b"\1" * 131_072)
    with pytest.raises(CorruptLogError, match="move it out of"):
        plan_of(workload)


def test_queues_in_rocksdb_stay_and_begin_later(tmp_path: Path) -> None:
    """A broker deletes units from the database itself, and finds the first one of the log when it is asked."""
    store, start = ROCKS.unpack(tmp_path), 131_072
    before = {file.name: file.read_bytes() for file in (store / "consumequeue").iterdir()}
    *old, _ = sorted((store / "index").iterdir())
    index = [f"index/{file.name}" for file in old if HEADER.unpack(file.read_bytes()[:40])[3] < start]
    report = expire(str(store), min_offset=start, apply=True, even_if_unread=True)
    assert [file.path for file in report.files] == [f"commitlog/{0:020d}", *index]
    assert [problem for problem in report.problems if "RocksDB database" in problem]
    assert {file.name: file.read_bytes() for file in (store / "consumequeue").iterdir()} == before
    first: dict[tuple[str, int], int] = {}
    for fact in ROCKS.facts("msg"):
        if fact["offset"] >= start and fact["sysFlag"] & 0xC in (0, 8):
            first.setdefault((fact["topic"], fact["queueId"]), fact["queueOffset"])
    with MessageStore(str(store), broker_conf=str(ROCKS.broker_conf)) as opened:
        for fact in ROCKS.facts("queue"):
            queue = fact["topic"], fact["queueId"]
            assert opened.get_min_offset_in_queue(*queue) == first.get(queue, fact["max"]), queue


def test_segments_created_in_advance_do_not_make_the_last_one_old(workload: Path) -> None:
    """Their names are later, but the newest segment of a broker is the one with the last message."""
    segments = sorted((workload / "commitlog").iterdir())
    for number in (1, 2):
        (workload / "commitlog" / f"{int(segments[-1].name) + number * 131_072:020d}").write_bytes(bytes(131_072))
    with MessageStore(str(workload)) as store:
        plan = plan_expiry(store, at=1 << 60)
    assert trees_of(plan)[0] == [f"commitlog/{segment.name}" for segment in segments[:-1]]


def test_a_log_without_a_message(tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    assert plan_of(tmp_path / "store", 0).files == ()
    (tmp_path / "store" / "commitlog" / f"{0:020d}").write_bytes(bytes(1 << 16))
    assert plan_of(tmp_path / "store", 0).files == ()
