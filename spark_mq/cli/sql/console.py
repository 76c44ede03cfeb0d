"""Runs the statements of `spark-mq sql`, from a text or from a prompt, and prints their rows."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.interrupt import cancels_on_interrupt
from spark_mq.cli.output.value_text import visible
from spark_mq.cli.spark import has_empty_catalog, is_on_server, spark_errors
from spark_mq.cli.sql.archive import Archives, archive_columns
from spark_mq.cli.sql.prompt import HELP, Completer, line_editing
from spark_mq.errors import SparkMqError
from spark_mq.query.lexer import is_blank, split_statements
from spark_mq.tables.all_tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.query.catalog import Store
    from spark_mq.query.plan import QueryPlan
    from spark_mq.query.statement_check import StatementCheck

_PROMPT, _MORE = "spark-mq> ", "       -> "
_LEAVE = re.compile(r"\s*(?:quit|exit)\s*;?\s*", re.IGNORECASE)
_HELP = re.compile(r"\s*(?:help|\?|\\\?|\\h)\s*;?\s*", re.IGNORECASE)


class Console:
    """Runs statements; Spark starts with the first statement that needs it."""

    def __init__(
        self,
        start: Callable[[], AbstractContextManager[SparkSession]],
        settings: Mapping[str, str],
        stores: Mapping[str, Store],
        archives: Archives,
        form: str,
        explain: bool,
    ) -> None:
        """`start` returns a context with a session; `explain` prints what would be read, instead of running it."""
        self._start = start
        self._settings = settings
        self._stores = stores
        self._archives = archives
        self._form = form
        self._explain = explain
        self._stack = ExitStack()
        self._spark: SparkSession | None = None
        self._is_prompt = False

    def run_all(self, text: str) -> int:
        """Check all statements, and then run them in order; returns the exit status.

        Raises the `SparkMqError` of the first statement that is wrong or fails.
        """
        statements, last = split_statements(text)
        statements = statements if is_blank(last) else [*statements, last]
        leave = next((index for index, text in enumerate(statements) if _LEAVE.fullmatch(text)), len(statements))
        check = self._new_check()
        for statement in statements[:leave]:
            check.check(statement)
        check = self._new_check()
        with self._stack:
            for statement in statements[:leave]:
                self._run(statement, check)
        return FOUND

    def prompt(self) -> int:
        """Run the statements that are typed; returns the exit status. Errors do not end the prompt."""
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
                        print(visible(HELP.format(stores=", ".join(self._stores)), keep="\n"))
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

        return StatementCheck(self._stores, self._archives.tables, has_empty_catalog(self._settings))

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

        history = self._archives.history_in(statement)
        if history is not None:
            print(visible(history))
            if not plan.references and not plan.named:
                return
        for line in explained(plan, self._stores, self._settings, sees_stores=not is_on_server()):
            print(visible(line))

    def _run_in_spark(self, statement: str) -> None:
        from spark_mq.cli.output.dataframe_output import print_dataframe
        from spark_mq.query.sql import run_statement

        spark = self._started()
        with spark_errors():
            self._archives.prepare(spark, statement)
            frame = run_statement(spark, statement, None, self._stores, self._archives.tables)
            print_dataframe(frame, self._form)

    def _started(self) -> SparkSession:
        """The session, which starts if it has not started yet. At a prompt, Ctrl-C cancels only the query."""
        if self._spark is None:
            from spark_mq.datasource import register

            self._spark = self._stack.enter_context(self._start())
            register(self._spark)
            if self._is_prompt:
                self._stack.enter_context(cancels_on_interrupt(self._spark))
        return self._spark

    def _completer(self) -> Completer:
        tables = {store: list(TABLES) for store in self._stores}
        return Completer({**tables, **{name: list(of) for name, of in self._archives.tables.items()}}, self._columns)

    def _columns(self, owner: str, table: str) -> list[str]:
        from spark_mq.query.catalog import columns_of

        if owner not in self._stores:
            return archive_columns(table)
        columns = columns_of(self._stores[owner], table)
        return [*columns.default, *columns.extra]
