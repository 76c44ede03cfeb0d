"""Reports of jobs on a terminal, and anywhere else."""

from __future__ import annotations

import pytest

from spark_mq.cli.output.terminal import print_report

REPORT = """\
index of /data/store rebuilt in /data/out
  index           3,932 entries in 8 files
  assumed         index files: 5,000,000 slots (the default; nothing in the store tells)
  replaced files  are in /data/a-rather-long-path/without-any-space/in-it: remove it\
"""


@pytest.fixture
def width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr("spark_mq.cli.output.terminal.is_terminal", lambda: True)


def test_a_file_gets_every_row_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT)
    assert capsys.readouterr().out == f"{REPORT}\n"


@pytest.mark.usefixtures("width")
def test_a_terminal_gets_long_rows_below_their_beginning(capsys: pytest.CaptureFixture[str]) -> None:
    print_report(REPORT)
    assert capsys.readouterr().out.splitlines() == [
        "index of /data/store rebuilt in /data/out",
        "  index           3,932 entries in 8 files",
        "  assumed         index files: 5,000,000 slots",
        "                  (the default; nothing in the",
        "                  store tells)",
        "  replaced files  are in",
        "                  /data/a-rather-long-path/without-any-space/in-it:",
        "                  remove it",
    ]


@pytest.mark.usefixtures("width")
def test_json_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"notes": ["' + "word " * 30 + '"]}'
    print_report(text)
    assert capsys.readouterr().out == f"{text}\n"
