"""What the pages say of the commands' arguments is what they have. Their commands run in `tests/cluster`."""

from __future__ import annotations

import argparse
import re
import shlex

import pytest

from spark_mq.cli.arguments import place_stores_file
from spark_mq.cli.exit_status import statuses_table
from spark_mq.cli.main import parser
from spark_mq.tables.all_tables import COMMANDS as TABLE_COMMANDS
from tests.support.pages import documented_options, documented_point_options, shell_lines
from tests.support.stores import PROJECT

COMMANDS = next(action.choices for action in parser()._actions if isinstance(action, argparse._SubParsersAction))
WITH_TABLE = (
    "sql",
    "rebuild",
    "verify",
    "repair",
    "archive",
    "maintain-archive",
    "restore",
    "check",
    "state",
    "recover",
    "retention",
    "expire",
    "life",
    "why-not-consumed",
    "allocate",
    "resend",
    "consume-directly",
)
TABLES = tuple(TABLE_COMMANDS)
POINT_COMMANDS = (*(name for name in COMMANDS if name.startswith(("query-by", "print"))), *TABLES)


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


def test_every_command_of_the_pages_can_be_parsed() -> None:
    lines = [line for line in shell_lines() if re.match(r"(SPARK_REMOTE=\S+ )?spark-mq ", line)]
    assert len(lines) > 30
    for line in lines:
        words = shlex.split(line.partition(" > ")[0].partition("spark-mq ")[2])
        if words != ["--help"]:
            parser().parse_args(place_stores_file(words))


def test_the_page_of_commands_has_the_exit_statuses() -> None:
    assert "\n".join(["", *statuses_table(), ""]) in (PROJECT / "docs" / "commands.md").read_text(encoding="utf-8")
