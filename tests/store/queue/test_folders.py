from __future__ import annotations

from pathlib import Path

import pytest

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.io.location import Location
from spark_mq.store.queue.folders import existing_file_size, queue_folders
from tests.support.stores import RealStore, Unpack, usual_stores


def make(folder: Path, *files: str, size: int = 40) -> Location:
    for name in files:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes(size))
    return Location.resolve(str(folder))


FIRST, SECOND = f"{0:020d}", f"{40:020d}"


@pytest.mark.parametrize("store", usual_stores(), ids=str)
def test_queues_of_a_real_store_are_those_that_the_broker_lists(store: RealStore, unpacked: Unpack) -> None:
    folders = list(queue_folders(Location.resolve(str(unpacked(store))) / "consumequeue"))
    (fact,) = store.facts("store")
    assert {(folder.topic, folder.queue_id) for folder in folders} == {
        (queue["topic"], queue["queueId"]) for queue in store.facts("queue")
    }
    assert existing_file_size(folders) == fact["mappedFileSizeConsumeQueue"]


def test_a_queue_s_files_are_in_order(tmp_path: Path) -> None:
    (folder,) = queue_folders(make(tmp_path, f"T/3/{SECOND}", f"T/3/{FIRST}"))
    assert (folder.topic, folder.queue_id) == ("T", 3)
    assert [info.base_name for info in folder.files] == [FIRST, SECOND]


@pytest.mark.parametrize(
    "name", [f"T/x/{FIRST}", f"T/9999999999/{FIRST}", f"T/{FIRST}", FIRST, "T/0/other", f"T/0/{FIRST}0", "T/0/0"]
)
def test_other_files_are_no_queue(name: str, tmp_path: Path) -> None:
    assert list(queue_folders(make(tmp_path, name))) == []


def test_an_empty_file_is_no_queue(tmp_path: Path) -> None:
    store = make(tmp_path, f"T/0/{FIRST}", size=0)
    assert list(queue_folders(store)) == []
    assert [len(folder.files) for folder in queue_folders(store, with_empty=True)] == [1]


def test_the_commonest_size_of_whole_units_is_the_files_size(tmp_path: Path) -> None:
    make(tmp_path, f"T/0/{FIRST}", f"T/1/{FIRST}", size=2 * UNIT_SIZE)
    make(tmp_path, f"U/0/{FIRST}", size=5 * UNIT_SIZE)
    make(tmp_path, f"V/0/{FIRST}", f"V/1/{FIRST}", f"V/2/{FIRST}", size=7)
    assert existing_file_size(list(queue_folders(Location.resolve(str(tmp_path))))) == 2 * UNIT_SIZE
    assert existing_file_size(list(queue_folders(Location.resolve(str(tmp_path / "nowhere"))))) is None
