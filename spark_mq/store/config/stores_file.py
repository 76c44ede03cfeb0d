"""The file of several stores: a JSON list with a name, cluster, broker, path and settings file for each store.

    [{"name": "a", "cluster": "prod", "broker": "broker-a", "path": "/data/a", "broker_conf": "/etc/a/broker.conf"},
     {"name": "b", "cluster": "prod", "broker": "broker-b", "path": "/data/b", "options": {"mode": "FAILFAST"}}]

Only `path` is needed. A relative path is relative to the folder of the file. Names that are missing are those of the
settings file, or RocketMQ's defaults.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from spark_mq.errors import OptionError
from spark_mq.io.location import Location, local_path
from spark_mq.io.s3 import shown
from spark_mq.similar_names import similar
from spark_mq.store.config.named_store import NamedStore, check_stores

_NAMES = {"cluster": "cluster", "broker": "broker", "name": "store"}
_KEYS = ("name", "cluster", "broker", "path", "broker_conf", "options")


def load_stores(source: str) -> list[NamedStore]:
    """The stores of a file, in its order.

    Args:
        source: A path or URI of the file; or the JSON text itself, which begins with `[`.
    """
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
    """The stores of a JSON text.

    Args:
        what: Where the text comes from, for errors.
        folder: The folder to which relative paths refer; None for the working directory.
    """
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
    broker_conf = _placed(entry.get("broker_conf", ""), folder) or None
    names = {name: entry[key] for key, name in _NAMES.items() if key in entry}
    try:
        return NamedStore.of(path, broker_conf, options=_options(entry.get("options", {}), what), **names)
    except OptionError as error:
        raise OptionError(f"{what} ({shown(path)}): {error}") from error


def _options(options: object, what: str) -> Mapping[str, str]:
    if not isinstance(options, dict) or not all(isinstance(value, str) for value in options.values()):
        raise OptionError(f'{what}: options is not an object of texts, such as {{"mode": "FAILFAST"}}')
    return options


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
