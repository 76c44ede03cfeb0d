"""Damage of a DLedger log: each is found, or it is in bytes that no broker reads, or that have no redundancy."""

from __future__ import annotations

import random
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from spark_mq.repairer.changes import undo_repair
from tests.support.dledger import SEGMENT, STORE, heads
from tests.support.in_process import read_rows
from tests.support.repaired import repair_here
from tests.support.soak import SOAKS
from tests.support.verified import check, grave

TRIES, EACH = 500 if SOAKS else 40, 50
END, HEAD_SIZE, UNIT_SIZE = 403_297, 48, 32
NEVER_READ = range(32, 44)
"""Bytes of a head that brokers write as zeros and never read: channel, chain CRC, body CRC."""
SEEN = ("topic", "queue_id", "queue_offset", "commit_log_offset", "body", "tags", "keys", "unique_key")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return STORE.unpack(tmp_path_factory.mktemp("dledger"))


def index_file(store: Path) -> Path:
    return store / "dledger-n0" / "index" / ("0" * 20)


def offsets(store: Path) -> list[int]:
    return [offset for offset, *_ in heads(store)]


def change(file: Path, position: int, content: bytes) -> bytes:
    """Write bytes into a file; returns what was there."""
    with file.open("r+b") as opened:
        opened.seek(position)
        before = opened.read(len(content))
        opened.seek(position)
        opened.write(content)
    return before


def segment(store: Path, offset: int) -> tuple[Path, int]:
    base = offset // SEGMENT * SEGMENT
    return store / "dledger-n0" / "data" / f"{base:020d}", offset - base


def damage_place(store: Path, chance: random.Random, of_entries: list[int]) -> tuple[str, Path, int]:
    """Where to damage: a part of a head, a unit of the index, or any byte of the log."""
    kind = chance.choice(["head", "head", "index", "log"])
    if kind == "index":
        return kind, index_file(store), chance.randrange(UNIT_SIZE * len(of_entries))
    offset = chance.choice(of_entries) + chance.randrange(HEAD_SIZE) if kind == "head" else chance.randrange(END)
    return kind, *segment(store, offset)


def seen(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(str(row[name]) for name in SEEN)


def test_a_real_node_is_sound(store: Path) -> None:
    report, findings = check(store, STORE.broker_conf)
    assert findings == []
    assert report.messages == 327


@pytest.mark.parametrize("first", range(0, TRIES, EACH))
def test_every_damage_is_found_or_cannot_be_seen(first: int, store: Path) -> None:
    sound, of_entries, counts = Counter(map(seen, read_rows(path=str(store)))), offsets(store), Counter[str]()
    missed = []
    for seed in range(first, min(first + EACH, TRIES)):
        chance = random.Random(seed)
        kind, file, position = damage_place(store, chance, of_entries)
        length = chance.choice([1, 1, 4, 8, 48])
        with file.open("rb") as opened:
            opened.seek(position)
            content = bytearray(opened.read(length))
        content = (
            bytearray(content[0] ^ 1 << chance.randrange(8) for _ in content) if length == 1 else bytearray(length)
        )
        before = change(file, position, bytes(content))
        _, findings = check(store, STORE.broker_conf)
        rows = Counter(map(seen, (row for row in read_rows(path=str(store)) if row["_corrupt_record"] is None)))
        if not grave(findings):
            offset = int(file.name) + position
            at = offset - max((head for head in of_entries if head <= offset), default=0)
            is_harmless = before == content or (kind == "head" and at in NEVER_READ)
            if rows != sound or (kind != "log" and not is_harmless):
                missed.append((seed, kind, position, length))
            counts["harmless" if is_harmless else "without redundancy"] += 1
        counts[kind] += 1
        change(file, position, before)
    print(dict(counts))
    assert not missed
    assert counts["harmless"] + counts["without redundancy"] < EACH // 2


def test_entries_after_the_end_of_the_log_are_lost(store: Path) -> None:
    """Only the node's checkpoint, or only its index, says that there were more."""
    *_, before_last, last = offsets(store)
    file, position = segment(store, last)
    entry = change(file, position, bytes(END - last))
    checkpoint = store / "dledger-n0" / "checkpoint"
    text = checkpoint.read_text()
    for stated in (text, "committedIndex=3\nendIndex=3\n", "not a checkpoint"):
        checkpoint.write_text(stated)
        _, findings = check(store, STORE.broker_conf)
        (lost,) = [finding for finding in findings if finding.code == "DLEDGER_LOST"]
        assert (lost.commit_log_offset, lost.expected) == (last, "entries up to index 326"), stated
    checkpoint.write_text(text)
    report = repair_here(store, STORE.broker_conf, apply=True)
    assert report.is_applied
    assert "DLEDGER_LOST" in {left.code for left in report.left}
    undo_repair(str(store))
    change(file, position, entry)
    assert before_last < last


def test_terms_and_indexes_that_do_not_follow_are_named(store: Path) -> None:
    """In an older segment, whose messages are read all the same; a boot cuts the log there."""
    of_entries = offsets(store)
    for field, value in ((8, 99), (16, -1)):
        file, position = segment(store, of_entries[100])
        before = change(file, position + field, struct.pack(">q", value))
        _, findings = check(store, STORE.broker_conf)
        found = [finding for finding in findings if finding.code == "DLEDGER_ENTRY"]
        assert found[0].commit_log_offset == of_entries[100]
        change(file, position + field, before)
