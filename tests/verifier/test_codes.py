"""The table of codes, and the page that is made from it."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from spark_mq.cli.main import main
from spark_mq.verifier.codes import CODES, Severity, Treatment, filled
from tests.support.stores import PROJECT

PAGE = PROJECT / "docs" / "verify.md"


def test_the_page_has_the_tables_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page, "run python -m spark_mq.verifier.codes docs/verify.md"
    assert page.count("\n### ") == len(CODES)


def test_every_code_that_a_check_uses_is_in_the_table_and_the_other_way_round() -> None:
    used = set()
    for file in (PROJECT / "spark_mq" / "verifier").glob("*.py"):
        if file.name != "codes.py":
            used |= set(re.findall(r'"([A-Z]+(?:_[A-Z]+)*)"', file.read_text(encoding="utf-8")))
    names = set(CODES)
    assert names <= used
    made = {name for name in used if name.split("_")[0] in {name.split("_")[0] for name in names}}
    assert made - names <= {"DAMAGED", "QUEUE", "INDEX"}


def test_a_repair_leaves_only_notes_because_nothing_is_needed() -> None:
    ignored = {code.severity for code in CODES.values() if code.treatment == Treatment.NOTHING}
    assert ignored == {Severity.NOTE}


def test_a_message_is_lost_only_by_an_error() -> None:
    losing = {code.severity for code in CODES.values() if "the message is lost" in code.remedy}
    assert losing == {Severity.ERROR}


@pytest.mark.parametrize("name", ["QUEUE_LAGS_CLEAN", "queue_lags_clean"])
def test_a_code_is_explained(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--explain", name]) == 0
    text = capsys.readouterr().out
    assert text.startswith("QUEUE_LAGS_CLEAN (error)")
    assert CODES["QUEUE_LAGS_CLEAN"].brokers[-1] in text


def test_all_codes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--explain", "all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(CODES)


def test_an_unknown_code_is_refused_with_a_similar_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "--explain", "QUEUE_LAG"]) == 2
    assert "QUEUE_LAGS" in capsys.readouterr().err


def test_no_store_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify"]) == 2
    assert main(["verify", str(tmp_path / "absent"), "--quick"]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_a_full_disk_is_an_error_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def write_to_a_full_disk(_: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("spark_mq.cli.verify.print_report", write_to_a_full_disk)
    assert main(["verify", "--explain", "QUEUE_LAGS_CLEAN"]) == 2
    assert "make room" in capsys.readouterr().err
