"""Stores whose store times do not ascend: every row is read back, and neither a check nor a repair objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from tests.restorer.test_writer import conf, rows, save
from tests.support.in_process import read_rows
from tests.support.log_writer import LogWriter
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.verified import check, grave

__all__ = ["conf"]

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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_rows_with_any_store_times_are_all_read_back(
    kind: Callable[[Random], Times], seed: int, tmp_path: Path, conf: str
) -> None:
    """Written, appended, restored, and restored with new offsets: each time all of them."""
    random, store = Random(seed), tmp_path / "store"
    save(store, [with_times(rows("orders", 40), kind(random))], brokerConf=conf)
    assert_whole(store, conf, 40)
    save(store, [with_times(rows("bills", 40), kind(random))], brokerConf=conf)
    assert_whole(store, conf, 80)
    for name, is_renumbered in (("faithful", False), ("renumbered", True)):
        restore_here(store, tmp_path / name, Path(conf), renumber=is_renumbered)
        assert_whole(tmp_path / name, conf, 80)


@pytest.mark.parametrize("is_renumbered", [False, True])
@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_log_with_any_store_times_is_restored(
    is_filtered: bool, is_renumbered: bool, tmp_path: Path, conf: str
) -> None:
    """Also with those that no row without offsets can have: from the year 1 to 9999."""
    random, log = Random(is_filtered), LogWriter(1 << 16)
    for number in range(120):
        time = random.choice((-62_135_596_800_000, -1, 0, 1, 253_402_300_799_999, 1_700_000_000_000 - number))
        log.append(time, b"body of %d" % number, queue_id=number % 3)
    log.write(tmp_path / "source")

    def keep(batch: pa.RecordBatch) -> pa.RecordBatch:
        offsets = batch["queue_offset"].to_pylist()
        return batch.filter(pa.array([not is_filtered or offset % 10 != 3 for offset in offsets]))

    report = restore_here(tmp_path / "source", tmp_path / "new", Path(conf), keep, renumber=is_renumbered)
    assert report.messages == (108 if is_filtered else 120)
    if is_renumbered or not is_filtered:
        assert_whole(tmp_path / "new", conf, report.messages)
    else:
        assert len(read_rows(path=str(tmp_path / "new"), topic="T", brokerConf=conf)) == report.messages
        assert repair_here(tmp_path / "new", conf, apply=True).actions == ()
