"""The text of statements, as Spark's lexer divides it: strings, quoted names, comments, and the `;` between them."""

from __future__ import annotations

import re
from collections.abc import Iterator

_OPAQUE_PATTERN = r"""
    (?<!\w)[rR](?:'[^']*'|"[^"]*")                            # no escapes in a raw string
    | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`
    | --(?:\\\n|[^\r\n])*                                     # a backslash continues the comment on the next line
    | /\*(?!\+)
    """
_OPAQUE = re.compile(_OPAQUE_PATTERN, re.VERBOSE | re.DOTALL)
_END = re.compile(rf"{_OPAQUE_PATTERN} | (?P<end>;) | (?P<open>['\"`])", re.VERBOSE | re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_SPACE = re.compile(r"\s*")
_START = re.compile(r"\w+|\(")


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that end with `;`, without the `;` and without blank ones, and the text after the last `;`."""
    statements, start, position = [], 0, 0
    while (match := _END.search(text, position)) and not match["open"]:
        position = _end_of_comment(text, match.end()) if match[0] == "/*" else match.end()
        if match["end"]:
            statements.append(text[start : match.start()])
            start = position
    return [statement for statement in statements if not is_blank(statement)], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text contains only white space and comments."""
    return skip_comments(text, 0) == len(text)


def without_comments(text: str) -> str:
    """The text with a space instead of each comment."""
    pieces, position = [], 0
    for start, stop, is_comment in opaque_spans(text):
        if is_comment:
            pieces.append(text[position:start])
            position = stop
    return " ".join([*pieces, text[position:]])


def first_word(text: str) -> str:
    """The first word of a statement in upper case, or `(`; an empty text if it begins with another character."""
    start = _START.match(text, skip_comments(text, 0))
    return "" if start is None else start[0].upper()


def skip_comments(text: str, position: int) -> int:
    """The position of the first word at or after `position`; the text's length if there is none."""
    spaces = _SPACE.match(text, position)
    start = position if spaces is None else spaces.end()
    comment = next(opaque_spans(text, start), None)
    if comment is None or comment[0] > start or not comment[2]:
        return start
    return skip_comments(text, comment[1])


def opaque_spans(text: str, position: int = 0) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, whether it is a comment) of strings, quoted names and comments, as SqlBaseLexer.g4 defines them."""
    while match := _OPAQUE.search(text, position):
        position = _end_of_comment(text, match.end()) if match[0] == "/*" else match.end()
        yield match.start(), position, match[0].startswith(("--", "/*"))


def is_open_comment(comment: str) -> bool:
    """Whether a bracketed comment is not closed."""
    return sum(1 if edge[0] == "/*" else -1 for edge in _COMMENT_EDGE.finditer(comment)) > 0


def _end_of_comment(text: str, position: int) -> int:
    """The end of a bracketed comment that is open at `position`; comments nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(text)
