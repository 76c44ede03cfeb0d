"""Which comparisons hold for every row of a store's table that can matter to a query.

No comparison here is ever true for NULL. So one of a WHERE clause narrows whichever relation its column is of, through
joins of every kind: a row of that relation for which it is not true is in no row that WHERE lets through; and a row of
the other side that then finds no partner, and is filled with NULLs, does not pass WHERE either. One of an ON clause
narrows the sides of which a row without a partner comes to nothing. From a subquery or a common table expression that
is read once, a comparison goes on to what that reads, where the column is handed on as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from spark_mq.query.comparisons import ColumnComparison, Comparison, comparisons
from spark_mq.query.scope import (
    RELATION_PARTS,
    Columns,
    Relation,
    Tree,
    UnknownJoinError,
    from_tree,
    has_only,
    is_own,
    joins_of,
    owner,
    qualifier_of,
    relations_of,
    shared_columns,
    visible,
)
from spark_mq.query.statement import Statement
from spark_mq.query.table_names import Names, is_plain_definition

_HANDING_ON = frozenset(("with_", "expressions", "hint", "from_", "joins", "laterals", "where"))
"""Parts of a SELECT that gives one row for each row of its FROM clause that passes WHERE."""
_SELECT_PARTS = _HANDING_ON | frozenset(
    ("distinct", "group", "having", "windows", "distribute", "sort", "cluster", "order", "limit", "offset")
)
"""Parts of a SELECT that come after WHERE, or do not change what WHERE means."""


class PredicatePushdown:
    """Finds the comparisons by which each store's table of a statement can be narrowed."""

    def __init__(self, statement: Statement, names: Names, columns: Columns) -> None:
        self._statement = statement
        self._names = names
        self._columns = columns
        self._found: dict[int, list[Comparison]] = {}

    def find(self) -> dict[int, list[Comparison]]:
        """Comparisons by the `id` of the table's node."""
        for select in self._statement.root.find_all(exp.Select):
            for relation, comparison in self._of_select(select):
                self._narrow(relation, comparison)
        return self._found

    def _of_select(self, select: exp.Select) -> Iterator[tuple[Relation, Comparison]]:
        """What the WHERE and ON clauses of one SELECT say of its relations."""
        tree = self._tree(select)
        if tree is None or not has_only(select, _SELECT_PARTS):
            return
        shared = shared_columns(tree)
        where = select.args.get("where")
        if where is not None:
            yield from _owned(comparisons(self._statement, where.this), visible(tree), shared)
        for join in joins_of(tree):
            if join.condition is not None:
                sides = {relation for side in join.narrowed for relation in relations_of(side)}
                found = comparisons(self._statement, join.condition)
                for relation, comparison in _owned(found, [*visible(join.left), *visible(join.right)], shared):
                    if relation in sides:
                        yield relation, comparison

    def _tree(self, select: exp.Select) -> Tree | None:
        try:
            return from_tree(select, self._columns)
        except UnknownJoinError:
            return None

    def _narrow(self, relation: Relation, comparison: Comparison) -> None:
        """Note the comparison for the store's table that the relation is, or hands its column on from."""
        alias = relation.node.args.get("alias")
        if not has_only(relation.node, RELATION_PARTS) or (alias is not None and alias.columns):
            return
        if id(relation.node) in self._names.store_tables:
            self._found.setdefault(id(relation.node), []).append(comparison)
            return
        select = self._read_once(relation.node)
        inner = None if select is None else self._handed_on(select, comparison.column)
        if inner is not None:
            self._narrow(inner[0], replace(comparison, column=inner[1]))

    def _read_once(self, node: exp.Expr) -> exp.Select | None:
        """The SELECT whose rows a relation has, if nobody else has them."""
        select: exp.Expr | None = node.this if isinstance(node, exp.Subquery) else None
        if id(node) in self._names.common_tables:
            definition = self._names.common_tables[id(node)].definition
            if is_plain_definition(definition) and len(self._names.places_of(definition)) == 1:
                select = definition.this
        return select if isinstance(select, exp.Select) else None

    def _handed_on(self, select: exp.Select, name: str) -> tuple[Relation, str] | None:
        """Of which relation, and which column there, the column `name` of a SELECT is a copy."""
        tree = self._tree(select)
        if tree is None or not has_only(select, _HANDING_ON) or select.find(exp.Window) is not None:
            return None
        relations, shared = visible(tree), shared_columns(tree)
        found: list[tuple[Relation, str] | None] = []
        for projection in select.expressions:
            if projection.is_star:
                found += _of_star(projection, relations, shared, name)
            elif projection.alias_or_name.lower() == name:
                found.append(_copied(projection.unalias(), relations, shared))
        return found[0] if len(found) == 1 else None


def _owned(
    found: Iterable[ColumnComparison], relations: Sequence[Relation], shared: frozenset[str]
) -> Iterator[tuple[Relation, Comparison]]:
    for one in found:
        relation = owner(one.node, relations, shared)
        if relation is not None:
            yield relation, one.comparison


def _of_star(
    projection: exp.Expr, relations: Sequence[Relation], shared: frozenset[str], name: str
) -> Iterator[tuple[Relation, str] | None]:
    """What `*` or `m.*` gives under the name; None for what it may give, but not as a plain copy."""
    is_plain = not any((projection if isinstance(projection, exp.Star) else projection.this).args.values())
    qualifier = qualifier_of(projection) if isinstance(projection, exp.Column) else ()
    for relation in relations:
        if qualifier and not relation.has_name(qualifier):
            continue
        if relation.columns is None or name in relation.columns:
            is_known = relation.columns is not None or bool(qualifier) or len(relations) == 1
            yield (relation, name) if is_plain and is_known and is_own(name, shared) else None


def _copied(projection: exp.Expr, relations: Sequence[Relation], shared: frozenset[str]) -> tuple[Relation, str] | None:
    if not isinstance(projection, exp.Column):
        return None
    relation = owner(projection, relations, shared)
    return None if relation is None else (relation, projection.name.lower())
