"""Trees that are rebuilt on S3 are byte for byte those on the local disk, also if jobs are killed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_mq.errors import OutputExistsError, StorageError
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from tests.s3.proxy import ERRORS, Fault, Proxy, every_20th
from tests.support.both_places import Place, Trees, rebuilt_trees
from tests.support.rebuilt import rebuild_here
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, tree_of

pytestmark = pytest.mark.s3


KILLED = RealStore("killed-49x", OWN_STORES)
TREES = ("consumequeue", "index")
_PER_FILE = 3
"""Requests for a file that is written: the file, its length, and the mark of its task."""


@pytest.fixture(scope="module")
def expected(on_s3: Place, tmp_path_factory: pytest.TempPathFactory) -> Trees:
    """The files of a rebuild on the local disk."""
    return rebuilt_trees(on_s3, tmp_path_factory)


@pytest.mark.parametrize("store", [WORKLOAD, KILLED, RealStore("filtered-533", OWN_STORES)], ids=str)
@pytest.mark.parametrize("name", ["a", "a/b c"])
def test_trees_on_s3_are_those_of_the_local_disk(
    store: RealStore, name: str, on_s3: Place, expected: Trees, bucket: Path
) -> None:
    report = rebuild_here(on_s3(store)[1], f"s3://made/{name}", broker_conf=str(store.broker_conf))
    assert tree_of(bucket / name) == expected(store)
    assert report.units > 0
    assert report.output == f"s3://made/{name}"


def test_a_file_takes_few_requests(on_s3: Place, expected: Trees, bucket: Path, s3: Proxy) -> None:
    rebuild_here(on_s3(WORKLOAD)[1], "s3://made/x", broker_conf=str(WORKLOAD.broker_conf))
    written = [request for request in s3.requests if request.method == "PUT" and request.path.startswith("/made/x/")]
    trees = [request for request in written if WORK_FOLDER not in request.path]
    assert len([request for request in trees if any(f"/{tree}/" in request.path for tree in TREES)]) == len(
        [name for name in expected(WORKLOAD) if name.startswith(TREES)]
    )
    assert len(s3.requests) <= _PER_FILE * len(expected(WORKLOAD)) + 350


@pytest.mark.parametrize("faults", [ERRORS, (Fault.CUT_BODY,)], ids=["errors", "cut bodies"])
def test_a_server_that_fails_now_and_then_changes_no_byte(
    faults: tuple[Fault, ...], on_s3: Place, expected: Trees, bucket: Path, s3: Proxy
) -> None:
    s3.fault_of = every_20th(*faults)
    rebuild_here(on_s3(KILLED)[1], "s3://made/x", broker_conf=str(KILLED.broker_conf))
    assert tree_of(bucket / "x") == expected(KILLED)
    assert s3.faults > 5


def kill_while_writing(store: str, conf: Path, **options: Any) -> None:
    """Run a rebuild that ends when all files of its trees are written, but before the commit."""
    with mock.patch.object(OutputCommitter, "commit", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        rebuild_here(store, "s3://made/x", broker_conf=str(conf), **options)


@pytest.mark.parametrize("resume", [True, False])
def test_a_killed_job_is_continued_or_leaves_nothing(resume: bool, on_s3: Place, expected: Trees, bucket: Path) -> None:
    kill_while_writing(on_s3(WORKLOAD)[1], WORKLOAD.broker_conf)
    files = sorted((bucket / "x" / "consumequeue").rglob("*0"))
    files = [file for file in files if file.is_file()]
    files[0].unlink()
    for folder in files[0].parents[:2]:
        with suppress(OSError):
            folder.rmdir()  # S3 has no empty folders
    files[1].write_bytes(b"not what the job wrote")
    stray = bucket / "x" / "consumequeue" / "Old" / "0" / "00000000000000000000"
    stray.parent.mkdir(parents=True)
    stray.write_bytes(bytes(20))
    report = rebuild_here(on_s3(WORKLOAD)[1], "s3://made/x", broker_conf=str(WORKLOAD.broker_conf), resume=resume)
    assert tree_of(bucket / "x") == expected(WORKLOAD)
    assert (report.segments_staged_before > 0) == resume


def test_a_killed_job_of_other_trees_takes_no_finished_tree_with_it(
    on_s3: Place, expected: Trees, bucket: Path
) -> None:
    _, store = on_s3(KILLED)
    rebuild_here(store, "s3://made/x", only="index", broker_conf=str(KILLED.broker_conf))
    index = tree_of(bucket / "x" / "index")
    kill_while_writing(store, KILLED.broker_conf, only="consumequeue")
    with pytest.raises(OutputExistsError, match="index exists"):
        rebuild_here(store, "s3://made/x", only="index", broker_conf=str(KILLED.broker_conf))
    rebuild_here(store, "s3://made/x", only="consumequeue", broker_conf=str(KILLED.broker_conf))
    assert tree_of(bucket / "x" / "index") == index
    files = tree_of(bucket / "x")
    assert {name for name in files if name != "checkpoint"} == {
        name for name in expected(KILLED) if name != "checkpoint"
    }


def test_trees_that_exist_are_neither_replaced_nor_continued(on_s3: Place, bucket: Path) -> None:
    _, store = on_s3(KILLED)
    rebuild_here(store, "s3://made/x", broker_conf=str(KILLED.broker_conf))
    before = tree_of(bucket)
    choices: list[dict[str, Any]] = [{}, {"replace": True}, {"resume": True}]
    for options in choices:
        with pytest.raises(OutputExistsError, match="s3://made/x/consumequeue exists"):
            rebuild_here(store, "s3://made/x", broker_conf=str(KILLED.broker_conf), **options)
    assert tree_of(bucket) == before


def test_a_bucket_that_does_not_exist_is_named(on_s3: Place, s3: Proxy) -> None:
    with pytest.raises(StorageError, match=r"^s3://no-such-bucket/x: its bucket does not exist"):
        rebuild_here(on_s3(KILLED)[1], "s3://no-such-bucket/x", broker_conf=str(KILLED.broker_conf))
    assert len(s3.requests) < 100
