"""The commands of the program itself: `paths`, `compile` and `completion`."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import spark_mq
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FAILED, FOUND
from spark_mq.cli.output import say
from spark_mq.errors import SharedFilesNotFoundError

_FOLDERS = {"conf": "tables.sql", "jobs": "rebuild.py", "notebooks": "01_first_look.ipynb"}
"""The folders, each with a file that is in it."""
_SHARED = "share/spark-mq"
"""The folder of a wheel's data files (`options.data_files` in setup.cfg)."""
_SHELLS = ("bash", "zsh", "tcsh")


@command(
    "paths",
    "[NAME]   only conf, jobs, notebooks",
    example="conf",
    description="""
    Print the folders of the files that come with spark-mq: conf (SQL files, recipes, Spark
    settings), jobs (scripts for spark-submit) and notebooks.
    """,
    epilog="""
    for example, in a shell:
      spark-sql -i "$(spark-mq paths conf)/tables.sql" --hivevar store=/data/store
    """,
    kinds={"name": tuple(_FOLDERS)},
)
def paths(arguments: argparse.Namespace) -> int:
    """Print one folder, or all with their names."""
    if arguments.name is not None:
        print(shared_folder(arguments.name))
        return FOUND
    for name in _FOLDERS:
        print(f"{name:<10} {shared_folder(name)}")
    return FOUND


def shared_folder(name: str) -> Path:
    """The folder `conf`, `jobs` or `notebooks`: of the source tree, or of the installed wheel."""
    witness = _FOLDERS[name]
    tree = Path(spark_mq.__file__).resolve().parent.parent
    if (tree / "setup.cfg").is_file() and (tree / name / witness).is_file():
        return tree / name
    try:
        installed = files("spark-mq") or []
    except PackageNotFoundError:  # for example from a zip file
        installed = []
    for file in installed:
        if file.as_posix().endswith(f"{_SHARED}/{name}/{witness}"):
            return Path(str(file.locate())).resolve().parent
    raise SharedFilesNotFoundError(
        f"the folder {name} did not come with this installation: pip install spark-mq, or get it from the source tree"
    )


@command(
    "compile",
    "",
    example="",
    description="""
    Compile the loops that read messages, as the first query or rebuild of a user on a machine does otherwise.

    The compiled code is kept in ~/.cache/spark-mq. NUMBA_CACHE_DIR or XDG_CACHE_HOME name another folder. Code that is
    there already is not compiled again.
    """,
)
def compile_all(arguments: argparse.Namespace) -> int:
    """Compile all kernels, and print their number, the seconds, and the folder."""
    from spark_mq.format.kernels.cache import cache_folder
    from spark_mq.format.kernels.kernel import compile_kernels

    folder = cache_folder()
    if folder is None:
        say("there is no folder for compiled code that only this user can write: set NUMBA_CACHE_DIR to one")
        return FAILED
    started = time.monotonic()
    number = compile_kernels()
    print(f"{number} kernels are compiled ({time.monotonic() - started:.1f} s): {folder}")
    return FOUND


@command(
    "completion",
    f"SHELL   {', '.join(_SHELLS)}",
    example="bash > ~/.local/share/bash-completion/completions/spark-mq",
    description="Print a script with which a shell completes the commands, arguments and paths of spark-mq.",
    epilog="""
    for zsh:
      spark-mq completion zsh > "${fpath[1]}/_spark-mq"
    """,
    kinds={"shell": _SHELLS},
)
def completion(arguments: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from spark_mq.cli.main import parser

    program = parser()
    for action in _actions(program):
        if action.metavar in ("STORE", "DIR", "TABLE"):
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.metavar == "FILE":
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(program, arguments.shell))
    return FOUND


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
