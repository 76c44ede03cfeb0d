"""The plan of a query over stores: its references to stores' tables, and the text that Spark runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from sqlglot import exp

from spark_mq.errors import OptionError
from spark_mq.query.comparisons import Comparison, TableColumns
from spark_mq.query.predicate_pushdown import PredicatePushdown, used_names
from spark_mq.query.scope import (
    PLAIN_RELATION_ARGS,
    Relation,
    has_only,
    join_tree,
    merged_columns,
    qualifier_of,
    relations_of,
    resolve_column,
)
from spark_mq.query.statement import Statement, parse_statement
from spark_mq.query.table_names import (
    HISTORY,
    NamedTables,
    ResolvedTables,
    StoreTable,
    history_store,
    resolve_tables,
    sole_named,
)
from spark_mq.tables.all_tables import TABLES

_ARGS_AFTER_ALIAS = frozenset(("this", "db", "joins", "laterals", "pivots"))
"""Args of a table that follow its table alias in Spark's grammar; others are between its name and the alias."""


@dataclass(frozen=True)
class Reference:
    """One reference of a query to a store's table.

    Attributes:
        name: The reference's name in the plan's template.
        columns: The columns to read, in the order of the table; None for the default columns.
        comparisons: Comparisons that are all true for every row that can matter to the query's result.
        is_history: Whether the table has the rows of the only archive, too.
    """

    name: str
    store: str
    table: str
    columns: tuple[str, ...] | None
    comparisons: tuple[Comparison, ...]
    is_history: bool = False


@dataclass(frozen=True)
class QueryPlan:
    """What a query reads of stores, and what Spark runs.

    Attributes:
        template: The query with `{name}` for each reference and all other braces doubled, as `spark.sql` formats it.
        named: The other tables that have another name in the template, by that name.
    """

    template: str
    references: tuple[Reference, ...]
    named: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The query that Spark runs if there is no reference: `spark.sql` then formats nothing."""
        return self.template.replace("{{", "{").replace("}}", "}")


_Edit = tuple[int, int, str]
"""The start and the stop (exclusive) of a part of the text, and what takes its place."""


def plan_references(
    query: str,
    stores: Collection[str],
    columns: Callable[[str], TableColumns],
    is_taken: Callable[[str], bool] = lambda name: False,
    named: NamedTables | None = None,
    several: Collection[str] = (),
) -> QueryPlan:
    """The references of a query to tables of `stores`, with the rows and columns that each has to read.

    `prod.messages` is a table of the store `prod`. With one store, `messages` alone is a table of that store, unless it
    is the name of a common table expression, or `is_taken`. If the parser does not understand a query as Spark does,
    its references read all rows and columns. A statement of any kind that names no store's table is left unchanged.

    Args:
        is_taken: Whether the session has a table or view of this name.
        named: Tables that Spark knows under another name.
        several: The names of those of the stores whose tables are those of several stores.
    """
    unchanged = QueryPlan(_escaped(query), ())
    try:
        statement = parse_statement(query)
    except OptionError:
        if may_name(query, stores, named):
            raise
        return unchanged
    if statement is None:
        return unchanged
    tables = resolve_tables(statement.root, stores, is_taken, named)
    _check_kind(statement, tables)
    if not tables.store_tables and not tables.named_tables:
        return unchanged
    return _Planner(statement, tables, columns, several).plan()


def may_name(query: str, stores: Collection[str], named: NamedTables | None = None) -> bool:
    """Whether a text that cannot be parsed seems to name a table of a store, or a table with another name."""
    before, after = r"(?<![\w.`])`?", r"`?\s*\.\s*`?\w"
    patterns = [f"{before}{re.escape(name)}{after}" for name in (*stores, *(named or ()))]
    if len(stores) == 1:
        patterns.append(f"{before}(?:{'|'.join(TABLES)})`?(?!\\w)")
    alone = [*sole_named(stores, named or {}), *([HISTORY] if history_store(stores, named or {}) else [])]
    patterns += [f"{before}{re.escape(name)}`?(?!\\w)" for name in alone]
    return any(re.search(pattern, query, re.IGNORECASE) for pattern in patterns)


def _check_kind(statement: Statement, tables: ResolvedTables) -> None:
    """Check that the statement can read stores, and writes none of these tables; forget the table that it writes."""
    root = statement.root
    target = root.this if isinstance(root, exp.Insert | exp.Create) else None
    for table in [] if target is None else target.find_all(exp.Table):
        written = tables.store_tables.pop(id(table), None)
        if written is not None and table.db:  # an unqualified name is a table that Spark has, or will have
            raise OptionError(f"{written.store}.{written.table} is a table of a store, and stores are read-only")
        if id(table) in tables.named_tables:
            raise OptionError(f"{table.db}.{table.name} is a table of an archive, and is read-only here")
    keeps_query = isinstance(root, exp.Create) and (root.kind or "").upper() != "TABLE"
    if tables.store_tables and (keeps_query or not isinstance(root, exp.Query | exp.Insert | exp.Create)):
        raise OptionError(
            "a store's table can be read by queries, INSERT and CREATE TABLE ... AS; for a view of a query call "
            "createOrReplaceTempView on its DataFrame"
        )


class _Planner:
    def __init__(
        self,
        statement: Statement,
        tables: ResolvedTables,
        columns: Callable[[str], TableColumns],
        several: Collection[str],
    ) -> None:
        self._statement = statement
        self._tables = tables
        self._columns_of_table = columns
        self._several = several

    def _columns(self, table: StoreTable) -> TableColumns:
        columns = self._columns_of_table(table.table)
        if table.is_history:
            return columns.of_history()
        return columns.of_several() if table.store in self._several else columns

    def plan(self) -> QueryPlan:
        pushed: dict[int, list[Comparison]] = {}
        if self._statement.is_understood:
            pushed = PredicatePushdown(self._statement, self._tables, self._column_names).find()
        store_tables = sorted(self._tables.store_tables.values(), key=lambda table: self._span(table.node))
        references, edits = [], list(self._stripped_qualifiers())
        for number, table in enumerate(store_tables):
            columns = self._columns(table)
            comparisons = [item for item in pushed.get(id(table.node), ()) if columns.can_push(item)]
            name = f"{table.table}_{number}"
            pushable = tuple(dict.fromkeys(comparisons))
            references.append(
                Reference(name, table.store, table.table, self._columns_of(table), pushable, table.is_history)
            )
            edits.append((*self._span(table.node), f"{{{name}}}{self._alias(table.node)}"))
        for node, name in self._tables.named_tables.values():
            edits.append((*self._span(node), f"{_escaped(name)}{self._alias(node)}"))
        names = tuple(name for _, name in self._tables.named_tables.values())
        return QueryPlan(_edited(self._statement.text, edits), tuple(references), names)

    def _column_names(self, table: exp.Table) -> frozenset[str] | None:
        store_table = self._tables.store_tables.get(id(table))
        return None if store_table is None else self._columns(store_table).all

    def _span(self, table: exp.Table) -> tuple[int, int]:
        first = self._statement.span(table.args.get("db") or table.this)
        last = self._statement.span(table.this)
        if first is None or last is None:
            raise OptionError(f"the query cannot be parsed: the position of the table name {table.name} is not known")
        return first[0], last[1]

    def _alias(self, table: exp.Table) -> str:
        """`AS` and the table's name if the table has no alias, so that it still qualifies columns; else nothing."""
        in_from = isinstance(table.parent, exp.From | exp.Join | exp.Subquery | exp.Table)
        if not in_from or not has_only(table, _ARGS_AFTER_ALIAS):
            return ""
        return f" AS {self._statement.source(table.this)}"

    def _columns_of(self, table: StoreTable) -> tuple[str, ...] | None:
        """The columns to read, in the order of the table; at least one, or rows could not be counted."""
        select = table.node.find_ancestor(exp.Select)
        columns = self._columns(table)
        if not self._statement.is_understood or select is None or not has_only(table.node, PLAIN_RELATION_ARGS):
            return None
        used = used_names(select, self._tables)
        if used is None:
            return None
        used &= {*columns.default, *self._extra_columns(table, select)}
        return tuple(name for name in (*columns.default, *columns.extra) if name in used) or columns.default[:1]

    def _extra_columns(self, table: StoreTable, select: exp.Select) -> Iterator[str]:
        """The table's extra columns that the SELECT certainly uses."""
        tree = join_tree(select, self._column_names)
        extra = self._columns(table).extra
        if tree is None or not extra:
            return
        relations, merged = list(relations_of(tree)), merged_columns(tree)
        for column in select.find_all(exp.Column):
            if column.name.lower() in extra:
                relation = resolve_column(column, relations, merged)
                if relation is not None and relation.node is table.node:
                    yield column.name.lower()

    def _stripped_qualifiers(self) -> Iterator[_Edit]:
        """Edits that delete the store's name in `prod.messages.topic`: a reference has only the table's name."""
        for column in self._statement.root.find_all(exp.Column):
            if column.args.get("db") and self._is_of_store(column):
                start, stop = (self._statement.span(column.args[part]) for part in ("db", "table"))
                if start is not None and stop is not None:
                    yield start[0], stop[0], ""

    def _is_of_store(self, column: exp.Column) -> bool:
        qualifier = qualifier_of(column)
        replaced = self._tables.store_tables.keys() | self._tables.named_tables.keys()
        in_scope: list[Relation] = []
        select = column.find_ancestor(exp.Select)
        while select is not None:
            tree = join_tree(select, self._column_names)
            in_scope += [] if tree is None else relations_of(tree)
            if any(item.has_name(qualifier) and id(item.node) in replaced for item in in_scope):
                if sum(item.has_name(qualifier[-1:]) for item in in_scope) > 1:
                    raise OptionError(f"more than one table has the name {qualifier[-1]}: give them aliases")
                return True
            select = select.find_ancestor(exp.Select)
        return False


def _edited(text: str, edits: list[_Edit]) -> str:
    pieces, position = [], 0
    for start, stop, new in sorted(edits):
        pieces += [_escaped(text[position:start]), new]
        position = stop
    return "".join([*pieces, _escaped(text[position:])])


def _escaped(text: str) -> str:
    """The text with its braces doubled, because `spark.sql` formats its query."""
    return text.replace("{", "{{").replace("}", "}}")
