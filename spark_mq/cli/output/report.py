"""Reports of jobs: lines of a name and a text, which a terminal shows without breaking words."""

from __future__ import annotations

import re
import textwrap

from spark_mq.cli.output.terminal import terminal_width

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
