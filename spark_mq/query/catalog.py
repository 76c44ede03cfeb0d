"""The tables of stores as a query sees them: their columns, and the options of a read that apply conditions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from spark_mq.errors import OptionError
from spark_mq.query.conditions import ELEMENT_COLUMNS, KNOWN_VALUES
from spark_mq.query.table_columns import TableColumns
from spark_mq.source.condition import Condition, Operator, Value, encode_conditions
from spark_mq.source.options import OPTION_NAMES, STREAM_ONLY, Table, names_of, parse_options
from spark_mq.source.predicate import CONDITION_COLUMNS
from spark_mq.source.schema import default_schema, full_schema

Store = str | Mapping[str, str]
"""A store's path or URI, or a mapping of read options that includes `path`."""

_CONDITIONS = "conditions"
_ONE_VALUE = {"topic": "topic", "queue_id": "queueId", "consumer_group": "consumerGroup"}
"""For tables without the option `conditions`: the option that selects one value of a column."""


def options_of(store: Store, table: Table) -> dict[str, str]:
    """The read options of a store that apply to a table, in their canonical spelling.

    Raises:
        OptionError: The path is missing, an option is not known, or its value is not valid.
    """
    given = {"path": store} if isinstance(store, str) else dict(store)
    known = {name.lower(): name for name in OPTION_NAMES}
    for name in given:
        if name.lower() not in known or name.lower() == "table" or known[name.lower()] in STREAM_ONLY:
            parse_options({**given, "table": table, name: given[name]})
            raise OptionError(f"option {name} does not apply to a store: name the table in the query, such as messages")
    named = {known[name.lower()]: str(value) for name, value in given.items()}
    options = {name: value for name, value in named.items() if name in names_of(table)}
    options["table"] = table.value
    parse_options(options)
    return options


def pushed_down_options(options: Mapping[str, str], table: Table, conditions: Sequence[Condition]) -> dict[str, str]:
    """The options of a read to which conditions are pushed down; Spark filters the rows by all of them afterwards."""
    if _CONDITIONS in names_of(table):
        return {**options, _CONDITIONS: encode_conditions(conditions)} if conditions else dict(options)
    pushed = dict(options)
    for condition in conditions:
        name = _ONE_VALUE[condition.column]
        is_equality = condition.operator == Operator.IN and len(condition.values) == 1
        if is_equality and name not in pushed and _is_expressible(condition.values[0]):
            pushed[name] = str(condition.values[0])
    return pushed


def _is_expressible(value: Value) -> bool:
    """Whether an option can express the value; text with U+FFFD cannot be, because it replaces any invalid bytes."""
    return "\ufffd" not in value if isinstance(value, str) else isinstance(value, int) and abs(value) < 1 << 31


@cache
def table_columns(table: Table) -> TableColumns:
    """The names of a table's columns."""
    default = tuple(default_schema(table).fieldNames())
    extra = tuple(full_schema(table).fieldNames()[len(default) :])
    if _CONDITIONS in names_of(table):
        # A row of messages_by_key is one key of a message: the look-up of a key would drop the message's other rows.
        searchable = ELEMENT_COLUMNS if table == Table.MESSAGES else ()
        pushable = CONDITION_COLUMNS & {*default, *extra}
        return TableColumns(default, extra, pushable, pushable.intersection(KNOWN_VALUES), frozenset(searchable))
    return TableColumns(
        default, extra, frozenset(column for column, name in _ONE_VALUE.items() if name in names_of(table))
    )
