"""The commands of `spark-mq`: their names, and the parser of their arguments.

A command waits for the imports of its own module only: the modules of all commands take longer than most of them run.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module

from spark_mq import __version__

_MODULES: Mapping[str, tuple[str, ...]] = {
    "verify": ("verify",),
    "repair": ("repair",),
    "rebuild": ("rebuild",),
    "archive.command": ("archive", "maintain-archive"),
    "restore": ("restore",),
    "messages.query_by_id": ("query-by-id",),
    "messages.query_by_key": ("query-by-key",),
    "messages.query_by_unique_key": ("query-by-unique-key",),
    "messages.query_by_offset": ("query-by-offset",),
    "messages.print_message": ("print-message",),
    "life": ("life",),
    "why_not_consumed": ("why-not-consumed",),
    "tables": (),
    "check": ("check",),
    "state": ("state",),
    "recover": ("recover",),
    "retention": ("retention",),
    "expire": ("expire",),
    "allocate": ("allocate",),
    "sql.command": ("sql",),
    "paths": ("paths",),
    "compile": ("compile",),
    "completion": ("completion",),
}
"""The modules of the commands, in the order of `spark-mq --help`.

A module of one command has a function `add_command`, a module of several commands `add_commands`. Each sets `run`, a
function of the parsed arguments. The commands of `tables` are those that the tables declare.
"""


def commands_of(module: str) -> tuple[str, ...]:
    """The commands of a module."""
    if module == "tables":
        from spark_mq.tables.all_tables import COMMANDS

        return tuple(COMMANDS)
    return _MODULES[module]


def parser(modules: Sequence[str] = tuple(_MODULES)) -> argparse.ArgumentParser:
    """The parser of the commands.

    Args:
        modules: The modules whose commands it knows; by default all.
    """
    program = argparse.ArgumentParser(
        prog="spark-mq", description="Apache RocketMQ message stores, without a broker.", allow_abbrev=False
    )
    program.add_argument("--version", action="version", version=f"spark-mq {__version__}")
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for name in modules:
        module = import_module(f"spark_mq.cli.{name}")
        add = module.add_command if len(_MODULES[name]) == 1 else module.add_commands
        add(commands)
    return program


def parser_for(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """The parser that these arguments need: of their command, or if they do not begin with one, of all commands."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return parser(())
    found = [name for name, commands in _MODULES.items() if first in commands]
    return parser(found or (["tables"] if first in commands_of("tables") else tuple(_MODULES)))
