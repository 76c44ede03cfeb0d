"""Store times that do not ascend, and what a store with them has to be for every reader."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa

from tests.support.in_process import read_rows
from tests.support.repaired import repair_here
from tests.support.verified import check, grave

NOW = datetime(2026, 11, 21, 11, 0, tzinfo=UTC)
FIRST, LAST = datetime(1970, 1, 1, 0, 0, 0, 1000, UTC), datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)
"""The times that a message can get that was in no store."""
MILLI = timedelta(milliseconds=1)
Times = list[datetime | None]


def descending(random: Random) -> Times:
    return [NOW - number * MILLI for number in range(40)]


def permuted(random: Random) -> Times:
    return [NOW + random.randrange(-500, 500) * MILLI for _ in range(40)]


def far_apart(random: Random) -> Times:
    return [random.choice((FIRST, LAST, NOW)) for _ in range(40)]


def set_back_at_the_end(random: Random) -> Times:
    return [NOW + number * MILLI - (timedelta(seconds=5) if number >= 36 else timedelta()) for number in range(40)]


def one_step_of_a_millisecond(random: Random) -> Times:
    step = random.randrange(1, 40)
    return [NOW + (number - 2 * (number >= step)) * MILLI for number in range(40)]


def equal(random: Random) -> Times:
    return [NOW] * 40


def partly_missing(random: Random) -> Times:
    return [random.choice((None, NOW, FIRST, NOW + number * MILLI)) for number in range(40)]


KINDS = [descending, permuted, far_apart, set_back_at_the_end, one_step_of_a_millisecond, equal, partly_missing]


def with_times(batch: pa.RecordBatch, times: Times) -> pa.RecordBatch:
    return batch.append_column("store_timestamp", pa.array(times, pa.timestamp("us", "UTC")))


def assert_whole(store: Path, settings: str, count: int) -> None:
    """Every row is there for every reader, a check finds nothing, and a repair does nothing."""
    found = read_rows(path=str(store), brokerConf=settings)
    assert len(found) == count
    assert len(read_rows(path=str(store), splitSize="4k", brokerConf=settings)) == count
    by_queue: dict[tuple[str, int], list[int]] = {}
    for row in found:
        by_queue.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    assert all(offsets == list(range(len(offsets))) for offsets in by_queue.values())
    for topic in {topic for topic, _ in by_queue}:
        expected = [row for row in found if row["topic"] == topic]
        assert read_rows(path=str(store), topic=topic, brokerConf=settings) == expected
    checked, findings = check(store, settings)
    assert checked.messages == count
    assert {finding.code for finding in grave(findings)} <= {"RECORD_TIME_FAR_BACK"}
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    report = repair_here(store, settings, apply=True)
    assert report.actions == ()
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before
