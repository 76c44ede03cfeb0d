"""Runs the statements of `spark-mq sql`, from a text or from a prompt, and prints their rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.interrupt import cancels_on_interrupt
from spark_mq.cli.output.value_text import visible
from spark_mq.cli.sql.prompt import HELP, Completer, line_editing
from spark_mq.errors import SparkMqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.cli.sql.archive import History, Meanings
    from spark_mq.query.catalog import Store
    from spark_mq.query.plan import QueryPlan
    from spark_mq.query.statement_check import StatementCheck
    from spark_mq.query.table_names import NamedTables

_PROMPT, _MORE = "spark-mq> ", "       -> "
_LEAVE = re.compile(r"\s*(?:quit|exit)\s*;?\s*", re.IGNORECASE)
_HELP = re.compile(r"\s*(?:help|\?|\\\?|\\h)\s*;?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Session:
    """What statements run on.

    Attributes:
        start: Returns a context with the Spark session.
        has_empty_catalog: Whether it certainly starts without tables and databases.
        sees_stores: Whether this process sees the stores under the paths that the session uses.
    """

    start: Callable[[], AbstractContextManager[SparkSession]]
    settings: Mapping[str, str]
    has_empty_catalog: bool
    sees_stores: bool


@dataclass(frozen=True)
class Tables:
    """The tables that statements can name.

    Attributes:
        archives: The tables of archives, which Spark knows under another name.
        history: The view of the store and its archive; None if there is not one of each.
        meanings: The views of what archived messages mean; None without an archive.
    """

    stores: Mapping[str, Store]
    archives: NamedTables = field(default_factory=dict)
    history: History | None = None
    meanings: Meanings | None = None


class Console:
    """Runs statements; Spark starts with the first statement that needs it."""

    def __init__(self, session: Session, tables: Tables, form: str, explain: bool) -> None:
        """Prepare the console.

        Args:
            tables: The tables that statements can name.
            form: `table`, `csv` or `json`.
            explain: Whether to print what would be read instead of running the statements.
        """
        self._session = session
        self._tables = tables
        self._form = form
        self._explain = explain
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._is_prompt = False

    def run_all(self, text: str) -> int:
        """Check all statements, and then run them in order; returns the exit status.

        Raises the `SparkMqError` of the first statement that is wrong or fails.
        """
        from spark_mq.query.lexer import is_blank, split_statements

        statements, last = split_statements(text)
        statements = statements if is_blank(last) else [*statements, last]
        leave = next((index for index, text in enumerate(statements) if _LEAVE.fullmatch(text)), len(statements))
        self._check_all(statements[:leave])
        check = self._new_check()
        with self._stack:
            for statement in statements[:leave]:
                self._run(statement, check)
        return FOUND

    def prompt(self) -> int:
        """Run the statements that are typed; returns the exit status. Errors do not end the prompt."""
        from spark_mq.query.lexer import is_blank, split_statements

        check, completer, self._is_prompt = self._new_check(), self._completer(), True
        text = ""
        with self._stack, line_editing(completer):
            while True:
                try:
                    completer.pending = text
                    line = input(_PROMPT if is_blank(text) else _MORE)
                    if is_blank(text) and _LEAVE.fullmatch(line):
                        return FOUND
                    if is_blank(text) and _HELP.fullmatch(line):
                        print(visible(HELP.format(stores=", ".join(self._tables.stores)), keep="\n"))
                        continue
                    statements, rest = split_statements(f"{text}{line}\n")
                    text = rest.lstrip()  # so that an error's line number is that of the statement
                    for statement in statements:
                        self._run(statement, check)
                except SparkMqError as error:
                    print(f"spark-mq: {error}", file=sys.stderr)
                except KeyboardInterrupt:  # Spark has cancelled the query; or the user drops a line
                    print(file=sys.stderr)
                    text = ""
                except EOFError:
                    print()
                    return FOUND

    def _new_check(self) -> StatementCheck:
        from spark_mq.query.statement_check import StatementCheck

        return StatementCheck(self._tables.stores, self._tables.archives, self._session.has_empty_catalog)

    def _check_all(self, statements: list[str]) -> None:
        check = self._new_check()
        for statement in statements:
            check.check(statement)

    def _run(self, statement: str, check: StatementCheck) -> None:
        answer = check.answer(statement)
        plan = check.plan(statement, needs_parser=True) if self._explain else None
        check.check(statement)
        if plan is not None:
            self._print_explained(statement, plan)
        elif answer is not None and (answer.with_session_tables is None or self._spark is None):
            from spark_mq.cli.output.dataframe_output import print_rows

            print_rows(iter(answer.rows), answer.columns, self._form)
        else:
            self._run_in_spark(statement)

    def _print_explained(self, statement: str, plan: QueryPlan) -> None:
        from spark_mq.cli.sql.explain import explained

        history = self._tables.history
        if history is not None and history.is_in(statement):
            print(visible(str(history)))
            if not plan.references and not plan.named:
                return
        session = self._session
        for line in explained(plan, self._tables.stores, session.settings, session.sees_stores):
            print(visible(line))

    def _run_in_spark(self, statement: str) -> None:
        from spark_mq.cli.output.dataframe_output import print_dataframe
        from spark_mq.cli.spark import spark_errors
        from spark_mq.query.sql import run_statement

        spark = self._started()
        with spark_errors():
            for views in (self._tables.history, self._tables.meanings):
                if views is not None:
                    views.prepare(spark, statement)
            print_dataframe(
                run_statement(spark, statement, None, self._tables.stores, self._tables.archives), self._form
            )

    def _started(self) -> SparkSession:
        """The session, which starts if it has not started yet. At a prompt, Ctrl-C cancels only the query."""
        if self._spark is None:
            from spark_mq.datasource import register

            self._spark = self._stack.enter_context(self._session.start())
            register(self._spark)
            if self._is_prompt:
                self._stack.enter_context(cancels_on_interrupt(self._spark))
        return self._spark

    def _completer(self) -> Completer:
        from spark_mq.tables.all_tables import TABLES

        tables = {store: list(TABLES) for store in self._tables.stores}
        return Completer({**tables, **{name: list(of) for name, of in self._tables.archives.items()}}, self._columns)

    def _columns(self, owner: str, table: str) -> list[str]:
        from spark_mq.cli.sql.archive import archive_columns
        from spark_mq.query.catalog import columns_of

        if owner not in self._tables.stores:
            return archive_columns(table)
        columns = columns_of(self._tables.stores[owner], table)
        return [*columns.default, *columns.extra]
