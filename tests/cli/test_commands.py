"""The list of commands agrees with their modules, and a command imports only its own one."""

from __future__ import annotations

import argparse
import inspect
import re
import shlex
import subprocess
import sys
from importlib import import_module

import pytest

from spark_mq.cli.arguments import join_relative_times
from spark_mq.cli.main import _MODULES, commands_of, parser, parser_for
from tests.support.stores import OWN_STORES, Unpack, stores_in

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
    assert "there is no command 'stat'; similar: state" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        parser_for(["xyzzy"]).parse_args(["xyzzy"])
    assert "`spark-mq --help` lists them" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["lag", "store", "--topc", "orders"], "spark-mq lag: error: there is no option --topc; similar: --topic"),
        (["lag", "store", "--topc=orders"], "there is no option --topc; similar: --topic"),
        (["lag", "store", "other"], "'other' is one argument too many"),
        (["query-by-key", "s", "t", "k", "--body", "jsn"], "'jsn' is not one of text, json, hex, base64, raw, none; "),
    ],
)
def test_a_mistyped_word_gets_what_is_similar(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parser_for(words).parse_args(words)
    assert said in capsys.readouterr().err


def test_the_help_fits_one_screen_and_has_every_command() -> None:
    lines = parser(with_arguments=False).format_help().splitlines()
    assert 24 <= len(lines) <= 40
    assert max(map(len, lines)) <= 80
    words = set(re.findall(r"[\w-]+", "\n".join(line for line in lines if line.startswith("  "))))
    assert set(commands_in(parser())) - words == set()


@pytest.mark.parametrize("command", commands_in(parser()))
def test_the_help_of_a_command_begins_with_an_example_that_it_accepts(command: str) -> None:
    first = commands_in(parser())[command].format_help().splitlines()[0]
    words = shlex.split(first.removeprefix("example: spark-mq ").partition(" > ")[0])
    assert words[0] == command
    parser_for(words).parse_args(join_relative_times(words))


@pytest.mark.parametrize("command", commands_in(parser()))
def test_the_help_of_a_command_ends_with_its_exit_statuses(command: str) -> None:
    text = " ".join(commands_in(parser())[command].format_help().split())
    said = {int(status) for status in re.findall(r"(\d+) [a-z]", text.rpartition("exit status: ")[2])}
    source = inspect.getsource(import_module(f"spark_mq.cli.{module_of(command)}"))
    assert said >= {0, 1, 2, 130}
    assert (4 in said) == ("DAMAGED" in source)
    assert (3 in said) == ("NOT_FOUND" in source or "print_found" in source)


def module_of(command: str) -> str:
    return next(module for module in _MODULES if command in commands_of(module))


def imported_by(*arguments: str) -> set[str]:
    code = "import sys; from spark_mq.cli.entry import run\ntry: run()\nfinally: print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout
    return set(done.stderr.split())


def test_the_version_the_help_and_the_state_need_few_imports(unpacked: Unpack) -> None:
    store = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
    assert not {"pyarrow", "spark_mq.cli.state"} & imported_by("--version")
    assert not {*HEAVY, "spark_mq.store.message_store"} & imported_by("--help")
    assert not {*HEAVY, "spark_mq.cli.verify"} & imported_by(
        "state", "--quick", str(unpacked(store)), "--broker-conf", ""
    )
