"""What `state --quick` says of a boot is a part of what `state --full` says, on stores of brokers and crashed ones."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_mq.errors import SparkMqError
from spark_mq.store.boot import Boot
from spark_mq.store.store_state import store_state
from tests.support.crashes import CrashModel, written_messages
from tests.support.soak import SOAKS
from tests.support.stores import OWN_STORES, STORES, RealStore, Unpack

VERSIONS = ("4.9.7", "5.0.0", "5.1.0", "5.3.3", "5.4.0", "5.5.1")
OWN = [*STORES.values(), RealStore("workload-550", OWN_STORES / "versions")]
CRASHED = [STORES[name] for name in ("killed-49x", "killed-533", "stale-49x", "stale-533", "lagging-533")]
SAME = ("rules", "is_clean", "recovers_from", "deleted_index_files", "deletes_queues", "gone", "is_index_known")


def contradictions(quick: Boot, full: Boot) -> Iterator[str]:
    """What the quick look says that the whole log denies."""
    for name in SAME:
        if getattr(quick, name) != getattr(full, name):
            yield f"{name}: {getattr(quick, name)}, but {getattr(full, name)}"
    end = -1 if full.log_end is None else full.log_end  # damage before, of which a quick look does not know
    starts = {part.start for part in quick.dispatched if part.start < end}
    if starts - {part.start for part in full.dispatched}:
        yield f"dispatched: {quick.dispatched}, but {full.dispatched}"
    lacks, lacked = quick.unindexed, full.unindexed  # a file can lack entries that its header counts
    if lacks is not None and lacks.start < end and (lacked is None or lacked.start > lacks.start):
        yield f"unindexed: {lacks}, but {lacked}"
    harm = full.lost + full.shifted + full.cut_messages + full.deleted
    if quick.lost + quick.shifted > harm:
        yield f"harm: {quick.queues}, but {full.queues}"
    for name in ("revived", "damaged_bytes"):
        if getattr(quick, name) > getattr(full, name):
            yield f"{name}: {getattr(quick, name)}, but {getattr(full, name)}"
    counts = quick.cut_bytes, quick.doubled_entries, quick.rows.num_rows
    if any(counts) or {quick.log_end, quick.end_reason, quick.checked} != {None}:
        yield "it says what it cannot know"


def check(folder: Path, version: str, conf: Path) -> int:
    """Compare the boots of a store; returns the number of those that are predicted."""
    try:
        quick, full = (store_state(str(folder), version, str(conf), full=is_full) for is_full in (False, True))
    except SparkMqError:
        return 0
    pairs = zip(quick.boots + quick.forced_boots, full.boots + full.forced_boots, strict=True)
    known = [(seen, found) for seen, found in pairs if found.is_full]
    assert set(quick.obstacles) <= set(full.obstacles)
    assert [one for seen, found in known for one in contradictions(seen, found)] == []
    for _, boot in known:  # an answer does not say that the index has all messages, and that a boot leaves some out
        if boot.unindexed is not None and not boot.deleted_index_files and boot.log_end == full.log.end:
            assert full.index is not None
            assert boot.unindexed.start == full.index.covered_to
    return len(known)


@pytest.mark.parametrize("store", OWN, ids=str)
def test_a_quick_look_contradicts_nothing(store: RealStore, unpacked: Unpack) -> None:
    assert sum(check(unpacked(store), version, store.broker_conf) for version in VERSIONS)


@pytest.mark.parametrize("seed", range(300 if SOAKS else 15))
def test_a_quick_look_at_a_crashed_store_contradicts_nothing(seed: int, unpacked: Unpack, tmp_path: Path) -> None:
    store, chance = CRASHED[seed % len(CRASHED)], random.Random(f"depths {seed}")
    folder = tmp_path / "store"
    shutil.copytree(unpacked(store), folder)
    done = CrashModel(chance, written_messages(folder)).crash(folder)
    print(done)
    for version in VERSIONS if SOAKS else chance.sample(VERSIONS, 2):
        check(folder, version, store.broker_conf)
