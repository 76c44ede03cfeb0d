from __future__ import annotations

import pytest

from spark_mq.cli.main import main
from tests.support.said import Run, Said


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process."""

    def run(*words: object, status: int = 0) -> Said:
        assert main([*map(str, words)]) == status, capsys.readouterr().err
        return Said(*capsys.readouterr())

    return run
