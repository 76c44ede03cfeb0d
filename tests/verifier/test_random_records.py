"""Random damages of databases: each is found, or is harmless at every door that reads the database.

What is damaged is a record of a database, or the bytes of its files. Only the fields may change without a finding that
docs/verify.md names: store times of units, unique keys in index records of KEYS and TAGS, and what is there of timers
and transactions.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
from rocksdict import Options, Rdict

from spark_mq.errors import SparkMqError
from tests.support.doors import Questions, ask
from tests.support.random_damages import damage_bytes
from tests.support.rocksdb import ALL_IN_ROCKS, ROCKS, opened
from tests.support.soak import SOAKS
from tests.support.stores import RealStore
from tests.support.verified import check, grave

TRIES = 500 if SOAKS else 12
DOORS = (
    *("consume_queue", "queues", "index_entries", "messages of a topic", "messages_by_key"),
    *("by key", "by keys", "as broker", "by unique key", "by queue, units", "queue ends, units", "by time, units"),
)
OFFSETS = "offset"
"""The column family with the ends of queues."""
STORE_TIME = range(20, 28)
"""Bytes of the value of a unit."""


def damage_record(folder: Path, chance: random.Random) -> str | None:
    """Change, delete, copy or exchange records of a database; None if that changes nothing that a check reads."""
    names = [name for name in Rdict.list_cf(str(folder), Options(raw_mode=True)) if name in ("default", OFFSETS)]
    database = opened(folder)
    name = chance.choice(names)
    family = database if name == "default" else database.get_column_family(name)
    records = sorted((bytes(key), bytes(value)) for key, value in family.items())  # type: ignore[arg-type]
    (key, value), (other, other_value) = chance.sample(records, 2)
    kind = chance.choice(["value", "value", "value", "key", "delete", "copy", "exchange"])
    at = chance.randrange(len(key if kind == "key" else value))
    seen = True
    if kind == "value":
        family[key] = _flipped(value, at, chance)
        seen = name == OFFSETS or len(value) != STORE_TIME.stop or at not in STORE_TIME
    elif kind == "key":
        family[_flipped(key, at, chance)] = value
        del family[key]
        seen = not _is_in_unique_key(key, at)
    elif kind == "delete":
        del family[key]
    elif kind == "copy":
        family[other] = value
        seen = value != other_value
    else:
        family[key], family[other] = other_value, value
        seen = value != other_value
    database.close()
    return f"{kind} of {key!r} in {name}, at {at}" if seen else None


def _is_in_unique_key(key: bytes, at: int) -> bool:
    """Whether a byte is in the unique key in an index record of KEYS or TAGS, which no look-up reads."""
    names = key[8:-9].split(b"@")
    return len(names) == 5 and names[2] in (b"K", b"T") and len(key) - 9 - len(names[4]) <= at < len(key) - 9


def _flipped(data: bytes, at: int, chance: random.Random) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


@pytest.mark.parametrize("of_records", [True, False], ids=["records", "bytes"])
@pytest.mark.parametrize(
    ("packed", "name"), [(ROCKS, "consumequeue"), (ALL_IN_ROCKS, "rocksdbstore")], ids=["queues", "index"]
)
def test_every_damage_is_found_or_harmless(packed: RealStore, name: str, of_records: bool, tmp_path: Path) -> None:
    original = packed.unpack(tmp_path / "original")
    store = Path(shutil.copytree(original, tmp_path / "store"))
    asked, (_, before) = Questions.of(packed), check(original, packed.broker_conf)
    sound = {door: ask(door, original, asked) for door in DOORS}
    counts, wrong = Counter[str](), []
    for seed in range(TRIES):
        chance = random.Random(seed)
        done = damage_record(store / name, chance) if of_records else damage_bytes(store, chance, (name,))
        try:
            findings = [one for one in check(store, packed.broker_conf)[1] if one not in before]
            outcome = "found" if grave(findings) else "noted" if findings else "silent"
        except SparkMqError:
            outcome = "found"
        if outcome != "found" and done is not None:
            differing = [door for door in DOORS if ask(door, store, asked) != sound[door]]
            outcome = "harmless" if outcome == "silent" and not differing else outcome
            if differing:
                wrong.append((seed, done, [one.code for one in findings], differing))
        counts[outcome] += 1
        shutil.rmtree(store / name)
        shutil.copytree(original / name, store / name)
    print(dict(counts))
    assert not wrong
    assert counts["found"] > TRIES // 4
