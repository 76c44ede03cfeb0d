"""What is certainly wrong with a statement, found before Spark starts."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_mq.errors import OptionError
from spark_mq.query.catalog import CatalogAnswer, Store, answer_statement, described_table, several_of, table_columns
from spark_mq.query.lexer import certain_syntax_error, first_word, without_comments
from spark_mq.query.plan import QueryPlan, plan_references
from spark_mq.query.statement import parse_statement
from spark_mq.query.table_names import NamedTables, unknown_tables

_KEEPS_CATALOG = ("SELECT", "WITH", "FROM", "VALUES", "(", "TABLE", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "INSERT")
"""The first words of statements after which Spark has the same tables, views and databases as before."""
_PART = r"`(?:[^`]|``)+`|\w+"
_CREATED = re.compile(
    r"\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?(?:(?:GLOBAL\s+)?TEMP(?:ORARY)?\s+)?(?:VIEW|TABLE)|CACHE\s+(?:LAZY\s+)?TABLE)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?(?P<name>{_PART})(?!\s*\.)",
    re.IGNORECASE,
)


class StatementCheck:
    """Checks statements in the order in which they run.

    A statement that Spark would run is never refused. So a name is only wrong if Spark certainly has no table and no
    database of its own: its catalog was empty at the start, and all statements so far are queries.
    """

    def __init__(self, stores: Mapping[str, Store], named: NamedTables, has_empty_catalog: bool) -> None:
        """Prepare the check."""
        self._stores = stores
        self._named = named
        self._has_empty_catalog = has_empty_catalog
        self._created: set[str] = set()

    def check(self, statement: str) -> None:
        """Check the next statement."""
        problem = certain_syntax_error(statement)
        if problem is not None:
            raise OptionError(f"the query cannot be parsed: {problem}")
        if self.answer(statement) is None:
            self.plan(statement)
            self._check_names(statement)
        self._add(statement)

    def plan(self, statement: str, needs_parser: bool = False) -> QueryPlan:
        """The plan of a statement."""
        if needs_parser:
            parse_statement(statement)
        is_taken = self._is_created if needs_parser else self._may_be_sparks
        several = several_of(self._stores)
        return plan_references(statement, self._stores, table_columns, is_taken, self._named, several)

    def answer(self, statement: str) -> CatalogAnswer | None:
        """The answer to a statement that needs no store; None if Spark has to answer it."""
        answer = answer_statement(statement, self._stores, self._named, self._may_be_sparks)
        if answer is None or (answer.with_session_tables is not None and not self._has_empty_catalog):
            return None
        return answer

    def _add(self, statement: str) -> None:
        plain = without_comments(statement)
        created = _CREATED.match(plain)
        if created is not None:
            self._created.add(created["name"].strip("`").lower())
        self._has_empty_catalog &= first_word(statement) in _KEEPS_CATALOG

    def _check_names(self, statement: str) -> None:
        if not self._has_empty_catalog:
            return
        described = described_table(statement)
        try:
            parsed = parse_statement(statement if described is None else f"SELECT * FROM {described}")
        except OptionError:  # Spark may know the syntax
            return
        names = self._stores, self._named, self._is_created
        problems = [] if parsed is None else unknown_tables(parsed, *names, is_described=described is not None)
        if problems:
            raise OptionError(problems[0])

    def _is_created(self, name: str) -> bool:
        return name in self._created

    def _may_be_sparks(self, name: str) -> bool:
        return not self._has_empty_catalog or name in self._created
