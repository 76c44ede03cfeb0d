"""Syntax errors that are certain without Spark's parser."""

from __future__ import annotations

import difflib
import re

from spark_mq.query.lexer import first_word, is_open_comment, opaque_spans, without_comments

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
    code = _without_opaque(text)
    end = _END_OF_CODE.search(code)
    if end is not None:
        return "a comment is not closed" if end[0] == "/*" else f"the quote {end[0]} is not closed"
    return _unbalanced(code)


def _without_opaque(text: str) -> str:
    """The text with spaces instead of strings, quoted names and comments that are closed."""
    characters = list(text)
    for start, stop, _ in opaque_spans(text):
        if text.startswith("/*", start) and is_open_comment(text[start:stop]):
            continue
        characters[start:stop] = " " * (stop - start)
    return "".join(characters)


def _unbalanced(code: str) -> str | None:
    opened: list[str] = []
    for bracket in re.findall(r"[()\[\]]", code):
        if bracket in "([":
            opened.append(bracket)
        elif not opened or opened.pop() != {")": "(", "]": "["}[bracket]:
            return f"a {bracket} closes nothing"
    return f"a {opened[-1]} is not closed" if opened else None
