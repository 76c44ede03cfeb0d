"""The list of commands agrees with their modules, and a command imports only its own one."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.cli.commands import _MODULES, commands_of, parser, parser_for
from tests.support.stores import OWN_STORES, RealStore, stores_in

HEAVY = ("numba", "pandas", "pyspark", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet")


def commands_in(program: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return dict(next(action.choices for action in program._actions if isinstance(action, argparse._SubParsersAction)))


@pytest.mark.parametrize("module", _MODULES)
def test_a_module_adds_the_commands_of_the_list(module: str) -> None:
    assert tuple(commands_in(parser([module]))) == tuple(commands_of(module))


def test_arguments_of_a_command_need_only_its_parser(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(commands_in(parser_for(["state", "/data/store"]))) == ["state"]
    everything = list(commands_in(parser()))
    assert list(commands_in(parser_for([]))) == list(commands_in(parser_for(["--help"]))) == everything
    with pytest.raises(SystemExit, match="2"):
        parser_for(["stat"]).parse_args(["stat"])
    error = capsys.readouterr().err
    assert all(f"'{command}'" in error for command in everything)


def imported_by(*arguments: str) -> set[str]:
    code = "import sys; from spark_mq.cli.entry import run\ntry: run()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout
    return set(done.stderr.split())


def test_the_version_the_help_and_the_state_need_few_imports(unpacked: Callable[[RealStore], Path]) -> None:
    store = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
    assert not {"pyarrow", "spark_mq.cli.state"} & imported_by("--version")
    assert not {*HEAVY, "spark_mq.store.message_store"} & imported_by("--help")
    assert not {*HEAVY, "spark_mq.cli.verify"} & imported_by(
        "state", "--quick", str(unpacked(store)), "--broker-conf", ""
    )
