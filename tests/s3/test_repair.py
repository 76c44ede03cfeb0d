"""A repair whose files go to S3: the bytes of a repair into a folder of the local disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

from spark_mq.errors import OptionError, OutputExistsError
from spark_mq.repairer import repair
from spark_mq.repairer.new_files import NewFiles
from tests.s3.proxy import ERRORS, Fault, Proxy, every_20th
from tests.support.repaired import repair_here
from tests.support.stores import OWN_STORES, RealStore, Unpack, tree_of
from tests.support.verified import Bench

pytestmark = pytest.mark.s3

STALE = RealStore("stale-533", OWN_STORES)
CONF = STALE.broker_conf


@pytest.fixture(scope="module")
def damaged(
    unpacked: Unpack, uploaded: Callable[[Path, str], str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """A store with old records, a wrong unit, a wrong entry and a short checkpoint: its path and its URI."""
    folder = shutil.copytree(unpacked(STALE), tmp_path_factory.mktemp("damaged") / "store")
    bench = Bench(STALE, folder)
    queue = next(path for path in sorted((folder / "consumequeue").rglob("0*")) if path.is_file())
    bench.flip(str(queue.relative_to(folder)), 26)
    bench.flip(bench.index_file(0), bench.entry(3))
    os.truncate(folder / "checkpoint", 100)
    return folder, uploaded(folder, "damaged-stale")


@pytest.mark.parametrize("faults", [(), (*ERRORS, Fault.CUT_BODY)], ids=["no faults", "faults"])
def test_new_files_on_s3_are_those_of_the_local_disk(
    faults: tuple[Fault, ...], damaged: tuple[Path, str], bucket: Path, s3: Proxy, tmp_path: Path
) -> None:
    here, there = damaged
    expected = repair_here(here, CONF, tmp_path / "x", apply=True)
    if faults:
        s3.fault_of = every_20th(*faults)
    report = repair_here(there, CONF, "s3://made/x", apply=True)
    assert tree_of(bucket / "x") == tree_of(tmp_path / "x")
    assert {name.split("/")[0] for name in tree_of(bucket / "x")} == {
        "checkpoint",
        "commitlog",
        "consumequeue",
        "index",
    }
    assert report.actions == expected.actions
    assert s3.faults > 5 or not faults


def test_a_killed_repair_is_begun_again(damaged: tuple[Path, str], bucket: Path, tmp_path: Path) -> None:
    here, there = damaged
    repair_here(here, CONF, tmp_path / "x", apply=True)
    with (
        mock.patch.object(repair, "discard_folder"),
        mock.patch.object(NewFiles, "_checkpoint", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        repair_here(there, CONF, "s3://made/x", apply=True)
    assert len(tree_of(bucket / "x")) > 2
    assert (bucket / "x" / ".spark_mq" / "unfinished.json").is_file()
    (bucket / "x" / "index" / "of another plan").write_bytes(b"1")
    repair_here(there, CONF, "s3://made/x", apply=True)
    assert tree_of(bucket / "x") == tree_of(tmp_path / "x")


def test_a_repair_that_fails_leaves_nothing(damaged: tuple[Path, str], bucket: Path) -> None:
    with mock.patch.object(NewFiles, "_checkpoint", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        repair_here(damaged[1], CONF, "s3://made/x", apply=True)
    assert tree_of(bucket) == {}


def test_a_store_on_s3_is_not_changed_in_place(damaged: tuple[Path, str], bucket: Path) -> None:
    with pytest.raises(OptionError, match="give --output"):
        repair_here(damaged[1], CONF, apply=True)
    (bucket / "x").mkdir()
    (bucket / "x" / "file").write_bytes(b"1")
    with pytest.raises(OutputExistsError, match="is not empty"):
        repair_here(damaged[1], CONF, "s3://made/x", apply=True)
