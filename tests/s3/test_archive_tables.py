"""An archive whose tables are on S3, against one on the local disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyarrow import fs

from spark_mq.cli.main import main
from tests.s3.proxy import ERRORS, Fault, Proxy, every
from tests.s3.server import ACCESS_KEY, LAKE, SECRET_KEY
from tests.support.both_places import Place
from tests.support.delta_rows import delta_rows
from tests.support.soak import SOAKS
from tests.support.stores import WORKLOAD, Unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.report import ArchiveReport

pytestmark = [pytest.mark.s3, pytest.mark.archive]

SUFFIXES = ("", "_keys", "_segments", "_snapshots")
_SECRET = re.compile(f"{ACCESS_KEY}|{SECRET_KEY}")
_OF_THE_RUN = ("snapshot_timestamp",)


@dataclass(frozen=True)
class Archives:
    """The archive of a store on the local disk, and that on S3: the table, a copy of its files, and its report."""

    here: Path
    there: str
    report: ArchiveReport
    server: fs.FileSystem

    def copy(self, folder: Path) -> Path:
        """The tables on S3, copied into a folder."""
        table, local = self.there.removeprefix("s3://"), fs.LocalFileSystem()
        for suffix in SUFFIXES:
            target = str(folder / f"messages{suffix}")
            fs.copy_files(f"{table}{suffix}", target, source_filesystem=self.server, destination_filesystem=local)
        return folder / "messages"


def rows(table: Path) -> dict[str, list[dict[str, Any]]]:
    """The rows of each table of an archive, without what differs from run to run."""
    found = {}
    for suffix in SUFFIXES:
        kept = [
            {name: value for name, value in row.items() if name not in _OF_THE_RUN}
            for row in delta_rows(Path(f"{table}{suffix}"))
        ]
        found[suffix] = sorted(kept, key=repr)
    return found


@pytest.fixture(scope="module")
def archives(
    delta: SparkSession, on_s3: Place, lake: fs.FileSystem, _proxy: Proxy, tmp_path_factory: pytest.TempPathFactory
) -> Archives:
    """Both archives; the server failed every seventh request, as in these files some reads never are the twentieth."""
    from spark_mq.archive.writer import archive

    store, _ = on_s3(WORKLOAD)
    table = tmp_path_factory.mktemp("archive") / "messages"
    archive(delta, store, str(table), broker="a", store_name="s")
    _proxy.reset()
    _proxy.fault_of = every(7, *ERRORS, Fault.CUT_BODY)
    settings = f"access_key={ACCESS_KEY}&secret_key={SECRET_KEY}&endpoint_override={_proxy.endpoint}&scheme=http"
    there = f"s3://{LAKE}/archive/messages"
    report = archive(delta, store, f"{there}?{settings}", broker="a", store_name="s")
    assert _proxy.faults > 20
    _proxy.reset()
    return Archives(table, there, report, lake)


def test_rows_on_s3_are_those_of_the_local_disk(archives: Archives, tmp_path: Path) -> None:
    expected = rows(archives.here)
    assert rows(archives.copy(tmp_path)) == expected
    assert len(expected[""]) == len(WORKLOAD.facts("msg")) == archives.report.rows


def doors(table: str) -> list[tuple[str, ...]]:
    """Look-ups in an archive: of messages that are there, of one that is not, and with an argument of stores."""
    facts = WORKLOAD.facts("msg")
    keyed = next(fact for fact in facts if fact["keys"] and fact["uniqKey"])
    topic, key = keyed["topic"], keyed["keys"].split()[0]
    return [
        ("query-by-id", table, *(fact["msgId"] for fact in facts[:: len(facts) // 3])),
        ("query-by-offset", table, topic, str(keyed["queueId"]), str(keyed["queueOffset"])),
        ("query-by-unique-key", table, topic, keyed["uniqKey"]),
        ("query-by-unique-key", table, keyed["uniqKey"]),
        ("query-by-key", table, topic, key),
        ("print-message", table, topic, "--last", "3"),
        ("print-message", table, topic, "--key", key),
        ("query-by-offset", table, "nothing", "0", "0"),
        ("query-by-key", table, topic, key, "--as-broker"),
    ]


@pytest.mark.parametrize("in_address", [False, True])
def test_look_ups_without_spark_are_those_of_the_local_disk(
    in_address: bool, archives: Archives, s3: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = f"access_key={ACCESS_KEY}&secret_key={SECRET_KEY}&endpoint_override={s3.endpoint}&scheme=http"
    if in_address:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
            monkeypatch.delenv(name)
    there, here = f"{archives.there}?{settings}" if in_address else archives.there, str(archives.here)
    statuses = []
    for local, remote in zip(doors(here), doors(there), strict=True):
        expected = main([*local, "--json"]), capsys.readouterr()
        found = main([*remote, "--json"]), capsys.readouterr()
        assert (found[0], found[1].out) == (expected[0], expected[1].out), local
        assert found[1].err.replace(archives.there, here) == expected[1].err
        assert not _SECRET.search(found[1].err)
        statuses.append(found[0])
    assert statuses == [0] * 7 + [3, 2]


def test_a_table_that_cannot_be_read_is_one_line(
    archives: Archives, s3: Proxy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    assert main(["query-by-key", archives.there, "OrderEvents", "x"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"spark-mq: {archives.there.replace('s3:', 's3a:')}_keys cannot be read: ")
    assert "403" in line
    assert line.isprintable()
    assert not _SECRET.search(line)


def test_nobody_sees_the_secrets(archives: Archives, delta: SparkSession, tmp_path: Path) -> None:
    archives.copy(tmp_path)
    written = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert not _SECRET.search(written.decode("latin-1"))
    assert not _SECRET.search(archives.report.to_json())
    assert not _SECRET.search(repr(delta.sql("SET -v").collect()))


@pytest.mark.skipif(not SOAKS, reason="a soak: on the local disk, tests/archive/test_archive.py has such a run")
def test_a_run_that_was_killed_before_the_end_of_its_batch_is_completed(
    archives: Archives, delta: SparkSession, on_s3: Place, s3: Proxy, tmp_path: Path
) -> None:
    """The tables have the batch, and the checkpoints do not say so: each message is there once."""
    from spark_mq.archive.writer import archive

    listed = archives.server.get_file_info(fs.FileSelector(f"{LAKE}/archive/messages_checkpoints", recursive=True))
    ends = [info.path for info in listed if info.path.endswith("/commits/0")]
    assert len(ends) == 2
    for end in ends:
        archives.server.delete_file(end)
    report = archive(delta, on_s3(WORKLOAD)[0], archives.there, broker="a", store_name="s")
    assert (report.rows, report.keys, report.segments) == (0, 0, 0)
    found = rows(archives.copy(tmp_path))
    expected = rows(archives.here)
    assert {name: found[name] for name in SUFFIXES[:3]} == {name: expected[name] for name in SUFFIXES[:3]}


def test_two_runs_do_not_write_at_the_same_time(
    delta: SparkSession, lake: fs.FileSystem, s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_mq.archive import lease as module
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.archive.lease import lease
    from spark_mq.errors import ArchiveInUseError
    from spark_mq.io.location import Location
    from spark_mq.io.publish import publish

    monkeypatch.setattr(module, "RENEWAL_SECONDS", 0.1)
    tables = ArchiveTables.of(f"s3://{LAKE}/leased/messages")
    folder = f"{LAKE}/leased/messages_checkpoints/_runs"
    with (
        lease(delta, tables),
        pytest.raises(ArchiveInUseError, match="another run writes into this archive on S3"),
        lease(delta, tables),
    ):
        pytest.fail("two runs")
    monkeypatch.setattr(module, "EXPIRY_SECONDS", 0.0)
    publish(Location.resolve(f"s3://{folder}/killed"), b"1", 1)
    with lease(delta, tables):
        (own,) = lake.get_file_info(fs.FileSelector(folder))
        assert own.base_name != "killed"
    assert not lake.get_file_info(fs.FileSelector(folder, allow_not_found=True))


def test_look_ups_and_meanings_are_those_of_the_local_archive(
    archives: Archives, delta: SparkSession, s3: Proxy
) -> None:
    from spark_mq.archive.archived_store import ArchivedStore, query_message

    fact = next(fact for fact in WORKLOAD.facts("msg") if fact["keys"])
    key = fact["keys"].split()[0]
    answers = [
        query_message(delta, table, fact["topic"], key).toArrow().sort_by("commit_log_offset").to_pylist()
        for table in (str(archives.here), archives.there)
    ]
    assert answers[0] == answers[1] != []
    here, there = (ArchivedStore.open(delta, table) for table in (str(archives.here), archives.there))
    assert there.table("retries").to_pylist() == here.table("retries").to_pylist() != []


def test_the_store_is_restored(
    archives: Archives, delta: SparkSession, s3: Proxy, unpacked: Unpack, tmp_path: Path
) -> None:
    from spark_mq.restorer.restore import restore
    from tests.support.stores import tree_of

    restore(delta, archives.there, str(tmp_path / "new"), broker_conf=str(WORKLOAD.broker_conf))
    for tree in ("commitlog", "consumequeue", "index"):
        assert tree_of(tmp_path / "new" / tree) == tree_of(unpacked(WORKLOAD) / tree)


def test_old_rows_are_deleted_and_unused_files_removed(archives: Archives, delta: SparkSession, s3: Proxy) -> None:
    """The last test: it empties the archive."""
    from spark_mq.archive.maintenance import maintain

    report = maintain(delta, archives.there, keep_days=0, optimize=False, vacuum_hours=0, dry_run=False)
    messages, keys, _, _ = report.tables
    assert (messages.expired_rows, messages.files_after) == (archives.report.rows, 0)
    assert keys.expired_rows == archives.report.keys
    assert messages.vacuumed_files > 0
    assert delta.read.format("delta").load("s3a://lake/archive/messages").count() == 0
