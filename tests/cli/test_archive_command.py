"""`spark-mq archive` and `maintain-archive`: settings that Spark lacks, dry runs, values of arguments, and progress."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from spark_mq.archive.maintenance import MaintenanceReport
from spark_mq.archive.report import BatchProgress
from spark_mq.cli.exit_status import FAILED, NOT_UNDERSTOOD
from spark_mq.cli.progress_printer import FollowOutput
from spark_mq.errors import SparkMqError
from tests.support.said import Run
from tests.support.stores import OWN_STORES, Unpack, stores_in

STORE = stores_in(OWN_STORES)[0]


def test_a_filesystem_that_spark_lacks_is_named(unpacked: Unpack, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    error = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"'

    @contextmanager
    def session(*_: object, **_how: object) -> Iterator[None]:
        raise SparkMqError(error)
        yield

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", session)
    monkeypatch.setenv("SPARK_ENV_LOADED", "1")  # spark-submit has started the command; else it adds the package
    table = "s3a://lake/messages?access_key=me&secret_key=never-to-be-shown"
    for words in (["archive", str(unpacked(STORE)), table], ["maintain-archive", table]):
        (line,) = run(*words, status=FAILED).err.splitlines()
        assert "s3a://lake/messages: this Spark has no filesystem for s3a" in line
        assert "never-to-be-shown" not in line
        assert "hadoop-aws" in line


@pytest.mark.parametrize(("words", "is_dry_run"), [([], True), (["--dry-run"], True), (["--apply"], False)])
def test_maintenance_is_a_dry_run_unless_apply_is_given(
    words: list[str], is_dry_run: bool, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_delta_log").mkdir()
    asked = []

    def maintain(*_: object, dry_run: bool, **__: object) -> MaintenanceReport:
        asked.append(dry_run)
        return MaintenanceReport(dry_run)

    monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: nullcontext())
    monkeypatch.setattr("spark_mq.archive.maintenance.maintain", maintain)
    said = run("maintain-archive", tmp_path, "--keep-days", "30", *words)
    assert asked == [is_dry_run]
    assert ("--apply" in said.out) == is_dry_run


@pytest.mark.parametrize(("folder", "problem"), [("none", "does not exist"), (".", "is not a Delta table")])
def test_only_an_archive_is_maintained(
    folder: str, problem: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_mq.cli.spark.spark_session", lambda *_, **_how: pytest.fail("a JVM was started"))
    (line,) = run("maintain-archive", f"{tmp_path}/{folder}", status=NOT_UNDERSTOOD).err.splitlines()
    assert problem in line


class Terminal(io.StringIO):
    """A terminal that keeps what was written on it."""

    def isatty(self) -> bool:
        return True


BATCH = BatchProgress(number=1, rows=5, archived_to=900, log_end=900, seconds=1.0)


def test_a_terminal_has_one_line_that_says_since_when_nothing_is_new() -> None:
    moments = iter([1000.0, 1000.5, 1001.0, 1065.0, 1066.0, 1070.0])
    terminal = Terminal()
    output = FollowOutput(terminal, lambda: next(moments))
    for _ in range(4):
        output.print_waiting(800)
    output.print_batch(BATCH)
    output.print_waiting(900)
    output.end()
    lines = re.split("[\r\n]", terminal.getvalue().replace("\x1b[K", ""))
    since = "waiting: nothing new since 00:16:40Z"
    assert lines == [
        *("", f"{since} (0 ms), log offset 800", f"{since} (1 s), log offset 800"),
        *(f"{since} (1 min 5 s), log offset 800", f"1970-01-01T00:17:46Z {BATCH}"),
        *("", "waiting: nothing new since 00:17:50Z (0 ms), log offset 900", ""),
    ]


def test_a_log_has_a_line_every_few_minutes() -> None:
    now = 0.0
    log = io.StringIO()
    output = FollowOutput(log, lambda: now)
    for seconds in range(1000):
        now = float(seconds)
        output.print_waiting(800)
    output.end()
    assert [line.partition(" (")[2] for line in log.getvalue().splitlines()] == [
        "5 min), log offset 800",
        "10 min), log offset 800",
        "15 min), log offset 800",
    ]
