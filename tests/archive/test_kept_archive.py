"""An archive that an earlier state of this package wrote is read, restored and continued by today's.

`kept/archive-VERSION.tar.gz` is the archive of the store `killed-49x`. It is never made again: each release adds one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_mq import restore
from spark_mq.archive.archive_tables import ArchiveTables
from spark_mq.archive.delta_log import check_newest_commits
from spark_mq.archive.writer import archive
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.main import main
from tests.support.stores import OWN_STORES, RealStore, Unpack

pytestmark = pytest.mark.archive
STORE = RealStore("killed-49x", OWN_STORES)
KEPT = sorted((Path(__file__).parent / "kept").glob("*.tar.gz"))
END = 307_266
"""The end of the log in the archives."""


@pytest.fixture(params=KEPT, ids=lambda path: path.name)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    subprocess.run(["tar", "xzf", str(request.param), "-C", str(tmp_path)], check=True)
    return str(tmp_path / "archive")


def test_the_log_comes_back(delta: SparkSession, table: str, unpacked: Unpack) -> None:
    new = Path(table).parent / "new"
    report = restore(delta, table, str(new), broker_conf=str(STORE.broker_conf), broker_version="4.9")
    assert (report.messages, report.gaps) == (810, 0)

    def log(store: Path) -> bytes:
        return b"".join(path.read_bytes() for path in sorted((store / "commitlog").iterdir()))[:END]

    assert log(new) == log(unpacked(STORE))


def test_a_run_goes_on_where_the_archive_ends(delta: SparkSession, table: str, unpacked: Unpack) -> None:
    """The store is in another folder than it was, and its messages are those that the archive has."""
    archive(delta, str(unpacked(STORE)), table, store_name="kept")
    assert delta.read.format("delta").load(table).count() == 810


def test_a_look_up_needs_no_spark(
    table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor Python in the threads of Arrow, which made one look-up of eight end with SIGABRT after its answer."""
    monkeypatch.delattr("deltalake.fs.DeltaStorageHandler.open_input_file")
    fact = next(fact for fact in STORE.facts("msg") if fact["uniqKey"] and fact["offset"] < END)
    assert main(["query-by-unique-key", table, fact["topic"], fact["uniqKey"]]) == FOUND
    assert fact["uniqKey"] in capsys.readouterr().out


def checksums(table: str) -> dict[Path, bytes]:
    """Hadoop's checksums of the files of all tables."""
    return {path: path.read_bytes() for path in Path(table).parent.rglob(".*.crc") if "checkpoints" not in str(path)}


@pytest.mark.parametrize(
    "lost", [lambda data: b"", lambda data: bytes(len(data)), lambda data: data[:-1], lambda data: data[:-1] + b"\0\0"]
)
def test_checksums_that_a_power_loss_left_incomplete_are_removed(table: str, lost: Callable[[bytes], bytes]) -> None:
    before = checksums(table)
    check_newest_commits(ArchiveTables.of(table))
    assert checksums(table) == before
    commits = {path for path in before if path.name.endswith("0000.json.crc")}
    for path in commits:
        path.write_bytes(lost(before[path]))
    check_newest_commits(ArchiveTables.of(table))
    assert commits
    assert set(before) - set(checksums(table)) == commits
