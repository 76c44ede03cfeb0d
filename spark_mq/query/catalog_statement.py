"""`SHOW TABLES` and `DESCRIBE` of stores' tables, answered from the data source's schemas."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.io.s3 import SECRET_OPTIONS, shown
from spark_mq.query.catalog import Store, columns_of, options_of
from spark_mq.query.comparisons import TableColumns
from spark_mq.query.lexer import without_comments
from spark_mq.query.table_names import HISTORY, NamedTables, history_store, sole_named
from spark_mq.source.schema import full_schema
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.live import SECRET_LIVE_OPTIONS
from spark_mq.tables.messages import MESSAGES
from spark_mq.tables.table import STORE_NAME_COLUMNS

_ARCHIVE_COMMENTS = {
    "messages": "the archived messages",
    "keys": "the keys of archived messages, and where the messages are",
    "segments": "the files of the archived commit logs",
    "snapshots": "the files of config/, checkpoint, and facts of queues and index files, at the times of archiving",
}
"""By table of an archive that is not one of what messages mean: what its rows are."""
_NAME = r"(?:`(?:[^`]|``)+`|\w+)"
_TEXT = r"""(?:'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")"""
_SHOW = re.compile(
    rf"\s*SHOW\s+TABLES(?:\s+(?:IN|FROM)\s+(?P<store>{_NAME}))?(?:\s+(?:LIKE\s+)?(?P<pattern>{_TEXT}))?\s*",
    re.IGNORECASE | re.DOTALL,
)
_DESCRIBE = re.compile(
    rf"\s*DESC(?:RIBE)?\s+(?:TABLE\s+)?(?P<extended>(?:EXTENDED|FORMATTED)\s+)?"
    rf"(?:(?P<store>{_NAME})\s*\.\s*)?(?P<table>{_NAME})(?:\s+(?P<column>{_NAME}))?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class CatalogAnswer:
    """The rows of an answer."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    with_session_tables: str | None = None


def answer_statement(
    text: str,
    stores: Mapping[str, Store],
    named: NamedTables,
    is_taken: Callable[[str], bool] = lambda name: False,
) -> CatalogAnswer | None:
    """The answer to a statement about stores; None if the statement is Spark's.

    `SHOW TABLES [IN store] [LIKE 'pattern']` has Spark's patterns: `*` is any text, `|` means or. Without `IN`, the
    answer also has the tables of the session. `DESCRIBE [TABLE] [EXTENDED] store.table [column]` has Spark's columns.
    """
    plain = without_comments(text)
    show = _SHOW.fullmatch(plain)
    if show is not None:
        return _tables(show, stores, named)
    describe = _DESCRIBE.fullmatch(plain)
    return None if describe is None else _description(describe, stores, named, is_taken)


def described_table(text: str) -> str | None:
    """The table of a `DESCRIBE` as it is written; None for other statements (`DESCRIBE FUNCTION abs`, too)."""
    describe = _DESCRIBE.fullmatch(without_comments(text))
    if describe is None or (describe["store"] is None and describe["column"] is not None):
        return None
    return describe["table"] if describe["store"] is None else f"{describe['store']}.{describe['table']}"


def with_spark_names(text: str, stores: Collection[str], named: NamedTables) -> str:
    """The text of a `DESCRIBE` of a table that Spark knows under another name, with that name; else the text itself."""
    plain = without_comments(text)
    describe = _DESCRIBE.fullmatch(plain)
    if describe is None:
        return text
    owner = describe["store"]
    tables = sole_named(stores, named) if owner is None else named.get(_unquoted(owner).lower(), {})
    name = tables.get(_unquoted(describe["table"]).lower())
    start = describe.start("table" if owner is None else "store")
    return text if name is None else f"{plain[:start]}{name}{plain[describe.end('table') :]}"


def _tables(show: re.Match[str], stores: Mapping[str, Store], named: NamedTables) -> CatalogAnswer | None:
    comments: dict[str, dict[str, str]] = {
        store: {table.name: table.summary for table in TABLES.values()} for store in stores
    }
    comments |= {
        owner: {table: _ARCHIVE_COMMENTS.get(table) or TABLES[table].summary for table in named[owner]}
        for owner in named
    }
    columns = ("namespace", "tableName", "description")
    session_tables = None
    if show["store"] is None:
        pattern = "" if show["pattern"] is None else f" LIKE {show['pattern']}"
        session_tables = f"SHOW TABLES{pattern}"
    else:
        owner = _find(_unquoted(show["store"]), comments)
        if owner is None:
            return None
        comments = {owner: comments[owner]}
    matches = _matcher(show["pattern"])
    rows = [
        (owner, table, comment)
        for owner, tables in comments.items()
        for table, comment in tables.items()
        if matches(table)
    ]
    return CatalogAnswer(columns, tuple(rows), session_tables)


def _matcher(literal: str | None) -> Callable[[str], bool]:
    """Whether a name matches one of the alternatives of a pattern (`StringUtils.filterPattern`@Spark 4.2)."""
    if literal is None:
        return lambda name: True
    alternatives = []
    for part in literal[1:-1].strip().split("|"):
        try:
            alternatives.append(re.compile(part.replace("*", ".*"), re.IGNORECASE))
        except re.error:  # as in Spark, such an alternative matches nothing
            continue
    return lambda name: any(alternative.fullmatch(name) for alternative in alternatives)


def _description(
    describe: re.Match[str], stores: Mapping[str, Store], named: NamedTables, is_taken: Callable[[str], bool]
) -> CatalogAnswer | None:
    name = table = _unquoted(describe["table"]).lower()
    is_history = table == HISTORY and describe["store"] is None and not is_taken(HISTORY)
    if table not in TABLES and not is_history:
        return None
    if is_history:
        store, table = history_store(stores, named), MESSAGES.name
    elif describe["store"] is not None:
        store = _find(_unquoted(describe["store"]), stores)
    else:
        is_only = len(stores) == 1 and not is_taken(table)
        store = next(iter(stores)) if is_only else None
    if store is None:
        return None
    schema, columns = full_schema(table), columns_of(stores[store], table, is_history)
    name = name if is_history else f"{store}.{table}"
    rows = [
        (name, schema[name].dataType.simpleString(), _column_comment(table, name, columns))
        for name in (*columns.default, *columns.extra)
    ]
    if describe["column"] is not None:
        column = _unquoted(describe["column"]).lower()
        found = [row for row in rows if row[0].lower() == column]
        if not found:
            near = difflib.get_close_matches(column, [row[0] for row in rows], n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise OptionError(f"{name} has no column {column}{hint} Columns: {', '.join(r[0] for r in rows)}")
        return CatalogAnswer(
            ("info_name", "info_value"), tuple(zip(("col_name", "data_type", "comment"), found[0], strict=True))
        )
    details = _details(store, stores[store], table) if describe["extended"] else []
    return CatalogAnswer(("col_name", "data_type", "comment"), (*rows, *details))


def _details(name: str, store: Store, table: str) -> list[tuple[str, str, str]]:
    options = options_of(store, table)
    others = ", ".join(
        f"{key}={'***' if key in (*SECRET_OPTIONS, *SECRET_LIVE_OPTIONS) else value}"
        for key, value in options.items()
        if key not in ("path", "table", "paths", "stores")
    )
    location = options.get("stores", options.get("paths", options.get("path", "")))
    is_list = "path" not in options and location.lstrip().startswith("[")
    return [
        ("", "", ""),
        ("# Detailed Table Information", "", ""),
        ("Database", name, ""),
        ("Table", table, ""),
        ("Comment", TABLES[table].summary, ""),
        ("Provider", "rocketmq", ""),
        ("Location", "the stores of this query" if is_list else shown(location), ""),
        *([("Options", others, "")] if others else []),
    ]


def _column_comment(table: str, column: str, columns: TableColumns) -> str:
    comment = next(one.meaning for one in (*TABLES[table].columns, *STORE_NAME_COLUMNS) if one.name == column)
    if column in columns.default:
        return comment
    return f"{comment}; not in *, only if the query names it"


def _find(name: str, names: Collection[str]) -> str | None:
    return next((other for other in names if other.lower() == name.lower()), None)


def _unquoted(name: str) -> str:
    return name[1:-1].replace("``", "`") if name.startswith("`") else name
