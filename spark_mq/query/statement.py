"""One SQL statement: its text, its tokens and its tree, which agree on positions in the text.

sqlglot's parser of Spark's dialect gives the tree. The tree only locates parts of the text; SQL is never generated from
it. Spark runs what the user wrote, except that the names of stores' tables are replaced.
"""

from __future__ import annotations

import difflib
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
    | --(?:\\\n|[^\r\n])*                                     # a backslash continues the comment on the next line
    | /\*(?!\+)
    """
_OPAQUE = re.compile(_OPAQUE_PATTERN, re.VERBOSE | re.DOTALL)
_END = re.compile(rf"{_OPAQUE_PATTERN} | (?P<end>;) | (?P<open>['\"`])", re.VERBOSE | re.DOTALL)
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_SPACE = re.compile(r"\s*")
_EXPLAIN = re.compile(r"EXPLAIN\s+(?:(?:EXTENDED|FORMATTED|CODEGEN|COST|LOGICAL)\s+)?", re.IGNORECASE)
_START = re.compile(r"\w+|\(")
_READING_KEYWORDS = frozenset(("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT", "CREATE"))
"""The first words of the statements that can read a table."""
_FIRST_WORDS_TEXT = (
    "SELECT WITH FROM VALUES TABLE MAP REDUCE ( INSERT MERGE UPDATE DELETE CREATE DROP ALTER ANALYZE REPAIR TRUNCATE "
    "CACHE UNCACHE CLEAR REFRESH LOAD MSCK USE SET RESET SHOW DESCRIBE DESC EXPLAIN ADD LIST COMMENT DECLARE EXECUTE "
    "CALL BEGIN LOCK UNLOCK EXPORT IMPORT GRANT REVOKE REPLACE OPTIMIZE VACUUM RESTORE CONVERT"
)
_FIRST_WORDS = _FIRST_WORDS_TEXT.split()
"""The first words of statements of Spark, of Delta Lake and of similar extensions."""
_RARE_FIRST_WORDS_TEXT = (
    "START COMMIT ROLLBACK DFS GENERATE COPY UNDROP SYNC REORG FSCK APPLY KILL OPEN FETCH CLOSE IF WHILE FOR LOOP "
    "REPEAT CASE LEAVE ITERATE SIGNAL RESIGNAL GET LET DEFINE END"
)
_RARE_FIRST_WORDS = _RARE_FIRST_WORDS_TEXT.split()
"""More of them, which nobody means with another word."""
_BRACKETED = ("SELECT", "WITH", "FROM", "VALUES", "(", "INSERT")
"""The first words of statements in which brackets are in pairs."""
_LIKENESS = 0.75
_TOKEN = re.compile(r" but got <Token.*", re.DOTALL)
_END_OF_CODE = re.compile(r"/\*(?!\+)|['\"`]")
_NEVER_ALIASES = frozenset(
    word
    for words in ("anti cross except full inner intersect join lateral", "left minus natural on right semi union using")
    for word in words.split()
)
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
            and not any(_is_odd_alias(alias) for alias in self.root.find_all(exp.TableAlias))
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
    """The parsed statement, without an `EXPLAIN` before it; None for a kind of statement that reads no table.

    Raises:
        OptionError: The parser fails, or the text contains several statements.
    """
    explain = _EXPLAIN.match(text, _skip_comments(text, 0))
    prefix = explain.end() if explain else 0
    start = _START.match(text, _skip_comments(text, prefix))
    if start is None or start[0].upper() not in _READING_KEYWORDS:
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
    return _skip_comments(text, 0) == len(text)


def without_comments(text: str) -> str:
    """The text with a space instead of each comment."""
    pieces, position = [], 0
    for start, stop, is_comment in _opaque_spans(text):
        if is_comment:
            pieces.append(text[position:start])
            position = stop
    return " ".join([*pieces, text[position:]])


def first_word(text: str) -> str:
    """The first word of a statement in upper case, or `(`; an empty text if it begins with another character."""
    start = _START.match(text, _skip_comments(text, 0))
    return "" if start is None else start[0].upper()


def certain_syntax_error(text: str) -> str | None:
    """The reason for which Spark certainly cannot parse a statement; None if it may be able to.

    The parser of this package is not Spark's, so what it cannot parse may still be right. Certain are quotes, comments
    and brackets that are not closed, and a first word that is a misspelt keyword.
    """
    start = _START.match(text, _skip_comments(text, 0))
    if start is None:
        return None
    word = start[0].upper()
    if word not in _FIRST_WORDS and word not in _RARE_FIRST_WORDS:
        near = difflib.get_close_matches(word, _FIRST_WORDS, n=1, cutoff=_LIKENESS)
        is_label = text[start.end() :].lstrip().startswith(":")
        return f"{start[0]} begins no statement; did you mean {near[0]}?" if near and not is_label else None
    if word not in _BRACKETED or "${" in text:
        return None
    end = _END_OF_CODE.search(_without_opaque(text))
    if end is not None:
        return "a comment is not closed" if end[0] == "/*" else f"the quote {end[0]} is not closed"
    return _unbalanced(_without_opaque(text))


def _without_opaque(text: str) -> str:
    """The text with spaces instead of strings, quoted names and comments that are closed."""
    characters = list(text)
    for start, stop, _ in _opaque_spans(text):
        if text.startswith("/*", start) and _is_open(text[start:stop]):
            continue
        characters[start:stop] = " " * (stop - start)
    return "".join(characters)


def _is_open(comment: str) -> bool:
    return sum(1 if edge[0] == "/*" else -1 for edge in _COMMENT_EDGE.finditer(comment)) > 0


def _unbalanced(code: str) -> str | None:
    opened: list[str] = []
    for bracket in re.findall(r"[()\[\]]", code):
        if bracket in "([":
            opened.append(bracket)
        elif not opened or opened.pop() != {")": "(", "]": "["}[bracket]:
            return f"a {bracket} closes nothing"
    return f"a {opened[-1]} is not closed" if opened else None


def _skip_comments(text: str, position: int) -> int:
    """The position of the first word at or after `position`; the text's length if there is none."""
    spaces = _SPACE.match(text, position)
    start = position if spaces is None else spaces.end()
    comment = next(_opaque_spans(text, start), None)
    if comment is None or comment[0] > start or not comment[2]:
        return start
    return _skip_comments(text, comment[1])


def _one_line(error: SqlglotError) -> str:
    first = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if first is None:
        return " ".join(str(error).split())
    description = _TOKEN.sub("", str(first["description"])).rstrip(".")
    return f"{description}, line {first['line']}, near {first['highlight']!r}"


def _has_same_strings(text: str, tokens: Sequence[Token]) -> bool:
    """Whether strings, quoted names and comments start and end at the same positions as in Spark's lexer."""
    first = 0
    for start, stop, is_comment in _opaque_spans(text):
        while first < len(tokens) and tokens[first].end < start:
            first += 1
        index = first
        while index < len(tokens) and tokens[index].start < stop:
            if is_comment or tokens[index].start < start or stop <= tokens[index].end:
                return False
            index += 1
    return True


def _opaque_spans(text: str, position: int = 0) -> Iterator[tuple[int, int, bool]]:
    """(start, stop, whether it is a comment) of strings, quoted names and comments, as SqlBaseLexer.g4 defines them."""
    while match := _OPAQUE.search(text, position):
        position = _end_of_comment(text, match.end()) if match[0] == "/*" else match.end()
        yield match.start(), position, match[0].startswith(("--", "/*"))


def _end_of_comment(text: str, position: int) -> int:
    """The end of a bracketed comment that is open at `position`; comments nest."""
    depth = 1
    for edge in _COMMENT_EDGE.finditer(text, position):
        depth += 1 if edge[0] == "/*" else -1
        if not depth:
            return edge.end()
    return len(text)


def _is_odd_alias(alias: exp.TableAlias) -> bool:
    name = alias.this
    return isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() in _NEVER_ALIASES
