"""Whether stdout is a terminal, how wide it is; reports on stdout, and lines on stderr."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from spark_mq.cli.output.value_text import visible

_NAME = re.compile(r"  [a-z ]+?  +(?=\S)")
"""The beginning of a line of a report: the name of a row, which at least two spaces follow."""


def say(text: str) -> None:
    """Print a line on stderr; control characters are escapes."""
    print(f"spark-mq: {visible(text)}", file=sys.stderr)


def print_answer(
    as_json: bool, fields: Callable[[], str | Mapping[str, Any]], lines: Callable[[], str | Iterable[str]]
) -> None:
    """Print a report as one JSON object, or as lines for a person; names ending in `timestamp` are times in JSON."""
    import json

    from spark_mq.cli.output.json_lines import with_times

    found = fields() if as_json else lines()
    if isinstance(found, Mapping):
        found = json.dumps(with_times(found), ensure_ascii=False)
    print_report(found if isinstance(found, str) else "\n".join(visible(line) for line in found))
    sys.stdout.flush()


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
