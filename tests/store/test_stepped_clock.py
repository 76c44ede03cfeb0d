"""Logs of real brokers whose clock stepped back: each record is read, and no record counts as stale.

The times of the messages are changed in the log, and in the checkpoint as a broker would write them.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from random import Random

import pytest

from spark_mq.format.record import BORN_HOST_V6_FLAG
from spark_mq.io.location import Location
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.live_end import LiveEndFinder
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.verifier.log_bounds import log_end_findings
from tests.support.readers import by_splits, limited_reads, offsets_of
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, RealStore, segment_files

STORES = [RealStore(name, OWN_STORES) for name in ("workload-533", "workload-49x", "stale-533")]
SEEDS = cases(range(4), range(60))
_STORE_TIMESTAMP_AT = 56
"""Without the 12 bytes that an address of the producer has more by IPv6."""


def step_back(store: RealStore, folder: Path, random: Random) -> tuple[list[int], int]:
    """Set the clock back at some records, for good.

    Returns the new times of all messages, in the order of the log, and that of a message just before a step.
    """
    facts, back, times = sorted(store.facts("msg"), key=lambda fact: int(fact["offset"])), 0, []
    steps = set(random.sample(range(1, len(facts)), random.choice((1, 2, len(facts) // 3))))
    files = segment_files(folder)
    for number, fact in enumerate(facts):
        if number in steps:
            back += random.choice((1, 40, 6_000, 3_600_000))
        times.append(int(fact["storeTimestamp"]) - back)
        file = max(file for file in files if int(file.name) <= fact["offset"])
        with file.open("r+b") as stream:
            born_v6 = 12 * bool(int(fact["sysFlag"]) & BORN_HOST_V6_FLAG)
            stream.seek(int(fact["offset"]) - int(file.name) + _STORE_TIMESTAMP_AT + born_v6)
            stream.write(struct.pack(">q", times[-1]))
    return times, times[random.choice(sorted(steps)) - 1]


@pytest.mark.parametrize("stop", ["flushed", "a flush before the end", "killed", "without a checkpoint"])
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("store", STORES, ids=str)
def test_a_log_is_read_to_its_end(store: RealStore, seed: int, stop: str, tmp_path: Path) -> None:
    random = Random(seed)
    folder = store.unpack(tmp_path)
    times, before_step = step_back(store, folder, random)
    if stop == "killed":
        (folder / "checkpoint").write_bytes(Checkpoint(0, random.choice(times)).encode())
        (folder / "abort").write_text("4711")
        newest = max(int(fact["storeTimestamp"]) for fact in store.facts("msg"))
        # A start after all stale records, or else one just before the clock was set back.
        started = newest if store.name == "stale-533" else before_step
        os.utime(folder / "abort", (started / 1e3,) * 2)
    elif stop == "without a checkpoint":
        (folder / "checkpoint").unlink()
    else:
        flushed = times[-1] if stop == "flushed" else before_step
        (folder / "checkpoint").write_bytes(Checkpoint(flushed, times[-1]).encode())
    expected, (said,) = sorted(int(fact["offset"]) for fact in store.facts("msg")), store.facts("store")
    log = CommitLog.open(Location.resolve(str(folder)))
    with limited_reads(5000):
        assert offsets_of(by_splits(log, 30_000)) == expected
    assert LiveEndFinder(Location.resolve(str(folder))).find_now() == said["maxPhyOffset"]
    if store.name != "stale-533":
        assert not list(log_end_findings(log.segments[-1], said["maxPhyOffset"], lambda: False))
