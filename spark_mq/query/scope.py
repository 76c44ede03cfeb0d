"""The relations of a FROM clause, how they are joined, and whose a column is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from sqlglot import exp

Columns = Callable[[exp.Table], frozenset[str] | None]
"""Gives the names of the columns of a table, None where they are not known."""


class JoinKind(Enum):
    """How two sides are joined."""

    INNER = auto()
    LEFT = auto()
    RIGHT = auto()
    FULL = auto()
    SEMI = auto()
    ANTI = auto()


_KINDS = {
    ("", ""): JoinKind.INNER,
    ("", "INNER"): JoinKind.INNER,
    ("", "CROSS"): JoinKind.INNER,
    ("LEFT", ""): JoinKind.LEFT,
    ("LEFT", "OUTER"): JoinKind.LEFT,
    ("RIGHT", ""): JoinKind.RIGHT,
    ("RIGHT", "OUTER"): JoinKind.RIGHT,
    ("FULL", ""): JoinKind.FULL,
    ("FULL", "OUTER"): JoinKind.FULL,
    ("", "SEMI"): JoinKind.SEMI,
    ("LEFT", "SEMI"): JoinKind.SEMI,
    ("", "ANTI"): JoinKind.ANTI,
    ("LEFT", "ANTI"): JoinKind.ANTI,
}
RELATION_PARTS = frozenset(("this", "db", "alias", "joins", "laterals"))
"""Parts of a relation for which its rows are those of what it names: no TABLESAMPLE, PIVOT, version."""
_JOIN_PARTS = frozenset(("this", "on", "side", "kind", "using", "method"))


@dataclass(frozen=True, eq=False)
class Relation:
    """One relation. `name`: its alias, or the parts of its table's name; `columns`: None where they are not known."""

    node: exp.Expr
    name: tuple[str, ...]
    columns: frozenset[str] | None

    def has_name(self, qualifier: tuple[str, ...]) -> bool:
        """Whether `qualifier` before a column can mean this relation."""
        return bool(qualifier) and self.name[-len(qualifier) :] == qualifier


@dataclass(frozen=True, eq=False)
class Join:
    """Two sides and the condition between them; `using` are the columns that stand for one of each side."""

    left: Relation | Join
    right: Relation | Join
    kind: JoinKind
    condition: exp.Expr | None = None
    using: frozenset[str] = frozenset()

    @property
    def narrowed(self) -> tuple[Relation | Join, ...]:
        """The sides of which rows for which the condition does not hold can be left out: they come to nothing."""
        if self.kind in (JoinKind.INNER, JoinKind.SEMI):
            return self.left, self.right
        if self.kind in (JoinKind.LEFT, JoinKind.ANTI):
            return (self.right,)
        return (self.left,) if self.kind == JoinKind.RIGHT else ()


Tree = Relation | Join


class UnknownJoinError(Exception):
    """The FROM clause has a join whose meaning for rows is not known here."""


def from_tree(select: exp.Select, columns: Columns) -> Tree | None:
    """The FROM clause of a SELECT, None where it has none. Raises `UnknownJoinError`."""
    from_ = select.args.get("from_")
    if from_ is None:
        return None
    return _joined(_tree(from_.this, columns), select, columns)


def _tree(node: exp.Expr, columns: Columns) -> Tree:
    if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table | exp.Subquery) and not node.alias:
        return _joined(_tree(node.this, columns), node, columns)  # parentheses
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        names = frozenset(column.name.lower() for column in alias.columns)
        relation = Relation(node, _lower(alias.name), names)
    elif isinstance(node, exp.Table):
        name = _lower(alias.name) if alias is not None else _lower(node.catalog, node.db, node.name)
        relation = Relation(node, name, columns(node))
    else:
        relation = Relation(node, _lower(node.alias), None)
    return _joined(relation, node, columns)


def _joined(tree: Tree, node: exp.Expr, columns: Columns) -> Tree:
    """The tree with all that is joined to it; LATERAL VIEWs come last, as in Spark's grammar."""
    for join in node.args.get("joins") or ():
        kind = _KINDS.get((join.side.upper(), join.kind.upper()))
        if kind is None or join.method.upper() not in ("", "NATURAL") or not has_only(join, _JOIN_PARTS):
            raise UnknownJoinError
        using = frozenset(column.name.lower() for column in join.args.get("using") or ())
        if join.method:
            using = frozenset("*")
        tree = Join(tree, _tree(join.this, columns), kind, join.args.get("on"), using)
    for lateral in node.args.get("laterals") or ():
        tree = Join(tree, _tree(lateral, columns), JoinKind.INNER)
    return tree


def has_only(node: exp.Expr, parts: frozenset[str]) -> bool:
    """Whether a node of the tree has no other parts than these."""
    return all(name in parts for name, value in node.args.items() if value)


def _lower(*parts: str) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts if part)


def joins_of(tree: Tree) -> Iterator[Join]:
    """All joins of the tree."""
    if isinstance(tree, Join):
        yield tree
        yield from joins_of(tree.left)
        yield from joins_of(tree.right)


def relations_of(tree: Tree) -> Iterator[Relation]:
    """All relations of the tree."""
    if isinstance(tree, Join):
        yield from relations_of(tree.left)
        yield from relations_of(tree.right)
    else:
        yield tree


def visible(tree: Tree) -> list[Relation]:
    """The relations whose columns the rows of the tree have: not the right side of a semi or anti join."""
    if isinstance(tree, Relation):
        return [tree]
    right = [] if tree.kind in (JoinKind.SEMI, JoinKind.ANTI) else visible(tree.right)
    return [*visible(tree.left), *right]


def shared_columns(tree: Tree) -> frozenset[str]:
    """The columns of USING, `*` for all of a NATURAL join: without a qualifier they are no relation's own."""
    return frozenset(name for join in joins_of(tree) for name in join.using)


def is_own(name: str, shared: frozenset[str]) -> bool:
    """Whether a column without a qualifier can be a relation's own, going by `shared_columns`."""
    return name not in shared and "*" not in shared


def qualifier_of(column: exp.Column) -> tuple[str, ...]:
    """What stands before a column's name."""
    return _lower(column.catalog, column.db, column.table)


def owner(column: exp.Column, relations: Sequence[Relation], shared: frozenset[str]) -> Relation | None:
    """The one relation whose column this certainly is; None where that is not certain."""
    name = column.name.lower()
    qualifier = qualifier_of(column)
    if qualifier:
        found = [relation for relation in relations if relation.has_name(qualifier)]
    elif is_own(name, shared):
        found = [relation for relation in relations if relation.columns is None or name in relation.columns]
    else:
        found = []
    if len(found) != 1:
        return None
    is_known = found[0].columns is not None or bool(qualifier) or len(relations) == 1
    return found[0] if is_known and (found[0].columns is None or name in found[0].columns) else None
