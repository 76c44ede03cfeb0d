"""Whether stdout is a terminal, how wide it is, and reports on it."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

_NAME = re.compile(r"  [a-z ]+?  +(?=\S)")
"""The beginning of a line of a report: the name of a row, which at least two spaces follow."""


def print_report(text: str) -> None:
    """Print a report, or its JSON; on a terminal, the text of a row that is too long continues below its beginning."""
    width = terminal_width()
    for line in text.splitlines():
        if width is None or len(line) <= width or line.startswith("{"):
            print(line)
            continue
        name = _NAME.match(line)
        indent = " " * (name.end() if name else 2)
        # A path is one word: it can be copied from the terminal as a whole.
        for part in textwrap.wrap(
            line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        ):
            print(part)


def is_terminal() -> bool:
    """Whether stdout is a terminal: output is for a person, not for a program or a file."""
    return sys.stdout.isatty()


def terminal_width() -> int | None:
    """The number of columns of the terminal (`COLUMNS`, if it is set); None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if is_terminal() else None
