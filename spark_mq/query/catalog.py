"""The tables of stores as a query sees them: their columns, for each reference its read, SHOW TABLES and DESCRIBE."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, StructType

from spark_mq.errors import OptionError, similar
from spark_mq.io.s3 import SECRET_OPTIONS, shown
from spark_mq.live.options import parse_live_options
from spark_mq.query.comparisons import Comparison, TableColumns
from spark_mq.query.conditions import (
    ELEMENT_COLUMNS,
    KEY,
    KNOWN_VALUES,
    Constants,
    TypedComparison,
    conditions_of,
    usable_conditions,
)
from spark_mq.query.lexer import without_comments
from spark_mq.query.plan import QueryPlan, Reference
from spark_mq.query.table_names import ALL, HISTORY, NamedTables, history_store, sole_named
from spark_mq.source.options import OPTION_NAMES, SELECTION, STREAM_ONLY, names_cluster, names_of
from spark_mq.source.predicate import CONDITION_COLUMNS, Condition, Operator, Value, encode_conditions
from spark_mq.source.schema import default_schema, full_schema
from spark_mq.source.store_choice import check_options
from spark_mq.store.config.named_stores import STORE_COLUMNS, is_pattern
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.live import CLUSTER_OPTIONS, LIVE_TABLES, SECRET_LIVE_OPTIONS, live_options
from spark_mq.tables.messages import MESSAGES
from spark_mq.tables.table import STORE_NAME_COLUMNS, Option

Store = str | Mapping[str, str]
"""A store's path or URI, or a mapping of read options that includes `path`; or several stores: a pattern of paths, or a
mapping with `stores`; or a running cluster: its address, or a mapping that includes it as `path`."""

_SKIP = "skipUnreadable"
_CONDITIONS = "conditions"
_LIVE_NAMES = tuple(
    dict.fromkeys(option.name for table in LIVE_TABLES for option in (*CLUSTER_OPTIONS, *live_options(table)))
)
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


def with_all(stores: Mapping[str, Store]) -> Mapping[str, Store]:
    """The stores, and if there are several, the store `all`, whose tables are the unions of theirs.

    There is no such store if one of the stores is called so, or is several stores itself.
    """
    if len(stores) < 2 or ALL in map(str.lower, stores) or any(map(is_of_several, stores.values())):
        return stores
    entries: list[dict[str, object]] = []
    skips = False
    for name, store in stores.items():
        named = _named_options(store)
        skips |= named.pop(_SKIP, "").lower() == "true"
        entry: dict[str, object] = {"name": name, "path": named.pop("path", "")}
        if "brokerConf" in named:
            entry["broker_conf"] = named.pop("brokerConf")
        entries.append({**entry, **({"options": named} if named else {})})
    return {**stores, ALL: {"stores": json.dumps(entries), **({_SKIP: "true"} if skips else {})}}


def is_of_several(store: Store) -> bool:
    """Whether the tables of a store say which store a row is of.

    They do if they are those of a pattern of paths, of a file of stores, or of a running cluster.
    """
    named = _named_options(store)
    return bool({"paths", "stores"} & named.keys()) or names_cluster(named) or is_pattern(named.get("path", ""))


def several_of(stores: Mapping[str, Store]) -> list[str]:
    """The names of those of the stores whose tables are those of several stores."""
    return [name for name, store in stores.items() if is_of_several(store)]


def _named_options(store: Store) -> dict[str, str]:
    """The options of a store in their canonical spelling; unknown ones as they are."""
    given = {"path": store} if isinstance(store, str) else store
    known = {name.lower(): name for name in (*OPTION_NAMES, *_LIVE_NAMES)}
    return {known.get(name.lower(), name): str(value) for name, value in given.items()}


def options_of(store: Store, table: str) -> dict[str, str]:
    """The read options of a store that apply to a table, in their canonical spelling."""
    given = {"path": store} if isinstance(store, str) else dict(store)
    if names_cluster(given):
        return _live_options(_named_options(given), table)
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given:
        if name.lower() not in known or name.lower() == "table" or known[name.lower()] in STREAM_ONLY:
            check_options({**given, "table": table, name: given[name]})
            raise OptionError(f"option {name} does not apply to a store: name the table in the query, such as messages")
    named = _named_options(store)
    if not is_of_several(store):
        named.pop(_SKIP, None)  # it is for the union of this store and others
    options = {name: value for name, value in named.items() if name in (*names_of(table), *SELECTION)}
    options["table"] = table
    check_options(options)
    return options


def _live_options(named: Mapping[str, str], table: str) -> dict[str, str]:
    for name in named:
        if name not in ("path", *_LIVE_NAMES):
            raise OptionError(
                f"option {name} does not apply to a running cluster{similar(name, _LIVE_NAMES)}. It has "
                f"{', '.join(_LIVE_NAMES)}"
            )
    names = ("path", *(option.name for option in (*CLUSTER_OPTIONS, *_of_live_table(table))))
    options = {name: value for name, value in named.items() if name in names} | {"table": table}
    if table == MESSAGES.name:
        options.setdefault(_CONDITIONS, "[]")  # a read with conditions needs no topic
    parse_live_options(options)
    return options


def _of_live_table(table: str) -> Sequence[Option]:
    return live_options(table) if table in LIVE_TABLES else ()


def columns_of(store: Store, table: str, is_history: bool = False) -> TableColumns:
    """The names of the columns of a store's table."""
    columns = table_columns(table)
    if is_history:
        return columns.of_history()
    return columns.of_several() if is_of_several(store) else columns


def pushed_down_options(options: Mapping[str, str], table: str, conditions: Sequence[Condition]) -> dict[str, str]:
    """The options of a read to which conditions are pushed down; Spark filters the rows by all of them afterwards."""
    if _CONDITIONS in names_of(table):
        return {**options, _CONDITIONS: encode_conditions(conditions)} if conditions else dict(options)
    pushed = dict(options)
    known = {option.name for option in (_of_live_table(table) if names_cluster(options) else TABLES[table].options)}
    for condition in conditions:
        name = next(option.name for option in TABLES[table].options if option.column == condition.column)
        is_equality = condition.operator == Operator.IN and len(condition.values) == 1
        if name in known and is_equality and name not in pushed and _is_expressible(condition.values[0]):
            pushed[name] = str(condition.values[0])
    return pushed


def _is_expressible(value: Value) -> bool:
    """Whether an option can express the value; text with U+FFFD cannot be, because it replaces any invalid bytes."""
    return "\ufffd" not in value if isinstance(value, str) else isinstance(value, int) and abs(value) < 1 << 31


@cache
def table_columns(table: str) -> TableColumns:
    """The names of a table's columns."""
    default = tuple(default_schema(table).fieldNames())
    extra = tuple(full_schema(table).fieldNames()[len(default) :])
    if _CONDITIONS in names_of(table):
        # A row of messages_by_key is one key of a message: the look-up of a key would drop the message's other rows.
        searchable = ELEMENT_COLUMNS if table == MESSAGES.name else ()
        pushable = CONDITION_COLUMNS & {*default, *extra}
        return TableColumns(default, extra, pushable, pushable.intersection(KNOWN_VALUES), frozenset(searchable), True)
    return TableColumns(default, extra, frozenset(option.column for option in TABLES[table].options if option.column))


@dataclass(frozen=True)
class StoreRead:
    """How one reference of a query is read.

    Attributes:
        conditions: The conditions that the query puts on the rows; `options` express them as far as the table can.
        unused: The comparisons of the query that the read does not apply; Spark filters the rows by them.
        misses_rollback: Whether a condition on `keys` is unused because messages of type ROLLBACK are in no index.
    """

    reference: Reference
    options: Mapping[str, str]
    schema: StructType
    conditions: tuple[Condition, ...]
    unused: tuple[Comparison, ...] = ()
    misses_rollback: bool = False

    def __str__(self) -> str:
        """One line of text: the table, its columns and its conditions."""
        columns = ", ".join(self.schema.fieldNames())

        def text(value: Value) -> str:
            return value.isoformat() if isinstance(value, datetime) else repr(value)

        conditions = " and ".join(
            f"{one.column} {one.operator} ({', '.join(map(text, one.values))})" for one in self.conditions
        )
        name = HISTORY if self.reference.is_history else f"{self.reference.store}.{self.reference.table}"
        return f"{name} ({columns}){conditions and ' where ' + conditions}"

    def load(self, spark: SparkSession) -> DataFrame:
        """The relation as a DataFrame."""
        return spark.read.format("rocketmq").options(**self.options).schema(self.schema).load()


def plan_reads(
    plan: QueryPlan, stores: Mapping[str, Store], evaluate: Callable[[Sequence[TypedComparison]], Constants]
) -> list[StoreRead]:
    """The reads of a plan's references, in the order of the text."""
    typed = [
        (comparison, _type_of(reference.table, comparison.column))
        for reference in plan.references
        for comparison in reference.comparisons
    ]
    conditions = conditions_of(typed, evaluate(typed)) if typed else {}
    return [_read(reference, stores[reference.store], conditions) for reference in plan.references]


def plan_whole_reads(plan: QueryPlan, stores: Mapping[str, Store]) -> list[StoreRead]:
    """The reads of a plan's references without pushdown: with all default columns, and all rows."""
    whole = (replace(reference, columns=None) for reference in plan.references)
    return [_read(reference, stores[reference.store], {}) for reference in whole]


def _read(reference: Reference, store: Store, conditions: Mapping[Comparison, Condition]) -> StoreRead:
    found = [conditions[comparison] for comparison in reference.comparisons if comparison in conditions]
    known = usable_conditions(found) if reference.table == MESSAGES.name else tuple(found)
    unused = [item for item in reference.comparisons if conditions.get(item) not in known]
    # The names of a store in an archive can be others than its own.
    own = [one for one in known if not (reference.is_history and one.column in STORE_COLUMNS)]
    options = pushed_down_options(options_of(store, reference.table), reference.table, own)
    full = full_schema(reference.table)
    columns = reference.columns or columns_of(store, reference.table, reference.is_history).default
    schema = StructType([full[column] for column in columns])
    misses_rollback = any(condition.column == KEY for condition in found if condition not in known)
    return StoreRead(reference, options, schema, known, tuple(unused), misses_rollback)


def _type_of(table: str, column: str) -> str:
    """Spark's name of the type of a column, or of its elements if it is an array."""
    data_type = full_schema(table)[column].dataType
    return (data_type.elementType if isinstance(data_type, ArrayType) else data_type).simpleString()


@dataclass(frozen=True)
class CatalogAnswer:
    """The rows of an answer; `with_session_tables` is a statement of Spark whose rows follow them."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]
    with_session_tables: str | None = None


def answer_statement(
    text: str, stores: Mapping[str, Store], named: NamedTables, is_taken: Callable[[str], bool] = lambda name: False
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
            raise OptionError(f"{name} has no column {column}{hint or '.'} Columns: {', '.join(r[0] for r in rows)}")
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
