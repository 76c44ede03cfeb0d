"""Projection pushdown: the columns of a table that the rest of a query can use.

Columns are found by name. A column is dropped only if its name occurs nowhere in the SELECT that reads the table, and,
if that SELECT returns all columns with `*`, nowhere in the SELECTs that read its result. So dropping the column cannot
change the meaning of any name.
"""

from __future__ import annotations

from sqlglot import exp

from spark_mq.query.scope import has_only
from spark_mq.query.table_names import ResolvedTables, is_plain_cte

_IMPLICIT = (exp.Pivot, exp.MatchRecognize)
"""Nodes that use columns without naming them."""
_STAR_ARGS = frozenset(("with_", "expressions", "from_", "joins", "laterals", "where", "hint", "limit"))
"""Args of a SELECT whose rows do not depend on its projections: no DISTINCT, GROUP BY ALL, ORDER BY ALL."""


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
