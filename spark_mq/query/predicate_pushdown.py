"""Pushdown: the rows and the columns of a store's table that matter to a query.

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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from spark_mq.query.comparisons import ColumnComparison, Comparison, comparisons
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
from spark_mq.query.statement import Statement
from spark_mq.query.table_names import ResolvedTables, is_plain_cte

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
