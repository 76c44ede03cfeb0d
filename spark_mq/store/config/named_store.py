"""A store of several: its names, its path, and the settings of its broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from spark_mq.errors import ConfigError, OptionError, SparkMqError, UnsupportedStoreError
from spark_mq.io.location import local_path
from spark_mq.io.s3 import shown
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.tables.common import STORE_NAME_COLUMNS

STORE_COLUMNS = tuple(column.name for column in STORE_NAME_COLUMNS)
"""The columns that say which store a row comes from: the same as in an archive, and the first ones there, too."""
STORE_COLUMNS_SCHEMA = pa.schema([(name, pa.string()) for name in STORE_COLUMNS])

DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_BROKER = "DEFAULT_BROKER"
"""The names of a broker whose settings give no others (`BrokerIdentity`@5.3.3)."""

_UNREADABLE = (OSError, ConfigError, UnsupportedStoreError)
"""The errors of a store that cannot be read at all: not found, no permission, of another kind. Damage is not one."""
_Error = TypeVar("_Error", bound=Exception)


@dataclass(frozen=True)
class NamedStore:
    """One of several stores.

    Attributes:
        cluster: `brokerClusterName` of the broker.
        broker: `brokerName` of the broker.
        store: The store's name, by default its path without settings and secrets.
        path: The store directory: a path or a URI, which can contain secrets.
        broker_conf: The file of the broker's settings; None if none was given.
        options: More options of a read of this store.
    """

    cluster: str
    broker: str
    store: str
    path: str = field(repr=False)
    broker_conf: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @classmethod
    def of(
        cls,
        path: str,
        broker_conf: str | None = None,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        store: str | None = None,
        options: Mapping[str, str] | None = None,
    ) -> NamedStore:
        """The store at a path; names that are not given are those of the broker's settings, or RocketMQ's defaults."""
        settings = BrokerConf.of(broker_conf).settings if None in (cluster, broker) else {}
        names = (
            settings.get("brokerClusterName", DEFAULT_CLUSTER) if cluster is None else cluster,
            settings.get("brokerName", DEFAULT_BROKER) if broker is None else broker,
            shown(normal_path(path)) if store is None else store,
        )
        for column, name in zip(STORE_COLUMNS, names, strict=True):
            if not name or name != name.strip() or not name.isprintable():
                raise OptionError(
                    f"store {shown(path)}: the name {name!r} of its {column} is empty, begins or ends with a blank, or "
                    "has a character that cannot be printed: give another name"
                )
        return cls(*names, path, broker_conf, dict(options or {}))

    @property
    def names(self) -> tuple[str, str, str]:
        """The values of `STORE_COLUMNS`."""
        return self.cluster, self.broker, self.store

    def __str__(self) -> str:
        """The names for a person: cluster, broker and store."""
        return f"{self.cluster}/{self.broker} ({self.store})"

    def with_columns(self, table: pa.Table) -> pa.Table:
        """The table with `STORE_COLUMNS` before its columns."""
        columns = [pa.repeat(pa.scalar(name, pa.string()), len(table)) for name in self.names]
        return pa.table([*columns, *table.columns], schema=pa.schema([*STORE_COLUMNS_SCHEMA, *table.schema]))


def normal_path(path: str) -> str:
    """The path in one form: absolute if it is local, without a slash at its end."""
    return local_path(path) or path.rstrip("/")


def check_stores(stores: Iterable[NamedStore]) -> list[NamedStore]:
    """The stores themselves, if no two of them have the same path or the same names."""
    paths: dict[str, NamedStore] = {}
    names: dict[tuple[str, str, str], NamedStore] = {}
    for store in stores:
        path = normal_path(store.path)
        if path in paths:
            raise OptionError(f"store {shown(path)} is given twice: each of its messages would be there twice")
        if store.names in names:
            raise OptionError(
                f"stores {shown(normal_path(names[store.names].path))} and {shown(path)} both have the names {store}: "
                "give them different names"
            )
        paths[path] = names[store.names] = store
    return list(paths.values())


def is_unreadable(error: Exception) -> bool:
    """Whether an error means that a store cannot be read at all: damage and wrong options are other errors."""
    return isinstance(error, _UNREADABLE) and not isinstance(error, OptionError)


def named_error(error: _Error, store: NamedStore) -> _Error:
    """The error, whose text names the store."""
    path = shown(normal_path(store.path))
    if path in str(error) or not isinstance(error, SparkMqError):
        return error
    return type(error)(f"store {path}: {error}")
