"""A tree of lines, for a person."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spark_mq.cli.output.terminal import terminal_width
from spark_mq.cli.output.value_text import visible

_DRAWN, _PLAIN = ("├─ ", "└─ ", "│  "), ("+- ", "`- ", "|  ")
_BLANK = "   "
_LEAST_WIDTH = 40
"""The least room of a text; in a narrower one, lines are longer than the terminal."""


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
