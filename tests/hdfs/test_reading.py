"""A store on HDFS has the rows, and commands the words, of the same store on the local disk. No Spark here."""

from __future__ import annotations

import json
import multiprocessing
import pickle

import pytest

from spark_mq.cli.main import main
from spark_mq.io.location import Location
from tests.hdfs.cluster import HdfsCluster
from tests.support.both_places import COPIED_TABLES, Place, answer, batches, questions, rows_of, stream_of
from tests.support.in_process import read_rows
from tests.support.stores import OWN_STORES, WORKLOAD, RealStore
from tests.support.verified import check

pytestmark = pytest.mark.hdfs


KILLED = RealStore("killed-49x", OWN_STORES)
STORES = [WORKLOAD, KILLED, RealStore("filtered-533", OWN_STORES)]


@pytest.mark.parametrize("table", COPIED_TABLES)
def test_a_table_has_the_rows_of_the_local_disk(table: str, on_hdfs: Place) -> None:
    for store in STORES:
        local, remote = on_hdfs(store)
        conf = {"brokerConf": str(store.broker_conf)} if table in ("index_files", "index_entries") else {}
        assert rows_of(remote, table, **conf) == rows_of(local, table, **conf)


def test_files_have_the_times_that_hdfs_has(on_hdfs: Place, hdfs: HdfsCluster) -> None:
    rows = read_rows(path=on_hdfs(WORKLOAD)[1], table="segments")
    times = [hdfs.client.get_file_info(f"/stores/{WORKLOAD}/commitlog/{row['file']}").modification_time for row in rows]
    assert [int(row["modification_timestamp"].timestamp() * 1000) for row in rows] == times


def test_a_filter_and_small_splits_lose_no_row(on_hdfs: Place) -> None:
    local, remote = on_hdfs(WORKLOAD)
    assert rows_of(remote, "messages", splitSize="20k") == rows_of(local, "messages")
    topic = WORKLOAD.facts("msg")[100]["topic"]
    assert rows_of(remote, "messages", topic=topic) == rows_of(local, "messages", topic=topic)


@pytest.mark.parametrize("store", [WORKLOAD, KILLED], ids=str)
def test_a_command_says_the_same(store: RealStore, on_hdfs: Place, capsys: pytest.CaptureFixture[str]) -> None:
    facts = store.facts("msg")
    fact = next(fact for fact in facts[len(facts) // 2 :] if fact.get("keys") and fact.get("uniqKey"))
    for words in questions(fact, fact["uniqKey"]):
        answers = [answer(path, words, capsys) for path in on_hdfs(store)]
        assert answers[0] == answers[1]
        assert answers[0][1] or words == ["lag"]  # no group of the second store has an offset


def test_the_state_is_the_same_except_for_what_only_a_disk_tells(
    on_hdfs: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    states = []
    for store in on_hdfs(WORKLOAD):
        assert main(["state", store, "--json"]) == 0
        state = json.loads(capsys.readouterr().out.replace(store, "STORE"))
        states.append({name: value for name, value in state.items() if name not in ("config", "disk", "last_stop")})
    assert states[0] == states[1]
    assert "Stopped cleanly" in states[0]["verdict"]


def test_a_check_finds_what_it_finds_on_the_local_disk(on_hdfs: Place) -> None:
    for store in STORES:
        found = [sorted(check(path, store.broker_conf)[1], key=repr) for path in on_hdfs(store)]
        assert found[0] == found[1]


def test_a_stream_has_the_batches_of_the_local_disk(on_hdfs: Place) -> None:
    here, there = (list(batches(stream_of(store))) for store in on_hdfs(WORKLOAD))
    assert there == here
    assert len(here) > 2


def _files(location: Location) -> list[tuple[str, int, int]]:
    return [(info.path, info.size, info.mtime_ns) for info in location.entries()]


def test_a_copy_and_a_forked_process_connect_again(on_hdfs: Place) -> None:
    folder = Location.resolve(on_hdfs(WORKLOAD)[1]) / "commitlog"
    expected = _files(folder)
    assert expected
    copy = pickle.loads(pickle.dumps(folder))
    assert _files(copy) == expected
    assert (copy.uri, copy) == (folder.uri, folder)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply_async(_files, (folder,)).get(timeout=60) == expected
