"""Several stores: a pattern of paths, such as `/data/broker-*`, or a file with names, paths and settings.

    [{"name": "a", "cluster": "prod", "broker": "broker-a", "path": "/data/a", "broker_conf": "/etc/a/broker.conf"},
     {"name": "b", "cluster": "prod", "broker": "broker-b", "path": "/data/b", "options": {"mode": "FAILFAST"}}]

Only `path` is needed. A relative path is relative to the folder of the file. Names that are missing are those of the
settings file, or RocketMQ's defaults.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import ConfigError, OptionError, SparkMqError, StoreNotFoundError, UnsupportedStoreError, similar
from spark_mq.format.record import Record
from spark_mq.io.location import Location, local_path
from spark_mq.io.s3 import shown
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_kind import has_log
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.tables.table import STORE_NAME_COLUMNS

_URI_GLOB = re.compile(r"\*|\{[^{}]+,[^{}]+\}")
_GLOB = re.compile(rf"{_URI_GLOB.pattern}|\[[^\]]+\]")
_BRACES = re.compile(r"\{([^{}]+,[^{}]+)\}")
STORE_COLUMNS = tuple(column.name for column in STORE_NAME_COLUMNS)
"""The columns that say which store a row comes from: the same as in an archive, and the first ones there, too."""
STORE_COLUMNS_SCHEMA = pa.schema([(name, pa.string()) for name in STORE_COLUMNS])

DEFAULT_CLUSTER = "DefaultCluster"
DEFAULT_BROKER = "DEFAULT_BROKER"
"""The names of a broker whose settings give no others (`BrokerIdentity`@5.3.3)."""

_UNREADABLE = (OSError, ConfigError, UnsupportedStoreError)
"""The errors of a store that cannot be read at all: not found, no permission, of another kind. Damage is not one."""
_Error = TypeVar("_Error", bound=Exception)
_NAMES = {"cluster": "cluster", "broker": "broker", "name": "store"}
_KEYS = ("name", "cluster", "broker", "path", "broker_conf", "options")


def is_pattern(path: str) -> bool:
    """Whether a path is a pattern of several paths, and not the name of a folder that exists.

    `*` is any text without a slash, `{a,b}` is one of several texts, and in a local path `[ab]` is one of several
    characters.
    """
    if "://" in path:
        return _URI_GLOB.search(path.partition("?")[0]) is not None
    return _GLOB.search(path) is not None and not os.path.exists(path.removeprefix("file:"))


def matching_stores(pattern: str) -> list[str]:
    """The paths of the folders that match a pattern and have a folder `commitlog`, sorted."""
    found = sorted({uri for one in _without_braces(pattern) for uri in _matching(one)})
    if not found:
        raise StoreNotFoundError(
            f"no store matches {shown(pattern)}: a store is a folder with a folder {COMMIT_LOG}; check the pattern"
        )
    return found


def _without_braces(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for choice in braces[1].split(","):
        yield from _without_braces(f"{pattern[: braces.start()]}{choice}{pattern[braces.end() :]}")


def _matching(pattern: str) -> Iterator[str]:
    address, mark, settings = pattern.partition("?") if "://" in pattern else (pattern, "", "")
    scheme, slashes, path = address.rpartition("://")
    is_uri = bool(slashes) and scheme != "file"
    if not is_uri:
        path = os.path.abspath(address.removeprefix("file://").removeprefix("file:"))
    first, *parts = path.rstrip("/").split("/")
    # A part without a wildcard needs no listing: the folders before the first wildcard may not be readable.
    plain = [first]
    while parts and not _is_wild(parts[0], is_uri):
        plain.append(parts.pop(0))
    root = f"{scheme}{slashes}{'/'.join(plain)}{mark}{settings}" if is_uri else "/".join(plain) or "/"
    for folder in _below(Location.resolve(root), parts, is_uri):
        if has_log(folder):
            yield folder.uri if is_uri else f"/{folder.path.lstrip('/')}"


def _below(folder: Location, parts: list[str], is_uri: bool) -> Iterator[Location]:
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if not _is_wild(part, is_uri):
        yield from _below(folder / part, rest, is_uri)
        return
    shell = part.replace("?", "\0")
    shell = (shell.replace("[", "[[]") if is_uri else shell).replace("\0", "[?]")
    expression = re.compile(translate(shell))
    for entry in folder.entries():
        if entry.base_name.startswith(".") and not part.startswith("."):
            continue
        if entry.type == fs.FileType.Directory and expression.match(entry.base_name):
            yield from _below(folder / entry.base_name, rest, is_uri)


def _is_wild(part: str, is_uri: bool) -> bool:
    return "*" in part or (not is_uri and re.search(r"\[[^\]]+\]", part) is not None)


@dataclass(frozen=True)
class NamedRecord:
    """A message of an archive or a cluster; `names` are the values of the columns cluster, broker and store."""

    names: tuple[str, str, str]
    record: Record


@dataclass(frozen=True)
class NamedStore:
    """One of several stores.

    Attributes:
        path: The store directory: a path or a URI, which can contain secrets.
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
    ) -> Self:
        """The store at a path; names that are not given are those of the broker's settings, or RocketMQ's defaults."""
        conf = BrokerConf.of(broker_conf if None in (cluster, broker) else None)
        names = (
            conf.text("brokerClusterName", DEFAULT_CLUSTER) if cluster is None else cluster,
            conf.text("brokerName", DEFAULT_BROKER) if broker is None else broker,
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
    """The stores themselves, if no two of them are the same folder, also by links, or have the same names."""
    folders: dict[str, NamedStore] = {}
    names: dict[tuple[str, str, str], NamedStore] = {}
    for store in stores:
        path = normal_path(store.path)
        folder = os.path.realpath(path) if local_path(store.path) else path
        if folder in folders:
            first = shown(normal_path(folders[folder].path))
            also = "" if first == shown(path) else f", also as {first}"
            raise OptionError(f"store {shown(path)} is given twice{also}: each of its messages would be there twice")
        if store.names in names:
            raise OptionError(
                f"stores {shown(normal_path(names[store.names].path))} and {shown(path)} both have the names {store}: "
                "give them different names"
            )
        folders[folder] = names[store.names] = store
    return list(folders.values())


def is_unreadable(error: Exception) -> bool:
    """Whether an error means that a store cannot be read at all: damage and wrong options are other errors."""
    return isinstance(error, _UNREADABLE) and not isinstance(error, OptionError)


def named_error(error: _Error, store: NamedStore) -> _Error:
    """The error, whose text names the store."""
    path = shown(normal_path(store.path))
    if path in str(error) or not isinstance(error, SparkMqError):
        return error
    return type(error)(f"store {path}: {error}")


def load_stores(source: str) -> list[NamedStore]:
    """The stores of a file, in its order."""
    if source.lstrip().startswith("["):
        return parse_stores(source, "option stores", None)
    location = Location.resolve(source)
    try:
        text = location.read_bytes().decode("utf-8")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise OptionError(f"the file of stores {location} cannot be read: {reason}") from error
    return parse_stores(text, f"the file of stores {location}", location.parent)


def parse_stores(text: str, what: str, folder: Location | None) -> list[NamedStore]:
    """The stores of a JSON text."""
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{what} is not JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise OptionError(f'{what} is not a list of stores: write [{{"path": "/data/a", "broker": "broker-a"}}, ...]')
    return check_stores(_store(entry, f"{what}, store {number}", folder) for number, entry in enumerate(entries, 1))


def _store(entry: object, what: str, folder: Location | None) -> NamedStore:
    if not isinstance(entry, dict):
        raise OptionError(f'{what} is not an object: write {{"path": "/data/a"}}')
    for key, value in entry.items():
        if key not in _KEYS:
            raise OptionError(f"{what} has an unknown key {key}{similar(key, _KEYS)}; keys: {', '.join(_KEYS)}")
        if key != "options" and not isinstance(value, str):
            raise OptionError(f"{what}: {key} is not a text")
    path = _placed(entry.get("path", ""), folder)
    if not path:
        raise OptionError(f"{what} has no path: give the broker's store directory")
    options = entry.get("options", {})
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise OptionError(f'{what}: options is not an object of texts, such as {{"mode": "FAILFAST"}}')
    broker_conf = _placed(entry.get("broker_conf", ""), folder) or None
    names = {name: entry[key] for key, name in _NAMES.items() if key in entry}
    try:
        return NamedStore.of(path, broker_conf, options=options, **names)
    except OptionError as error:
        raise OptionError(f"{what} ({shown(path)}): {error}") from error


def _placed(path: str, folder: Location | None) -> str:
    """The path, which is relative to a folder if it is neither absolute nor a URI; empty if it is empty."""
    if not path or folder is None or "://" in path or os.path.isabs(path) or path.startswith(("file:", "dbfs:")):
        return path
    return local_path(f"{folder.path}/{path}") or path if folder.is_local else (folder / path).uri


def stores_text(stores: list[NamedStore]) -> str:
    """The JSON text of stores, which `load_stores` reads. It can contain secrets of paths."""
    entries: list[dict[str, Any]] = []
    for store in stores:
        names = {"name": store.store, "cluster": store.cluster, "broker": store.broker, "path": store.path}
        conf = {} if store.broker_conf is None else {"broker_conf": store.broker_conf}
        entries.append({**names, **conf, **({"options": dict(store.options)} if store.options else {})})
    return json.dumps(entries)
