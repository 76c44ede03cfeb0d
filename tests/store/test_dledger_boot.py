"""What a boot does to a DLedger node: judged by what real brokers of 5.3.3 did to the same store (`tests/broker`)."""

from __future__ import annotations

import re
import shutil
import struct
from pathlib import Path

import pytest

from spark_mq.cli.exit_status import DAMAGED
from spark_mq.cli.main import main
from spark_mq.errors import UnsupportedStoreError
from spark_mq.expirer import expire
from spark_mq.store.message_store import MessageStore
from spark_mq.store.recovery import next_recovery
from spark_mq.store.retention import retention
from tests.support.boots import rows
from tests.support.dledger import CONF, STORE, heads, overwrite
from tests.support.repaired import repair_here
from tests.support.stores import Unpack
from tests.support.verified import check, grave

LOG_END = 403_297
DELAYED = [("b1-delay", 0, 400_682, 1), ("b1-delay", 1, 401_235, 2)]
"""The messages whose units a real boot cut off after a crash."""


@pytest.fixture
def store(unpacked: Unpack, tmp_path: Path) -> Path:
    return Path(shutil.copytree(unpacked(STORE), tmp_path / "store"))


def lost(store: Path) -> list[tuple[str, int, int, int]]:
    recovery = next_recovery(str(store), "5.3.3", str(CONF))
    found = rows(recovery, "lose")
    return [(row["topic"], row["queue_id"], row["commit_log_offset"], row["count"]) for row in found if row["topic"]]


def test_after_a_clean_stop_nothing_is_lost(store: Path) -> None:
    recovery = next_recovery(str(store), "5.3.3", str(CONF))
    assert (recovery.log_end, recovery.checked, recovery.is_harmless) == (LOG_END, 327, True)
    assert main(["check", str(store), "--broker-conf", str(CONF)]) == 0


def test_after_a_crash_the_units_at_the_end_are_cut_off(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`mmapFileOffset += size` leaves out the heads of entries: 89 of them in the last file, 48 bytes each."""
    (store / "abort").touch()
    recovery = next_recovery(str(store), "5.3.3", str(CONF))
    assert recovery.is_full
    assert recovery.queues_cut_at == LOG_END - 89 * 48
    assert lost(store) == DELAYED
    assert not rows(next_recovery(str(store), "5.1.4", str(CONF)), "lose")  # it does not dispatch, and does not cut
    assert main(["check", str(store), "--broker-conf", str(CONF)]) == DAMAGED
    assert f"then delete the file {store}/abort" in capsys.readouterr().out
    assert main(["state", str(store), "--broker-conf", str(CONF)]) == 0
    assert "Do not start a broker while the file abort is there" in capsys.readouterr().out


def test_messages_after_the_committed_entry_get_their_units_again(store: Path) -> None:
    (store / "abort").touch()
    checkpoint = store / "dledger-n0" / "checkpoint"
    index = heads(store)[-12][2]
    checkpoint.write_text(re.sub(r"committedIndex=\d+", f"committedIndex={index}", checkpoint.read_text()))
    assert lost(store) == []
    assert sum(row["count"] for row in rows(next_recovery(str(store), "5.3.3", str(CONF)), "complete")) == 3


@pytest.mark.parametrize("field", [8, 24, 44])
def test_dledger_ends_its_log_before_a_wrong_entry(store: Path, field: int) -> None:
    """Index, position and size of a body are checked; only the first one was tried with a broker."""
    entry = heads(store)[-9]
    overwrite(store, entry[0] + field, struct.pack(">i" if field == 44 else ">q", 99_999))
    recovery = next_recovery(str(store), "5.3.3", str(CONF))
    assert recovery.log_end == entry[0]
    assert recovery.is_full
    if field == 8:
        assert (recovery.cut_bytes, recovery.cut_messages) == (LOG_END - entry[0], 9)
        cut = {(row["topic"], row["queue_id"]): row["count"] for row in rows(recovery, "truncate") if row["topic"]}
        assert cut == {("b1-delay", 0): 1, ("b1-delay", 1): 2, ("b1timer", 0): 6}


def test_a_wrong_unit_of_dledgers_index_is_written_again(store: Path) -> None:
    entry = heads(store)[-9]
    with (store / "dledger-n0" / "index" / f"{0:020d}").open("r+b") as file:
        file.seek(32 * entry[2])
        file.write(bytes(32))
    recovery = next_recovery(str(store), "5.3.3", str(CONF))
    assert recovery.log_end == LOG_END
    assert [row["reason"] for row in rows(recovery, "complete")] == [
        f"DLedger writes its own index again, from entry {entry[2]} on"
    ]


def test_queues_and_index_are_repaired_and_the_log_is_not_touched(store: Path) -> None:
    log = {file: file.read_bytes() for file in (store / "dledger-n0").rglob("*") if file.is_file()}
    queue, (index,) = store / "consumequeue" / "b1_Main" / "1" / f"{0:020d}", (store / "index").iterdir()
    whole = {queue: queue.read_bytes(), index: index.read_bytes()}
    for file in whole:
        file.write_bytes(bytes(file.stat().st_size))
    repair_here(store, str(CONF), apply=True)
    assert {file: file.read_bytes() for file in whole} == whole
    assert {file: file.read_bytes() for file in log} == log
    assert not grave(check(store, CONF)[1])


def test_a_segment_is_kept_an_hour_longer_and_expires_by_a_plan_only(store: Path) -> None:
    kept = retention(str(store))
    assert kept.reserved_hours.value == 73
    assert kept.segments[0].expire_timestamp == kept.segments[0].modification_timestamp + 73 * 3_600_000
    assert kept.segments[0].first_store_timestamp is not None
    assert kept.disk is not None
    assert kept.disk.max_used_percent == 70
    planned = expire(str(store), min_offset=300_140)
    assert [file.path for file in planned.files] == [f"dledger-n0/data/{0:020d}"]
    with pytest.raises(UnsupportedStoreError, match="which only its broker, and `spark-mq repair --from`, change"):
        expire(str(store), min_offset=300_140, apply=True)
    (store / planned.files[0].path).unlink()  # as DLedger does it
    with MessageStore(str(store)) as opened:
        assert opened.get_min_phy_offset() == planned.new_log_start
