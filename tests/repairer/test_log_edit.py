"""The end of a log is cut off, or a damaged range becomes a blank: what is taken out, what is refused, and the undo."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.errors import OptionError, UnsupportedStoreError
from spark_mq.repairer.changes import undo_repair
from spark_mq.repairer.log_edit import blank_range, cut_log
from tests.support.repaired import repair_here
from tests.support.stores import files_of
from tests.support.verified import Bench, check, grave

SEGMENT = 131072


def offsets(bench: Bench) -> list[int]:
    return [int(fact["offset"]) for fact in bench.messages]


def test_a_log_is_cut_repaired_and_put_back(bench: Bench) -> None:
    """After the cut and a repair, nothing of the later messages is left, and everything else is sound."""
    before = files_of(bench.path)
    offset = next(offset for offset in offsets(bench) if offset > 2 * SEGMENT + 5000)
    plan = cut_log(str(bench.path), offset)
    assert files_of(bench.path) == before
    assert [change.file for change in plan.changes] == [f"commitlog/{n * SEGMENT:020d}" for n in (4, 3, 2)]
    cut = cut_log(str(bench.path), offset, apply=True)
    assert (cut.changes, cut.start) == (plan.changes, offset)
    log = b"".join(data for name, data in sorted(files_of(bench.path).items()) if name.startswith("commitlog/"))
    assert log == b"".join(before[f"commitlog/{n * SEGMENT:020d}"] for n in range(3))[:offset].ljust(3 * SEGMENT, b"\0")
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True, offsets=True)
    assert not report.left
    checked, findings = check(bench.path, bench.packed.broker_conf)
    assert grave(findings) == []
    assert checked.messages == sum(one < offset for one in offsets(bench))
    for _ in range(2):
        undo_repair(str(bench.path))
    assert files_of(bench.path) == before


def test_the_cut_of_a_whole_segment_moves_it(bench: Bench) -> None:
    cut = cut_log(str(bench.path), 3 * SEGMENT, apply=True)
    assert sorted(path.name for path in (bench.path / "commitlog").iterdir()) == [
        f"{n * SEGMENT:020d}" for n in range(3)
    ]
    assert {change.kind for change in cut.changes} == {"move aside"}


def test_a_link_in_the_place_of_a_segment(bench: Bench, tmp_path: Path) -> None:
    """A broker of several folders of `storePathCommitLog` would still open the file to which the link leads."""
    segment = bench.path / f"commitlog/{3 * SEGMENT:020d}"
    segment.rename(tmp_path / segment.name)
    segment.symlink_to(tmp_path / segment.name)
    before = files_of(bench.path)
    with pytest.raises(UnsupportedStoreError, match=r"\(move aside\) that the broker would not see"):
        cut_log(str(bench.path), 3 * SEGMENT, apply=True)
    assert files_of(bench.path).keys() - before.keys() <= {"lock"}
    assert segment.is_symlink()


def test_a_damaged_record_becomes_a_blank(bench: Bench) -> None:
    before = files_of(bench.path)
    at = next(index for index, offset in enumerate(offsets(bench)) if offset > SEGMENT + 5000)
    start, stop = offsets(bench)[at : at + 2]
    file, position = bench.segment(start)
    bench.flip(file, position + 4)
    damaged = bench.read(file, position, stop - start)
    edit = blank_range(str(bench.path), start, stop, apply=True)
    assert bench.read(file, position, stop - start) == (stop - start).to_bytes(4, "big") + bytes.fromhex(
        "cbd43194"
    ).ljust(stop - start - 4, b"\0")
    assert edit.backup is not None
    assert (Path(edit.backup) / file).read_bytes() == damaged
    undo_repair(str(bench.path))
    bench.flip(file, position + 4)
    assert files_of(bench.path) == before


def test_what_is_refused(bench: Bench) -> None:
    before = files_of(bench.path)
    store, (first, second) = str(bench.path), offsets(bench)[:2]
    with pytest.raises(OptionError, match=f"no record starts at commit log offset {second - 3}; one starts at {first}"):
        cut_log(store, second - 3, apply=True)
    with pytest.raises(OptionError, match="the log has no such offset"):
        cut_log(store, 1 << 40, apply=True)
    with pytest.raises(OptionError, match="no record starts at commit log offset"):
        blank_range(store, first, second + 1, apply=True)
    with pytest.raises(OptionError, match="at least 8 bytes"):
        blank_range(store, first, first + 7, apply=True)
    with pytest.raises(OptionError, match="is not a range of one segment"):
        blank_range(store, first, SEGMENT + 100, apply=True)
    with pytest.raises(OptionError, match="--cut-log-at 524288 ends the log there"):
        blank_range(store, 4 * SEGMENT, 4 * SEGMENT + 200, apply=True)
    assert files_of(bench.path) == before


def test_the_live_end_is_an_end(bench: Bench) -> None:
    (fact,) = bench.packed.facts("store")
    assert cut_log(str(bench.path), int(fact["maxPhyOffset"])).changes == ()
