"""The prompt of `spark-mq sql`: completion with Tab, the history of typed lines, and the text of `help`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from spark_mq.io.s3 import redacted

HELP = """\
SHOW TABLES;               lists the tables of the stores
DESCRIBE STORE.messages;   lists the columns of a table (stores: {stores})
SELECT ...;                runs a query, which can have several lines
Tab                        completes keywords, tables, and columns
Ctrl-C                     cancels the statement
quit, exit, Ctrl-D         leave"""

_KEYWORDS_TEXT = """
SELECT FROM WHERE GROUP BY ORDER HAVING LIMIT JOIN LEFT RIGHT FULL INNER CROSS SEMI ANTI ON USING AS AND OR NOT IN
BETWEEN LIKE IS NULL DISTINCT UNION ALL EXCEPT INTERSECT WITH CASE WHEN THEN ELSE END ASC DESC COUNT MIN MAX SUM AVG
EXPLAIN DESCRIBE SHOW TABLES TIMESTAMP DATE INTERVAL LATERAL VIEW EXPLODE ARRAY_CONTAINS INSERT INTO CREATE TABLE
"""
_KEYWORDS = _KEYWORDS_TEXT.split()
_COMMANDS = ("help", "quit", "exit")
_DELIMITERS = " \t\n,;()=<>!+-*/%|'\""
_LINES = 2000
"""The number of lines that the history keeps."""
_MENTION = re.compile(r"`?(\w+)`?(?:\s*\.\s*`?(\w+)`?)?(?:\s+(?:AS\s+)?(\w+))?", re.IGNORECASE)


@dataclass
class Completer:
    """Completes words of a statement, which began in the `pending` lines."""

    tables: Mapping[str, Collection[str]]
    columns: Callable[[str, str], Sequence[str]]
    pending: str = ""
    _found: Sequence[str] = ()

    def __call__(self, word: str, state: int) -> str | None:
        """The completion number `state` of a word, as readline asks for it; None after the last one."""
        if state == 0:
            import readline

            self._found = self.completions(f"{self.pending}{readline.get_line_buffer()}", word)
        return self._found[state] if state < len(self._found) else None

    def completions(self, statement: str, word: str) -> list[str]:
        """The words that begin with `word`, sorted: columns, tables, keywords; after a dot, only what can follow it."""
        qualifier, dot, last = word.rpartition(".")
        if dot:
            names = self._after_dot(statement, qualifier)
            return sorted({f"{qualifier}.{name}" for name in names if name.lower().startswith(last.lower())})
        lowered = word.lower()
        names = {f"{owner}." for owner in self.tables}
        if len(self.tables) == 1:
            names |= {table for tables in self.tables.values() for table in tables}
        names |= {column for owner, table, _ in self._mentions(statement) for column in self.columns(owner, table)}
        if not statement.strip() or statement.strip() == word:
            names |= set(_COMMANDS)
        keywords = {keyword.lower() if word[:1].islower() else keyword for keyword in _KEYWORDS}
        return sorted(name for name in names | keywords if name.lower().startswith(lowered))

    def _after_dot(self, statement: str, qualifier: str) -> set[str]:
        """The tables of a store, or the columns of the table with this name or alias."""
        for owner, tables in self.tables.items():
            if owner.lower() == qualifier.lower():
                return set(tables)
        return {
            column
            for owner, table, alias in self._mentions(statement)
            if qualifier.lower() in (alias.lower(), table.lower(), f"{owner}.{table}".lower())
            for column in self.columns(owner, table)
        }

    def _mentions(self, statement: str) -> Iterator[tuple[str, str, str]]:
        """The tables that a statement names: the name of the store, of the table, and the word after it."""
        only = next(iter(self.tables)) if len(self.tables) == 1 else None
        position = 0
        while match := _MENTION.search(statement, position):
            first, second, alias = match.groups()
            position = match.end(2) if second else match.end(1)
            for owner, tables in self.tables.items():
                if second and first.lower() == owner.lower() and second.lower() in tables:
                    yield owner, second.lower(), alias or ""
                elif owner == only and not second and first.lower() in tables:
                    yield owner, first.lower(), alias or ""


@contextmanager
def line_editing(completer: Completer) -> Iterator[None]:
    """A context in which the prompt has completion and a history, if Python has the library for it.

    The history is in `$XDG_STATE_HOME/spark-mq/history`, or in `~/.local/state/spark-mq/history`. If the file cannot be
    read or written, the prompt has no history of earlier sessions. Secrets are not kept.
    """
    try:
        import readline
    except ImportError:
        yield
        return
    readline.set_completer_delims(_DELIMITERS)
    readline.set_completer(completer)
    is_libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if is_libedit else "tab: complete")
    readline.set_history_length(_LINES)
    file = history_file()
    with suppress(OSError, UnicodeError):
        readline.read_history_file(file)
    try:
        yield
    finally:
        readline.set_completer(None)
        with suppress(OSError, UnicodeError):
            file.parent.mkdir(parents=True, exist_ok=True)
            for number in range(readline.get_current_history_length()):
                line = readline.get_history_item(number + 1) or ""
                readline.replace_history_item(number, redacted(line))
            readline.write_history_file(file)
            file.chmod(0o600)


def history_file() -> Path:
    """The file with the lines that were typed in earlier sessions."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    base = Path(folder) if os.path.isabs(folder) else Path(os.path.expanduser("~/.local/state"))
    return base / "spark-mq" / "history"
