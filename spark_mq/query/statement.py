"""One SQL statement: its text, its tokens and its tree, which agree on positions in the text.

sqlglot's parser of Spark's dialect gives the tree. The tree only locates parts of the text; SQL is never generated from
it. Spark runs what the user wrote, except that the names of stores' tables are replaced.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from sqlglot import Token, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from spark_mq.errors import OptionError
from spark_mq.query.lexer import first_word, opaque_spans, skip_comments

_EXPLAIN = re.compile(r"EXPLAIN\s+(?:(?:EXTENDED|FORMATTED|CODEGEN|COST|LOGICAL)\s+)?", re.IGNORECASE)
_READING_KEYWORDS = frozenset(("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE"))
"""The first words of the statements that can read a table."""
_TOKEN = re.compile(r" but got <Token.*", re.DOTALL)
_NEVER_ALIASES_TEXT = "anti cross except full inner intersect join lateral left minus natural on right semi union using"
_NEVER_ALIASES = frozenset(_NEVER_ALIASES_TEXT.split())
"""Words that Spark never takes for an alias (strictNonReserved in SqlBaseParser.g4 of Spark 4.2)."""


@dataclass(frozen=True)
class Statement:
    """One statement: the text that was given, and the tokens and the tree that the parser made of it."""

    text: str
    tokens: tuple[Token, ...]
    root: exp.Expr

    @cached_property
    def is_understood(self) -> bool:
        """Whether the parser read all of it as Spark does, so that the tree can be trusted about rows and columns.

        Table names can be replaced in any case: if the parser misread a name, Spark finds no such table.
        """
        intervals = sum(token.token_type == TokenType.INTERVAL for token in self.tokens)
        return (
            _has_same_strings(self.text, self.tokens)
            and "${" not in self.text  # Spark replaces a variable by its text, which can be anything
            and "|>" not in self.text  # the parser rewrites a pipe to another query
            and intervals == len(list(self.root.find_all(exp.Interval)))  # 2 DAYS 3 HOURS is read as two
            and not any(
                isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() in _NEVER_ALIASES
                for name in (alias.this for alias in self.root.find_all(exp.TableAlias))
            )
        )

    def span(self, node: exp.Expr) -> tuple[int, int] | None:
        """Start and stop (exclusive) of the node's only token in the text; None if the parser does not record them."""
        if "start" not in node.meta or "end" not in node.meta:
            return None
        return node.meta["start"], node.meta["end"] + 1

    def source(self, node: exp.Expr) -> str | None:
        """The node's only token as it is written; None if the parser does not record its position."""
        span = self.span(node)
        return None if span is None else self.text[slice(*span)]


def parse_statement(text: str) -> Statement | None:
    """The parsed statement, without an `EXPLAIN` before it; None for a kind of statement that reads no table."""
    explain = _EXPLAIN.match(text, skip_comments(text, 0))
    prefix = explain.end() if explain else 0
    if first_word(text[prefix:]) not in _READING_KEYWORDS:
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


def _one_line(error: SqlglotError) -> str:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if first is None:
        return " ".join(str(error).split())
    description = _TOKEN.sub("", str(first["description"])).rstrip(".")
    return f"{description}, line {first['line']}, near {first['highlight']!r}"


def _has_same_strings(text: str, tokens: Sequence[Token]) -> bool:
    """Whether strings, quoted names and comments start and end at the same positions as in Spark's lexer."""
    first = 0
    for start, stop, is_comment in opaque_spans(text):
        while first < len(tokens) and tokens[first].end < start:
            first += 1
        index = first
        while index < len(tokens) and tokens[index].start < stop:
            if is_comment or tokens[index].start < start or stop <= tokens[index].end:
                return False
            index += 1
    return True
