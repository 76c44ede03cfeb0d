"""Two members of a DLedger group, compared, and one repaired from the other: copies of a node that a broker wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest

from spark_mq import compare, repair_from
from spark_mq.cli.exit_status import DAMAGED
from spark_mq.cli.main import main
from spark_mq.format.dledger import BLANK
from spark_mq.repairer.comparison import PartState
from tests.support.dledger import SEGMENT, STORE, heads, overwrite
from tests.support.soak import cases
from tests.support.stores import Unpack

HEAD = 48
PLACES = {
    "magic of the entry": 3,
    "size of the entry": 7,
    "index": 15,
    "higher index": 13,
    "term": 23,
    "position": 31,
    "body size": 46,
    "size of the record": HEAD + 3,
    "magic of the record": HEAD + 4,
    "own offset of the record": HEAD + 35,
    "body CRC": HEAD + 10,
}


@pytest.fixture
def pair(unpacked: Unpack, tmp_path: Path) -> tuple[Path, Path]:
    """A node, and the other member: its folder has another name."""
    store, replica = (
        Path(shutil.copytree(unpacked(STORE), tmp_path / name, copy_function=copied)) for name in ("store", "replica")
    )
    (replica / "dledger-n0").rename(replica / "dledger-n1")
    return store, replica


def copied(source: str, target: str) -> None:
    """Copy a file; DLedger's own index, of 160 MB, is not changed here."""
    (os.link if "/dledger-n0/index/" in source else shutil.copy2)(source, target)


def log_of(node: Path) -> list[bytes]:
    (data,) = node.glob("dledger-*/data")
    return [file.read_bytes() for file in sorted(data.iterdir())]


def flip(store: Path, offset: int) -> None:
    file = store / "dledger-n0/data" / f"{offset // SEGMENT * SEGMENT:020d}"
    overwrite(store, offset, bytes([file.read_bytes()[offset % SEGMENT] ^ 0x10]))


def test_members_are_the_same(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = compare(*map(str, pair))
    offset, size, _ = heads(pair[0])[-1]
    assert found.is_same
    assert found.store.end == found.replica.end == offset + size
    assert found.store.committed == found.replica.committed == offset + size
    assert main(["compare", *map(str, pair)]) == 0
    assert f"it knows that its group committed what is before {offset + size}" in capsys.readouterr().out


@pytest.mark.parametrize("at", PLACES.values(), ids=PLACES)
def test_a_damaged_entry(at: int, pair: tuple[Path, Path]) -> None:
    """Whatever is damaged, its head or its record, the whole entry is taken from the other member."""
    store, replica = pair
    offset, size, index = heads(store)[150]
    flip(store, offset + at)
    (part,) = compare(str(store), str(replica)).parts
    assert (part.start, part.stop, part.state) == (offset, offset + size, PartState.STORE_DAMAGED)
    assert part.file == f"dledger-n0/data/{offset // SEGMENT * SEGMENT:020d}"
    assert part.of_replica is not None
    assert (part.of_replica["entry"], part.of_replica["term"]) == (index, 0)
    assert f"entry {index} of term 0" in part.name
    (other_way,) = compare(str(replica), str(store)).parts
    assert other_way.state == PartState.REPLICA_DAMAGED
    (replica / "dledger-n1/checkpoint").unlink()  # later entries are the same in both logs
    assert repair_from(str(store), str(replica), apply=True).is_complete
    assert log_of(store) == log_of(replica)


def test_a_lost_segment(pair: tuple[Path, Path]) -> None:
    store, replica = pair
    (store / "dledger-n0/data" / f"{0:020d}").rename(store / "lost")
    repaired = repair_from(str(store), str(replica), apply=True)
    assert not repaired.taken  # the log of the store begins later now, as if the segment had expired
    (store / "lost").rename(store / "dledger-n0/data" / f"{0:020d}")
    with (store / "dledger-n0/data" / f"{0:020d}").open("r+b") as file:
        file.truncate(heads(store)[99][0] + 20)
    repaired = repair_from(str(store), str(replica), apply=True)
    assert repaired.is_complete
    assert [change.file for change in repaired.changes] == [f"dledger-n0/data/{0:020d}"]
    assert log_of(store) == log_of(replica)


def test_the_last_entry_is_taken_only_if_it_is_committed(pair: tuple[Path, Path]) -> None:
    """Only the replica's own checkpoint counts: what it has there can be what another leader removed."""
    store, replica = pair
    offset, _, _ = heads(store)[-1]
    flip(store, offset + HEAD + 4)
    checkpoint = replica / "dledger-n1/checkpoint"
    said = checkpoint.read_bytes()
    checkpoint.unlink()
    plan = repair_from(str(store), str(replica))
    (left,) = plan.left
    assert (left.part.start, plan.changes) == (offset, ())
    assert "REPLICA does not know these entries as committed" in left.reason
    checkpoint.write_bytes(said)
    assert repair_from(str(store), str(replica), apply=True).is_complete
    assert log_of(store) == log_of(replica)


def test_members_that_part(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """One member got other entries from the leader of a later term; nothing is taken from there on."""
    store, replica = pair
    entries = heads(store)
    at, _, index = entries[-30]
    log, moved = b"".join(log_of(store)), at
    for number, (offset, size, _) in enumerate(entries[-29:]):
        entry = bytearray(log[offset : offset + size])
        entry[8:16], entry[16:24] = (index + number).to_bytes(8, "big"), (1).to_bytes(8, "big")
        entry[24:32], entry[76:84] = moved.to_bytes(8, "big"), (moved + HEAD).to_bytes(8, "big")
        overwrite(store, moved, bytes(entry))
        moved += size
    overwrite(store, moved, bytes(entries[-1][0] + entries[-1][1] - moved))
    assert main(["compare", str(store), str(replica)]) == DAMAGED
    assert f"the logs part at commit log offset {at}" in capsys.readouterr().out
    found = compare(str(store), str(replica))
    (part,) = found.parts
    assert part.state == PartState.DIFFERENT
    assert part.of_store is not None
    assert part.of_replica is not None
    assert (part.of_store["term"], part.of_replica["term"]) == (1, 0)
    assert part.of_store["entry"] == part.of_replica["entry"] == index
    assert repair_from(str(store), str(replica)).changes == ()


def test_a_damaged_blank(pair: tuple[Path, Path]) -> None:
    """DLedger would cut its log there (`DLedgerMmapFileStore.recover`@dledger-0.3.1)."""
    store, replica = pair
    offset, size, _ = [entry for entry in heads(store) if entry[0] < SEGMENT][-1]
    flip(store, offset + size + 3)
    (part,) = compare(str(store), str(replica)).parts
    assert (part.start, part.stop, part.state) == (offset + size, SEGMENT, PartState.STORE_DAMAGED)
    assert repair_from(str(store), str(replica), apply=True).is_complete
    assert log_of(store) == log_of(replica)


@pytest.mark.parametrize("seed", cases(range(8), range(300)))
def test_random_damage(seed: int, pair: tuple[Path, Path]) -> None:
    """After a repair, the log is that of the other member, except in what is named as left."""
    store, replica = pair
    random = Random(seed)
    offset, size, _ = heads(store)[-1]
    for _ in range(random.randint(1, 5)):
        at, length = random.randrange(offset + size), random.choice([1, 1, 8, 700])
        length = min(length, SEGMENT - at % SEGMENT, offset + size - at)
        overwrite(store, at, random.choice([bytes(length), random.randbytes(length)]))
    if random.random() < 0.5:
        (replica / "dledger-n1/checkpoint").unlink()
    repaired = repair_from(str(store), str(replica), apply=True)
    mine, other = (np.frombuffer(b"".join(log_of(node)), np.uint8) for node in pair)
    differs = mine != other
    for one in repaired.left:
        differs[one.part.start : one.part.stop] = False
    if repaired.before.has_parted:
        differs[repaired.before.parts[-1].start :] = False
    last, last_size, _ = [entry for entry in heads(replica) if entry[0] < SEGMENT][-1]
    differs[last + last_size + BLANK.size : SEGMENT] = False  # nobody reads what follows the head of a blank
    assert not differs.any(), np.flatnonzero(differs)


def test_a_plain_log_is_not_of_the_same_group(pair: tuple[Path, Path]) -> None:
    store, replica = pair
    (replica / "dledger-n1/data").rename(replica / "commitlog")
    assert main(["compare", str(store), str(replica)]) == 2
