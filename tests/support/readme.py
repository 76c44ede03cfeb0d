"""What README.md says of the commands: its tables of arguments, and its lines of shell."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.stores import PROJECT

TEXT = (PROJECT / "README.md").read_text()
_FENCE = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"--[a-z][a-z-]*")


def shell_lines() -> list[str]:
    """Every command of a shell block in one line, without its comment."""
    lines = [line for block in _FENCE.findall(TEXT) for line in block.replace("\\\n", "").splitlines()]
    return [re.sub(r"\s+#\s.*", "", line) for line in lines if line.strip()]


def table_rows(first_cell: str) -> Iterator[list[str]]:
    """The cells of the rows of a table, by the first cell of its header."""
    rows = TEXT.split(f"\n| {first_cell} |")[1].splitlines()[2:]
    for row in rows:
        if not row.startswith("|"):
            return
        yield [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def documented_options(command: str) -> set[str]:
    """The options in the table of a command."""
    return {option for cells in table_rows(f"argument of `spark-mq {command}`") for option in _OPTION.findall(cells[0])}


def documented_point_options() -> dict[str, str]:
    """The options of the commands without Spark, each with the text that names its commands."""
    return {option: cells[1] for cells in table_rows("argument | of") for option in _OPTION.findall(cells[0])}
