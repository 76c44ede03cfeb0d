"""What a process remembers of a store changes no row, whatever a broker does between two reads.

The broker writes through memory maps, in the worst case: no time of a file of the log or of a queue changes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from spark_mq.datasource import RocketMQDataSource
from spark_mq.errors import SparkMqError
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS
from spark_mq.source import messages, time_window, topic_plan
from spark_mq.source.time_window import QueueComparison
from spark_mq.store import message_store
from spark_mq.store import store_lock as settled_files
from spark_mq.store.log import log_range
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.message_store import MessageStore
from tests.support.in_process import Row, identity, message_batches
from tests.support.kernels import examples
from tests.support.mapped_store import FrozenTimes, MappedStore
from tests.support.plans import make_look_ups_cheap

Step = tuple[str, int]

TOPICS = ("A", "B", "C")
COLUMNS = ("commit_log_offset", "topic", "queue_id", "queue_offset", "store_timestamp")
SIZES = (20, 20, 20, 300)


@pytest.fixture(scope="module", autouse=True)
def prices() -> Iterator[None]:
    """Prices with which the planner uses queues if it can."""
    with pytest.MonkeyPatch.context() as patch:
        make_look_ups_cheap(patch, messages)
        patch.setattr(topic_plan, "CLEARLY_LESS", 10)
        patch.setattr(settled_files, "_SETTLED_NANOS", -(1 << 62))
        patch.setattr(log_range, "UNDISPATCHED", 0)
        yield


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 1 << 12)),
        st.tuples(st.just("append"), st.integers(0, 1 << 12)),
        st.tuples(st.just("dispatch"), st.sampled_from([1, 3, 99])),
        st.tuples(st.just("stop"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("start"), st.integers(0, 6)),
        st.tuples(st.just("restart"), st.integers(0, 6)),
        st.tuples(st.just("write again"), st.integers(1, 12)),
        st.tuples(st.just("truncate"), st.integers(1, 6)),
        st.tuples(st.just("expire"), st.just(0)),
        st.tuples(st.just("lose a unit"), st.integers(0, 60)),
        st.tuples(st.just("replace"), st.integers(0, 60)),
    ),
    min_size=3,
    max_size=14,
)


def append(store: MappedStore, seed: int, count: int = 5) -> None:
    for number in range(seed, seed + count):
        store.append(TOPICS[number * 7 // 3 % 3], number % 2, SIZES[number * 5 // 3 % 4])


def do(store: MappedStore, step: Step) -> None:
    """One step, if the broker can take it now."""
    kind, number = step
    if kind == "lose a unit":
        store.lose_unit(number)
    elif kind == "replace":
        store.replace(number)
    elif not store.is_running:
        if kind in ("start", "restart", "append", "write again"):
            store.start(number % 7)
    elif kind == "append":
        append(store, number)
    elif kind == "dispatch":
        store.dispatch(number)
    elif kind == "stop":
        store.stop()
    elif kind == "kill":
        store.kill()
    elif kind == "restart":
        store.kill()
        store.start(number)
    elif kind == "write again":
        write_again(store, number)
    elif kind == "truncate":
        store.truncate(number)
    elif kind == "expire":
        store.expire()


def write_again(store: MappedStore, number: int) -> None:
    """Kill the broker and start it; other messages take the places of the last ones, up to the same end."""
    store.kill()
    lost = min(number, len(store.messages) - 1)
    sizes = [message.size for message in store.messages[len(store.messages) - lost :]]
    store.start(number)
    for index, size in enumerate(reversed(sizes)):
        store.append(TOPICS[index % 3], index % 2, 300 if size > 300 else 20)
    store.dispatch(number // 2)


def memories() -> tuple[dict[Any, Any], ...]:
    """What this process remembers: covers and ends."""
    return time_window._COVERS._found, message_store._ENDS._found


def forget() -> None:
    for memory in memories():
        memory.clear()


def rows_of(folder: Path, **options: str) -> list[Row]:
    batches = message_batches(COLUMNS, path=str(folder), splitSize="2k", **options)
    return sorted((row for batch in batches for row in batch.to_pylist()), key=identity)


def check(store: MappedStore) -> None:
    with MessageStore(str(store.folder)) as opened:
        log_range.UNDISPATCHED = store.undispatched(opened.get_max_phy_offset())
    warm = {topic: rows_of(store.folder, topic=topic) for topic in TOPICS}
    warm_scan = rows_of(store.folder)
    kept = [dict(memory) for memory in memories()]
    forget()
    scan = rows_of(store.folder)
    assert warm_scan == scan
    forget()
    for topic in TOPICS:
        found = rows_of(store.folder, topic=topic)
        assert warm[topic] == found
        assert found == [row for row in scan if row["topic"] == topic]
    if store.is_end_told:
        offsets = [message.offset for message in store.messages]
        assert [row["commit_log_offset"] for row in scan if row["topic"] is not None] == offsets
    for memory, before in zip(memories(), kept, strict=True):
        memory.clear()
        memory.update(before)


@settings(max_examples=examples(90), suppress_health_check=list(HealthCheck), deadline=None)
@given(steps=steps, reads=st.lists(st.booleans(), min_size=10, max_size=10), first=st.sampled_from([9, 12]))
@example([("append", 0), ("restart", 0), ("write again", 2)], [False] * 3, 9)  # the end of the log is as before
@example(
    [("append", 33), ("append", 0), ("stop", 0), ("append", 10), ("stop", 0), ("append", 368), ("append", 552)],
    [False] * 7,
    9,
)
def test_no_step_of_a_broker_changes_what_a_read_gives(steps: list[Step], reads: list[bool], first: int) -> None:
    """If `reads` says so, a step comes while a read is under way; that read itself may fail."""
    times = FrozenTimes()
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(settled_files, "os", times)
        forget()
        store = MappedStore(Path(name) / "store", times)
        try:
            store.start()
            append(store, 0, 12)
            store.dispatch(first)
            check(store)
            for step, is_under_way in zip(steps, reads, strict=False):
                if is_under_way:
                    change_during_read(store, step)
                else:
                    do(store, step)
                check(store)
        finally:
            if store.is_running:
                store.kill()


def change_during_read(store: MappedStore, step: Step) -> None:
    source = RocketMQDataSource({"path": str(store.folder), "splitSize": "2k"})
    reader = source.reader(from_arrow_schema(pa.schema([ALL_MESSAGE_FIELDS[name] for name in COLUMNS])))
    partitions = reader.partitions()
    for partition in partitions[: len(partitions) // 2]:
        _ = list(reader.read(partition))
    do(store, step)
    with suppress(SparkMqError):
        for partition in partitions[len(partitions) // 2 :]:
            _ = list(reader.read(partition))


def test_a_comparison_of_a_part_of_the_log_depends_on_all_segments(tmp_path: Path) -> None:
    """The last messages of a queue say which of its units count, and they can be in another segment."""
    times = FrozenTimes()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(settled_files, "os", times)
        store = MappedStore(tmp_path / "store", times)
        store.start()
        append(store, 0, 60)
        store.stop()
        segments = sorted((store.folder / "commitlog").iterdir())
        assert len(segments) > 1
        states = []
        for _ in range(2):
            with MessageStore(str(store.folder)) as opened:
                everything = [queue for name in opened.queue_names if (queue := opened.find_queue(*name))]
                states.append(QueueComparison.of(opened, everything, LogRange(0, store.messages[3].offset)).state)
            times.changed(segments[-1])
        assert None not in states
        assert states[0] != states[1]


@pytest.mark.parametrize(
    ("kept", "lost", "new"),
    [
        # Two new messages of A take the place of one, so that the next one of A is where a lost one was, by chance.
        ([("A", 20)], [("A", 20), ("A", 139), ("A", 139)], [("B", 20), ("A", 20), ("A", 20), ("A", 139)]),
        # The lost messages from the first one of C on count as live: it is the next one of its queue.
        ([("A", 20), ("C", 20)], [(topic, 20) for topic in "ACACC"], [("B", 20)]),
    ],
    ids=["by chance", "counted as live"],
)
def test_a_stale_unit_that_is_proven_proves_no_earlier_one(
    kept: list[Step], lost: list[Step], new: list[Step], tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        times = FrozenTimes()
        patch.setattr(settled_files, "os", times)
        store = MappedStore(tmp_path / "store", times)
        store.start()
        for topic, size in (*kept, *lost):
            store.append(topic, 0, size)
        store.dispatch(99)
        store.kill()
        store.start(len(lost))
        for topic, size in new:
            store.append(topic, 0, size)
        check(store)
        store.kill()
