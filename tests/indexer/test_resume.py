"""`rebuild --resume`: whatever was there before, the same bytes as a rebuild from nothing, and nothing read in vain."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from spark_mq.errors import CorruptIndexError, CorruptLogError, OptionError, OutputExistsError
from spark_mq.indexer.report import RebuildReport
from spark_mq.job.output_committer import OutputCommitter
from tests.support.rebuilt import rebuild_here
from tests.support.soak import cases
from tests.support.store_history import cut_log, expire, grow_log, identities, record_ends, settings_of
from tests.support.stores import OWN_STORES, WORKLOAD, Unpack, stores_in, tree_of

Run = Callable[..., RebuildReport]
CLEARED = cases((1, 30), range(1, 51))
"""The removals at which a job is killed while it clears its folder."""
MOMENTS = ["dispatched", "written", "half-way in place"]


@pytest.fixture(scope="module")
def whole(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of the whole log, from nothing, without queues that only the store's own files know."""
    place = tmp_path_factory.mktemp("whole")
    log = cut_log(unpacked(WORKLOAD), place / "store", cut(1))
    rebuild_here(str(log), str(place / "out"), **settings_of(WORKLOAD))
    return tree_of(place / "out")


@pytest.fixture
def begun(unpacked: Unpack, tmp_path: Path) -> Path:
    """The store when its log ended in the third of its segments."""
    return cut_log(unpacked(WORKLOAD), tmp_path / "store", cut(0.6))


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Run:
    """A job on that store."""
    return partial(rebuild_here, str(begun), str(tmp_path / "out"), **settings_of(WORKLOAD))


def cut(part: float) -> int:
    """The end of the record at this part of the log."""
    ends = record_ends(WORKLOAD)
    return ends[int((len(ends) - 1) * part)]


def kill(run: Run, moment: str) -> None:
    """Run a job, and end it at a moment of which nothing cleans up behind it."""
    rename, renames = os.rename, 0

    def failing(source: str, target: str) -> None:
        nonlocal renames
        renames += 1
        if renames > 1:
            raise KeyboardInterrupt
        rename(source, target)

    patches: dict[str, AbstractContextManager[object]] = {
        "dispatched": mock.patch("spark_mq.indexer.trees.write_queues", side_effect=KeyboardInterrupt),
        "written": mock.patch.object(OutputCommitter, "commit", side_effect=KeyboardInterrupt),
        "half-way in place": mock.patch("os.rename", failing),
    }
    with patches[moment], pytest.raises(KeyboardInterrupt):
        run()


@pytest.mark.parametrize("expired", cases([2], [1, 2]))
def test_after_expiry_only_the_tail_is_built(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes], expired: int
) -> None:
    """The files that are there hold what the log does not any more, so that all is there as if nothing had gone."""
    run()
    before = identities(tmp_path / "out")
    grow_log(unpacked(WORKLOAD), begun)
    expire(begun, expired)
    run(resume=True)
    assert tree_of(tmp_path / "out") == whole
    after = identities(tmp_path / "out")
    assert {n for n in before if after[n] != before[n]} == {n for n in before if after[n][2] != before[n][2]}


def test_what_expired_before_it_was_built_is_missed(run: Run, unpacked: Unpack, begun: Path, tmp_path: Path) -> None:
    run()
    before = identities(tmp_path / "out")
    grow_log(unpacked(WORKLOAD), begun)
    expire(begun, 3)
    with pytest.raises(CorruptLogError, match=r"have neither a unit nor a message: .*--replace"):
        run(resume=True)
    assert identities(tmp_path / "out") == before


@pytest.mark.parametrize(
    ("moment", "expired"),
    cases([("dispatched", 1), ("written", 0), ("half-way in place", 1)], list(product(MOMENTS, [0, 1]))),
)
def test_killed_and_resumed_after_growth_and_expiry(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes], moment: str, expired: int
) -> None:
    """What is staged of whole segments is not read again, even if they are gone."""
    kill(run, moment)
    grow_log(unpacked(WORKLOAD), begun)
    expire(begun, expired)
    written = identities(tmp_path / "out" / ".spark_mq" / "consumequeue") if moment == "written" else {}
    report = run(resume=True)
    assert tree_of(tmp_path / "out") == whole
    assert report.segments_staged_before == 2
    assert (
        report.bytes_read <= sum(map(os.path.getsize, sorted((begun / "commitlog").iterdir())[2 - expired :])) + 16384
    )
    after = identities(tmp_path / "out" / "consumequeue")
    assert sum(after[name] == identity for name, identity in written.items()) >= len(written) // 2
    assert bool(written) == (moment == "written")


@pytest.mark.parametrize("moment", cases(["written", "half-way in place"], MOMENTS))
def test_killed_while_it_continues_files(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes], moment: str
) -> None:
    """At any moment of it what is there is the beginning of what comes."""
    run()
    grow_log(unpacked(WORKLOAD), begun, cut(0.8))
    kill(partial(run, resume=True), moment)
    kill(partial(run, resume=True), moment)
    grow_log(unpacked(WORKLOAD), begun)
    run(resume=True)
    assert tree_of(tmp_path / "out") == whole


def test_a_replacement_that_was_killed_goes_on(
    run: Run, begun: Path, tmp_path: Path, unpacked: Unpack, whole: dict[str, bytes]
) -> None:
    grow_log(unpacked(WORKLOAD), begun)
    run()
    for file in (tmp_path / "out").rglob("0???*"):
        file.write_bytes(bytes(file.stat().st_size))
    kill(partial(run, replace=True), "written")
    run(resume=True)
    (backup,) = (tmp_path / "out").glob("backup-*")
    shutil.rmtree(backup)
    assert tree_of(tmp_path / "out") == whole


def test_a_segment_that_changed_is_read_again(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    kill(run, "written")
    grow_log(unpacked(WORKLOAD), begun)
    first = min((begun / "commitlog").iterdir())
    os.utime(first)
    assert run(resume=True).segments_staged_before == 1
    assert tree_of(tmp_path / "out") == whole


@pytest.mark.parametrize(
    ("kind", "change"),
    cases(
        [("*.units", "gone"), ("*.entries", "shorter")], list(product(["*.units", "*.entries"], ["gone", "shorter"]))
    ),
)
def test_a_staged_file_that_is_not_as_it_was_begins_from_nothing(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes], kind: str, change: str
) -> None:
    """A half-cleared folder, a disk that lost a file: what the manifest names has to be there."""
    grow_log(unpacked(WORKLOAD), begun)
    kill(run, "dispatched")
    victim = max((tmp_path / "out" / ".spark_mq").rglob(kind), key=lambda file: file.stat().st_size)
    if change == "gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:-20])
    assert run(resume=True).segments_staged_before == 0
    assert tree_of(tmp_path / "out") == whole


@pytest.mark.parametrize("removal", CLEARED)
def test_killed_while_another_job_cleared_the_folder(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes], removal: int
) -> None:
    """The job is killed, the next one too, while it clears the folder of the first: the third is the same as ever."""
    grow_log(unpacked(WORKLOAD), begun)
    kill(run, "written")
    unlink, removals = os.unlink, 0

    def failing(path: str, **named: Any) -> None:
        nonlocal removals
        removals += 1
        if removals == removal:
            raise KeyboardInterrupt
        unlink(path, **named)

    with mock.patch("os.unlink", failing), pytest.raises(KeyboardInterrupt):
        run(only="index")
    assert len(list((tmp_path / "out" / ".spark_mq").iterdir())) > 1
    run(resume=True)
    assert tree_of(tmp_path / "out") == whole


def test_other_settings_begin_anew(run: Run, begun: Path, tmp_path: Path) -> None:
    kill(run, "written")
    conf = tmp_path / "broker.conf"
    conf.write_text(WORKLOAD.broker_conf.read_text().replace("ConsumeQueue=2000", "ConsumeQueue=4000"))
    assert run(resume=True, broker_conf=str(conf)).segments_staged_before == 0
    assert {len(data) for data in tree_of(tmp_path / "out" / "consumequeue").values()} == {4000}


def test_with_nothing_there_it_is_a_rebuild(
    run: Run, unpacked: Unpack, begun: Path, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    grow_log(unpacked(WORKLOAD), begun)
    report = run(resume=True)
    assert tree_of(tmp_path / "out") == whole
    assert (report.segments_staged_before, report.files_untouched, report.files_completed) == (0, 0, 0)


def test_files_of_another_store_are_refused(run: Run, begun: Path, tmp_path: Path, unpacked: Unpack) -> None:
    other = next(store for store in stores_in(OWN_STORES) if store.name == "crc-533")
    rebuild_here(str(unpacked(other)), str(tmp_path / "out"), **settings_of(other))
    before = identities(tmp_path / "out")
    for only, error in (("consumequeue", CorruptLogError), ("index", (CorruptLogError, CorruptIndexError))):
        with pytest.raises(error, match="--replace"):
            run(resume=True, only=only)
    assert identities(tmp_path / "out") == before
    assert not (tmp_path / "out" / ".spark_mq").exists()


def test_files_of_another_size_are_refused(run: Run, tmp_path: Path) -> None:
    run()
    conf = tmp_path / "broker.conf"
    conf.write_text(WORKLOAD.broker_conf.read_text().replace("ConsumeQueue=2000", "ConsumeQueue=4000"))
    with pytest.raises(OutputExistsError, match="has 2000 bytes, which cannot be continued with files of 4000"):
        run(resume=True, broker_conf=str(conf))


def test_it_is_either_resumed_or_replaced(run: Run) -> None:
    with pytest.raises(OptionError, match="--resume"):
        run(resume=True, replace=True)
