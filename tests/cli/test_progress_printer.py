"""What a person sees of a job that runs: on a terminal, and in a log."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from spark_mq.cli.progress_printer import ProgressPrinter
from spark_mq.job.progress import StageProgress

DISPATCH = StageProgress("dispatch", 0, 32, "splits", None, 0.0)
INDEX = StageProgress("write index", 1, 8, "files", None, 0.0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        """The lines as a terminal shows them: a line that is cleared is gone."""
        return [line.rpartition("\r\033[K")[2] for line in self.getvalue().split("\n")]


def test_a_terminal_has_one_line_for_all_stages_that_run() -> None:
    terminal = Terminal()
    with ProgressPrinter(stream=terminal) as progress:
        progress.announce("starting Spark")
        assert terminal.screen() == ["starting Spark"]
        for stage in (DISPATCH, replace(DISPATCH, done=8), INDEX):
            progress(stage)
        assert terminal.screen() == ["dispatch: 8 of 32 splits; write index: 1 of 8 files"]
        progress(replace(DISPATCH, done=32, seconds=2.0, is_done=True))
        assert terminal.screen() == ["dispatch: 32 splits in 2.0 s", "write index: 1 of 8 files"]
    assert terminal.screen() == ["dispatch: 32 splits in 2.0 s", ""]  # an error message begins on a line of its own


def test_a_line_is_never_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    ProgressPrinter(stream=terminal)(DISPATCH)
    assert terminal.screen() == ["dispatch: 0 of 32 s"]


def test_a_log_has_a_line_for_each_stage_and_each_half_minute() -> None:
    log, now = io.StringIO(), 0.0
    progress = ProgressPrinter(stream=log, clock=lambda: now)
    progress.announce("starting Spark")
    for second in range(0, 70, 5):
        now = float(second)
        progress(replace(DISPATCH, done=second // 5))
    progress(replace(DISPATCH, done=32, seconds=70.0, is_done=True))
    assert log.getvalue().splitlines() == [
        "dispatch: 6 of 32 splits",
        "dispatch: 12 of 32 splits",
        "dispatch: 32 splits in 70.0 s",
    ]


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_quiet_command_prints_nothing(stream: type[io.StringIO]) -> None:
    output = stream()
    with ProgressPrinter(is_quiet=True, stream=output) as progress:
        progress.announce("starting Spark")
        progress(DISPATCH)
        progress(replace(DISPATCH, is_done=True))
    assert output.getvalue() == ""
