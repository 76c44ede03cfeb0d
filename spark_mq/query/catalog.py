"""The tables of stores as a query sees them: columns, schemas, and how conditions become options of a read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from spark_mq.errors import OptionError
from spark_mq.query.table_columns import TableColumns
from spark_mq.source.condition import Condition, Operator, Value, encode_conditions
from spark_mq.source.options import OPTION_NAMES, Table, names_of, parse_options
from spark_mq.source.predicate import CONDITION_COLUMNS
from spark_mq.source.schema import default_schema, full_schema

Store = str | Mapping[str, str]
"""A store's path, or the options of a read of it, `path` among them."""

_CONDITIONS = "conditions"
_ONE_VALUE = {"topic": "topic", "queue_id": "queueId", "consumer_group": "consumerGroup"}
"""By column: the option of tables without `conditions` that stands for one value of it."""


def options_of(store: Store, table: Table) -> dict[str, str]:
    """Those options of a store that a table has, by their own names.

    Raises `OptionError` for one that no table has, or without a path.
    """
    given = {"path": store} if isinstance(store, str) else dict(store)
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given:
        if name.lower() not in known or name.lower() == "table":
            parse_options({**given, "table": table, name: given[name]})
            raise OptionError(f"option {name} of a store: its tables have names, such as messages")
    named = {known[name.lower()]: str(value) for name, value in given.items()}
    options = {name: value for name, value in named.items() if name in names_of(table)}
    options["table"] = table.value
    parse_options(options)
    return options


def pushed_down_options(options: Mapping[str, str], table: Table, conditions: Sequence[Condition]) -> dict[str, str]:
    """The options of a read of which Spark will keep only rows for which all conditions hold."""
    if _CONDITIONS in names_of(table):
        return {**options, _CONDITIONS: encode_conditions(conditions)} if conditions else dict(options)
    narrowed = dict(options)
    for condition in conditions:
        name = _ONE_VALUE[condition.column]
        is_one = condition.operator == Operator.IN and len(condition.values) == 1
        if is_one and name not in narrowed and _is_expressible(condition.values[0]):
            narrowed[name] = str(condition.values[0])
    return narrowed


def _is_expressible(value: Value) -> bool:
    """Whether an option can stand for the value; text with U+FFFD can stand for many a byte."""
    return "\ufffd" not in value if isinstance(value, str) else isinstance(value, int) and abs(value) < 1 << 31


@cache
def table_columns(table: Table) -> TableColumns:
    """The names of a table's columns."""
    default = tuple(default_schema(table).fieldNames())
    extra = tuple(full_schema(table).fieldNames()[len(default) :])
    if _CONDITIONS in names_of(table):
        return TableColumns(default, extra, CONDITION_COLUMNS & {*default, *extra})
    return TableColumns(
        default, extra, frozenset(column for column, name in _ONE_VALUE.items() if name in names_of(table))
    )
