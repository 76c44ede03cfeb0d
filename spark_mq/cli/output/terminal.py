"""Whether stdout is a terminal, how wide it is; reports and trees of lines on stdout, and lines on stderr."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_mq.cli.output.value_text import visible

_DRAWN, _PLAIN = ("├─ ", "└─ ", "│  "), ("+- ", "`- ", "|  ")
_BLANK = "   "
_LEAST_WIDTH = 40
"""The least room of a text; in a narrower one, lines are longer than the terminal."""
_NAME = re.compile(r"  [a-z ]+?  +(?=\S)")
"""The beginning of a line of a report: the name of a row, which at least two spaces follow."""


@dataclass
class Node:
    """A line of a tree, and the lines below it."""

    text: str
    children: list[Node] = field(default_factory=list)

    def add(self, text: str) -> Node:
        """Add a line below this one."""
        child = Node(text)
        self.children.append(child)
        return child


def print_tree(root: Node) -> None:
    """Print a tree. On a terminal, long texts continue below their beginning; control characters are escapes."""
    width = terminal_width()
    for line in tree_lines(root, width, _DRAWN if _can_print("".join(_DRAWN)) else _PLAIN):
        print(line)


def tree_lines(root: Node, width: int | None, marks: Sequence[str] = _DRAWN) -> Iterator[str]:
    r"""The lines of a tree."""
    yield from _wrapped(root.text, "", "", width)
    # Not recursive: the depth of a tree is that of a store's data.
    waiting = [(child, "", child is root.children[-1]) for child in reversed(root.children)]
    while waiting:
        node, before, is_last = waiting.pop()
        below = before + (_BLANK if is_last else marks[2])
        more = below + (marks[2] if node.children else "")
        yield from _wrapped(node.text, before + marks[1 if is_last else 0], more, width)
        waiting += [(child, below, child is node.children[-1]) for child in reversed(node.children)]


def _wrapped(text: str, first: str, following: str, width: int | None) -> list[str]:
    text = visible(text)
    if width is None or len(first) + len(text) <= width:
        return [first + text]
    room = max(width - len(following), _LEAST_WIDTH)
    lines = textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [first + lines[0], *(following + line for line in lines[1:])]


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def say(text: str) -> None:
    """Print a line on stderr; control characters are escapes."""
    print(f"spark-mq: {visible(text)}", file=sys.stderr)


def print_answer(
    as_json: bool, fields: Callable[[], str | Mapping[str, Any]], lines: Callable[[], str | Iterable[str]]
) -> None:
    """Print a report as one JSON object, or as lines for a person; names ending in `timestamp` are times in JSON."""
    import json

    from spark_mq.cli.output.value_text import with_times

    found = fields() if as_json else lines()
    if isinstance(found, Mapping):
        found = json.dumps(with_times(found), ensure_ascii=False)
    try:
        print_report(found if isinstance(found, str) else "\n".join(visible(line) for line in found))
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()


def discard_stdout() -> None:
    """Let what is printed from now on go nowhere: the reader of stdout, such as `head`, has what it wanted."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
