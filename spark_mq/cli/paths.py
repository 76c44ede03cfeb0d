"""`spark-mq paths`: where the SQL files, job scripts and notebooks are that come with the package."""

from __future__ import annotations

import argparse
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import spark_mq
from spark_mq.cli.exit_status import FOUND
from spark_mq.errors import SharedFilesNotFoundError

_FOLDERS = {"conf": "tables.sql", "jobs": "rebuild.py", "notebooks": "01_first_look.ipynb"}
"""The folders, each with a file that is in it."""
_SHARED = "share/spark-mq"
"""The folder of a wheel's data files (`options.data_files` in setup.cfg)."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its argument."""
    command = commands.add_parser(
        "paths",
        help="where the SQL files, job scripts and notebooks of spark-mq are",
        description="Print the folders of the files that come with spark-mq: conf (SQL files, recipes, Spark\n"
        "settings), jobs (scripts for spark-submit) and notebooks.",
        epilog='example:\n  spark-sql -i "$(spark-mq paths conf)/tables.sql" --hivevar store=/data/store\n',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = tuple(_FOLDERS)
    command.add_argument("folder", metavar="NAME", nargs="?", choices=names, help=f"only {', '.join(names)}")
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one folder, or all with their names."""
    if arguments.folder is not None:
        print(shared_folder(arguments.folder))
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
