"""A quick check says sound only of what it looked at; `tests/store/test_boot_losses.py` has lost messages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.verifier.quick import quick_check
from tests.support.stores import WORKLOAD, RealStore, Unpack, usual_stores


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_a_store_without_its_index_is_not_sound(store: RealStore, unpacked: Unpack, tmp_path: Path) -> None:
    folder, conf = tmp_path / "store", BrokerConf.of(str(store.broker_conf))
    shutil.copytree(unpacked(store), folder)
    _, before = quick_check(str(folder), conf)
    is_killed = store.name.startswith(("killed", "abort"))
    assert ("INDEX_LAGS" in before["code"].to_pylist()) is is_killed
    shutil.rmtree(folder / "index")
    report, found = quick_check(str(folder), conf)
    assert "INDEX_MISSING" in found["code"].to_pylist()
    assert not report.is_sound
    for setting in ("messageIndexEnable=false", "indexFileWriteEnable=false"):
        disabled = tmp_path / "broker.conf"
        disabled.write_text(f"{store.broker_conf.read_text()}\n{setting}\n")
        _, found = quick_check(str(folder), BrokerConf.of(str(disabled)))
        assert "INDEX_MISSING" not in found["code"].to_pylist(), setting


def test_names_that_are_not_in_order_hide_no_entry(unpacked: Unpack, tmp_path: Path) -> None:
    """A clock that was set back gives the newest file the oldest name, and an end time before its begin time."""
    folder = Path(shutil.copytree(unpacked(WORKLOAD), tmp_path / "store"))
    newest = max((folder / "index").iterdir())
    header = newest.read_bytes()[:16]
    with newest.open("r+b") as file:
        file.write(header[8:] + header[:8])
    newest.rename(newest.with_name("20000101000000000"))
    report, _ = quick_check(str(folder), BrokerConf.of(str(WORKLOAD.broker_conf)))
    assert "INDEX_ORDER" in report.counts
    assert "INDEX_LAGS" not in report.counts
