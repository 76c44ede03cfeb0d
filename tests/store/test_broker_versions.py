"""Which versions the files of a store show."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spark_mq.format.broker_version import BrokerVersion, BrokerVersions
from spark_mq.format.index_file import IndexHeader
from spark_mq.io.location import Location
from spark_mq.store.broker_versions import find_broker_versions
from tests.support.stores import OWN_STORES, RealStore, Unpack, stores_in, version_stores


def found(store: Path, given: str | None = None) -> BrokerVersions:
    return find_broker_versions(Location.resolve(str(store)), given)


@pytest.mark.parametrize("store", version_stores())
def test_the_version_of_a_real_store_is_among_those_that_its_files_show(store: RealStore, tmp_path: Path) -> None:
    versions = found(store.unpack(tmp_path))
    written = BrokerVersion.parse(store.broker_version)
    assert versions.first <= written <= versions.last
    assert written.major == versions.first.major == versions.last.major
    assert (written >= BrokerVersion.parse("5.4.0")) == (versions.first >= BrokerVersion.parse("5.4.0"))
    assert versions.evidence


@pytest.mark.parametrize("store", stores_in(OWN_STORES), ids=str)
def test_the_line_of_a_real_store_is_shown(store: RealStore, unpacked: Unpack) -> None:
    path = unpacked(store)
    versions = found(path)
    assert str(versions.first).startswith(store.broker_version)
    newest = "5.3.3" if (path / "abort.bak").exists() else "5.5.1"
    assert str(versions.last) == ("4.9.8" if store.broker_version == "4.9" else newest)


def only(store: RealStore, folder: Path, *kept: str) -> Path:
    """The store with its log and some other folders, and without topics that show 5.1.0 by their names."""
    path = store.unpack(folder)
    for entry in path.iterdir():
        if entry.name not in ("commitlog", *kept):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    for topic in path.glob("consumequeue/*"):
        if len(topic.name) > 127:
            shutil.rmtree(topic)
    return path


CONTENT = [*stores_in(OWN_STORES / "versions"), *version_stores("p"), RealStore("workload-533", OWN_STORES)]


@pytest.mark.parametrize(
    ("tree", "since", "evidence"), [("index", "5.4.0", "tags"), ("consumequeue", "5.1.0", "op message")]
)
@pytest.mark.parametrize("store", CONTENT, ids=str)
def test_what_index_entries_and_op_messages_show(
    store: RealStore, tree: str, since: str, evidence: str, tmp_path: Path
) -> None:
    versions = found(only(store, tmp_path, tree))
    shows = BrokerVersions.parse(store.broker_version).last >= BrokerVersion.parse(since)
    if store.name == "workload-533" and tree == "index":
        shows = False
    assert (str(versions.first), evidence in versions.evidence) == (since if shows else "4.9.0", shows)


def test_a_broker_of_4_9_that_wrote_last_counts(tmp_path: Path) -> None:
    path = only(RealStore("workload-550", OWN_STORES / "versions"), tmp_path, "index", "timerwheel")
    config(path, "consumerOffset.json", OFFSETS_OF_4_9)
    config(path, "delayOffset.json", OFFSETS_OF_4_9)
    assert str(found(path).first) == "4.9.0"


@pytest.mark.parametrize(("count", "offset", "first"), [(1, 0, "5.0.0"), (0, 0, "4.9.0"), (2, 500, "4.9.0")])
def test_what_the_header_of_an_index_file_shows(count: int, offset: int, first: str, tmp_path: Path) -> None:
    header = IndexHeader(begin_commit_log_offset=offset, end_commit_log_offset=offset, index_count=count)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / f"{0:017d}").write_bytes(header.encode())
    assert str(found(tmp_path).first) == first


def test_a_store_without_files_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    versions = found(tmp_path)
    assert str(versions) == "4.9.0 to 5.5.1"
    assert "nothing in the store tells" in versions.evidence


def config(store: Path, name: str, content: str) -> None:
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / name).write_text(content)


OF_5 = '{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":5}}'
OF_4_9 = '{"dataVersion":{"counter":1,"timestamp":5}}'
OFFSETS_OF_4_9 = '{"offsetTable":{"t@g":{0:5}}}'


def test_after_an_upgrade_the_file_that_is_written_often_counts(tmp_path: Path) -> None:
    """`topics.json` is the old one until a topic changes."""
    config(tmp_path, "topics.json", OF_4_9)
    assert str(found(tmp_path)) == "4.9.0 to 4.9.8"
    config(tmp_path, "consumerOffset.json", OF_5)
    assert str(found(tmp_path)) == "5.0.0 to 5.5.1"


def test_after_a_downgrade_the_files_that_are_written_often_count(tmp_path: Path) -> None:
    """What only 5 makes stays in the store."""
    config(tmp_path, "topics.json", OF_5)
    config(tmp_path, "consumerOffset.json", OFFSETS_OF_4_9)
    config(tmp_path, "delayOffset.json", OFFSETS_OF_4_9)
    assert str(found(tmp_path)) == "4.9.0 to 4.9.8"
    (tmp_path / "abort.bak").touch()
    versions = found(tmp_path)
    assert str(versions) == "4.9.0 to 5.3.3"
    assert "brokers of 4.9 and of 5 wrote here" in versions.evidence


@pytest.mark.parametrize("others", [{"topics.json": OF_5}, {"delayOffset.json": OF_5}])
def test_offsets_that_were_written_by_hand_show_no_line(tmp_path: Path, others: dict[str, str]) -> None:
    config(tmp_path, "consumerOffset.json", OFFSETS_OF_4_9)
    assert str(found(tmp_path)) == "4.9.0 to 4.9.8"
    for name, content in others.items():
        config(tmp_path, name, content)
    assert str(found(tmp_path)) == "5.0.0 to 5.5.1"


def test_a_line_that_is_given_means_the_versions_that_the_files_allow(tmp_path: Path) -> None:
    config(tmp_path, "topics.json", OF_5)
    (tmp_path / "abort.bak").touch()
    (tmp_path / "compaction").mkdir()
    assert str(found(tmp_path, "5")) == "5.1.0 to 5.3.3"
    assert str(found(tmp_path, "5.1")) == "5.1.0 to 5.1.4"
    assert str(found(tmp_path, "5.0.0")) == "5.0.0"  # a person may know better
    assert str(found(tmp_path, "4.9")) == "4.9.0 to 4.9.8"


@pytest.mark.parametrize(
    ("mark", "first", "last"),
    [
        ("abort.bak", "5.0.0", "5.3.3"),
        ("timerwheel", "5.0.0", "5.5.1"),
        ("compaction/", "5.1.0", "5.5.1"),
        ("config/transactionMetrics", "5.2.0", "5.5.1"),
        ("rocksdbstore/", "5.4.0", "5.5.1"),
        ("consumequeue/" + "t" * 128 + "/", "5.1.0", "5.5.1"),
        ("consumequeue/" + "t" * 127 + "/", "4.9.0", "5.5.1"),
    ],
)
def test_what_one_file_shows(tmp_path: Path, mark: str, first: str, last: str) -> None:
    path = tmp_path / mark
    path.parent.mkdir(exist_ok=True)
    path.mkdir() if mark.endswith("/") else path.touch()
    versions = found(tmp_path)
    assert (str(versions.first), str(versions.last)) == (first, last)


@pytest.mark.parametrize(("at", "first"), [(16, "4.9.0"), (24, "5.0.0"), (32, "5.1.1"), (40, "5.5.0"), (48, "4.9.0")])
def test_what_the_checkpoint_shows(tmp_path: Path, at: int, first: str) -> None:
    (tmp_path / "checkpoint").write_bytes(bytes(at) + (1).to_bytes(8, "big") + bytes(4096 - at - 8))
    assert str(found(tmp_path).first) == first


@pytest.mark.parametrize("name", ["consumerOffset.json", "topics.json"])
@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"dataVersion":1}', '{"dataVersion":null}', "", "\0\0"])
def test_a_file_that_cannot_be_read_shows_nothing(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / name).write_text(content)
    found(tmp_path)


@pytest.mark.parametrize("name", ["checkpoint", "abort.bak", "config", "consumequeue", "rocksdbstore", "compaction"])
def test_a_folder_or_a_file_in_the_place_of_the_other_is_no_error(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    found(tmp_path)
    shutil.rmtree(tmp_path / name)
    (tmp_path / name).touch()
    found(tmp_path)
