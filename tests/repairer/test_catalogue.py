"""Each damage of the catalogue in a derived file is repaired: the files are those of the broker again."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from spark_mq.repairer.changes import undo_repair
from spark_mq.verifier.codes import CODES, Treatment
from tests.support.damages import DAMAGES, Damage
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, RealStore, Unpack, files_of
from tests.support.verified import Bench, check, grave

REPAIRED = [case for case in DAMAGES if CODES[case.code].treatment not in (Treatment.NOT_REPAIRED, Treatment.NOTHING)]
OTHER_BYTES = {
    "the_last_record": "the message is lost, and so are its unit and its entries",
    "expired_units_that_are_swapped": "their messages are gone, so one of the units becomes pre-blank",
    "the_last_index_file": "the name is that of the file's first message, not of the broker's clock",
    "the_whole_index": "the names are those of the files' first messages",
    "an_offset_past_the_end": "the offset that the group had is not known",
    "a_delay_offset_past_the_end": "the offset that the level had is not known",
}
"""Damages whose repair cannot give the broker's bytes, and why; a check of the repaired store finds nothing."""


@pytest.mark.parametrize("case", REPAIRED, ids=str)
def test_the_files_are_those_of_the_broker_again(case: Damage, unpacked: Unpack, tmp_path: Path) -> None:
    original = unpacked(RealStore(case.store, OWN_STORES))
    bench = Bench.of(original, case.store, tmp_path)
    case.do(bench)
    damaged = files_of(bench.path)
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True, offsets=True)
    assert report.left == ()
    damaged.pop("abort", None)  # that of a broker that was killed
    (bench.path / "abort").unlink(missing_ok=True)
    if case.name in OTHER_BYTES:
        _, findings = check(bench.path, bench.packed.broker_conf)
        assert grave(findings) == []
        assert files_of(bench.path) != damaged
    else:
        assert files_of(bench.path) == files_of(original)
    undo_repair(str(bench.path))
    assert files_of(bench.path) == damaged


@pytest.mark.parametrize("seed", range(200 if SOAKS else 4))
def test_several_damages_need_one_repair(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    """The report says the store is sound, the next check says the same, and an undo leaves no file and no folder."""
    bench = Bench.of(unpacked(RealStore("workload-533", OWN_STORES)), "workload-533", tmp_path)
    chance = random.Random(seed)
    cases = [case for case in REPAIRED if case.store == "workload-533" and case.name != "the_last_record"]
    for case in chance.sample(cases, chance.randint(2, 4)):
        with suppress(OSError, StopIteration, LookupError, ValueError):  # what another damage removed
            case.do(bench)
    before = paths_of(bench.path)
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True, offsets=True)
    assert report.is_complete, report.verdict
    again = repair_here(bench.path, bench.packed.broker_conf, offsets=True)
    assert again.verdict.startswith("nothing to repair: the store is sound")
    undo_repair(str(bench.path))
    assert paths_of(bench.path) == before


def paths_of(store: Path) -> list[Path]:
    return sorted(path for path in store.rglob("*") if path.name != "lock")


def test_what_is_not_compared_is_in_the_catalogue() -> None:
    assert set(OTHER_BYTES) <= {case.name for case in REPAIRED}


@pytest.mark.parametrize("case", [case for case in DAMAGES if case not in REPAIRED], ids=str)
def test_damage_of_the_log_is_left_and_named(case: Damage, unpacked: Unpack, tmp_path: Path) -> None:
    """Also what the index has of the record: it can be the only copy that is right."""
    bench = Bench.of(unpacked(RealStore(case.store, OWN_STORES)), case.store, tmp_path)
    case.do(bench)
    damaged = files_of(bench.path)
    report = repair_here(bench.path, bench.packed.broker_conf, apply=True)
    assert case.code in {left.code for left in report.left}
    assert files_of(bench.path) == damaged
    assert not report.is_applied
