"""A rebuild of every real store against what its broker wrote: queue files and index files, whole, byte for byte.

Each store is rebuilt once, from many splits, for all tests; without Spark, whose tasks are the same functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import decode_header
from spark_mq.indexer.report import RebuildReport
from tests.support.index_stores import build_index, layout_of, messages_of, untouched_index_count
from tests.support.rebuilt import rebuild_here
from tests.support.store_history import settings_of
from tests.support.stores import RealStore, Unpack, index_of, marked_stores, tree_of, version_stores

Rebuilt = Callable[[RealStore], tuple[Path, RebuildReport]]


@pytest.fixture(scope="module")
def rebuilt(unpacked: Unpack, tmp_path_factory: pytest.TempPathFactory) -> Rebuilt:
    """Gives the folder of a store's rebuild, and its report. It is shared: no test may change it."""
    made: dict[RealStore, tuple[Path, RebuildReport]] = {}

    def rebuild_once(store: RealStore) -> tuple[Path, RebuildReport]:
        if store not in made:
            folder = tmp_path_factory.mktemp(str(store)) / "out"
            before = tree_of(unpacked(store))
            report = rebuild_here(unpacked(store), folder, split_size=64 << 10, **settings_of(store))
            assert tree_of(unpacked(store)) == before
            made[store] = folder, report
        return made[store]

    return rebuild_once


def queues_of(store: Path) -> dict[str, bytes]:
    return tree_of(store / "consumequeue")


def brokers_rebuild(store: RealStore, folder: Path, own: dict[str, bytes]) -> dict[str, bytes]:
    """What a broker's rebuild of the store gives.

    Its own files, where it stopped cleanly with a whole log. Else the tree that a real rebuild or recovery made.
    """
    for tree in ("rebuilt", "recovered"):
        if store.has(tree):
            return queues_of(store.unpack(folder, tree))
    return own


@pytest.mark.parametrize("store", [*marked_stores(), *version_stores("p")])
def test_queue_files_are_the_brokers(rebuilt: Rebuilt, unpacked: Unpack, tmp_path: Path, store: RealStore) -> None:
    source = unpacked(store)
    output, report = rebuilt(store)
    made = queues_of(output)
    expected = brokers_rebuild(store, tmp_path, queues_of(source))
    carried = {name for name in made if name.rsplit("/", 1)[0] in report.carried_over}
    assert {name: made[name] for name in carried} == {name: queues_of(source)[name] for name in carried}
    assert sorted(made.keys() - carried) == sorted(expected.keys() - carried)
    if store.name.startswith("stale"):
        expected = with_zeros_behind_the_live_end(expected, store)
    assert [name for name in made.keys() - carried if made[name] != expected[name]] == []
    assert report.messages == len(store.facts("msg"))


def with_zeros_behind_the_live_end(queues: dict[str, bytes], store: RealStore) -> dict[str, bytes]:
    """The packed files of a stale store, without the old units behind each queue's maximum offset."""
    ends = {f"{fact['topic']}/{fact['queueId']}": fact["max"] * UNIT_SIZE for fact in store.facts("queue")}
    result = {}
    for name, data in queues.items():
        queue, file = name.rsplit("/", 1)
        live = max(min(ends[queue] - int(file), len(data)), 0)
        result[name] = data[:live].ljust(len(data), b"\0")
    return result


@pytest.mark.parametrize("store", marked_stores("stale", "edge"))
def test_splits_of_one_page_give_the_same_files(
    rebuilt: Rebuilt, unpacked: Unpack, tmp_path: Path, store: RealStore
) -> None:
    rebuild_here(unpacked(store), tmp_path, only="consumequeue", split_size=4096, **settings_of(store))
    assert queues_of(tmp_path) == queues_of(rebuilt(store)[0])


def brokers_index(store: RealStore, folder: Path, scratch: Path) -> list[bytes]:
    """The broker's own files, or those of its own rebuild.

    After a recovery (killed, abort, shared stale) some keys are in the broker's index twice, and a rebuild has them
    once. The expected files are then those of the live messages. `tests/format/kernels/test_index_put.py` compares them
    with the broker's.
    """
    if store.has("rebuilt"):
        return index_of(store.unpack(scratch, "rebuilt"))
    if store.name.startswith(("abort", "killed")) or str(store) == "shared-stale-533":
        made = build_index(messages_of(folder), layout_of(store), untouched_index_count=untouched_index_count(store))
        return [data.tobytes() for data in made]
    return index_of(folder)


@pytest.mark.parametrize("store", [*marked_stores(), *version_stores("p")])
def test_index_files_are_the_brokers(rebuilt: Rebuilt, unpacked: Unpack, tmp_path: Path, store: RealStore) -> None:
    """Names apart: a broker names a file after the time at which it made it."""
    output, report = rebuilt(store)
    got = index_of(output)
    assert got == brokers_index(store, unpacked(store), tmp_path)
    headers = [decode_header(data, layout_of(store), "") for data in got]
    assert report.index_entries == sum(header.next_entry - 1 for header in headers)
    assert report.index_files == len(got)
