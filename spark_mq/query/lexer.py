"""The text of statements, as Spark's lexer divides it: strings, names, comments, `;`, and errors that are certain."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator

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
_END_OF_CODE = re.compile(r"/\*(?!\+)|['\"`]")
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


def certain_syntax_error(text: str) -> str | None:
    """The reason for which Spark certainly cannot parse a statement; None if it may be able to.

    The parser of this package is not Spark's, so what it cannot parse may still be right. Certain are quotes, comments
    and brackets that are not closed, and a first word that is a misspelt keyword.
    """
    word = first_word(text)
    if word and word not in _FIRST_WORDS and word not in _RARE_FIRST_WORDS:
        near = difflib.get_close_matches(word, _FIRST_WORDS, n=1, cutoff=_LIKENESS)
        is_label = re.match(rf"\s*{word}\s*:", without_comments(text), re.IGNORECASE)
        return f"{word} begins no statement; did you mean {near[0]}?" if near and not is_label else None
    if word not in _BRACKETED or "${" in text:
        return None
    characters = list(text)  # with spaces instead of strings, quoted names and comments that are closed
    for start, stop, _ in opaque_spans(text):
        if text.startswith("/*", start) and is_open_comment(text[start:stop]):
            continue
        characters[start:stop] = " " * (stop - start)
    code = "".join(characters)
    end = _END_OF_CODE.search(code)
    if end is not None:
        return "a comment is not closed" if end[0] == "/*" else f"the quote {end[0]} is not closed"
    return _unbalanced(code)


def _unbalanced(code: str) -> str | None:
    opened: list[str] = []
    for bracket in re.findall(r"[()\[\]]", code):
        if bracket in "([":
            opened.append(bracket)
        elif not opened or opened.pop() != {")": "(", "]": "["}[bracket]:
            return f"a {bracket} closes nothing"
    return f"a {opened[-1]} is not closed" if opened else None


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
