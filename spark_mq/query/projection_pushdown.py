"""Which columns of a table the rest of a query can use.

Found by name: a column is left out only if its name is nowhere in the SELECT that reads the table (nor, where that
SELECT hands on all columns with `*`, in those that read it), so that leaving it out changes no name's meaning.
"""

from __future__ import annotations

from sqlglot import exp

from spark_mq.query.scope import has_only
from spark_mq.query.table_names import Names, is_plain_definition

_IMPLICIT = (exp.Pivot, exp.MatchRecognize)
"""What uses columns without naming them."""
_PASSING = frozenset(("with_", "expressions", "from_", "joins", "laterals", "where", "hint", "limit"))
"""Parts of a SELECT whose rows are the same, whatever its list is: unlike DISTINCT, GROUP BY ALL, ORDER BY ALL."""


def used_names(select: exp.Expr | None, names: Names) -> frozenset[str] | None:
    """The names of columns, and more, that are used of what a SELECT reads; None for all columns."""
    if not isinstance(select, exp.Select) or select.find(*_IMPLICIT) is not None:
        return None
    if any(join.method for join in select.args.get("joins") or ()):
        return None
    whole: exp.Expr = select
    while isinstance(whole.parent, exp.Subquery):  # (SELECT topic FROM messages) ORDER BY queue_id
        whole = whole.parent
    used = frozenset(identifier.name.lower() for identifier in whole.find_all(exp.Identifier))
    stars = [star for star in select.find_all(exp.Star) if _is_of(select, star)]
    if not stars:
        return used
    if any(not _is_plain(star, select) for star in stars):
        return None
    for reader in _readers(select, names):
        beyond = used_names(reader, names)
        if beyond is None:
            return None
        used |= beyond
    return used


def _is_of(select: exp.Select, star: exp.Star) -> bool:
    """Whether a star means columns of what the SELECT reads: not `count(*)`, not one of a subquery's own."""
    if isinstance(star.parent, exp.Count):
        return False
    is_qualified = isinstance(star.parent, exp.Column)
    return is_qualified or star.find_ancestor(exp.Select) is select


def _is_plain(star: exp.Star, select: exp.Select) -> bool:
    """Whether the star is `*` or `m.*` in the list of a SELECT whose rows do not depend on its list."""
    projection = star.parent if isinstance(star.parent, exp.Column) else star
    is_in_list = projection.parent is select and projection.arg_key == "expressions"
    return is_in_list and not any(star.args.values()) and has_only(select, _PASSING)


def _readers(select: exp.Select, names: Names) -> list[exp.Select | None]:
    """The SELECTs that use this one's columns by name; None among them for what uses all of them, in order."""
    parent = select.parent
    if isinstance(parent, exp.Exists):
        return []
    if isinstance(parent, exp.CTE):
        return [_reader(place) for place in names.places_of(parent)] if is_plain_definition(parent) else [None]
    return [_reader(parent)] if isinstance(parent, exp.Subquery) else [None]


def _reader(relation: exp.Expr | None) -> exp.Select | None:
    """The SELECT in whose FROM clause a relation is; None where it is somewhere else, or has its columns renamed."""
    if relation is None:
        return None
    alias = relation.args.get("alias")
    if alias is not None and alias.columns:
        return None
    parent = relation.parent
    if isinstance(parent, exp.From | exp.Join):
        return parent.parent if isinstance(parent.parent, exp.Select) else _reader(parent.parent)
    return _reader(parent) if isinstance(parent, exp.Subquery | exp.Table) else None
