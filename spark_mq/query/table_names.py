"""Which tables of a statement are tables of stores, and which are common table expressions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from spark_mq.source.options import Table

_TABLES = {table.value: table for table in Table}


@dataclass(frozen=True)
class StoreTable:
    """A place in a FROM clause that names a table of a store."""

    node: exp.Table
    store: str
    table: Table


@dataclass(frozen=True)
class CommonTable:
    """A place in a FROM clause that names a common table expression."""

    node: exp.Table
    definition: exp.CTE


@dataclass(frozen=True)
class Names:
    """What the tables of a statement's tree are, by the `id` of their node; what is in neither is Spark's."""

    store_tables: dict[int, StoreTable] = field(default_factory=dict)
    common_tables: dict[int, CommonTable] = field(default_factory=dict)

    def places_of(self, definition: exp.CTE) -> list[exp.Table]:
        """Where a common table expression is read."""
        return [place.node for place in self.common_tables.values() if place.definition is definition]


def resolve_names(root: exp.Expr, stores: Collection[str], is_taken: Callable[[str], bool]) -> Names:
    """Find what every table of the tree is.

    `prod.messages` is the table of the store `prod`. With one store, `messages` alone is, too, unless a common table
    expression has that name there, or the session has a view or table of that name (`is_taken`). Names are compared
    as Spark does by default, whatever their case.
    """
    by_name = {name.lower(): name for name in stores}
    only = next(iter(stores)) if len(stores) == 1 else None
    names = Names()
    remaining: list[tuple[exp.Expr, Mapping[str, exp.CTE]]] = [(root, {})]
    while remaining:
        node, visible = remaining.pop()
        with_ = node.args.get("with_")
        if with_ is not None:
            visible = dict(visible)
            for cte in with_.expressions:
                name = cte.alias.lower()
                # Its own name is not yet known in it: WITH messages AS (SELECT * FROM messages ...) is no recursion.
                remaining.append((cte.this, {**visible, name: cte} if with_.recursive else dict(visible)))
                visible[name] = cte
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.catalog:
            name, store = node.name.lower(), node.db.lower()
            if store in by_name and name in _TABLES:
                names.store_tables[id(node)] = StoreTable(node, by_name[store], _TABLES[name])
            elif not store and name in visible:
                names.common_tables[id(node)] = CommonTable(node, visible[name])
            elif not store and only is not None and name in _TABLES and not is_taken(name):
                names.store_tables[id(node)] = StoreTable(node, only, _TABLES[name])
        remaining.extend((child, visible) for child in node.iter_expressions() if child is not with_)
    return names


def is_plain_definition(definition: exp.CTE) -> bool:
    """Whether a common table expression has the rows and names of its query: it is not recursive, nor renames them."""
    with_ = definition.parent
    return not definition.args["alias"].columns and with_ is not None and not with_.args.get("recursive")
