"""What a check says of stores that real brokers wrote is what their READMEs say: nothing of a sound one."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.support.stores import RealStore, Unpack, usual_stores
from tests.support.verified import check, grave

EXPECTED = {
    "killed-533": {"QUEUE_LAGS": 3, "INDEX_LAGS": 1},
    "killed-49x": {"QUEUE_LAGS": 2, "INDEX_LAGS": 1},
    "abort-533": {"QUEUE_LAGS": 7, "INDEX_LAGS": 1},
    "lagging-533": {"QUEUE_LAGS_CLEAN": 1},
}
"""Findings from warning up, by store. The two kinds of stale stores are told by their facts."""


@pytest.mark.parametrize("split_size", [128 << 20, 4 << 10])
@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_only_what_the_readme_says_is_found(store: RealStore, split_size: int, unpacked: Unpack) -> None:
    checked, findings = check(unpacked(store), store.broker_conf, split_size)
    found = Counter(finding.code for finding in grave(findings))
    if store.name.startswith("stale"):
        (end,) = {fact["maxPhyOffset"] for fact in store.facts("store")}
        assert set(found) == {"LOG_STALE_TAIL", "QUEUE_UNIT_STALE"}
        assert all(finding.commit_log_offset >= end for finding in grave(findings) if finding.commit_log_offset)
    else:
        assert found == EXPECTED.get(store.name, {})
    assert checked.messages == len(store.facts("msg"))


@pytest.mark.parametrize(
    ("store", "tree"),
    [(store, tree) for store in usual_stores() for tree in ("recovered", "rebuilt") if store.has(tree)],
    ids=str,
)
def test_what_a_broker_recovered_is_sound(store: RealStore, tree: str, tmp_path: Path) -> None:
    path = store.unpack(tmp_path / "store")
    for name in ("consumequeue", "index"):
        shutil.rmtree(path / name)
    shutil.copytree(store.unpack(tmp_path / "tree", tree), path, dirs_exist_ok=True)
    _, findings = check(path, store.broker_conf)
    found = {finding.code for finding in grave(findings)}
    # A rebuild by RocketMQ loses the next offsets of queues without a live message, and consumers are past them.
    assert found == ({"OFFSET_PAST_END", "DELAY_OFFSET_PAST_END"} if store.name == "deleted-533" else set())


@pytest.mark.parametrize("store", [store for store in usual_stores() if store.name == "killed-533"], ids=str)
def test_the_lag_of_a_killed_store_is_that_of_the_facts(store: RealStore, unpacked: Unpack) -> None:
    """The facts are those after the recovery: they know where each queue ends."""
    ends = {(fact["topic"], fact["queueId"]): fact["max"] for fact in store.facts("queue")}
    _, findings = check(unpacked(store), store.broker_conf)
    lags = [finding for finding in findings if finding.code == "QUEUE_LAGS"]
    for lag in lags:
        assert lag.topic is not None
        assert lag.queue_id is not None
        assert lag.expected == f"units up to queue offset {ends[lag.topic, lag.queue_id] - 1}"
