"""`spark-mq completion SHELL`: a script with which a shell completes commands, arguments and paths."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from spark_mq.cli.exit_status import FOUND

_SHELLS = ("bash", "zsh", "tcsh")
_FOLDERS = ("STORE", "DIR", "TABLE")
_FILES = ("FILE",)
_EPILOG = """\
examples:
  spark-mq completion bash > ~/.local/share/bash-completion/completions/spark-mq
  spark-mq completion zsh > "${fpath[1]}/_spark-mq"
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its argument."""
    command = commands.add_parser(
        "completion",
        help="a script that completes commands and arguments in a shell",
        description="Print a script with which a shell completes the commands, arguments and paths of spark-mq.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("shell", metavar="SHELL", choices=_SHELLS, help=", ".join(_SHELLS))
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from spark_mq.cli.commands import parser

    program = parser()
    for action in _actions(program):
        if action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar in _FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(program, arguments.shell))
    return FOUND


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of the parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
