"""`spark-mq paths` and `spark-mq completion`: what an installation gives besides the commands."""

from __future__ import annotations

import configparser
import runpy
import subprocess
from pathlib import Path

import pytest

import spark_mq
from spark_mq.cli import program as paths
from spark_mq.cli.exit_status import FAILED
from tests.support.said import Run

PROJECT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", ["conf", "jobs", "notebooks"])
def test_a_folder_is_printed_alone_for_use_in_a_shell(name: str, run: Run) -> None:
    assert run("paths", name).out == f"{PROJECT / name}\n"


def test_an_installation_without_the_files_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setattr(spark_mq, "__file__", str(tmp_path / "spark_mq" / "__init__.py"))
    monkeypatch.setattr(paths, "files", lambda name: [])
    assert "the folder conf did not come with this installation" in run("paths", "conf", status=FAILED).err


def test_the_wheel_has_every_sql_file_and_job_script() -> None:
    """The demo needs a store of the tests, so it is the one script that stays in the source tree."""
    setup = configparser.ConfigParser()
    setup.read(PROJECT / "setup.cfg")
    patterns = " ".join(setup["options.data_files"].values()).split()
    packed = {file for pattern in patterns for file in PROJECT.glob(pattern)}
    used = {*PROJECT.glob("conf/**/*.sql"), *PROJECT.glob("conf/*.conf"), *PROJECT.glob("jobs/*.py")}
    assert used - packed == {PROJECT / "jobs" / "demo.py"}


def test_bash_completes_commands_and_arguments(run: Run) -> None:
    script = run("completion", "bash").out
    ask = f"{script}\nCOMP_WORDS=(spark-mq query-by-key --chec); COMP_CWORD=2; _shtab_spark_mq; echo ${{COMPREPLY[@]}}"
    assert subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True).stdout == "--check-index\n"


@pytest.mark.parametrize("job", sorted((PROJECT / "jobs").glob("*.py")), ids=lambda job: job.stem)
def test_a_job_prints_its_help_and_does_nothing(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(job), "--help"])
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_path(str(job), run_name="__main__")
    assert "usage: " in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
