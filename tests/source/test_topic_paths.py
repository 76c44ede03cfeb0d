"""A read by topic gives the rows of a filtered scan, whatever is wrong with the queues.

The judge is a scan of the whole log, filtered here. The prices of the planner are changed so that small stores are read
by their queues, too, and so that records are read one by one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import InputPartition

from spark_mq._compat import HAS_READ_LIMITS
from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import DataLossError, StoreChangedError
from spark_mq.format.consume_queue import UNIT_DTYPE
from spark_mq.format.java_text import hash_code
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.source import message_stream, messages, planner, time_window, topic_plan
from spark_mq.source.message_stream import MessagesStreamReader
from spark_mq.source.messages import LookUpPartition, SplitPartition
from spark_mq.source.options import parse_options, parse_stream_options
from spark_mq.source.planner import plan_messages
from spark_mq.source.read_plan import AccessPath, ReadPlan
from spark_mq.store import store_lock
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.unit_cover import ReadCost
from spark_mq.testing import LogWriter
from tests.support.damaged_queues import Edit, damaged, edits
from tests.support.in_process import Row, identity, read_partitions, read_rows, row_offsets
from tests.support.kernels import examples
from tests.support.plans import make_look_ups_cheap, options_of, plan
from tests.support.rocksdb import ROCKS
from tests.support.stores import OWN_STORES, RealStore, Unpack, stores_in

STORES = stores_in(OWN_STORES)


@pytest.fixture(scope="module", autouse=True)
def prices() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_look_ups_cheap(patch, messages)
        patch.setattr(topic_plan, "CLEARLY_LESS", 10)
        patch.setattr(time_window, "CLOCK_TOLERANCE_MILLIS", 0)  # no clock was set back
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {store.name: store.unpack(tmp_path_factory.mktemp(store.name)) for store in STORES}


def plan_messages_of(folder: Path) -> ReadPlan:
    with MessageStore(str(folder)) as opened:
        return plan_messages(parse_options({"path": str(folder), "topic": "T"}), opened)


@cache
def written(folder: Path) -> dict[int, tuple[Any, ...]]:
    """What the sound store says of each message that its unit also says, by commit log offset."""
    return {row["commit_log_offset"]: known_to_unit(row) for row in read_rows(path=str(folder))}


def known_to_unit(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["queue_id"], row["queue_offset"], row["tags"]


def can_be_seen(folder: Path, wanted: list[Edit], rows: list[Row], options: dict[str, str]) -> bool:
    """Whether units show the damage. They are believed if they account for the log, as a broker believes them.

    Not that a record got another topic, queue or tag on the disk; and not that two queues have each other's unit, if
    the tags codes in them decide which of them are read.
    """
    if "tag" in options and any(kind == "exchange" for kind, *_ in wanted):
        return False
    before = written(folder)
    return all(known_to_unit(row) == before.get(row["commit_log_offset"]) for row in rows)


def allows(row: Row, options: dict[str, str]) -> bool:
    return (
        row["topic"] == options["topic"]
        and str(row["queue_id"]) == options.get("queueId", str(row["queue_id"]))
        and row["tags"] == options.get("tag", row["tags"])
        and ("startTimestamp" not in options or row["store_timestamp"].isoformat() >= options["startTimestamp"])
        and ("endTimestamp" not in options or row["store_timestamp"].isoformat() <= options["endTimestamp"])
    )


@st.composite
def requests(draw: st.DrawFn, rows: list[Row]) -> dict[str, str]:
    """A topic, and conditions that one of its messages meets."""
    topic = draw(st.sampled_from(sorted({row["topic"] for row in rows})))
    row = draw(st.sampled_from([row for row in rows if row["topic"] == topic]))
    options = {"topic": topic}
    for name in draw(st.sets(st.sampled_from(["queueId", "startTimestamp", "endTimestamp"]))):
        shift = timedelta(seconds=draw(st.sampled_from([0, 0, -2, 2])))
        moment = row["store_timestamp"] + shift
        options[name] = str(row["queue_id"]) if name == "queueId" else moment.isoformat()
    if draw(st.booleans()) and row["tags"] and row["tags"].strip("| *"):
        options["tag"] = draw(st.sampled_from([row["tags"], of_the_same_hash(row["tags"])]))
    return options


def of_the_same_hash(tag: str) -> str:
    """Another tag with the same hash, if there is one: units cannot tell the two apart."""
    if len(tag) < 2 or tag[-1] < "Q":
        return tag
    return tag[:-2] + chr(ord(tag[-2]) + 1) + chr(ord(tag[-1]) - 31)


def drawn(data: st.DataObject, folders: dict[str, Path]) -> tuple[RealStore, Path, list[Edit]]:
    """A store, and a damage that it does not have yet."""
    store = data.draw(st.sampled_from(STORES), label="store")
    _ = written(folders[store.name])
    return store, folders[store.name], data.draw(edits, label="damage")


@contextmanager
def asked(data: st.DataObject, folders: dict[str, Path]) -> Iterator[tuple[list[Row], dict[str, str], dict[str, str]]]:
    """All messages of a damaged store, the options of a question to it, and the options of a read of all."""
    store, folder, wanted = drawn(data, folders)
    with damaged(folder, wanted):
        rows = [row for row in read_rows(**options_of(store, folder)) if row["topic"] is not None]
        options = data.draw(requests(rows), label="options")
        assume(can_be_seen(folder, wanted, rows, options))
        yield rows, options, options_of(store, folder)


@settings(max_examples=examples(240), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_rows_are_those_of_a_scan(data: st.DataObject, folders: dict[str, Path]) -> None:
    with asked(data, folders) as (rows, options, store_options):
        found = read_rows(**store_options, **options)
    expected = [row for row in rows if allows(row, options)]
    assert sorted(found, key=identity) == sorted(expected, key=identity)


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is kept, also if files changed just now. A test waits, so each change has its own time."""
    monkeypatch.setattr(store_lock, "_SETTLED_NANOS", -(1 << 62))
    monkeypatch.setattr(store_lock, "_ON_DISK_NANOS", -(1 << 62))


def next_time() -> None:
    time.sleep(0.02)


@settings(max_examples=examples(25), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_what_an_earlier_read_found_changes_no_row(data: st.DataObject, folders: dict[str, Path], memory: None) -> None:
    """Topics are read one after another before the damage, with it, and after the files have their bytes again."""
    store, folder, wanted = drawn(data, folders)
    topics = sorted({row["topic"] for row in read_rows(**options_of(store, folder)) if row["topic"] is not None})
    chosen = data.draw(st.lists(st.sampled_from(topics), min_size=1, max_size=2, unique=True), label="topics")
    for edit in ([], wanted, []):
        next_time()
        with damaged(folder, edit):
            next_time()
            rows = [row for row in read_rows(**options_of(store, folder)) if row["topic"] is not None]
            if not can_be_seen(folder, edit, rows, {}):
                continue
            for topic in (*chosen, *chosen):
                found = read_rows(**options_of(store, folder, topic=topic))
                expected = [row for row in rows if row["topic"] == topic]
                assert sorted(found, key=identity) == sorted(expected, key=identity)
        next_time()


def test_a_second_read_of_the_same_files_compares_no_units(folders: dict[str, Path], memory: None) -> None:
    store = next(store for store in STORES if store.name == "workload-533")
    folder = folders[store.name]
    queue = next((folder / "consumequeue" / "OrderEvents").glob("*/*"))
    next_time()
    queue.touch()
    notes = [" ".join(plan(store, folder, topic=topic).notes) for topic in ("OrderEvents", "SequenceDemo")]
    assert "bytes of units of all queues were read" in notes[0]
    assert "an earlier read of the same files" in notes[1]
    next_time()
    queue.touch()
    assert "bytes of units of all queues were read" in " ".join(plan(store, folder, topic="OrderEvents").notes)


@pytest.mark.parametrize("liar", ["stale", "light", "dispatched"])
def test_a_unit_of_another_queue_does_not_account_for_a_message(liar: str, tmp_path: Path) -> None:
    """A message whose unit is lost, and a unit that leads to it from a queue that is not its own.

    Such units are left by a recovery that truncated the log, or belong to messages that are dispatched to more queues.
    """
    log = LogWriter(1 << 16)
    other = log.append(1, topic=b"Other")
    named = b"INNER_MULTI_DISPATCH\1%s\2INNER_MULTI_QUEUE_OFFSET\0010\2"
    name = {"stale": "Other", "light": "%LMQ%other", "dispatched": "Copies"}[liar]
    offsets = [log.append(time, topic=b"T", properties=named % name.encode()) for time in range(2, 7)]
    size = offsets[1] - offsets[0]
    units = {"T": [(offset, size, 0) for offset in offsets], "Other": [(other, offsets[0] - other, 0)]}
    units["T"][2] = (0, 0, 0)
    units.setdefault(name, []).append((offsets[2], size, 0))
    write_with_queues(tmp_path, log, units)
    assert row_offsets(read_rows(path=str(tmp_path), topic="T")) == offsets


def write_with_queues(folder: Path, log: LogWriter, units: dict[str, list[tuple[int, int, int]]]) -> None:
    """Write the store of a log, with these units in its queues: queue 0 of a topic, or TOPIC/ID."""
    log.write(folder)
    for name, of_queue in units.items():
        topic, _, queue_id = name.partition("/")
        queue = folder / "consumequeue" / topic / (queue_id or "0")
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(np.array(of_queue, UNIT_DTYPE).tobytes().ljust(2000, b"\0"))


@pytest.mark.parametrize("tag", ["Aa", "BB", "C", "Aa || C"])
def test_tags_of_one_hash_are_told_apart(tag: str, tmp_path: Path) -> None:
    tags = ["Aa", "BB", "C", "BB", "Aa", "C"]
    assert of_the_same_hash("Aa") == "BB"
    log = LogWriter(1 << 16)
    offsets = [log.append(time, properties=f"TAGS\1{one}\2".encode()) for time, one in enumerate(tags)]
    ends = pairwise([*offsets, log.next_offset])
    write_with_queues(
        tmp_path, log, {"T": [(at, end - at, hash_code(one)) for (at, end), one in zip(ends, tags, strict=True)]}
    )
    assert plan_messages_of(tmp_path).uncovered == ()
    assert row_offsets(read_rows(path=str(tmp_path), topic="T", tag=tag)) == [
        at for at, one in zip(offsets, tags, strict=True) if one in tag.split(" || ")
    ]


@pytest.mark.parametrize("options", [{}, {"splitBy": "queue"}], ids=["any order", "by queue"])
def test_a_message_whose_unit_is_in_a_queue_that_proves_nothing_is_found_once(
    options: dict[str, str], tmp_path: Path
) -> None:
    """A unit leads to another message, and its own message is in a part of the log that must be scanned."""
    log = LogWriter(1 << 16)
    offsets = [
        log.append(time, topic=topic, body=bytes(time)) for time, topic in enumerate([b"T", b"Other", b"T", b"T"])
    ]
    units = [(offset, stop - offset, 0) for offset, stop in pairwise([*offsets, log.next_offset])]
    write_with_queues(tmp_path, log, {"T": units[1:], "Other": units[:1]})
    assert plan_messages_of(tmp_path).uncovered == (LogRange(0, offsets[2]),)
    assert row_offsets(read_rows(path=str(tmp_path), topic="T", **options)) == [offsets[0], *offsets[2:]]


def stream_reader(folder: Path, **options: str) -> MessagesStreamReader:
    parsed = parse_stream_options({"path": str(folder), "splitSize": "16k"} | options)
    return MessagesStreamReader(parsed, list(ALL_MESSAGE_FIELDS))


def batches_of(stream: MessagesStreamReader) -> Iterator[tuple[Sequence[InputPartition], list[Row]]]:
    """The partitions and the rows of each batch, until nothing is new."""
    start = stream.initialOffset()
    while (end := stream.latestOffset(start, stream.getDefaultReadLimit())) != start:
        partitions = stream.partitions(start, end)
        yield partitions, [row for one in partitions for part in stream.read(one) for row in part.to_pylist()]
        start = end


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_a_stream_of_a_topic_has_the_rows_of_the_whole_stream(
    data: st.DataObject, folders: dict[str, Path], stream_by_units: None
) -> None:
    """Batch by batch."""
    _, folder, wanted = drawn(data, folders)
    limits = {"maxBytesPerTrigger": data.draw(st.sampled_from(["20k", "100k"]))} if HAS_READ_LIMITS else {}
    with damaged(folder, wanted):
        whole = [rows for _, rows in batches_of(stream_reader(folder, **limits))]
        rows = [row for batch in whole for row in batch if row["topic"] is not None]
        requested = data.draw(requests(rows), label="options")
        options: dict[str, str] = {name: requested[name] for name in ("topic", "tag") if name in requested}
        assume(can_be_seen(folder, wanted, rows, options))
        found = [rows for _, rows in batches_of(stream_reader(folder, **limits, **options))]
    assert [sorted(batch, key=identity) for batch in found] == [
        sorted((row for row in batch if row["topic"] is not None and allows(row, options)), key=identity)
        for batch in whole
    ]


@pytest.fixture
def stream_by_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_stream, "_LEAST_BY_UNITS", 0)


@pytest.mark.parametrize("name", ["lagging-533", "killed-533"])
def test_a_stream_of_a_topic_reads_units(name: str, folders: dict[str, Path], stream_by_units: None) -> None:
    """Of a queue that lags, the messages without a unit are in a part of the log that is scanned."""
    (store,) = (store for store in STORES if store.name == name)
    kinds: set[type[InputPartition]] = set()
    for topic in {fact["topic"] for fact in store.facts("msg")}:
        partitions, _ = next(batches_of(stream_reader(folders[name], topic=topic)))
        kinds |= set(map(type, partitions))
    assert kinds == {LookUpPartition, SplitPartition}


def test_a_stream_of_a_topic_says_that_messages_expired(tmp_path: Path, stream_by_units: None) -> None:
    """As without units: after the batch was planned, too."""
    store = next(store for store in STORES if store.name == "killed-533")
    folder = store.unpack(tmp_path)
    expected: dict[str, AbstractContextManager[Any]] = {
        "true": pytest.raises(DataLossError, match="the segment expired"),
        "false": nullcontext(),
    }
    planned = {}
    for fails in expected:
        stream = stream_reader(folder, topic="OrderEvents", failOnDataLoss=fails)
        start = stream.initialOffset()
        planned[fails] = stream, stream.partitions(start, stream.latestOffset(start))
    segments = sorted((folder / "commitlog").iterdir())
    segments[0].unlink()
    for fails, (stream, partitions) in planned.items():
        rows = []
        with expected[fails]:
            rows = [row for one in partitions for part in stream.read(one) for row in part.to_pylist()]
        facts = [fact["offset"] for fact in store.facts("msg") if fact["topic"] == "OrderEvents"]
        left = [offset for offset in facts if offset >= int(segments[1].name)]
        assert row_offsets(rows) == (left if fails == "false" else [])
        assert 0 < len(left) < len(facts)


@pytest.mark.parametrize("is_few", [True, False], ids=["walked", "by units"])
@pytest.mark.parametrize("again", ["same", "lost", "none"])
def test_messages_of_a_deleted_topic_have_the_queue_offsets_of_the_one_created_again(
    again: str, is_few: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion removed their units, so only the log has them: before the first message of the new queue."""
    if not is_few:
        monkeypatch.setattr(planner, "_FEW_BYTES", 0)
    log = LogWriter(1 << 16)
    other = [log.append(1, topic=b"Other") for _ in range(3)]
    old = [log.append(2, queue_offset=number) for number in range(4 if again != "none" else 0)]
    other += [log.append(3, topic=b"Other") for _ in range(3)]
    new = [log.append(4, queue_offset=number) for number in range(4)]
    ends = dict(pairwise([*log.offsets, log.next_offset]))
    units = {name: [(at, ends[at] - at, 0) for at in places] for name, places in (("T", new), ("Other", other))}
    if again == "lost":
        units["T"][0] = units["Other"][4] = (0, 0, 0)
    write_with_queues(tmp_path, log, units)
    options = {"topic": "T", "queueId": "0", "startQueueOffset": "1", "endQueueOffset": "2"}
    assert row_offsets(read_rows(path=str(tmp_path), **options)) == [*old[1:3], *new[1:3]]
    with MessageStore(str(tmp_path)) as opened:
        found = plan_messages(parse_options({"path": str(tmp_path), **options}), opened)
    assert found.path == AccessPath.CONSUME_QUEUE
    assert bool(found.uncovered) == (again != "none")
    assert all(part.stop <= new[1] for part in found.uncovered)


@pytest.mark.parametrize("number", range(5))
def test_a_message_whose_unit_was_exchanged_is_found_between_its_neighbours(number: int, tmp_path: Path) -> None:
    """All units account for the log, and one of the topic's leads to a message of another topic."""
    log = LogWriter(1 << 16)
    offsets = [log.append(time, topic=[b"T", b"Other"][time % 2], body=bytes(time)) for time in range(12)]
    units = [(offset, stop - offset, 0) for offset, stop in pairwise([*offsets, log.next_offset])]
    queues = {"T": units[::2], "Other": units[1::2]}
    queues["T"][number], queues["Other"][number] = queues["Other"][number], queues["T"][number]
    write_with_queues(tmp_path, log, queues)
    assert plan_messages_of(tmp_path).uncovered == ()
    for options in ({}, {"splitBy": "queue"}):
        found = [row["commit_log_offset"] for row in read_rows(path=str(tmp_path), topic="T", **options)]
        assert (found if options else sorted(found)) == offsets[::2]


@pytest.mark.parametrize("has_queue", [True, False], ids=["its queue is there", "its queue is lost"])
@pytest.mark.parametrize("taker", ["T/1", "Other/0"])
def test_a_message_whose_unit_is_in_another_queue_is_not_lost(taker: str, has_queue: bool, tmp_path: Path) -> None:
    """The unit accounts for the message, but nobody who looks for the message reads that unit."""
    log = LogWriter(1 << 16)
    names = ["T/0", taker, "Third/0"]
    places: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
    for number in range(18):
        topic, queue_id = names[number % 3].split("/")
        offset = log.append(
            number, topic=topic.encode(), queue_id=int(queue_id), queue_offset=number // 3, body=bytes(number)
        )
        places[names[number % 3]].append((offset, log.next_offset - offset, 0))
    expected = sorted(offset for name, units in places.items() if name.startswith("T/") for offset, _, _ in units)
    places["T/0"][2], places[taker][2] = places[taker][2], places["T/0"][2]
    if not has_queue:
        del places["T/0"]
    write_with_queues(tmp_path, log, places)
    assert row_offsets(read_rows(path=str(tmp_path), topic="T")) == expected
    assert len(plan_messages_of(tmp_path).uncovered) == (0 if has_queue else 6)


def test_a_time_range_limits_the_units_that_are_read(folders: dict[str, Path]) -> None:
    store = next(store for store in STORES if store.name == "killed-533")
    folder = folders[store.name]
    rows = [row for row in read_rows(**options_of(store, folder)) if row["topic"] == "OrderEvents"]
    for first in range(5, len(rows) - 5, len(rows) // 6):
        times = [rows[index]["store_timestamp"].isoformat() for index in (first, first + 4)]
        options = {"topic": "OrderEvents", "startTimestamp": times[0], "endTimestamp": times[1]}
        found = read_rows(**options_of(store, folder, **options))
        assert sorted(found, key=identity) == [row for row in rows if allows(row, options)]
        with MessageStore(str(folder)) as opened:
            cover = topic_plan.topic_cover(parse_options(options_of(store, folder, **options)), opened, None)
            assert isinstance(cover, topic_plan.TopicCover)
            assert cover.window.size < opened.get_max_phy_offset() // 4


def test_more_units_than_one_process_may_compare_are_a_reason_for_a_scan(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = next(store for store in STORES if store.name == "workload-533")
    for most_units, path in ((10**6, AccessPath.CONSUME_QUEUE), (100, AccessPath.WHOLE_LOG)):
        time_window._COVERS.clear()  # what is known needs no comparison
        price = ReadCost(jump=0, queue=0, most_units=most_units)
        monkeypatch.setattr(time_window, "cost_of", lambda location, price=price: price)
        read = plan(store, folders[store.name], topic="OrderEvents")
        assert read.path == path
    assert "more than 100 to compare with the log: limit the time" in " ".join(read.notes)


def test_messages_of_a_lost_queue_are_in_a_partition_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if messages of other queues are between them."""
    monkeypatch.setattr(time_window, "MERGE_DISTANCE", 2000)
    store = next(store for store in STORES if store.name == "workload-533")
    folder = store.unpack(tmp_path)
    shutil.rmtree(folder / "consumequeue" / "SequenceDemo" / "1")
    partitions = read_partitions(**options_of(store, folder, topic="SequenceDemo", splitBy="queue"))
    queue_ids = [sorted({row["queue_id"] for row in partition}) for partition in partitions if partition]
    assert sorted(queue_ids) == [[0], [1], [2]]
    facts = [fact["offset"] for fact in store.facts("msg") if fact["topic"] == "SequenceDemo"]
    assert row_offsets(list(chain(*partitions))) == facts


def test_units_that_vanish_after_the_plan_are_an_error(folders: dict[str, Path]) -> None:
    """Not fewer rows: a broker removes old files of queues while a task waits."""
    store = next(store for store in STORES if store.name == "workload-533")
    source = RocketMQDataSource(options_of(store, folders[store.name], topic="OrderEvents"))
    reader = source.reader(source.schema())
    partitions = reader.partitions()
    problem = pytest.raises(StoreChangedError, match=r"units of OrderEvents/\d.* have changed .*: read again")
    with damaged(folders[store.name], [("zeros", number, 3, 0) for number in range(99)]), problem:
        _ = [list(reader.read(partition)) for partition in partitions]


@settings(max_examples=examples(120), suppress_health_check=list(HealthCheck), deadline=None)
@given(data=st.data())
def test_a_split_by_queue_gives_each_queue_to_one_partition_in_its_order(
    data: st.DataObject, folders: dict[str, Path]
) -> None:
    with asked(data, folders) as (rows, options, store_options):
        partitions = read_partitions(**store_options, splitBy="queue", **options)
    found = [row for partition in partitions for row in partition]
    assert sorted(found, key=identity) == [row for row in rows if allows(row, options)]
    queue_ids = [queue_id for partition in partitions for queue_id in {row["queue_id"] for row in partition}]
    assert len(queue_ids) == len(set(queue_ids))
    for partition in partitions:
        offsets = [row["commit_log_offset"] for row in partition]
        assert offsets == sorted(offsets)


@pytest.mark.parametrize("store", STORES, ids=str)
def test_every_topic_of_every_store(store: RealStore, folders: dict[str, Path]) -> None:
    folder = folders[store.name]
    rows = read_rows(**options_of(store, folder))
    by_queues = 0
    for topic in sorted({row["topic"] for row in rows if row["topic"] is not None}):
        by_queues += plan(store, folder, topic=topic).path == AccessPath.CONSUME_QUEUE
        found = read_rows(**options_of(store, folder, topic=topic))
        assert sorted(found, key=identity) == [row for row in rows if row["topic"] == topic]
    assert by_queues


@pytest.mark.parametrize("bytes_per_unit", [1, 1 << 40])
def test_the_number_of_units_that_decide_in_a_database_changes_no_row(
    bytes_per_unit: int, unpacked: Unpack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_plan, "_BYTES_PER_OWN_UNIT", bytes_per_unit)
    store = str(unpacked(ROCKS))
    rows = read_rows(path=store)
    for topic in sorted({row["topic"] for row in rows}):
        expected = [row for row in rows if row["topic"] == topic]
        assert sorted(read_rows(path=store, topic=topic), key=identity) == sorted(expected, key=identity)
