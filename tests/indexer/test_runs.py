"""Which queues the runs of splits belong to, and which task writes them. No Spark here."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.indexer import queue_runs
from spark_mq.indexer.queue_plan import QueuePlan
from spark_mq.indexer.queue_runs import StagedQueue, find_queues
from spark_mq.indexer.staged_files import RUN_SCHEMA
from tests.support.rebuilt import rebuild_here
from tests.support.stores import WORKLOAD, Unpack, tree_of
from tests.support.verified import check

UNITS_PER_FILE = 10
Run = tuple[str, int, int, int, int]
"""Topic, queue id, first queue offset, number of units, commit log offset."""

runs = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "\u4e2d"]),
        st.integers(0, 2),
        st.integers(0, 90),
        st.integers(1, UNITS_PER_FILE),
        st.integers(0, 1000),
    ),
    min_size=1,
    max_size=12,
)


def table(rows: list[Run]) -> pa.Table:
    columns = {
        "topic": [row[0] for row in rows],
        "queue_id": [row[1] for row in rows],
        "file_number": [row[2] // UNITS_PER_FILE for row in rows],
        "first_queue_offset": [row[2] for row in rows],
        "unit_count": [row[3] for row in rows],
        "commit_log_offset": [row[4] for row in rows],
        "last_store_timestamp": [0] * len(rows),
    }
    return pa.table(columns, schema=RUN_SCHEMA)


def expected_queues(rows: list[Run]) -> dict[tuple[str, int], tuple[int, int, int, int]]:
    queues = {}
    for key in {row[:2] for row in rows}:
        own = [row for row in rows if row[:2] == key]
        stop, units = max(row[2] + row[3] for row in own), sum(row[3] for row in own)
        queues[key] = (min(row[2] for row in own), stop, units, min(row[4] for row in own))
    return queues


@given(runs, st.integers(1, 11))
def test_queues_of_parts_are_merged(rows: list[Run], size: int) -> None:
    parts = [find_queues(table(rows[start : start + size])) for start in range(0, len(rows), size)]
    merged = find_queues(pa.concat_tables(parts)).to_pylist()
    found = {tuple(queue.values())[:2]: tuple(queue.values())[2:] for queue in merged}
    assert len(merged) == len(found)
    assert found == expected_queues(rows)


@given(runs)
def test_all_runs_of_a_file_go_to_one_task(rows: list[Run]) -> None:
    left_out = rows[0][:2]
    queues = tuple(
        StagedQueue(topic, queue_id, *values, existing_end=7)
        for (topic, queue_id), values in sorted(expected_queues(rows).items())
        if (topic, queue_id) != left_out
    )
    assignment = QueuePlan(queues, UNITS_PER_FILE).assignment()
    assigned = assignment.of(table(rows)).to_pylist()
    kept = [row for row in rows if row[:2] != left_out]
    assert sorted((row["topic"], row["queue_id"], row["first_queue_offset"]) for row in assigned) == sorted(
        row[:3] for row in kept
    )
    tasks: dict[tuple[str, int, int], set[int]] = {}
    for row in assigned:
        tasks.setdefault((row["topic"], row["queue_id"], row["file_number"]), set()).add(row["task"])
        assert row["existing_end"] == 7
        assert 0 <= row["task"] < assignment.tasks
    assert all(len(numbers) == 1 for numbers in tasks.values())


@pytest.mark.parametrize("damaged", [False, True])
def test_runs_that_are_sorted_in_files_give_the_same_files(damaged: bool, unpacked: Unpack, tmp_path: Path) -> None:
    """Also where queue offsets do not follow each other, and where units of a later split come before earlier ones."""
    store = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    if damaged:
        segment = sorted((store / "commitlog").iterdir())[1]
        data = bytearray(segment.read_bytes())
        data[20_000:30_000] = bytes(10_000)
        segment.write_bytes(data)
    options: dict[str, Any] = {"mode": "permissive", "split_size": 16 << 10, "broker_conf": str(WORKLOAD.broker_conf)}
    in_memory = rebuild_here(store, tmp_path / "memory", **options)
    with (
        mock.patch.object(queue_runs, "_MAX_RUNS_IN_DRIVER", 0),
        mock.patch.object(queue_runs.LocalRuns, "read", side_effect=AssertionError),
    ):
        in_files = rebuild_here(store, tmp_path / "files", **options)
    assert tree_of(tmp_path / "files") == tree_of(tmp_path / "memory")
    assert (in_files.units, in_files.files, in_files.corrupt) == (in_memory.units, in_memory.files, in_memory.corrupt)
    if not damaged:
        assert tree_of(tmp_path / "files" / "consumequeue") == tree_of(store / "consumequeue")
    expected = check(store, WORKLOAD.broker_conf, 16 << 10)
    with mock.patch.object(queue_runs, "_MAX_RUNS_IN_DRIVER", 0):
        found = check(store, WORKLOAD.broker_conf, 16 << 10)
    assert (found[0].counts, sorted(map(str, found[1]))) == (expected[0].counts, sorted(map(str, expected[1])))
