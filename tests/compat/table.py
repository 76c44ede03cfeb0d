"""A table of results that a command writes into a file of the documentation, between two marks."""

from __future__ import annotations

import re
from pathlib import Path


def table_line(*cells: str) -> str:
    """One line of the table."""
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def table_head(*cells: str) -> list[str]:
    """The first two lines of the table."""
    return [table_line(*cells), table_line(*["---"] * len(cells))]


def write_table(file: Path, command: str, lines: list[str]) -> None:
    """Put the table of a command of the Makefile in place of what is between its marks.

    Args:
        file: The file.
        command: The command, which both marks name.
        lines: The lines of the table.

    Raises:
        SystemExit: The file does not have the marks.

    """
    marks = (f"<!-- {command}: written by make {command} -->\n", f"<!-- /{command} -->\n")
    start, stop = map(re.escape, marks)
    text = file.read_text(encoding="utf-8")
    written, count = re.subn(
        f"(?s)({start}).*({stop})", lambda found: found[1] + "\n".join(lines) + "\n" + found[2], text
    )
    if count != 1:
        raise SystemExit(f"{file} does not have the marks {marks}")
    file.write_text(written, encoding="utf-8")
