"""The tables of stores as a query sees them: their columns, and for each reference the options and schema of a read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING

from pyspark.sql.types import ArrayType, StructType

from spark_mq.errors import OptionError, similar
from spark_mq.live.options import is_live, parse_live_options
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
from spark_mq.query.plan import QueryPlan, Reference
from spark_mq.query.table_names import ALL, HISTORY
from spark_mq.source.options import OPTION_NAMES, SELECTION, STREAM_ONLY, names_of
from spark_mq.source.predicate import CONDITION_COLUMNS, Condition, Operator, Value, encode_conditions
from spark_mq.source.schema import default_schema, full_schema
from spark_mq.source.store_choice import check_options
from spark_mq.store.config.named_stores import STORE_COLUMNS, is_pattern
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.live import CLUSTER_OPTIONS, LIVE_TABLES, live_options
from spark_mq.tables.messages import MESSAGES
from spark_mq.tables.table import Option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


Store = str | Mapping[str, str]
"""A store's path or URI, or a mapping of read options that includes `path`; or several stores: a pattern of paths, or a
mapping with `stores`; or a running cluster: its address, or a mapping that includes it as `path`."""

_SKIP = "skipUnreadable"
_CONDITIONS = "conditions"
_LIVE_NAMES = tuple(
    dict.fromkeys(option.name for table in LIVE_TABLES for option in (*CLUSTER_OPTIONS, *live_options(table)))
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
    return bool({"paths", "stores"} & named.keys()) or is_live(named) or is_pattern(named.get("path", ""))


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
    if is_live(given):
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
    known = {option.name for option in (_of_live_table(table) if is_live(options) else TABLES[table].options)}
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
