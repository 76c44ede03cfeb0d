"""The JSON files in `config/`, as the broker writes them (`ConfigManager`@5.3.3, fastjson).

fastjson leaves integer keys unquoted (`{0:5,1:6}`), which is not valid JSON. Each file has a backup next to it, with
the suffix `.bak`: the file's previous content.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.store_paths import CONFIG, is_rocksdb

Content = TypeVar("Content")

_ROCKSDB_FOLDERS = {
    "topics.json": "topics",
    "consumerOffset.json": "consumerOffsets",
    "subscriptionGroup.json": "subscriptionGroups",
}
_UNQUOTED_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")


def parse_fastjson(text: str) -> object:
    """The value of a JSON text whose integer keys may be unquoted; such keys become strings."""
    pieces = re.split(r'("(?:[^"\\]|\\.)*"?)', text)
    outside_strings = [
        _UNQUOTED_KEY.sub(r'\1"\2"\3', piece) if index % 2 == 0 else piece for index, piece in enumerate(pieces)
    ]
    return json.loads("".join(outside_strings))


def load_config(store: Location, name: str, decode: Callable[[dict[str, Any]], Content]) -> Content | None:
    """The decoded content of `config/NAME`, or of its `.bak` if that file is missing, empty or unreadable.

    The order of the two files is that of `ConfigManager.load`@5.3.3.

    Args:
        name: The file's name, such as `topics.json`.
        decode: Converts the JSON object; an error that it raises makes the file unreadable.

    Returns:
        None if both files are missing or empty.
    """
    folder = store / CONFIG
    database = config_database(store, name)
    if database is not None:
        raise UnsupportedStoreError(f"{database} is a RocksDB database, which is not read here")
    problems = []
    for file in (folder / name, folder / f"{name}.bak"):
        data = file.read_bytes() if file.is_file else b""
        if not data.strip():
            continue
        try:
            return decode(_json_object(data))
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError, RecursionError) as error:
            problems.append(f"{file}: {error}")
    if problems:
        raise ConfigError(f"{'; '.join(problems)}. Put a readable copy in its place, or remove it with its .bak")
    return None


def config_database(store: Location, name: str) -> Location | None:
    """The RocksDB database that has the content of `config/NAME`; None if the broker keeps it in that file.

    `rdb` is the database of `configManagerVersion=v2` (from 5.3.2 on), `metadata` that of
    `useSingleRocksDBForAllConfigs` (from 5.4.0 on). Files of other names are always JSON.
    """
    own = _ROCKSDB_FOLDERS.get(name)
    folders = () if own is None else (store / CONFIG / one for one in (own, "rdb", "metadata"))
    return next((folder for folder in folders if is_rocksdb(folder)), None)


def _json_object(data: bytes) -> dict[str, Any]:
    content = parse_fastjson(data.decode("utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it does not contain a JSON object")
    return content


def as_integer(value: object, bits: int) -> int:
    """A value of the file as a signed integer of `bits` bits."""
    if not isinstance(value, int | str):
        raise TypeError(f"{value!r} is not an integer")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} has more than {bits} bits")
    return number
