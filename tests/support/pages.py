"""What README.md and the pages of docs/ say: their tables, their lines of shell, and their blocks of Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.stores import PROJECT

PAGES = (PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md")))
"""README.md first: a command that several pages have runs where README has it."""

_TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
_FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_OPTION = re.compile(r"--[a-z][a-z-]*")
_NAME = re.compile(r"`([a-zA-Z_]+)`")


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    """Every block of a language, with its page."""
    for page, text in _TEXTS.items():
        yield from ((page, block) for name, block in _FENCE.findall(text) if name == language)


def shell_lines() -> list[str]:
    """Every command of a shell block in one line, without its comment."""
    lines = [line for _, block in blocks("sh") for line in block.replace("\\\n", "").splitlines()]
    return [re.sub(r"\s+#\s.*", "", line) for line in lines if line.strip()]


def table_rows(first_cell: str, page: str | None = None) -> list[list[str]]:
    """The cells of the rows of a table, by the first cell of its header.

    Args:
        first_cell: The text of the cell, which may go on into the next cells.
        page: The name of the page in docs/; by default, exactly one page has the table.

    """
    header = f"\n| {first_cell} |"
    texts = [text for path, text in _TEXTS.items() if header in text and page in (None, path.name)]
    assert [text.count(header) for text in texts] == [1], f"{first_cell}: {len(texts)} pages have this table"
    rows = []
    for row in texts[0].split(header)[1].splitlines()[2:]:
        if not row.startswith("|"):
            break
        rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]])
    return rows


def documented_options(command: str) -> set[str]:
    """The options in the table of a command."""
    return {option for cells in table_rows(f"argument of `spark-mq {command}`") for option in _OPTION.findall(cells[0])}


def documented_point_options() -> dict[str, str]:
    """The options of the commands without Spark, each with the text that names its commands."""
    return {option: cells[1] for cells in table_rows("argument | of") for option in _OPTION.findall(cells[0])}


def names_in(cell: str) -> list[str]:
    """The names that a cell has in backquotes: of tables, or of options of the data source."""
    return _NAME.findall(cell)
