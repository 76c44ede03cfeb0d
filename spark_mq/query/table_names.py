"""Resolves the table names of a statement: tables of stores, other tables, CTEs; and what an unknown name may mean."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from spark_mq.errors import OptionError
from spark_mq.query.statement import Statement, parse_statement
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.messages import MESSAGES

ALL = "all"
"""The name of the store whose tables are those of all stores."""
HISTORY = "history"
"""The table with the messages of an archive, and after its end those of a store."""
_LIKENESS = 0.7
_PLAIN = re.compile(r"\w+")
_FORMATS = (
    *("parquet", "delta", "iceberg", "hudi", "orc", "csv", "json", "xml", "text", "avro", "binaryfile", "rocketmq"),
    *("default", "global_temp", "information_schema"),
)
"""First parts of names that mean a format, or a database that Spark always has."""
_PART = re.compile(r"`((?:[^`]|``)*)`|(\w+)")


def unknown_tables(
    statement: Statement,
    stores: Collection[str],
    named: NamedTables,
    is_taken: Callable[[str], bool],
    is_described: bool = False,
) -> list[str]:
    """The errors for tables of a query that are neither a store's nor Spark's, if Spark's catalog is empty.

    A name is reported only if it resembles that of a store or of a store's table: `parquet.messages` can be a file. A
    name of one part that `is_described` is always reported.
    """
    if not statement.is_understood or not isinstance(statement.root, exp.Query):
        return []
    tables = resolve_tables(statement.root, stores, is_taken, named)
    errors = []
    for node in statement.root.find_all(exp.Table):
        if tables.is_known(node) or not isinstance(node.this, exp.Identifier) or node.catalog:
            continue
        problem = None
        if node.db:
            problem = _problem([node.db, node.name], stores, named)
        elif not is_taken(node.name.lower()):
            problem = _problem([node.name], stores, named)
            if problem is None and is_described:
                problem = _message(node.name, [], _owners(stores, named))
        errors += [] if problem is None else [problem]
    return errors


def unknown_table(name: str, stores: Collection[str], named: NamedTables) -> str | None:
    """The error for a table that Spark does not have; None if the name does not resemble one of a store's."""
    parts = [quoted.replace("``", "`") if quoted else plain for quoted, plain in _PART.findall(name)]
    return _problem(parts, stores, named) if 0 < len(parts) < 3 else None


def _problem(parts: list[str], stores: Collection[str], named: NamedTables) -> str | None:
    *qualifier, table = parts
    owners = _owners(stores, named)
    is_owner = False
    if not qualifier:
        name = table
        if len(stores) == 1 or len(owners) == 1:
            candidates = _near(table, owners[next(iter(stores), next(iter(owners)))])
        else:
            candidates = [f"{owner}.{near}" for owner in owners for near in _near(table, owners[owner])]
    else:
        (owner,) = qualifier
        name = f"{owner}.{table}"
        if owner.lower() in _FORMATS or not _PLAIN.fullmatch(table):  # csv.`/data/messages` is a file
            return None
        same = [other for other in owners if other.lower() == owner.lower()]
        is_owner = bool(same)
        candidates = [f"{one}.{near}" for one in same or _near(owner, owners) for near in _near(table, owners[one])]
    if name.lower() in map(str.lower, candidates):  # of a DELETE, for example
        return (
            f"{name} can only be named in a query, in EXPLAIN of a query, in INSERT or CREATE TABLE ... AS, and in "
            "DESCRIBE"
        )
    return _message(name, candidates, owners) if candidates or is_owner else None


def _owners(stores: Collection[str], named: NamedTables) -> dict[str, list[str]]:
    return {store: list(TABLES) for store in stores} | {owner: list(tables) for owner, tables in named.items()}


def _near(name: str, names: Collection[str]) -> list[str]:
    by_lower = {other.lower(): other for other in names}
    return [by_lower[near] for near in difflib.get_close_matches(name.lower(), by_lower, n=2, cutoff=_LIKENESS)]


def _message(name: str, candidates: list[str], owners: dict[str, list[str]]) -> str:
    meant = f"; did you mean {' or '.join(candidates)}?" if candidates else ";"
    lists: dict[tuple[str, ...], list[str]] = {}
    for owner, tables in owners.items():
        lists.setdefault(tuple(tables), []).append(owner)
    listed = "; ".join(f"{', '.join(owned)}: {', '.join(tables)}" for tables, owned in lists.items())
    return f"there is no table {name}{meant} Tables of {listed}"


@dataclass(frozen=True)
class StoreTable:
    """One mention of a store's table in a FROM clause.

    `is_history` means the messages of the only archive, and after its end those of the store.
    """

    node: exp.Table
    store: str
    table: str
    is_history: bool = False


@dataclass(frozen=True)
class ResolvedTables:
    """The tables of a statement by the `id` of their node in the tree; a table in no dict is Spark's.

    Attributes:
        cte_tables: The nodes that read common table expressions, and these.
        named_tables: Nodes of tables that Spark knows under another name, such as those of archives, and that name.
    """

    store_tables: dict[int, StoreTable] = field(default_factory=dict)
    cte_tables: dict[int, tuple[exp.Table, exp.CTE]] = field(default_factory=dict)
    named_tables: dict[int, tuple[exp.Table, str]] = field(default_factory=dict)

    def is_known(self, node: exp.Expr) -> bool:
        """Whether the table is that of a store, has another name in Spark, or is a common table expression."""
        return any(id(node) in tables for tables in (self.store_tables, self.named_tables, self.cte_tables))

    def references_to(self, cte: exp.CTE) -> list[exp.Table]:
        """The nodes that read a common table expression."""
        return [node for node, of in self.cte_tables.values() if of is cte]


NamedTables = Mapping[str, Mapping[str, str]]
"""By the first and the second part of a table's name, in lower case: the table's name for Spark, as SQL text."""


def resolve_tables(
    root: exp.Expr, stores: Collection[str], is_taken: Callable[[str], bool], named: NamedTables | None = None
) -> ResolvedTables:
    """The tables of stores, the tables with another name, and the common table expressions that the tree names.

    `prod.messages` is a table of the store `prod`. With one store, or one archive and no store, `messages` alone is a
    table of it, and with one of each `history` has rows of both, unless a common table expression in scope has that
    name, or the session has a view or table of that name (`is_taken`). Case does not matter in names, as in Spark by
    default.
    """
    by_name = {name.lower(): name for name in stores}
    only = next(iter(stores)) if len(stores) == 1 else None
    only_named = sole_named(stores, named or {})
    with_history = history_store(stores, named or {})
    tables = ResolvedTables()
    remaining: list[tuple[exp.Expr, Mapping[str, exp.CTE]]] = [(root, {})]
    while remaining:
        node, visible = remaining.pop()
        with_ = node.args.get("with_")
        if with_ is not None:
            visible = dict(visible)
            for cte in with_.expressions:
                name = cte.alias.lower()
                # A CTE is not in scope in its own query: WITH messages AS (SELECT * FROM messages) is not recursive.
                remaining.append((cte.this, {**visible, name: cte} if with_.recursive else dict(visible)))
                visible[name] = cte
        if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier) and not node.catalog:
            name, store = node.name.lower(), node.db.lower()
            if store in by_name and name in TABLES:
                tables.store_tables[id(node)] = StoreTable(node, by_name[store], name)
            elif named is not None and name in named.get(store, {}):
                tables.named_tables[id(node)] = (node, named[store][name])
            elif not store and name in visible:
                tables.cte_tables[id(node)] = (node, visible[name])
            elif not store and only is not None and name in TABLES and not is_taken(name):
                tables.store_tables[id(node)] = StoreTable(node, only, name)
            elif not store and name in only_named and not is_taken(name):
                tables.named_tables[id(node)] = (node, only_named[name])
            elif not store and name == HISTORY and with_history is not None and not is_taken(name):
                tables.store_tables[id(node)] = StoreTable(node, with_history, MESSAGES.name, is_history=True)
        remaining.extend((child, visible) for child in node.iter_expressions() if child is not with_)
    return tables


def sole_named(stores: Collection[str], named: NamedTables) -> Mapping[str, str]:
    """The tables of the only archive, if there is one archive and no store; else none."""
    return next(iter(named.values())) if not stores and len(named) == 1 else {}


def history_store(stores: Collection[str], named: NamedTables) -> str | None:
    """The store whose messages `history` has after those of the archive; None unless there is one of each."""
    others = [name for name in stores if name != ALL]
    return others[0] if len(others) == len(named) == 1 else None


def may_read_of(text: str, owner: str, names: Collection[str]) -> set[str]:
    """Those of the names that a statement may read as tables of an owner, such as `old.rates`.

    A statement that the parser cannot read may do so if it has the words anywhere.
    """
    words = _words(text)
    found = set(words.intersection(names))
    if not found or (owner and words.isdisjoint(_words(owner))):
        return set()
    tables = _tables(text)
    return found if tables is None else found & {table.name.lower() for table in tables if table.db.lower() == owner}


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower()))


def _tables(text: str) -> list[exp.Table] | None:
    try:
        statement = parse_statement(text)
    except OptionError:
        return None
    return None if statement is None or not statement.is_understood else list(statement.root.find_all(exp.Table))


def is_plain_cte(cte: exp.CTE) -> bool:
    """Whether a common table expression has the rows and columns of its query: not recursive, no column aliases."""
    with_ = cte.parent
    return not cte.args["alias"].columns and with_ is not None and not with_.args.get("recursive")
