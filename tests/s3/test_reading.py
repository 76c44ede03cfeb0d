"""A store on S3 has the rows that it has on the local disk, and few requests give them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.generate_store import generate_store
from benchmarks.object_storage import key_of, make_store
from spark_mq import MessageStore
from spark_mq.cli.main import main
from spark_mq.format.record import Record
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.io.remote_file import READ_SIZE
from spark_mq.store.log.log_range import LogRange
from spark_mq.tables.all_tables import TABLES
from tests.s3.proxy import ERRORS, Fault, Proxy, every_20th
from tests.support.both_places import COPIED_TABLES, Place, rows_of
from tests.support.in_process import read_rows
from tests.support.soak import cases
from tests.support.stores import OWN_STORES, STORES, WORKLOAD, RealStore, shared_store

pytestmark = pytest.mark.s3


FEW = [STORES[name] for name in ("workload-49x", "killed-533", "lagging-533", "stale-533")]
"""Stores with a clean stop, a kill, an index that lags, and old records after the end of the log."""
LATENCY = 0.02
_MOST = 12
"""The requests of any look-up in a store with one or two index files."""
_SMALL = [STORES[name] for name in ("lagging-533", "stale-49x", "stale-533")]


def most_requests(local: str, store: RealStore, found: pa.Table) -> int:
    """The limit for a look-up of a key in files of up to 1 MiB: one listing, and one request for each file.

    The files are the checkpoint, the index files, and the segments with the ends of index files, with the found
    messages, with parts of the log that no index file covers, and from the end of the log on.
    """
    index_files = read_rows(path=local, table="index_files", brokerConf=str(store.broker_conf))
    offsets = [row[f"{end}_commit_log_offset"] for row in index_files for end in ("begin", "end")]
    offsets += found["commit_log_offset"].to_pylist()
    segments = read_rows(path=local, table="segments")
    last = max(number for number, segment in enumerate(segments) if segment["first_store_timestamp"] is not None)
    read = {segment["file"] for segment in segments[last:]}
    with MessageStore(local, broker_conf=str(store.broker_conf)) as opened:
        uncovered = [part for part in opened.index.parts if isinstance(part, LogRange)]
    for segment in segments:
        start, stop = segment["commit_log_offset"], segment["end_offset"]
        if any(start <= offset < stop for offset in offsets) or any(
            part.start < stop and part.stop > start for part in uncovered
        ):
            read.add(segment["file"])
    return 2 + len(index_files) + len(read)


def with_keys(store: RealStore) -> list[tuple[str, str]]:
    """Topic and key of a message in the middle, and of the last message with a key."""
    found = [fact for fact in store.facts("msg") if fact.get("keys")]
    return [(found[at]["topic"], found[at]["keys"].split()[0]) for at in (len(found) // 2, -1)] if found else []


@pytest.mark.parametrize("store", cases(FEW, [*STORES.values()]), ids=str)
@pytest.mark.parametrize("table", ["messages", "consume_queue", "segments", "topics", "index_files"])
def test_a_table_has_the_rows_of_the_local_disk(store: RealStore, table: str, on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(store)
    conf = {"brokerConf": str(store.broker_conf)} if table == "index_files" else {}
    rows = rows_of(remote, table, **conf)
    assert rows == rows_of(local, table, **conf)
    assert rows
    assert s3.requests


@pytest.mark.parametrize("table", COPIED_TABLES)
def test_every_table_of_one_store_has_its_rows(table: str, on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(WORKLOAD)
    conf = {"brokerConf": str(WORKLOAD.broker_conf)} if table in ("index_files", "index_entries") else {}
    assert rows_of(remote, table, **conf) == rows_of(local, table, **conf)


@pytest.mark.parametrize("table", ["messages", *(table for table in TABLES if table.startswith("tiered_"))])
def test_tiered_storage_has_the_rows_of_the_local_disk(table: str, on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(RealStore("tiered-550", OWN_STORES / "forms"))
    rows = rows_of(remote, table, tieredStorage=f"{remote}/tiered")
    assert rows == rows_of(local, table, tieredStorage=f"{local}/tiered")
    assert rows


def test_splits_by_queue_and_small_splits_have_the_rows_of_one_scan(on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(WORKLOAD)
    assert rows_of(remote, "messages", splitSize="20k") == rows_of(local, "messages")
    topic = WORKLOAD.facts("msg")[0]["topic"]
    by_queue = rows_of(remote, "messages", topic=topic, splitBy="queue")
    assert by_queue == rows_of(local, "messages", topic=topic, splitBy="queue")
    assert by_queue


@pytest.mark.parametrize("store", cases(FEW, [*STORES.values()]), ids=str)
def test_a_key_is_found_with_few_requests_also_if_each_takes_a_while(store: RealStore, on_s3: Place, s3: Proxy) -> None:
    (local, remote), conf = on_s3(store), str(store.broker_conf)
    s3.delay = LATENCY
    for topic, key in with_keys(store):
        s3.clear()
        with MessageStore(remote, broker_conf=conf) as opened:
            found = opened.query_message(topic, key)
        requests = len(s3.requests)
        with MessageStore(local, broker_conf=conf) as opened:
            assert found.equals(opened.query_message(topic, key))
        assert found.num_rows
        assert requests <= most_requests(local, store, found), [request.path for request in s3.requests]


@pytest.mark.parametrize(
    ("command", "store"),
    [(command, store) for command in ("query-by-key", "query-by-unique-key", "life") for store in _SMALL]
    + [(command, store) for command in ("query-by-id", "query-by-offset") for store in cases(FEW, [*STORES.values()])],
    ids=str,
)
def test_a_command_about_one_message_sends_at_most_12_requests(
    command: str, store: RealStore, on_s3: Place, s3: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [fact for fact in store.facts("msg") if fact.get("keys")]
    fact = facts[len(facts) // 2]
    words = {
        "query-by-key": [fact["topic"], fact["keys"].split()[0]],
        "query-by-unique-key": [fact["topic"], fact["uniqKey"]],
        "query-by-id": [fact["msgId"]],
        "query-by-offset": [fact["topic"], str(fact["queueId"]), str(fact["queueOffset"])],
        "life": [fact["keys"].split()[0], "--topic", fact["topic"]],
    }[command]
    conf = [] if command in ("query-by-id", "query-by-offset") else ["--broker-conf", str(store.broker_conf)]
    assert main([command, on_s3(store)[1], *words, *conf]) == 0
    assert len(s3.requests) <= _MOST, [request.path for request in s3.requests]


@pytest.mark.parametrize(
    ("settings", "files"),
    [("", 1), ("maxHashSlotNum=1000000\nmaxIndexNum=35000\n", 4), ("maxHashSlotNum=300000\nmaxIndexNum=3000\n", 47)],
    ids=["default", "four", "many"],
)
def test_a_large_index_file_needs_4_requests_and_one_for_each_entry(
    settings: str, files: int, tmp_path: Path, s3: Proxy
) -> None:
    """Header, first and last entry, the slot, and the entries of the slot are far from each other.

    The end of an index file and the begin of the next one are beside each other in the log.
    """
    (tmp_path / "broker.conf").write_text(settings)
    conf = str(tmp_path / "broker.conf")
    store = make_store(tmp_path, 24 << 20, conf)
    remote = f"large-index-{files}"
    shutil.copytree(store, s3.server.folder / "stores" / remote, copy_function=os.link)  # the files are sparse
    topic, key = key_of(store)
    with MessageStore(str(store), broker_conf=conf) as here:
        assert len(here.index.window(None, None).spans) == files
        expected = here.query_message(topic, key)
        entries, _ = here.index.count_entries(topic, key)
    s3.delay = LATENCY
    with MessageStore(f"s3://stores/{remote}", broker_conf=conf) as there:
        assert there.query_message(topic, key).equals(expected)
    requests = [(request.path, request.range) for request in s3.requests]
    assert len(requests) <= 2 + 4 * files + entries + (files + 1) + expected.num_rows, requests
    assert files > 1 or len(requests) <= _MOST


@pytest.mark.parametrize("store", shared_store("stale-533") + shared_store("visible-533"), ids=str)
def test_a_key_of_a_larger_store_is_found_with_few_requests(store: RealStore, on_s3: Place, s3: Proxy) -> None:
    test_a_key_is_found_with_few_requests_also_if_each_takes_a_while(store, on_s3, s3)


@pytest.mark.parametrize("store", [WORKLOAD, RealStore("killed-49x", OWN_STORES)], ids=str)
def test_ids_and_queue_offsets_lead_to_the_message(store: RealStore, on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(store)
    facts = store.facts("msg")
    fact = next(fact for fact in facts[len(facts) // 2 :] if fact.get("uniqKey") and fact.get("keys"))
    with MessageStore(remote) as there, MessageStore(local) as here:
        by_id = there.look_message_by_id(fact["msgId"])
        requests_by_id = len(s3.requests)
        assert by_id["commit_log_offset"].to_pylist() == [fact["offset"]]
        assert by_id.equals(here.look_message_by_id(fact["msgId"]))
        by_unique_key = there.query_message_by_unique_key(fact["topic"], fact["uniqKey"])
        assert fact["offset"] in by_unique_key["commit_log_offset"].to_pylist()
        assert by_unique_key.equals(here.query_message_by_unique_key(fact["topic"], fact["uniqKey"]))
        place = fact["topic"], fact["queueId"], fact["queueOffset"]
        assert there.get_message(*place, read_log=True).equals(here.get_message(*place, read_log=True))
        assert isinstance(there.find_record(fact["offset"]), Record)
    assert requests_by_id <= 4  # the listing, the segment of the message, the last one, and a file of zeros after it


def test_index_files_are_opened_at_the_same_time(on_s3: Place, s3: Proxy) -> None:
    s3.delay = 5 * LATENCY
    with MessageStore(on_s3(WORKLOAD)[1], broker_conf=str(WORKLOAD.broker_conf)) as opened:
        assert opened.query_message(*with_keys(WORKLOAD)[0]).num_rows
    assert s3.most_at_once >= 4


@pytest.mark.parametrize("delay", [0, LATENCY])
def test_a_scan_needs_the_bytes_of_the_log_in_large_requests(delay: float, on_s3: Place, s3: Proxy) -> None:
    _, remote = on_s3(WORKLOAD)
    segments = read_rows(path=on_s3(WORKLOAD)[0], table="segments")
    s3.clear()
    s3.delay = delay
    assert len(rows_of(remote, "messages")) > 1000
    log_bytes = sum(segment["file_size"] for segment in segments)
    assert len(s3.requests) <= log_bytes // READ_SIZE + len(segments) + 2
    assert s3.bytes_sent <= log_bytes + (64 << 10)


def test_a_segment_of_zeros_that_was_uploaded_is_not_read_whole(tmp_path: Path, s3: Proxy) -> None:
    """The server has the ETag of a file that was uploaded to it, and not of one that was copied into its folder."""
    size = 24 << 20
    generate_store(tmp_path / "store", log_size=1 << 20, segment_size=size, topics=1, queues=1)
    shutil.copytree(tmp_path / "store", s3.server.folder / "stores" / "zeros", copy_function=os.link)
    (tmp_path / "store" / "commitlog" / f"{size:020d}").write_bytes(bytes(size))
    remote = Location.resolve("s3://stores/zeros")
    publish(remote / "commitlog" / f"{size:020d}", bytes(size), size)
    s3.clear()
    assert rows_of("s3://stores/zeros", "messages") == rows_of(str(tmp_path / "store"), "messages")
    read = [request.range for request in s3.requests if request.path.endswith(f"{size:020d}")]
    assert read == [f"bytes={16 << 20}-{size - 1}"]


@pytest.mark.parametrize("faults", [ERRORS, (Fault.CUT_BODY,)], ids=["errors", "cut bodies"])
def test_a_server_that_fails_now_and_then_changes_no_row(faults: tuple[Fault, ...], on_s3: Place, s3: Proxy) -> None:
    local, remote = on_s3(WORKLOAD)
    expected = [rows_of(local, table) for table in ("messages", "consume_queue", "topics")]
    (topic, key), *_ = with_keys(WORKLOAD)
    s3.fault_of = every_20th(*faults)
    assert [rows_of(remote, table) for table in ("messages", "consume_queue", "topics")] == expected
    with MessageStore(remote) as opened, MessageStore(local) as here:
        assert opened.query_message(topic, key).equals(here.query_message(topic, key))
    assert s3.faults >= 3


def test_a_server_that_always_fails_is_an_error_that_names_the_file(
    on_s3: Place, s3: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spark_mq.errors import StorageError

    monkeypatch.setattr("spark_mq.io.storage._WAITS", (0.0,))
    monkeypatch.setattr("spark_mq.io.object_store.ATTEMPTS", 1)
    # A setting that no other test has, so that no filesystem with more attempts is used again.
    remote = f"{on_s3(WORKLOAD)[1]}?region=eu-west-2"
    s3.fault_of = lambda _number, method: Fault.SLOW_DOWN if method == "GET" else None
    with pytest.raises(StorageError, match="tests-workload-533") as caught:
        rows_of(remote, "messages")
    assert "never-to-be-shown" not in str(caught.value)


def test_the_proxy_counts_what_it_answers(on_s3: Place, s3: Proxy) -> None:
    with MessageStore(on_s3(WORKLOAD)[1]) as opened:
        assert opened.get_min_phy_offset() == 0
    assert [(request.method, request.is_list) for request in s3.requests] == [("GET", True)]
