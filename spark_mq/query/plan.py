"""The plan of a query over stores: references to stores' tables, what of them matters, and the text that Spark runs.

Pushdown: the rows and the columns of a store's table that matter to a query.

No comparison here is ever true for NULL. A comparison of a WHERE clause is pushed down to the relation of its column,
through joins of every kind: dropping a row for which the comparison is not true cannot change the result, because every
joined row that contains it fails WHERE, and so does the NULL-padded row that an outer join produces in its place. A
comparison of an ON clause is pushed down to the sides whose rows cannot appear in the result without a partner. A
comparison of a column of a derived table or common table expression is pushed down into its query if nothing else reads
that query and the column is a copy of one of its relations' columns.

Columns are found by name. A column is dropped only if its name occurs nowhere in the SELECT that reads the table, and,
if that SELECT returns all columns with `*`, nowhere in the SELECTs that read its result. So dropping the column cannot
change the meaning of any name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from spark_mq.errors import OptionError
from spark_mq.query.comparisons import ColumnComparison, Comparison, TableColumns, comparisons
from spark_mq.query.scope import (
    PLAIN_RELATION_ARGS,
    ColumnLookup,
    Relation,
    has_only,
    is_merged,
    join_tree,
    joins_of,
    merged_columns,
    qualifier_of,
    relations_of,
    resolve_column,
    visible_relations,
)
from spark_mq.query.statement import Statement, parse_statement
from spark_mq.query.table_names import (
    HISTORY,
    NamedTables,
    ResolvedTables,
    StoreTable,
    history_store,
    is_plain_cte,
    resolve_tables,
    sole_named,
)
from spark_mq.tables.all_tables import TABLES

_ARGS_AFTER_ALIAS = frozenset(("this", "db", "joins", "laterals", "pivots"))
"""Args of a table that follow its table alias in Spark's grammar; others are between its name and the alias."""
_Edit = tuple[int, int, str]
"""The start and the stop (exclusive) of a part of the text, and what takes its place."""
_IMPLICIT = (exp.Pivot, exp.MatchRecognize)
"""Nodes that use columns without naming them."""
_STAR_ARGS = frozenset(("with_", "expressions", "from_", "joins", "laterals", "where", "hint", "limit"))
"""Args of a SELECT whose rows do not depend on its projections: no DISTINCT, GROUP BY ALL, ORDER BY ALL."""
_FILTER_ARGS = frozenset(("with_", "expressions", "hint", "from_", "joins", "laterals", "where"))
"""Args of a SELECT that returns one row for each row of its FROM clause that passes WHERE."""
_SELECT_ARGS = _FILTER_ARGS | frozenset(
    ("distinct", "group", "having", "windows", "distribute", "sort", "cluster", "order", "limit", "offset")
)
"""The same args and those that are evaluated after WHERE, so that they do not change which rows WHERE selects."""


@dataclass(frozen=True)
class Reference:
    """One reference of a query to a store's table.

    Attributes:
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
            "a store's table can be read by queries, INSERT and CREATE TABLE ... AS; in the place of a view, begin the "
            "query with WITH NAME AS (...), or call createOrReplaceTempView on its DataFrame"
        )


@dataclass(frozen=True, eq=False)
class _Planner:
    _statement: Statement
    _tables: ResolvedTables
    _columns_of_table: Callable[[str], TableColumns]
    _several: Collection[str]

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
        text = self._statement.text
        pieces, position = [], 0
        for start, stop, new in sorted(edits):
            pieces += [_escaped(text[position:start]), new]
            position = stop
        return QueryPlan("".join([*pieces, _escaped(text[position:])]), tuple(references), names)

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


def _escaped(text: str) -> str:
    """The text with its braces doubled, because `spark.sql` formats its query."""
    return text.replace("{", "{{").replace("}", "}}")


def used_names(select: exp.Expr | None, tables: ResolvedTables) -> frozenset[str] | None:
    """Names in lower case that include every column that a SELECT uses of its relations; None for all columns."""
    if not isinstance(select, exp.Select) or select.find(*_IMPLICIT) is not None:
        return None
    if any(join.method for join in select.args.get("joins") or ()):
        return None
    outermost: exp.Expr = select
    while isinstance(outermost.parent, exp.Subquery):  # (SELECT topic FROM messages) ORDER BY queue_id
        outermost = outermost.parent
    used = frozenset(identifier.name.lower() for identifier in outermost.find_all(exp.Identifier))
    stars = [star for star in select.find_all(exp.Star) if _is_of(select, star)]
    if not stars:
        return used
    if any(not _is_plain(star, select) for star in stars):
        return None
    for outer_select in _outer_selects(select, tables):
        used_outside = used_names(outer_select, tables)
        if used_outside is None:
            return None
        used |= used_outside
    return used


def _is_of(select: exp.Select, star: exp.Star) -> bool:
    """Whether a star means columns of the SELECT's relations: not `count(*)`, not the star of a nested subquery."""
    if isinstance(star.parent, exp.Count):
        return False
    is_qualified = isinstance(star.parent, exp.Column)
    return is_qualified or star.find_ancestor(exp.Select) is select


def _is_plain(star: exp.Star, select: exp.Select) -> bool:
    """Whether the star is a projection `*` or `m.*` of a SELECT whose rows do not depend on its projections."""
    projection = star.parent if isinstance(star.parent, exp.Column) else star
    is_projection = projection.parent is select and projection.arg_key == "expressions"
    return is_projection and not any(star.args.values()) and has_only(select, _STAR_ARGS)


def _outer_selects(select: exp.Select, tables: ResolvedTables) -> list[exp.Select | None]:
    """The SELECTs that read this SELECT's columns by name; None in the list for a reader that uses all of them."""
    parent = select.parent
    if isinstance(parent, exp.Exists):
        return []
    if isinstance(parent, exp.CTE):
        return [_outer_select(node) for node in tables.references_to(parent)] if is_plain_cte(parent) else [None]
    return [_outer_select(parent)] if isinstance(parent, exp.Subquery) else [None]


def _outer_select(relation: exp.Expr | None) -> exp.Select | None:
    """The SELECT whose FROM clause contains a relation; None if there is none, or an alias renames the columns."""
    if relation is None:
        return None
    alias = relation.args.get("alias")
    if alias is not None and alias.columns:
        return None
    parent = relation.parent
    if isinstance(parent, exp.From | exp.Join):
        return parent.parent if isinstance(parent.parent, exp.Select) else _outer_select(parent.parent)
    return _outer_select(parent) if isinstance(parent, exp.Subquery | exp.Table) else None


class PredicatePushdown:
    """Finds the comparisons that can be pushed down to each store's table of a statement."""

    def __init__(self, statement: Statement, tables: ResolvedTables, columns: ColumnLookup) -> None:
        self._statement = statement
        self._tables = tables
        self._columns = columns
        self._pushed: dict[int, list[Comparison]] = {}

    def find(self) -> dict[int, list[Comparison]]:
        """The comparisons by the `id` of the table's node."""
        for select in self._statement.root.find_all(exp.Select):
            for relation, comparison in self._of_select(select):
                self._push_down(relation, comparison)
        return self._pushed

    def _of_select(self, select: exp.Select) -> Iterator[tuple[Relation, Comparison]]:
        """The comparisons of the WHERE and ON clauses of one SELECT, each with a relation that it filters."""
        tree = join_tree(select, self._columns)
        if tree is None or not has_only(select, _SELECT_ARGS):
            return
        merged = merged_columns(tree)
        where = select.args.get("where")
        if where is not None:
            yield from _resolved(comparisons(self._statement, where.this), visible_relations(tree), merged)
        for join in joins_of(tree):
            if join.condition is not None:
                filtered = {relation for side in join.pushdown_sides for relation in relations_of(side)}
                in_scope = [*visible_relations(join.left), *visible_relations(join.right)]
                for relation, comparison in _resolved(comparisons(self._statement, join.condition), in_scope, merged):
                    if relation in filtered:
                        yield relation, comparison

    def _push_down(self, relation: Relation, comparison: Comparison) -> None:
        """Record the comparison for the store's table that the relation is, or from which it copies the column."""
        alias = relation.node.args.get("alias")
        if not has_only(relation.node, PLAIN_RELATION_ARGS) or (alias is not None and alias.columns):
            return
        if id(relation.node) in self._tables.store_tables:
            self._pushed.setdefault(id(relation.node), []).append(comparison)
            return
        select = self._select_of(relation.node)
        source = None if select is None else self._source_column(select, comparison.column)
        if source is not None:
            self._push_down(source[0], replace(comparison, column=source[1]))

    def _select_of(self, node: exp.Expr) -> exp.Select | None:
        """The SELECT whose rows a relation has; None if another relation has them, too."""
        select: exp.Expr | None = node.this if isinstance(node, exp.Subquery) else None
        if id(node) in self._tables.cte_tables:
            _, cte = self._tables.cte_tables[id(node)]
            if is_plain_cte(cte) and len(self._tables.references_to(cte)) == 1:
                select = cte.this
        return select if isinstance(select, exp.Select) else None

    def _source_column(self, select: exp.Select, name: str) -> tuple[Relation, str] | None:
        """The relation and column that the SELECT's output column `name` copies; None if it is not a plain copy."""
        tree = join_tree(select, self._columns)
        if tree is None or not has_only(select, _FILTER_ARGS) or select.find(exp.Window) is not None:
            return None
        relations, merged = visible_relations(tree), merged_columns(tree)
        sources: list[tuple[Relation, str] | None] = []
        for projection in select.expressions:
            if projection.is_star:
                sources += _of_star(projection, relations, merged, name)
            elif projection.alias_or_name.lower() == name:
                sources.append(_of_projection(projection.unalias(), relations, merged))
        return sources[0] if len(sources) == 1 else None


def _resolved(
    column_comparisons: Iterable[ColumnComparison], relations: Sequence[Relation], merged: frozenset[str]
) -> Iterator[tuple[Relation, Comparison]]:
    """The comparisons whose column certainly belongs to one of the relations, with that relation."""
    for column, comparison in column_comparisons:
        relation = resolve_column(column, relations, merged)
        if relation is not None:
            yield relation, comparison


def _of_star(
    projection: exp.Expr, relations: Sequence[Relation], merged: frozenset[str], name: str
) -> Iterator[tuple[Relation, str] | None]:
    """The sources of column `name` in `*` or `m.*`; None for each that may be one, but not certainly a plain copy."""
    is_plain = not any((projection if isinstance(projection, exp.Star) else projection.this).args.values())
    qualifier = qualifier_of(projection) if isinstance(projection, exp.Column) else ()
    for relation in relations:
        if qualifier and not relation.has_name(qualifier):
            continue
        if relation.columns is None or name in relation.columns:
            is_known = relation.columns is not None or bool(qualifier) or len(relations) == 1
            yield (relation, name) if is_plain and is_known and not is_merged(name, merged) else None


def _of_projection(
    projection: exp.Expr, relations: Sequence[Relation], merged: frozenset[str]
) -> tuple[Relation, str] | None:
    if not isinstance(projection, exp.Column):
        return None
    relation = resolve_column(projection, relations, merged)
    return None if relation is None else (relation, projection.name.lower())
