"""The content of files of `config/` that a broker keeps in RocksDB, in the form of the JSON files.

| folder | setting | what it has |
| --- | --- | --- |
| `topics`, `consumerOffsets`, `subscriptionGroups` | `storeType=defaultRocksDB` | one file each (`config.v1`@5.3.3) |
| `metadata` | `useSingleRocksDBForAllConfigs` (5.4.0) | all three (`config.v1`@5.5.0), in column families |
| `rdb` | `configManagerVersion=v2` (5.3.2) | all three (`config.v2`@5.3.3) |

In the first two, a key is a name, and a value is JSON. In `rdb`, a key begins with 0x01, an i16 for the table, and
0x02; a value is JSON after a byte 0x01, or an offset of 64 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, RocksDatabase
from spark_mq.store.config.store_paths import CONFIG, is_rocksdb

Parse = Callable[[str], object]


@dataclass(frozen=True)
class _Table:
    """A file of `config/`: its key in JSON, its own folder, its column family in `metadata`, its table in `rdb`."""

    key: str
    folder: str
    family: str
    number: int


CONFIG_TABLES = {
    "topics.json": _Table("topicConfigTable", "topics", "topic", 3),
    "consumerOffset.json": _Table("offsetTable", "consumerOffsets", "consumerOffset", 1),
    "subscriptionGroup.json": _Table("subscriptionGroupTable", "subscriptionGroups", "subscriptionGroup", 4),
}
"""The files that can be in a database, by name."""
_SINGLE, _SECOND_VERSION = "metadata", "rdb"
_DATA = struct.Struct(">bhb")
"""The first bytes of a key of `rdb`: `TablePrefix.TABLE`, the table, `RecordPrefix.DATA`."""
_SHORT, _INT, _LONG = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
_VERSION = struct.Struct(">qqq")
_NO_VERSION = {"stateVersion": 0, "timestamp": 0, "counter": 0}
"""What a data version has, in the order in which `rdb` has it, and of a table that was never written."""
_JSON = b"\x01"


def config_database(store: Location, name: str) -> Location | None:
    """The RocksDB database that has the content of `config/NAME`; None if the broker keeps it in that file."""
    table = CONFIG_TABLES.get(name)
    folders = () if table is None else (table.folder, _SECOND_VERSION, _SINGLE)
    return next((store / CONFIG / one for one in folders if is_rocksdb(store / CONFIG / one)), None)


def read_config_database(folder: Location, name: str, parse: Parse) -> dict[str, Any]:
    """The content of `config/NAME` that is in the database in `folder`, as its JSON file would have it.

    Args:
        parse: The value of a JSON text.

    Raises:
        ValueError, TypeError, KeyError, struct.error: A key or a value has another form.
        MissingPackageError, StorageError: As `RocksDatabase`.
    """
    table = CONFIG_TABLES[name]
    database = RocksDatabase(folder)
    try:
        if folder.name == _SECOND_VERSION:
            version, entries = _version(database, table), _second_version(database, table, parse)
        else:
            families = (
                (table.family, f"{table.family}Version") if folder.name == _SINGLE else (DEFAULT, "kvDataVersion")
            )
            versions = [_parsed(value, parse) for _, value in database.items(families[1])]
            version = versions[0] if versions else _NO_VERSION
            entries = ((key.decode(), _parsed(value, parse)) for key, value in database.items(families[0]))
        content = _offsets(entries) if table.key == "offsetTable" else dict(entries)
        return {"dataVersion": version, table.key: content}
    finally:
        database.close()


def _version(database: RocksDatabase, table: _Table) -> dict[str, int]:
    """The data version of a table of `rdb` (`ConfigHelper.stampDataVersion`@5.3.3)."""
    keys = _DATA.pack(1, table.number, 1), _DATA.pack(1, table.number, 2)
    values = [_VERSION.unpack(value) for _, value in database.items(DEFAULT, *keys)]
    return dict(zip(_NO_VERSION, values[0], strict=True)) if values else _NO_VERSION


def _second_version(database: RocksDatabase, table: _Table, parse: Parse) -> Iterator[tuple[str, Any]]:
    start = _DATA.pack(1, table.number, 2)
    for key, value in database.items(DEFAULT, start, _DATA.pack(1, table.number, 3)):
        name, rest = _name(key[len(start) :])
        if table.key != "offsetTable":
            if value[:1] != _JSON:
                raise ValueError(f"{name!r} is not JSON")
            yield name, _parsed(value[1:], parse)
            continue
        topic, queue_id = _name(rest[1:])
        yield f"{topic}@{name}", {"offsetTable": {_INT.unpack(queue_id[1:])[0]: _LONG.unpack(value)[0]}}


def _name(data: bytes) -> tuple[str, bytes]:
    """A name after its length, and the bytes after it."""
    (length,) = _SHORT.unpack_from(data)
    end = _SHORT.size + length
    if not 0 <= length <= len(data) - _SHORT.size:
        raise ValueError(f"a name has {length} bytes")
    return data[_SHORT.size : end].decode(), data[end:]


def _offsets(entries: Iterator[tuple[str, Any]]) -> dict[str, dict[Any, Any]]:
    """The offsets of each topic and group: an entry has those of some queues."""
    found: dict[str, dict[Any, Any]] = {}
    for name, value in entries:
        found.setdefault(name, {}).update(value["offsetTable"])
    return found


def _parsed(value: bytes, parse: Parse) -> Any:
    return parse(value.decode())
