"""The text of one SQL statement, its tokens and its tree, all of one mind about where things are.

The tree comes from sqlglot's parser of Spark's dialect. It is used to find places in the text, never to write the text
anew: what Spark runs is what the user wrote, but for the names of stores' tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from spark_mq.errors import OptionError

_OPAQUE_PATTERN = r"""
    (?<!\w)[rR](?:'[^']*'|"[^"]*")                            # no escapes in a raw string
    | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`]|``)*`
    | --(?:\\\n|[^\r\n])*                                     # a backslash goes on with the comment in the next line
    | /\*(?!\+)
    """
_OPAQUE = re.compile(_OPAQUE_PATTERN, re.VERBOSE | re.DOTALL)
_END = re.compile(rf"{_OPAQUE_PATTERN} | (?P<end>;) | (?P<open>['\"`])", re.VERBOSE | re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_SPACE = re.compile(r"\s*")
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:(?:EXTENDED|FORMATTED|CODEGEN|COST|LOGICAL)\s+)?", re.IGNORECASE)
_START = re.compile(r"\w+|\(")
_READING = frozenset(("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE"))
_NEVER_ALIASES = frozenset(
    word
    for words in ("anti cross except full inner intersect join lateral", "left minus natural on right semi union using")
    for word in words.split()
)
"""Words that Spark takes for an alias nowhere (strictNonReserved of SqlBaseParser.g4 of Spark 4.2)."""


@dataclass(frozen=True)
class Statement:
    """One statement: `text` as it was given, and what the parser made of it."""

    text: str
    tokens: tuple[Token, ...]
    root: exp.Expr

    @cached_property
    def is_understood(self) -> bool:
        """Whether the parser read all of it as Spark does, so that what the tree says about rows can be relied on.

        Where it is not, names of tables can still be replaced: if one of them was misread, Spark finds no such table.
        """
        intervals = sum(token.token_type == TokenType.INTERVAL for token in self.tokens)
        return (
            _has_same_strings(self.text, self.tokens)
            and "${" not in self.text  # Spark puts a variable's text there, which can be anything
            and "|>" not in self.text  # the tree of a pipe is the parser's rewriting of it
            and intervals == len(list(self.root.find_all(exp.Interval)))  # INTERVAL 2 DAYS 3 HOURS is two
            and not any(_is_odd_alias(alias) for alias in self.root.find_all(exp.TableAlias))
        )

    def place(self, node: exp.Expr) -> tuple[int, int] | None:
        """Where the node's only token lies in the text: start and stop; None where the parser does not know."""
        if "start" not in node.meta or "end" not in node.meta:
            return None
        return node.meta["start"], node.meta["end"] + 1

    def source(self, node: exp.Expr) -> str | None:
        """The node's only token as it is written."""
        place = self.place(node)
        return None if place is None else self.text[slice(*place)]


def parse_statement(text: str) -> Statement | None:
    """Parse one statement of Spark SQL; None for one of a kind that reads no table.

    `EXPLAIN` in front of a query is passed over. Raises `OptionError` where the parser fails, or there are several
    statements.
    """
    explain = _EXPLAIN.match(text, _skip_comments(text, 0))
    prefix = explain.end() if explain else 0
    start = _START.match(text, _skip_comments(text, prefix))
    if start is None or start[0].upper() not in _READING:
        return None
    dialect = Spark()
    try:
        tokens = dialect.tokenize(" " * prefix + text[prefix:])
        roots = [root for root in dialect.parser().parse(tokens, text) if root is not None]
    except SqlglotError as error:
        raise OptionError(f"the query cannot be parsed: {_one_line(error)}") from error
    if len(roots) != 1:
        raise OptionError(f"give one statement, not {len(roots)}")
    return Statement(text, tuple(tokens), roots[0])


def split_statements(text: str) -> tuple[list[str], str]:
    """The statements that end with `;`, without it, and the text behind the last of them."""
    statements, start, place = [], 0, 0
    while (match := _END.search(text, place)) and not match["open"]:
        place = _end_of_comment(text, match.end()) if match[0] == "/*" else match.end()
        if match["end"]:
            statements.append(text[start : match.start()])
            start = place
    return [one for one in statements if not is_blank(one)], text[start:]


def is_blank(text: str) -> bool:
    """Whether a text has nothing but comments."""
    return _skip_comments(text, 0) == len(text)


def _skip_comments(text: str, place: int) -> int:
    """Where the first word is, from `place` on."""
    spaces = _SPACE.match(text, place)
    start = place if spaces is None else spaces.end()
    comment = next(_opaque_spans(text, start), None)
    if comment is None or comment[0] > start or not comment[2]:
        return start
    return _skip_comments(text, comment[1])


def _one_line(error: SqlglotError) -> str:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if first is None:
        return " ".join(str(error).split())
    return f"{first['description'].rstrip('.')}, line {first['line']}, near {first['highlight']!r}"


def _has_same_strings(text: str, tokens: Sequence[Token]) -> bool:
    """Whether strings, quoted names and comments begin and end where Spark's own lexer has them begin and end."""
    first = 0
    for start, stop, is_comment in _opaque_spans(text):
        while first < len(tokens) and tokens[first].end < start:
            first += 1
        place = first
        while place < len(tokens) and tokens[place].start < stop:
            if is_comment or tokens[place].start < start or stop <= tokens[place].end:
                return False
            place += 1
    return True


def _opaque_spans(text: str, place: int = 0) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, whether it is a comment) of strings, quoted names and comments, as SqlBaseLexer.g4 has them."""
    while match := _OPAQUE.search(text, place):
        place = _end_of_comment(text, match.end()) if match[0] == "/*" else match.end()
        yield match.start(), place, match[0].startswith(("--", "/*"))


def _end_of_comment(text: str, place: int) -> int:
    """Where a bracketed comment ends; comments nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, place):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(text)


def _is_odd_alias(alias: exp.TableAlias) -> bool:
    name = alias.this
    return isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() in _NEVER_ALIASES
