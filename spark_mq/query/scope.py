"""The scope of a SELECT: the relations of its FROM clause, their joins, and which relation a column belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

ColumnLookup = Callable[[exp.Table], frozenset[str] | None]
"""Returns the names of the columns of a table, None if they are not known."""


INNER, LEFT, RIGHT, FULL, SEMI, ANTI = "INNER", "LEFT", "RIGHT", "FULL", "SEMI", "ANTI"
"""How two sides are joined."""

_KINDS = (
    {("", kind): INNER for kind in ("", "INNER", "CROSS")}
    | {(side, kind): side for side in (LEFT, RIGHT, FULL) for kind in ("", "OUTER")}
    | {(side, kind): kind for side in ("", LEFT) for kind in (SEMI, ANTI)}
)
"""The kind of a join by the words for its side and its kind."""
PLAIN_RELATION_ARGS = frozenset(("this", "db", "alias", "joins", "laterals"))
"""Args of a relation whose rows are exactly those of the table that it names: no TABLESAMPLE, PIVOT or version."""
_JOIN_ARGS = frozenset(("this", "on", "side", "kind", "using", "method"))


@dataclass(frozen=True, eq=False)
class Relation:
    """One relation of a FROM clause: a table, a common table expression, a derived table or a LATERAL VIEW."""

    node: exp.Expr
    name: tuple[str, ...]
    columns: frozenset[str] | None

    def has_name(self, qualifier: tuple[str, ...]) -> bool:
        """Whether a column's `qualifier` can name this relation."""
        return bool(qualifier) and self.name[-len(qualifier) :] == qualifier


@dataclass(frozen=True, eq=False)
class Join:
    """A join of two sides."""

    left: Relation | Join
    right: Relation | Join
    kind: str
    condition: exp.Expr | None = None
    using: frozenset[str] = frozenset()

    @property
    def pushdown_sides(self) -> tuple[Relation | Join, ...]:
        """The sides from which rows that fail the ON condition can be dropped without changing the result."""
        if self.kind in (INNER, SEMI):
            return self.left, self.right
        if self.kind in (LEFT, ANTI):
            return (self.right,)
        return (self.left,) if self.kind == RIGHT else ()


JoinTree = Relation | Join


class _UnknownJoinError(Exception):
    """The FROM clause has a kind of join that this package does not know, so that its rows are not known either."""


def join_tree(select: exp.Select, columns: ColumnLookup) -> JoinTree | None:
    """The relations and joins of a SELECT's FROM clause; None if it has none, or a join that is not known here."""
    from_ = select.args.get("from_")
    try:
        return None if from_ is None else _with_joins(_tree(from_.this, columns), select, columns)
    except _UnknownJoinError:
        return None


def _tree(node: exp.Expr, columns: ColumnLookup) -> JoinTree:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery) and not node.alias:
        return _with_joins(_tree(node.this, columns), node, columns)  # parentheses
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        aliases = frozenset(column.name.lower() for column in alias.columns)
        relation = Relation(node, _lower(alias.name), aliases)
    elif isinstance(node, exp.Table):
        name = _lower(alias.name) if alias is not None else _lower(node.catalog, node.db, node.name)
        relation = Relation(node, name, columns(node))
    else:
        relation = Relation(node, _lower(node.alias), None)
    return _with_joins(relation, node, columns)


def _with_joins(tree: JoinTree, node: exp.Expr, columns: ColumnLookup) -> JoinTree:
    """The tree, joined with everything that `node` joins to it; LATERAL VIEWs come last, as in Spark's grammar."""
    for join in node.args.get("joins") or ():
        kind = _KINDS.get((join.side.upper(), join.kind.upper()))
        if kind is None or join.method.upper() not in ("", "NATURAL") or not has_only(join, _JOIN_ARGS):
            raise _UnknownJoinError
        using = frozenset(column.name.lower() for column in join.args.get("using") or ())
        if join.method:
            using = frozenset("*")
        tree = Join(tree, _tree(join.this, columns), kind, join.args.get("on"), using)
    for lateral in node.args.get("laterals") or ():
        tree = Join(tree, _tree(lateral, columns), INNER)
    return tree


def has_only(node: exp.Expr, args: frozenset[str]) -> bool:
    """Whether a node of the tree has no other args than these."""
    return all(name in args for name, value in node.args.items() if value)


def _lower(*parts: str) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts if part)


def joins_of(tree: JoinTree) -> Iterator[Join]:
    """All joins of the tree."""
    if isinstance(tree, Join):
        yield tree
        yield from joins_of(tree.left)
        yield from joins_of(tree.right)


def relations_of(tree: JoinTree) -> Iterator[Relation]:
    """All relations of the tree."""
    if isinstance(tree, Join):
        yield from relations_of(tree.left)
        yield from relations_of(tree.right)
    else:
        yield tree


def visible_relations(tree: JoinTree) -> list[Relation]:
    """The relations whose columns the rows of the tree have: not the right side of a semi or anti join."""
    if isinstance(tree, Relation):
        return [tree]
    right = [] if tree.kind in (SEMI, ANTI) else visible_relations(tree.right)
    return [*visible_relations(tree.left), *right]


def merged_columns(tree: JoinTree) -> frozenset[str]:
    """The columns that USING merges, or `*` if a NATURAL join merges all; unqualified, they belong to no relation."""
    return frozenset(name for join in joins_of(tree) for name in join.using)


def is_merged(name: str, merged: frozenset[str]) -> bool:
    """Whether an unqualified column may be one of `merged_columns`."""
    return name in merged or "*" in merged


def qualifier_of(column: exp.Column) -> tuple[str, ...]:
    """The names before a column's own name, in lower case."""
    return _lower(column.catalog, column.db, column.table)


def resolve_column(column: exp.Column, relations: Sequence[Relation], merged: frozenset[str]) -> Relation | None:
    """The relation to which the column certainly belongs; None if that is not certain."""
    name = column.name.lower()
    qualifier = qualifier_of(column)
    if qualifier:
        candidates = [relation for relation in relations if relation.has_name(qualifier)]
    elif is_merged(name, merged):
        return None
    else:
        candidates = [relation for relation in relations if relation.columns is None or name in relation.columns]
    if len(candidates) != 1:
        return None
    (relation,) = candidates
    if relation.columns is None:
        return relation if qualifier or len(relations) == 1 else None
    return relation if name in relation.columns else None
