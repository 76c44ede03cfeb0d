"""The parts of a table's declaration, and options and columns that many tables have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from inspect import cleandoc
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

LIVE_SCHEME = "rocketmq://"
"""The start of the address of a cluster: `rocketmq://namesrv:9876,namesrv2:9876`."""
_OF_STORE = ("brokerConf", "brokerVersion")


def is_cluster(store: object) -> bool:
    """Whether a store is the address of a running cluster."""
    return str(store).startswith(LIVE_SCHEME)


def at(what: str) -> Option:
    """Option `at`; `what` is for what the time counts."""
    return Option("at", f"the time {what}; by default now", "TIME")


def broker_conf(settings: str) -> Option:
    """Option `brokerConf`; `settings` are those that have an effect."""
    return Option("brokerConf", f"the file of the broker's settings, for {settings}", "FILE")


@dataclass(frozen=True)
class Column:
    """A column, with Spark's name of its type.

    If a terminal is narrow, columns of the least `importance` are hidden: 1 is the most important one. A column that
    `is_extra` is read only if a schema names it.
    """

    name: str
    type: str
    meaning: str
    importance: int = 99
    is_extra: bool = False


@dataclass(frozen=True)
class Option:
    """An option of a read; `value` is what the help of a command shows for a value.

    An option that selects one value of a column names the `column`.
    """

    name: str
    effect: str
    value: str = ""
    column: str = ""

    @property
    def argument(self) -> str:
        """The name of the parameter that gets the value, such as `consumer_group`."""
        return re.sub("([A-Z])", r"_\1", self.name).lower()


def options(text: str) -> tuple[Option, ...]:
    """The options that a text declares: NAME or NAME VALUE, and what the option does."""
    heads = ((head.partition(" "), effect) for head, effect in heads_and_texts(text))
    return tuple(Option(name, effect, value) for (name, _, value), effect in heads)


def heads_and_texts(text: str) -> Iterator[tuple[str, str]]:
    """The declarations of a text, one a line: what is before two spaces, and its text, which indented lines go on."""
    for block in filter(str.strip, re.split(r"\n(?=\S)", cleandoc(text))):
        head, *explanation = re.split(r"\s{2,}|\n", block.strip(), maxsplit=1)
        yield head, " ".join(" ".join(explanation).split())


@dataclass(frozen=True, eq=False)
class Table:
    """A table, and the command that prints it, if messages of a command have a `noun` for its rows.

    `about` says what the columns do not: values of states, where rows come from, what is left out. `options` are those
    that not every table has, and `example` has rows as Spark shows them. `rows` and `archived_rows` are the module and
    the name of the functions that return the rows of a `MessageStore`, and of an archived store, for the options that
    choose rows; empty if tasks read parts of the table (`source`), or if archives do not have it. `own_command` is the
    command's name if that is not the table's. `nothing` is why a store may have no row, and `remedy` what to do
    about rows with a `problem`; empty if the table cannot tell, or for nothing.
    """

    name: str
    summary: str
    row: str
    columns: tuple[Column, ...]
    about: str = ""
    options: tuple[Option, ...] = ()
    example: str = ""
    rows: str = ""
    archived_rows: str = ""
    own_command: str = ""
    noun: str = "row"
    nothing: str = ""
    remedy: str = ""

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that a read has without a schema."""
        return _schema(column for column in self.columns if not column.is_extra)

    @cached_property
    def extra_schema(self) -> pa.Schema:
        """The columns that a read has only if a schema names them."""
        return _schema(column for column in self.columns if column.is_extra)

    @property
    def command(self) -> str:
        """The name of the command that prints the rows; empty if there is none."""
        return self.own_command or ("" if self.noun == "row" else self.name.replace("_", "-"))

    @property
    def row_options(self) -> tuple[Option, ...]:
        """The options that choose rows; the others are those of the store (`MessageStore`)."""
        return tuple(option for option in self.options if option.name not in _OF_STORE)

    @property
    def names(self) -> list[str]:
        """The names of the columns that a read has without a schema."""
        return [column.name for column in self.columns if not column.is_extra]

    @property
    def importance(self) -> tuple[str, ...]:
        """The names of the columns, the most important one first."""
        return tuple(column.name for column in sorted(self.columns, key=lambda column: column.importance))

    def read(self, store: Any, options: Mapping[str, Any]) -> pa.Table:
        """The rows in a store; `options` choose rows, by argument, and None stands for one that is not given."""
        return _call(self.rows, store, options)

    def read_archived(self, source: Any, options: Mapping[str, Any]) -> pa.Table:
        """The rows in an archived store; arguments as for `read`."""
        return _call(self.archived_rows, source, options)


def _call(function: str, source: object, options: Mapping[str, Any]) -> pa.Table:
    module, _, name = function.rpartition(".")
    given = {argument: value for argument, value in options.items() if value is not None}
    rows: pa.Table = getattr(import_module(module), name)(source, **given)
    return rows


def _schema(columns: Iterable[Column]) -> pa.Schema:
    import pyarrow as pa

    types: dict[str, pa.DataType] = {
        "STRING": pa.string(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "BOOLEAN": pa.bool_(),
        "BINARY": pa.binary(),
        "TIMESTAMP": pa.timestamp("us", "UTC"),
        "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    }
    types |= {f"ARRAY<{name}>": pa.list_(pa.field("element", types[name])) for name in ("STRING", "INT", "BIGINT")}
    return pa.schema([(column.name, types[column.type]) for column in columns])


TOPIC = Option("topic", "only this topic", "TOPIC", column="topic")
CONSUMER_GROUP = Option("consumerGroup", "only this consumer group", "GROUP", column="consumer_group")
BROKER_VERSION = Option(
    "brokerVersion",
    "such as 5.1.0, or a line of versions, 4.9 or 5; by default the versions that the store's files show. 4.9 and 5 "
    "offer a different min_offset if a queue starts with pre-blank units",
)
STORE_NAME_COLUMNS = (
    Column("cluster", "STRING", "the broker's cluster, brokerClusterName"),
    Column("broker", "STRING", "the broker, brokerName"),
    Column("store", "STRING", "the store's name, or its path"),
)
"""The columns that say which store a row comes from: the first ones of a read of several stores."""
PATH = Option(
    "path",
    "the broker's store directory (`storePathRootDir`): a path, or a URI of S3 or HDFS. Required, except for "
    "several stores: give `load` a list of paths or a pattern (`/data/broker-*`, `s3://bucket/{a,b}`), or option "
    "`stores`",
)
TABLE = Option("table", "the name of the table, `messages` by default")
STORES = Option(
    "stores",
    'several stores: a file with a JSON list, or the list itself: `[{"name": "a", "cluster": "prod", "broker": '
    '"broker-a", "path": "/data/a", "broker_conf": "/etc/a.conf"}]`. Only `path` is needed in an entry; a relative '
    "path is relative to the file's folder; `options` can have more options of the read of this store. Each table is "
    "then the union of the stores' tables, with columns cluster STRING, broker STRING and store STRING before the "
    "others. Names that are not given are those of `broker_conf`, or `DefaultCluster`, `DEFAULT_BROKER` and the path. "
    "A read of one store has these columns if a schema names them",
)
SKIP_UNREADABLE = Option(
    "skipUnreadable",
    "of several stores: `true` leaves out a store that cannot be read, with a warning in the log of the driver. By "
    "default, such a store is an error that names it. Damage is an error, or not, as `mode` says",
)
