"""A log repaired from a replica: its bytes are then those of the replica, except in records that are named."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from spark_mq import repair_from
from spark_mq.cli.exit_status import DAMAGED, FOUND, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from spark_mq.errors import NoRoomError, OptionError, StoreLockedError
from spark_mq.io.location import Location
from spark_mq.repairer.changes import undo_repair
from spark_mq.repairer.comparison import Part, PartState
from spark_mq.store.store_lock import store_lock
from tests.support.damages import body_at, flip
from tests.support.paused_process import killed, spark_mq
from tests.support.random_damages import damage_bytes
from tests.support.repaired import repair_here
from tests.support.replicas import live_end, log_of, messages_from, part_at, rewritten
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore, Unpack, files_of
from tests.support.verified import Bench, check, grave

SEGMENT = 131072
CASES = 500 if SOAKS else 60


@pytest.fixture
def replica(unpacked: Unpack) -> Path:
    return unpacked(WORKLOAD)


@pytest.fixture
def store(replica: Path, tmp_path: Path) -> Bench:
    return Bench.of(replica, WORKLOAD.name, tmp_path)


def damaged(store: Bench) -> list[int]:
    """Some damage: a body, a magic number, a segment that is lost and one that is cut; the offsets of two records."""
    found = [int(fact["offset"]) for fact in store.messages if fact["bodyLenRaw"] > 20]
    offsets = [min(offset for offset in found if offset > number * SEGMENT + 9000) for number in (0, 3)]
    flip(store, offsets[0], body_at(store, offsets[0]))
    flip(store, offsets[1], 5)
    (store.path / "commitlog" / f"{SEGMENT:020d}").unlink()
    cut = store.path / "commitlog" / f"{2 * SEGMENT:020d}"
    os.truncate(cut, 50_000)
    return offsets


def test_a_plan_a_repair_and_an_undo(store: Bench, replica: Path, capsys: pytest.CaptureFixture[str]) -> None:
    offsets = damaged(store)
    before, times = files_of(store.path), (store.path / f"commitlog/{0:020d}").stat().st_mtime_ns
    words = ["repair", str(store.path), "--from", str(replica)]
    assert main([*words, "--json"]) == FOUND
    plan = json.loads(capsys.readouterr().out)
    assert plan["verdict"] == "a plan for 4 parts of 4 segments; nothing was changed"
    assert [(change["kind"], int(change["file"][-20:])) for change in plan["changes"]] == [
        *(("replace", 0), ("create", SEGMENT), ("replace", 2 * SEGMENT), ("replace", 3 * SEGMENT))
    ]
    assert [taken["part"]["start"] for taken in plan["taken"]][::3] == offsets
    messages = [fact for fact in store.messages if SEGMENT <= fact["offset"] < 2 * SEGMENT]
    assert plan["taken"][1]["part"]["records"] == len(messages)
    assert files_of(store.path) == before
    assert main([*words, "--apply"]) == FOUND
    text = capsys.readouterr().out
    assert "verdict: 4 parts of 4 segments taken from the replica; the logs now: the same" in text
    (fact,) = (fact for fact in store.messages if fact["offset"] == offsets[0])
    assert f"message id {fact['msgId']}, unique key {fact['uniqKey']}" in text
    assert "units of this store lead to 1 of 1" in text
    assert files_of(store.path) == files_of(replica)
    assert (store.path / f"commitlog/{0:020d}").stat().st_mtime_ns // 10**6 == times // 10**6
    _, findings = check(store.path, WORKLOAD.broker_conf)
    assert grave(findings) == []
    assert main(words) == FOUND
    assert "verdict: nothing to take from the replica\n" in capsys.readouterr().out
    assert main(["repair", str(store.path), "--undo", "--apply"]) == FOUND
    assert files_of(store.path) == before


FORMS = [RealStore(name, OWN_STORES / "forms") for name in ("fBatchcq533", "fRocks550", "fLite550")]
"""Batch consume queues; queues in RocksDB; light ones in RocksDB beside files."""


@pytest.mark.parametrize(("packed", "cases"), [(WORKLOAD, CASES), *((form, CASES // 5) for form in FORMS)], ids=str)
def test_random_damages(packed: RealStore, cases: int, unpacked: Unpack, tmp_path: Path) -> None:
    """A log of random damage is that of the replica afterwards, except in the parts that the plan names."""
    replica, store = unpacked(packed), Bench(packed, tmp_path / "store")
    wanted, repaired, with_rest, size = log_of(replica), 0, 0, store.setting("mappedFileSizeCommitLog")
    last, end = max(wanted), live_end(store) % size
    chance = random.Random(7 if not SOAKS else None)
    for _ in range(cases):
        shutil.rmtree(store.path, ignore_errors=True)
        shutil.copytree(replica, store.path)
        what = [damage_bytes(store.path, chance, ("commitlog",)) for _ in range(chance.choice([1, 1, 2, 3]))]
        before = log_of(store.path)
        found = repair_from(str(store.path), str(replica), apply=True)
        after = log_of(store.path)
        assert {one.part.state for one in found.left} <= {PartState.DIFFERENT}, what
        if not found.before.has_parted:
            assert {len(data) for data in after.values()} == {size}, what
        with_rest += bool(found.left and found.changes)
        for part in (one.part for one in found.left):
            stop = size if found.before.has_parted and part == found.before.parts[-1] else part.stop % size
            put_back(after, before, wanted, part, stop or size)
        # A damage after the end of the log stays: no broker reads it.
        after[last] = after[last][:end].ljust(size, b"\0")
        assert (after, found.is_complete) == (wanted, not found.left), what
        repaired += not found.left
    assert repaired > cases / 4
    assert with_rest > 0 or packed != WORKLOAD


def put_back(log: dict[str, bytes], before: dict[str, bytes], wanted: dict[str, bytes], part: Part, stop: int) -> None:
    """Let a part of a log, which is as `before`, be as it should be."""
    name = part.file.rpartition("/")[2]
    start = part.start - int(name)
    assert log[name][start:stop] == before[name][start:stop]
    log[name] = log[name][:start] + wanted[name][start:stop] + log[name][stop:]


def test_a_record_that_differs_where_both_are_sound_stays(store: Bench, replica: Path) -> None:
    damaged(store)
    facts = [fact for fact in store.messages if fact["offset"] > 3 * SEGMENT + 30_000]
    rewritten(store, facts[0]["offset"], born_timestamp=7)
    own = log_of(store.path)[f"{3 * SEGMENT:020d}"]
    found = repair_from(str(store.path), str(replica), apply=True)
    assert (len(found.taken), len(found.changes), found.is_complete) == (4, 4, False)
    assert [one.part.start for one in found.left] == [facts[0]["offset"]]
    assert "nothing shows which one is right" in found.left[0].reason
    wanted, first, stop = log_of(replica), facts[0]["offset"] % SEGMENT, facts[1]["offset"] % SEGMENT
    right = wanted[f"{3 * SEGMENT:020d}"]
    assert log_of(store.path) == {**wanted, f"{3 * SEGMENT:020d}": right[:first] + own[first:stop] + right[stop:]}


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_log_that_parted_gives_only_what_is_before(is_cut: bool, store: Bench, replica: Path, tmp_path: Path) -> None:
    """Both were masters: the records after that point are other ones, also where this log is damaged or cut."""
    other = Bench.of(replica, WORKLOAD.name, tmp_path / "other")
    of_segment = messages_from(store, SEGMENT)
    first, cut, later, end = (int(of_segment[number]["offset"]) for number in (3, 9, 11, 30))
    part_at(other, cut)
    flip(store, first, 5)
    flip(store, later, 5)
    os.truncate(store.path / "commitlog" / f"{2 * SEGMENT:020d}", 1000)
    if is_cut:
        os.truncate(store.path / "commitlog" / f"{SEGMENT:020d}", end - SEGMENT)
    before = log_of(store.path)
    found = repair_from(str(store.path), str(other.path), apply=True)
    assert [one.part.start for one in found.left] == [*([first] if is_cut else []), cut]
    assert found.left[-1].reason.startswith("the logs part here")
    right, stop = log_of(replica)[f"{SEGMENT:020d}"], int(of_segment[4]["offset"]) - SEGMENT
    if not is_cut:
        before[f"{SEGMENT:020d}"] = right[:stop] + before[f"{SEGMENT:020d}"][stop:]
    assert log_of(store.path) == before


@pytest.mark.parametrize("is_whole_segment", [False, True])
def test_units_that_lead_elsewhere_contradict_a_record(is_whole_segment: bool, store: Bench, replica: Path) -> None:
    """The record of the replica is sound, and this store's queue says that the message was another one."""
    fact = next(fact for fact in store.messages if fact["topic"] == "OrderEvents" and fact["offset"] > SEGMENT)
    segment = int(fact["offset"]) // SEGMENT
    if is_whole_segment:
        (store.path / "commitlog" / f"{segment * SEGMENT:020d}").unlink()
    else:
        flip(store, int(fact["offset"]), 5)
    file, position = store.unit("OrderEvents", fact["queueId"], fact["queueOffset"])
    store.write(file, position, (int(fact["offset"]) + 5).to_bytes(8, "big"))
    found = repair_from(str(store.path), str(replica), apply=True)
    assert (found.taken, found.changes) == ((), ())
    assert [one.reason[:45] for one in found.left] == ["1 of its messages have units here that lead e"]
    store.write(file, position, bytes(20))  # a queue that lags contradicts nothing
    assert repair_from(str(store.path), str(replica), apply=True).is_complete
    assert log_of(store.path) == log_of(replica)
    repair_here(store.path, WORKLOAD.broker_conf, apply=True)
    assert files_of(store.path) == files_of(replica)


def test_a_replica_that_is_damaged_there_gives_what_it_can(store: Bench, replica: Path, tmp_path: Path) -> None:
    other = Bench.of(replica, WORKLOAD.name, tmp_path / "other")
    offsets = damaged(store)
    flip(other, offsets[0], 4)
    (other.path / "commitlog" / f"{SEGMENT:020d}").unlink()
    found = repair_from(str(store.path), str(other.path), apply=True)
    assert [one.part.start for one in found.left] == [offsets[0], SEGMENT]
    assert {one.part.state for one in found.left} == {PartState.BOTH_DAMAGED}
    assert not found.is_complete
    names = [f"{number * SEGMENT:020d}" for number in (2, 3)]
    assert [log_of(store.path)[name] for name in names] == [log_of(replica)[name] for name in names]


def test_a_cut_segment_is_only_made_again_whole(store: Bench, replica: Path, tmp_path: Path) -> None:
    """Zeros in the place of what is damaged in both would hide that the segment lacks something."""
    other = Bench.of(replica, WORKLOAD.name, tmp_path / "other")
    first, second = (int(messages_from(store, SEGMENT)[number]["offset"]) for number in (3, 60))
    flip(store, first, 5)
    os.truncate(store.path / "commitlog" / f"{SEGMENT:020d}", second - SEGMENT)
    flip(other, second, 5)
    before = files_of(store.path)
    found = repair_from(str(store.path), str(other.path), apply=True)
    assert [(one.part.start, one.reason[:27]) for one in found.left] == [
        (first, "the segment is only made ag"),
        (second, "the replica is damaged here"),
    ]
    assert files_of(store.path) == before


def test_a_segment_that_was_cut_after_its_records(store: Bench, replica: Path) -> None:
    """No record is lost, and no broker starts."""
    os.truncate(store.path / "commitlog" / f"{4 * SEGMENT:020d}", SEGMENT - 100)
    found = repair_from(str(store.path), str(replica), apply=True)
    assert (found.taken, [change.kind for change in found.changes]) == ((), ["replace"])
    assert log_of(store.path) == log_of(replica)


def test_the_end_of_a_log_is_only_taken_where_it_is_damaged(store: Bench, replica: Path) -> None:
    """A slave that lags is not damaged: its master sends the rest."""
    last = max(int(fact["offset"]) for fact in store.messages)
    file, at = store.segment(last)
    size = store.record(last).size
    store.write(file, at + size - 9, bytes(9))  # it was not written to its end
    assert repair_from(str(store.path), str(replica), apply=True).is_complete
    assert log_of(store.path) == log_of(replica)
    store.write(file, at, bytes(size))
    found = repair_from(str(store.path), str(replica), apply=True)
    assert (found.changes, [(only.start, only.messages) for only in found.before.replica.only]) == ((), [(last, 1)])


def test_what_the_replica_wrote_after_its_end_is_not_taken(store: Bench, replica: Path, tmp_path: Path) -> None:
    """Old bytes after the end of this log, which was lost with its last segment, do not stay there either."""
    file = store.path / "commitlog" / f"{4 * SEGMENT:020d}"
    shutil.copyfile(store.path / "commitlog" / f"{2 * SEGMENT:020d}", file)
    assert repair_from(str(store.path), str(replica), apply=True).is_complete
    assert log_of(store.path) == log_of(replica)


MOMENTS = [
    ("spark_mq.io.publish:copy_bytes", "", 3),
    ("os:link", "/commitlog/", 2),
    ("os:replace", "/.spark_mq/repair/", 5),
    ("spark_mq.repairer.changes:flush_to_disk", "", 4),
]


@pytest.mark.parametrize(("function", "text", "number"), MOMENTS)
def test_killed_at_a_moment_and_run_again(
    function: str, text: str, number: int, store: Bench, replica: Path, tmp_path: Path
) -> None:
    damaged(store)
    before, wanted = files_of(store.path), files_of(replica)
    command = spark_mq("repair", str(store.path), "--from", str(replica), "--apply")
    killed(command, f"{function}:{number}:{text}", tmp_path)
    left = files_of(store.path)
    for name in {*before, *left, *wanted}:
        assert left.get(name) in (before.get(name), wanted.get(name))
    assert repair_from(str(store.path), str(replica), apply=True).is_complete
    assert files_of(store.path) == wanted
    while list((store.path / ".spark_mq").glob("backup-*")):
        undo_repair(str(store.path))
    assert files_of(store.path) == before


def test_what_is_refused(
    store: Bench, replica: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged(store)
    before = files_of(store.path)
    with store_lock(Location.resolve(str(store.path))):
        assert not repair_from(str(store.path), str(replica)).left
        with pytest.raises(StoreLockedError):
            repair_from(str(store.path), str(replica), apply=True)
    with pytest.raises(OptionError, match="is not on a local filesystem"):
        repair_from("s3://bucket/store", str(replica))
    words = ["repair", str(store.path), "--from", str(replica)]
    for more in (["--undo"], ["--output", "/tmp/new"], ["--cut-log-at", "0"]):
        assert main([*words, *more]) == NOT_UNDERSTOOD
        assert "--from" in capsys.readouterr().err

    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spark_mq.repairer.from_replica.copy_bytes", full)
    with pytest.raises(NoRoomError, match="no file of the store has been changed"):
        repair_from(str(store.path), str(replica), apply=True)
    assert files_of(store.path) == before
    assert not (store.path / ".spark_mq").exists()
    rewritten(store, int(messages_from(store, 4 * SEGMENT)[0]["offset"]), flag=77)
    assert main(words) == DAMAGED
    assert "4 segments; nothing was changed; 1 part cannot be repaired" in capsys.readouterr().out
