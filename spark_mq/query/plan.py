"""A query over stores, planned: what of which store it reads, and the text that is left for Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from spark_mq.errors import OptionError
from spark_mq.query.comparisons import Comparison
from spark_mq.query.predicate_pushdown import PredicatePushdown
from spark_mq.query.projection_pushdown import used_names
from spark_mq.query.scope import (
    RELATION_PARTS,
    Relation,
    Tree,
    UnknownJoinError,
    from_tree,
    has_only,
    owner,
    qualifier_of,
    relations_of,
    shared_columns,
)
from spark_mq.query.statement import Statement, parse_statement
from spark_mq.query.table_columns import TableColumns
from spark_mq.query.table_names import Names, StoreTable, resolve_names
from spark_mq.source.options import Table

_ALIASED_PARTS = frozenset(("this", "db", "joins", "laterals", "pivots"))
"""Parts of a table that may follow its alias, in Spark's grammar; others stand between the two."""


@dataclass(frozen=True)
class Reference:
    """One place in a query that reads a store's table.

    `name`: what stands for it in the plan's template. `columns`: those to read, None for the default ones.
    `comparisons`: all of them hold for every row of it that can matter to the query's result.
    """

    name: str
    store: str
    table: Table
    columns: tuple[str, ...] | None
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class QueryPlan:
    """`template` is the query with `{name}` for each reference, and braces doubled, as `spark.sql` takes it."""

    template: str
    references: tuple[Reference, ...]


@dataclass(frozen=True)
class _Edit:
    start: int
    stop: int
    text: str


def plan_references(
    query: str,
    stores: Collection[str],
    columns: Callable[[Table], TableColumns],
    is_taken: Callable[[str], bool] = lambda name: False,
) -> QueryPlan:
    """Find every reference to a table of `stores` in a query, and what it has to read.

    `prod.messages` is the table of the store `prod`; with one store `messages` is, too, unless a common table
    expression has this name, or a table or view for which `is_taken` is true. A query that the parser does not
    understand as Spark does reads its references whole. Statements that read no store are left as they are, of whatever
    kind; with references they are queries, `INSERT` or `CREATE TABLE ... AS`.

    Raises `OptionError` for a statement that cannot be parsed, writes to a store, keeps a query for later, or names a
    store's table in front of a column in a way that two tables could be meant.
    """
    unchanged = QueryPlan(_escaped(query), ())
    try:
        statement = parse_statement(query)
    except OptionError:
        if _may_name(query, stores):
            raise
        return unchanged
    if statement is None:
        return unchanged
    names = resolve_names(statement.root, stores, is_taken)
    if not names.store_tables:
        return unchanged
    _check_kind(statement, names)
    return _Planner(statement, names, columns).plan()


def _may_name(query: str, stores: Collection[str]) -> bool:
    """Whether a text has the name of a store somewhere, or, with one store, that of a table."""
    text = query.lower()
    return any(name.lower() in text for name in (*stores, *(Table if len(stores) == 1 else ())))


def _check_kind(statement: Statement, names: Names) -> None:
    root = statement.root
    target = root.this if isinstance(root, exp.Insert | exp.Create) else None
    for table in [] if target is None else target.find_all(exp.Table):
        written = names.store_tables.pop(id(table), None)
        if written is not None and table.db:  # a name alone is that of a table that Spark has, or will have
            raise OptionError(f"{written.store}.{written.table} is a table of a store, which is only read")
    is_kept = isinstance(root, exp.Create) and (root.kind or "").upper() != "TABLE"
    if is_kept or not isinstance(root, exp.Query | exp.Insert | exp.Create):
        raise OptionError(
            "a store's table can be read by queries, INSERT and CREATE TABLE ... AS; for a view of a query call "
            "createOrReplaceTempView on its DataFrame"
        )


class _Planner:
    def __init__(self, statement: Statement, names: Names, columns: Callable[[Table], TableColumns]) -> None:
        self._statement = statement
        self._names = names
        self._columns = columns

    def plan(self) -> QueryPlan:
        found = (
            PredicatePushdown(self._statement, self._names, self._known).find() if self._statement.is_understood else {}
        )
        tables = sorted(self._names.store_tables.values(), key=lambda table: self._span(table.node))
        references, edits = [], list(self._stripped_qualifiers())
        for number, table in enumerate(tables):
            narrowing = self._columns(table.table).narrowing
            comparisons = [one for one in found.get(id(table.node), ()) if one.column in narrowing]
            name = f"{table.table}_{number}"
            references.append(
                Reference(name, table.store, table.table, self._columns_of(table), tuple(dict.fromkeys(comparisons)))
            )
            edits.append(_Edit(*self._span(table.node), f"{{{name}}}{self._alias(table.node)}"))
        return QueryPlan(_edited(self._statement.text, edits), tuple(references))

    def _known(self, table: exp.Table) -> frozenset[str] | None:
        found = self._names.store_tables.get(id(table))
        return None if found is None else self._columns(found.table).all

    def _span(self, table: exp.Table) -> tuple[int, int]:
        """Where the table's name lies in the text."""
        first = self._statement.place(table.args.get("db") or table.this)
        last = self._statement.place(table.this)
        if first is None or last is None:
            raise OptionError(f"the query cannot be parsed: it is not clear where it names {table.name}")
        return first[0], last[1]

    def _alias(self, table: exp.Table) -> str:
        """The table's own name, so that it still stands for it in front of columns."""
        in_from = isinstance(table.parent, exp.From | exp.Join | exp.Subquery | exp.Table)
        if not in_from or not has_only(table, _ALIASED_PARTS):
            return ""
        return f" AS {self._statement.source(table.this)}"

    def _columns_of(self, table: StoreTable) -> tuple[str, ...] | None:
        """The columns to read, in the order of the table; at least one, for rows without columns cannot be counted."""
        select = table.node.find_ancestor(exp.Select)
        known = self._columns(table.table)
        if not self._statement.is_understood or select is None or not has_only(table.node, RELATION_PARTS):
            return None
        used = used_names(select, self._names)
        if used is None:
            return None
        used &= {*known.default, *self._extra_columns(table, select)}
        return tuple(name for name in (*known.default, *known.extra) if name in used) or known.default[:1]

    def _extra_columns(self, table: StoreTable, select: exp.Select) -> Iterator[str]:
        """Columns that the table has only where a schema names them: those that are certainly meant."""
        tree = self._tree(select)
        extra = self._columns(table.table).extra
        if tree is None or not extra:
            return
        relations, shared = list(relations_of(tree)), shared_columns(tree)
        for column in select.find_all(exp.Column):
            if column.name.lower() in extra:
                relation = owner(column, relations, shared)
                if relation is not None and relation.node is table.node:
                    yield column.name.lower()

    def _tree(self, select: exp.Select) -> Tree | None:
        try:
            return from_tree(select, self._known)
        except UnknownJoinError:
            return None

    def _stripped_qualifiers(self) -> Iterator[_Edit]:
        """The store's name taken from `prod.messages.topic`, for a reference is known by the table's name alone."""
        for column in self._statement.root.find_all(exp.Column):
            if column.args.get("db") and self._is_of_store(column):
                start, stop = (self._statement.place(column.args[part]) for part in ("db", "table"))
                if start is not None and stop is not None:
                    yield _Edit(start[0], stop[0], "")

    def _is_of_store(self, column: exp.Column) -> bool:
        """Whether `prod.messages` before a column is a reference. Raises `OptionError` if `messages` can be another."""
        qualifier = qualifier_of(column)
        nearer: list[Relation] = []
        select = column.find_ancestor(exp.Select)
        while select is not None:
            tree = self._tree(select)
            nearer += [] if tree is None else relations_of(tree)
            if any(one.has_name(qualifier) and id(one.node) in self._names.store_tables for one in nearer):
                if sum(one.has_name(qualifier[-1:]) for one in nearer) > 1:
                    raise OptionError(f"more than one table goes by the name {qualifier[-1]}: give them aliases")
                return True
            select = select.find_ancestor(exp.Select)
        return False


def _edited(text: str, edits: list[_Edit]) -> str:
    pieces, place = [], 0
    for edit in sorted(edits, key=lambda edit: edit.start):
        pieces += [_escaped(text[place : edit.start]), edit.text]
        place = edit.stop
    return "".join([*pieces, _escaped(text[place:])])


def _escaped(text: str) -> str:
    """Braces doubled, for `spark.sql` formats its query."""
    return text.replace("{", "{{").replace("}", "}}")
