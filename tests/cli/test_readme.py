"""What README.md says of the commands is what they do: its arguments, and each of its commands as it is printed."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.cli.main import parser
from tests.support.readme import documented_options, documented_point_options, shell_lines
from tests.support.stores import OWN_STORES, PROJECT, RealStore, stores_in

STORE = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
COMMANDS = next(action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
WITH_TABLE = ("sql", "rebuild", "archive", "maintain-archive")
TABLES = ("segments", "queues", "topics", "lag")
POINT_COMMANDS = (*(name for name in COMMANDS if name.startswith(("query-by", "print"))), *TABLES)
NOT_RUN = re.compile(r"pip install|completion bash >|HOST|=/data/dev$|--help$")
"""Lines that change the machine, need a server or a terminal; each form is tested elsewhere."""


def options_of(command: str) -> set[str]:
    """The long options of a command, as `argparse` knows them."""
    return {text for action in COMMANDS[command]._actions for text in action.option_strings if text[:2] == "--"} - {
        "--help"
    }


@pytest.mark.parametrize("command", WITH_TABLE)
def test_a_table_has_the_options_of_its_command(command: str) -> None:
    assert documented_options(command) == options_of(command)


@pytest.mark.parametrize("command", POINT_COMMANDS)
def test_the_table_of_commands_without_spark_has_their_options(command: str) -> None:
    def is_of(commands: str) -> bool:
        names = re.findall(r"`([a-z.-]+)`", commands)
        is_named = any(command == name or (name.startswith("-") and command.endswith(name)) for name in names)
        is_of_queries = "query-by-..." in names and command.startswith("query-by")
        return commands == "all" or is_named or is_of_queries or ("tables" in commands and command in TABLES)

    said = {option for option, commands in documented_point_options().items() if is_of(commands)}
    assert said == options_of(command)


def test_every_command_of_the_readme_can_be_parsed() -> None:
    lines = [line for line in shell_lines() if re.match(r"(SPARK_REMOTE=\S+ )?spark-mq ", line)]
    assert len(lines) > 5
    for line in lines:
        words = shlex.split(line.partition(" > ")[0].partition("spark-mq ")[2])
        if words != ["--help"]:
            parser().parse_args(words)


@pytest.mark.cluster
def test_every_command_of_the_readme_runs_as_printed(unpacked: Callable[[RealStore], Path], tmp_path: Path) -> None:
    """With the folders of a store that is here. The archive is made first: the page has it after a query of it."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "spark-mq").write_text(f'#!/bin/sh\nexec {sys.executable} -m spark_mq "$@"\n')
    (programs / "spark-mq").chmod(0o755)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(PROJECT),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_MQ_BROKER_CONF": str(STORE.broker_conf),
    }
    names = {"/data/store": str(unpacked(STORE)), "/data/": f"{tmp_path}/", "/lake/": f"{tmp_path}/lake/"}
    lines = [line for line in shell_lines() if not NOT_RUN.search(line)]
    lines.sort(key=lambda line: "jobs/archive.py" not in line)
    assert [line for line in lines if line.startswith(("spark-mq rebuild", "spark-submit", "spark-sql"))]
    for line in lines:
        for name, here in names.items():
            line = line.replace(name, here)
        done = subprocess.run(
            ["bash", "-c", line], cwd=PROJECT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        assert "Traceback" not in done.stderr, line
