"""Trees that are there are continued where they end: those of a shorter log, and those that brokers left."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest

from spark_mq.errors import CorruptLogError
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_DTYPE, is_live
from tests.support.rebuilt import rebuild_here
from tests.support.soak import cases
from tests.support.store_history import cut_log, grow_log, identities, record_ends, settings_of
from tests.support.stores import OWN_STORES, RealStore, Unpack, all_stores, index_of, stores_in, tree_of

STORES = [*stores_in(OWN_STORES), *(s for s in all_stores() if str(s) in ("shared-edge-533", "shared-stale-533"))]

GROWN = ("tests-workload-49x", "tests-killed-533")


@pytest.fixture(scope="module")
def whole(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Unpack:
    """Gives a rebuild of a store's log from nothing, without queues that only the store's own files know."""
    made: dict[RealStore, Path] = {}

    def rebuilt(store: RealStore) -> Path:
        if store not in made:
            folder = tmp_path_factory.mktemp(str(store))
            log = cut_log(unpacked(store), folder / "store", 1 << 62)
            made[store] = folder / "whole"
            rebuild_here(str(log), str(made[store]), **settings_of(store))
        return made[store]

    return rebuilt


def queues_in(tree: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in tree.items() if name.startswith("consumequeue/")}


@pytest.mark.parametrize("store", cases([s for s in STORES if str(s) in GROWN], STORES), ids=str)
def test_a_log_that_grew(unpacked: Unpack, tmp_path: Path, whole: Unpack, store: RealStore) -> None:
    settings, output = settings_of(store), str(tmp_path / "out")
    begun = cut_log(unpacked(store), tmp_path / "store", random.Random(store.name).choice(record_ends(store)[:-1]))
    rebuild_here(str(begun), output, **settings)
    before = identities(tmp_path / "out")
    grow_log(unpacked(store), begun)
    report = rebuild_here(str(begun), output, resume=True, **settings)
    after = identities(tmp_path / "out")
    assert tree_of(tmp_path / "out") == tree_of(whole(store))
    changed = {name for name in before if after[name][2] != before[name][2]}
    assert {name for name in before if after[name] != before[name]} == changed
    assert (report.files_untouched, report.files_completed) == (len(before) - len(changed), len(changed))
    assert not (tmp_path / "out" / ".spark_mq").exists()


@pytest.mark.parametrize("store", cases(stores_in(OWN_STORES), STORES), ids=str)
def test_what_a_broker_left(unpacked: Unpack, tmp_path: Path, whole: Unpack, store: RealStore) -> None:
    """Behind a crash, with units that are missing or stale, and with files of messages that expired."""
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    (folder / "lock").write_bytes(b"lock")  # every broker leaves this file; the packed stores do not have it
    before = tree_of(folder)
    report = rebuild_here(str(folder), resume=True, **settings_of(store))
    after = tree_of(folder)
    changed = {name for name in before if after[name] != before[name]} - {"checkpoint"}
    assert after.keys() == before.keys()
    assert report.files_completed == len(changed)
    if store.name.startswith("deleted"):
        assert changed == set()
        return
    assert queues_in(after) == queues_in(tree_of(whole(store)))
    if str(store) == "shared-stale-533":  # its broker's recovery put the keys of the last message again
        assert not any(name.startswith("index/") for name in changed)
    else:
        assert index_of(folder) == index_of(whole(store))
    if store.name.startswith("lagging"):
        assert queues_in(after) == queues_in(tree_of(store.unpack(tmp_path, "rebuilt")))
        assert len(changed) == 1


def test_files_that_a_crash_left_odd(unpacked: Unpack, tmp_path: Path) -> None:
    """Stale units, some in a file of their own; a queue that got no further than its pre-blank units; an empty file."""
    store = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    before = tree_of(folder)
    queues = sorted({path.parent for path in (folder / "consumequeue").rglob("0???*") if path.is_file()})
    moved = next(queue for queue in queues if queue.parent.name == "MovedQueue")
    (begun,) = moved.iterdir()
    units = np.frombuffer(begun.read_bytes(), UNIT_DTYPE).copy()
    assert (units["store_size"] == PRE_BLANK_SIZE).any()
    units[is_live(units)] = 0
    begun.write_bytes(units.tobytes())
    stale, empty = [queue for queue in queues if queue.parent.name == "SequenceDemo"][:2]
    half = max(stale.iterdir())
    units = np.frombuffer(half.read_bytes(), UNIT_DTYPE).copy()
    units[~is_live(units)] = (1 << 40, 100, 7)
    half.write_bytes(units.tobytes())
    units[:] = (1 << 40, 100, 7)
    (stale / f"{int(half.name) + units.nbytes:020d}").write_bytes(units.tobytes())
    last = max(empty.iterdir())
    last.write_bytes(bytes(last.stat().st_size))
    rebuild_here(str(folder), resume=True, **settings_of(store))
    assert queues_in(tree_of(folder)) == queues_in(before)


def test_a_queue_that_is_longer_than_its_log_is_no_queue_of_it(unpacked: Unpack, tmp_path: Path) -> None:
    store = next(store for store in stores_in(OWN_STORES) if store.name == "workload-533")
    folder = Path(shutil.copytree(unpacked(store), tmp_path / "store"))
    (folder / "checkpoint").unlink()
    last = max((folder / "consumequeue" / "SequenceDemo" / "0").iterdir())
    units = np.frombuffer(last.read_bytes(), UNIT_DTYPE).copy()
    count = int(is_live(units).sum())
    assert 0 < count < units.size
    units[count] = units[count - 1]
    last.write_bytes(units.tobytes())
    (folder / "lock").write_bytes(b"lock")
    before = tree_of(folder)
    with pytest.raises(CorruptLogError, match=r"SequenceDemo/0: .*--replace"):
        rebuild_here(str(folder), resume=True, **settings_of(store))
    assert tree_of(folder) == before
