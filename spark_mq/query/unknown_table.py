"""Names of tables that do not exist: what was probably meant, and which tables there are."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection

from sqlglot import exp

from spark_mq.query.statement import Statement
from spark_mq.query.table_names import NamedTables, resolve_tables
from spark_mq.tables.all_tables import TABLES

_LIKENESS = 0.7
_PLAIN = re.compile(r"\w+")
_FORMATS = (
    *("parquet", "delta", "iceberg", "hudi", "orc", "csv", "json", "xml", "text", "avro", "binaryfile", "rocketmq"),
    *("default", "global_temp", "information_schema"),
)
"""First parts of names that mean a format, or a database that Spark always has."""
_PART = re.compile(r"`((?:[^`]|``)*)`|(\w+)")


def unknown_tables(
    statement: Statement, stores: Collection[str], named: NamedTables, is_taken: Callable[[str], bool]
) -> list[str]:
    """The errors for tables of a query that are neither a store's nor Spark's, if Spark's catalog is empty.

    A name is reported only if it resembles that of a store or of a store's table: `parquet.messages` can be a file.
    """
    if not statement.is_understood or not isinstance(statement.root, exp.Query):
        return []
    tables = resolve_tables(statement.root, stores, is_taken, named)
    errors = []
    for node in statement.root.find_all(exp.Table):
        if tables.is_known(node) or not isinstance(node.this, exp.Identifier) or node.catalog:
            continue
        parts = [node.db, node.name] if node.db else [node.name]
        problem = None if not node.db and is_taken(node.name.lower()) else _problem(parts, stores, named)
        errors += [] if problem is None else [problem]
    return errors


def unknown_table(name: str, stores: Collection[str], named: NamedTables) -> str | None:
    """The error for a table that Spark does not have; None if the name does not resemble one of a store's.

    Args:
        name: The name as SQL text: "`prodd`.`messages`".
        named: Tables that Spark knows under another name.
    """
    parts = [quoted.replace("``", "`") if quoted else plain for quoted, plain in _PART.findall(name)]
    return _problem(parts, stores, named) if 0 < len(parts) < 3 else None


def _problem(parts: list[str], stores: Collection[str], named: NamedTables) -> str | None:
    *qualifier, table = parts
    if not qualifier:
        return _unqualified(table, stores, named)
    (store,) = qualifier
    if store.lower() in _FORMATS or not _PLAIN.fullmatch(table):  # csv.`/data/messages` is a file
        return None
    owners = _owners(stores, named)
    near_stores = [owner for owner in owners if owner.lower() == store.lower()] or _near(store, owners)
    candidates = [f"{owner}.{near}" for owner in near_stores for near in _near(table, owners[owner])]
    is_store = any(owner.lower() == store.lower() for owner in owners)
    if not candidates and not is_store:
        return None
    if any(candidate.lower() == f"{store}.{table}".lower() for candidate in candidates):  # of a DELETE, for example
        return _misplaced(f"{store}.{table}")
    return _message(f"{store}.{table}", candidates, owners)


def _unqualified(table: str, stores: Collection[str], named: NamedTables) -> str | None:
    owners = _owners(stores, named)
    if len(stores) == 1 or len(owners) == 1:
        near = _near(table, owners[next(iter(stores), next(iter(owners)))])
        if table.lower() in near:
            return _misplaced(table)
        return _message(table, near, owners) if near else None
    candidates = [f"{owner}.{near}" for owner in owners for near in _near(table, owners[owner])]
    return _message(table, candidates, owners) if candidates else None


def _misplaced(name: str) -> str:
    return (
        f"{name} can only be named in a query, in EXPLAIN of a query, in INSERT or CREATE TABLE ... AS, and in DESCRIBE"
    )


def _owners(stores: Collection[str], named: NamedTables) -> dict[str, list[str]]:
    """By name of a store or an archive: its tables."""
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
