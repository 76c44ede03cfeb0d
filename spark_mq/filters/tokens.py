"""The tokens of a SQL92 expression (`SelectorParser.jj`@5.3.3), read one at a time, and expressions of tags.

RocketMQ's parser stops after the first whole expression and one more token. So text after that is never read, even if
it has no tokens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from spark_mq.errors import FilterError

ALL = "*"
_SEPARATOR = "||"
_SPACE = "".join(map(chr, range(0x21)))
"""What `String.trim` removes."""
END, STRING, FLOAT, DECIMAL, NAME, SYMBOL = "end", "string", "float", "decimal", "name", "symbol"
_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*(?:\r\n|\n|\r)|/\*[^*]*\*(?:\*|[^*/][^*]*\*)*/)+")
_TOKEN = re.compile(
    r"(?P<string>'[^']*(?:''[^']*)*')"
    r"|(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<decimal>0|[1-9][0-9]*[lL]?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<symbol><>|<=|>=|[=<>(),+-])"
)
_MOST_SHOWN = 200
_WORDS = frozenset(("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"))
_SEARCH_WORDS = frozenset(("CONTAINS", "STARTSWITH", "ENDSWITH"))


def parse_tags(text: str | None) -> frozenset[str] | None:
    """The tags that a subscription names; None for all messages.

    A text with blank tags only matches no message.

    Raises:
        FilterError: The text consists of `||` only.

    Example:
        >>> sorted(parse_tags("paid || shipped"))
        ['paid', 'shipped']
    """
    if not text or text == ALL:
        return None
    pieces = text.split(_SEPARATOR)
    if not any(pieces):
        raise refusal(text, 0, "it names no tag: give one, or several as 'a || b', or * for all messages")
    return frozenset(filter(None, (piece.strip(_SPACE) for piece in pieces)))


@dataclass(frozen=True)
class Token:
    """A token. `kind` is the symbol, the keyword in upper case, or one of the constants of this module."""

    kind: str
    text: str
    start: int


def refusal(text: str, position: int, reason: str) -> FilterError:
    """The error of an expression; characters of `text` are counted from 0."""
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    place = f"column {column}" if line == 1 else f"line {line}, column {column}"
    shown = text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
    error = FilterError(f"filter {shown!r}: {place}: {reason}")
    error.position = position
    return error


class Tokens:
    """The tokens of a text; `has_search` says whether CONTAINS, STARTSWITH and ENDSWITH are keywords."""

    def __init__(self, text: str, *, has_search: bool) -> None:
        self.text = text
        self._words = _WORDS | _SEARCH_WORDS if has_search else _WORDS
        self._position = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token, which stays the next one.

        Raises:
            FilterError: No token starts there.
        """
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next token."""
        token = self.peek()
        self._next = None
        return token

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self.text, self._position)
        start = skipped.end() if skipped else self._position
        if start == len(self.text):
            return Token(END, "", start)
        match = _TOKEN.match(self.text, start)
        if match is None:
            raise refusal(self.text, start, f"{self.text[start]!r} starts no token")
        self._position = match.end()
        text, kind = match[0], str(match.lastgroup)
        if kind == SYMBOL:
            return Token(text, text, start)
        upper = text.upper()
        return Token(upper if kind == NAME and upper in self._words else kind, text, start)
