"""RocksDB databases as a broker writes them: a real store, the keys of units, and databases that a test makes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from rocksdict import Options, Rdict

from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase, make_database, write_table
from tests.support.stores import OWN_STORES, RealStore

ROCKS = RealStore("fRocks550", OWN_STORES / "forms")
ALL_IN_ROCKS = RealStore("fAllRocks550", OWN_STORES / "forms")
"""Queues, index, timers, transactions and settings are in RocksDB; a broker answers from that index."""


def key_of(topic: str, queue_id: int, offset: int) -> bytes:
    """`RocksDBConsumeQueueTable.buildCQKeyByteBuffer`@5.3.3."""
    name = topic.encode()
    return struct.pack(">i", len(name)) + b"\1" + name + b"\1" + struct.pack(">ibq", queue_id, 1, offset)


def write_database(folder: Path, families: Mapping[str, Mapping[bytes, bytes]]) -> None:
    """A new database with these column families."""
    database = Rdict(str(folder), Options(raw_mode=True))
    for name, values in families.items():
        family = database if name == "default" else database.create_column_family(name, Options(raw_mode=True))
        for key, value in values.items():
            family[key] = value
    database.close()


def opened(folder: Path) -> Rdict:
    """A database with all its column families, whose records a test changes."""
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(str(folder), Options(raw_mode=True))}
    return Rdict(str(folder), Options(raw_mode=True), families)


def flip_tables(folder: Path) -> None:
    """Change a bit of each table of a database."""
    for table in folder.glob("*.sst"):
        data = bytearray(table.read_bytes())
        data[100] ^= 1
        table.write_bytes(data)


def cut_manifest(folder: Path) -> None:
    """Make an older database, which opens without an error."""
    (manifest,) = folder.glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:250])


def records(database: Path, family: str) -> dict[bytes, bytes]:
    """The keys and values of a column family."""
    with closing(RocksDatabase(Location.resolve(str(database)))) as found:
        return dict(found.items(family))


def next_offsets(database: Path) -> dict[tuple[str, int], int]:
    """The queue offset after the last message of each queue, by the table of ends (`max`) of a database of queues."""
    found: dict[tuple[str, int], int] = {}
    for key, value in records(database, "offset").items():
        (length,) = struct.unpack_from(">i", key)
        if len(value) == 16 and key[length + 6 : length + 9] == b"max":
            (queue_id,) = struct.unpack(">i", key[-4:])
            found[key[5 : length + 5].decode(), queue_id] = struct.unpack(">qq", value)[1] + 1
    return found


CHECKPOINT = ("CHECKPOINT_TOPIC", 0)
"""The queue whose entry in the table of ends says up to where messages were dispatched."""


def end_key(queue: tuple[str, int]) -> bytes:
    """`RocksDBConsumeQueueOffsetTable.buildOffsetKeyByteBuffer`@5.3.3, of an entry `max`."""
    name = queue[0].encode()
    return struct.pack(">i", len(name)) + b"\1" + name + b"\1max\1" + struct.pack(">i", queue[1])


def lose_units(store: Path, start: int) -> int:
    """Make the database as a crash leaves it that loses the units of messages from `start` on; returns how many."""
    folder = store / "consumequeue"
    units = records(folder, "default")
    kept = {key: value for key, value in units.items() if struct.unpack_from(">q", value)[0] < start}
    ends: dict[bytes, bytes] = {}
    for key, value in sorted(kept.items()):  # the last one of a queue remains
        name, queue_offset = key[: -8 - 1 - 4 - 1], key[-8:]
        ends[name + b"\1max\1" + key[-13:-9]] = value[:8] + queue_offset
    ends[end_key(CHECKPOINT)] = struct.pack(">q", start)
    for file in filter(Path.is_file, folder.iterdir()):  # not queue files, which are in folders
        file.unlink()
    write_table(str(folder / "units.sst"), sorted(kept.items()))  # by which a broker opens the database
    make_database(str(folder), [str(folder / "units.sst")], {"offset": ends.items()})
    return len(units) - len(kept)
