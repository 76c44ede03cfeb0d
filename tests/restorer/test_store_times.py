"""Stores whose store times do not ascend: every row is read back, and neither a check nor a repair objects."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from spark_mq.testing import LogWriter
from tests.support.in_process import read_rows
from tests.support.repaired import repair_here
from tests.support.restored import restore_here
from tests.support.soak import cases
from tests.support.store_times import KINDS, Times, assert_whole, with_times
from tests.support.written import CONF, rows, save


@pytest.fixture
def conf(tmp_path: Path) -> str:
    """The settings of a broker with small files."""
    (tmp_path / "broker.conf").write_text(CONF)
    return str(tmp_path / "broker.conf")


@pytest.mark.parametrize("seed", cases([0], range(2)))
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
