"""The JSON files below `config/`, as the broker writes them (`ConfigManager`@5.3.3, fastjson).

fastjson leaves integer keys unquoted (`{0:5,1:6}`), which is no JSON. Beside each file lies a `.bak`, its content
before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from spark_mq.errors import ConfigError, UnsupportedStoreError
from spark_mq.io.location import Location
from spark_mq.store.config.store_kind import is_rocksdb

Content = TypeVar("Content")

_ROCKSDB_FOLDERS = {"topics.json": "topics", "consumerOffset.json": "consumerOffsets"}
_UNQUOTED_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")


def parse_fastjson(text: str) -> object:
    """JSON whose integer keys may be unquoted. Raises `ValueError` where it is neither."""
    pieces = re.split(r'("(?:[^"\\]|\\.)*"?)', text)
    outside_strings = [
        _UNQUOTED_KEY.sub(r'\1"\2"\3', piece) if index % 2 == 0 else piece for index, piece in enumerate(pieces)
    ]
    return json.loads("".join(outside_strings))


def load_config(store: Location, name: str, decode: Callable[[dict[str, Any]], Content]) -> Content | None:
    """What `decode` makes of `config/NAME`, or of its `.bak` where that is absent, empty or unreadable.

    None without content. As `ConfigManager.load`@5.3.3. Raises `ConfigError` where there is content, and none of it is
    readable: no JSON object, or one of which `decode` makes nothing. Raises `UnsupportedStoreError` where the broker
    keeps it in RocksDB (`RocksDBConfigManager`@5.3.3).
    """
    for database in (store / "config" / _ROCKSDB_FOLDERS.get(name, name), store / "config" / "rdb"):
        if is_rocksdb(database):
            raise UnsupportedStoreError(f"{database} is a RocksDB database, which is not read here")
    problems = []
    for file in (store / "config" / name, store / "config" / f"{name}.bak"):
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


def _json_object(data: bytes) -> dict[str, Any]:
    content = parse_fastjson(data.decode("utf-8"))
    if not isinstance(content, dict):
        raise ValueError("it holds no JSON object")
    return content


def as_integer(value: object, bits: int) -> int:
    """A number of the file as a signed integer of `bits` bits. Raises `ValueError` or `TypeError` for another."""
    if not isinstance(value, int | str):
        raise TypeError(f"{value!r} is no integer")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{number} has more than {bits} bits")
    return number
