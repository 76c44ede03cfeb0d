"""What `spark-mq archive` says of arguments that it cannot work with, before a JVM starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from spark_mq.archive.maintenance import MaintenanceReport
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_UNDERSTOOD
from spark_mq.cli.main import main
from spark_mq.errors import SparkMqError
from tests.support.stores import OWN_STORES, RealStore, stores_in

STORE = stores_in(OWN_STORES)[0]


@pytest.mark.parametrize(
    ("status", "words", "message"),
    [
        (NOT_UNDERSTOOD, ["STORE", "lake.messages"], "--checkpoint"),
        (NOT_UNDERSTOOD, ["STORE", "no table"], "is not a table"),
        (FAILED, ["/no/such/store", "/lake/messages"], "/no/such/store"),
        (NOT_UNDERSTOOD, ["STORE", "/lake/messages", "--max-bytes", "much"], "--max-bytes"),
        (NOT_UNDERSTOOD, ["STORE", "/lake/messages", "--broker-conf", "/no/such/file"], "/no/such/file"),
        (FAILED, ["STORE", "/dev/null/messages"], "/dev/null/messages cannot be written"),
        (FAILED, ["STORE", "/proc/messages"], "/proc/messages cannot be written"),
        (FAILED, ["STORE", __file__], f"{__file__} cannot be written"),
        (FAILED, ["STORE", "lake.messages", "--checkpoint", __file__], f"{__file__} cannot be written"),
    ],
)
def test_a_wrong_argument_is_named(
    status: int,
    words: list[str],
    message: str,
    unpacked: Callable[[RealStore], Path],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spark_mq.cli.archive.spark_session", lambda *_: pytest.fail("a JVM was started"))
    store = str(unpacked(STORE))
    assert main(["archive", *(store if word == "STORE" else word for word in words)]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_a_filesystem_that_spark_lacks_is_named(
    unpacked: Callable[[RealStore], Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = 'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"'

    @contextmanager
    def session(*_: object) -> Iterator[None]:
        raise SparkMqError(error)
        yield

    monkeypatch.setattr("spark_mq.cli.archive.spark_session", session)
    for words in (["archive", str(unpacked(STORE)), "s3://lake/messages"], ["maintain-archive", "s3://lake/messages"]):
        assert main(words) == FAILED
        (line,) = capsys.readouterr().err.splitlines()
        assert "s3://lake/messages: this Spark has no filesystem for s3" in line
        assert "hadoop-aws" in line


@pytest.mark.parametrize(("words", "is_dry_run"), [([], True), (["--dry-run"], True), (["--apply"], False)])
def test_maintenance_is_a_dry_run_unless_apply_is_given(
    words: list[str], is_dry_run: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def maintain(*_: object, dry_run: bool, **__: object) -> MaintenanceReport:
        asked.append(dry_run)
        return MaintenanceReport(dry_run)

    monkeypatch.setattr("spark_mq.cli.archive.spark_session", lambda *_: nullcontext())
    monkeypatch.setattr("spark_mq.archive.maintenance.maintain", maintain)
    assert main(["maintain-archive", "/lake/messages", "--keep-days", "30", *words]) == FOUND
    assert asked == [is_dry_run]
    assert ("--apply" in capsys.readouterr().out) == is_dry_run


@pytest.mark.parametrize(
    "words",
    [
        ["archive"],
        ["archive", "/s"],
        ["maintain-archive"],
        ["maintain-archive", "/t", "--apply", "--dry-run"],
        ["archive", "/s", "/t", "--x"],
    ],
)
def test_missing_and_unknown_arguments_are_not_understood(words: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        main(words)
    assert error.value.code == NOT_UNDERSTOOD
