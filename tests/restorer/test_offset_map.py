from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_mq.errors import OutputExistsError
from spark_mq.format.message_id import encode_offset_message_id
from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.io.location import Location
from spark_mq.restorer.chunk import QueueCount
from spark_mq.restorer.offset_map import OFFSET_MAP_SCHEMA, OffsetMap, complete_map, find_new_offsets
from spark_mq.restorer.record_columns import ChunkRows

HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])


QUEUES = [QueueCount(topic, queue_id, 1, 0, 0) for topic, queue_id in (("b", 0), ("b", 1), (HALF_TOPIC, 0))]


def rows_of(*rows: tuple[int, int, int], has_unit: bool = True) -> ChunkRows:
    """Rows of old commit log offset, old queue offset and number of the queue."""
    columns = list(zip(*rows, strict=True))
    numbers = np.array(columns[2], np.int32)
    zeros = np.zeros(numbers.size, np.int64)
    has_units = np.full(numbers.size, has_unit)
    return ChunkRows(
        numbers, np.array(columns[0]), np.array(columns[1]), numbers, has_units, zeros, np.ones(numbers.size, np.int32)
    )


def new_map(folder: Path, **topics: str) -> OffsetMap:
    return OffsetMap.create(Location.resolve(str(folder / "map")), topics, {"a"}, store_host=HOST)


def test_rows_have_old_and_new_offsets(tmp_path: Path) -> None:
    table = pickle.loads(pickle.dumps(new_map(tmp_path, a="b")))
    rows = rows_of((500, 7, 0), (900, 3, 1), (-1, -1, 0), (700, 44, 2))
    table.write(QUEUES, rows, np.array([4096, 4300, 4500, 4700]), np.array([0, 0, 1, 44]))
    table.write(QUEUES, rows, np.array([4096, 4300, 4500, 4700]), np.array([0, 0, 1, 44]))
    table.write(QUEUES, rows_of((1, 1, 0)), np.array([9000]), None)
    complete_map(table.folder)
    written = pq.read_table(tmp_path / "map")
    assert written.schema.equals(OFFSET_MAP_SCHEMA)
    assert written.sort_by("commit_log_offset").drop_columns(["offset_message_id"]).to_pylist() == [
        dict(zip(OFFSET_MAP_SCHEMA.names, row, strict=False))
        for row in [
            ("a", "b", 0, 7, 0, 500, 4096, None),
            ("a", "b", 1, 3, 0, 900, 4300, None),
            ("a", "b", 0, None, 1, None, 4500, None),
            (HALF_TOPIC, HALF_TOPIC, 0, 44, 44, 700, 4700, None),
            ("a", "b", 0, 1, 1, 1, 9000, None),
        ]
    ]
    assert written["offset_message_id"].to_pylist() == [
        encode_offset_message_id(HOST, offset) for offset in written["commit_log_offset"].to_pylist()
    ]
    wanted = [("a", 0, 0), ("a", 0, 2), ("a", 0, 8), ("a", 1, 9), ("a", 2, 1), ("b", 0, 1), (HALF_TOPIC, 0, 30)]
    assert table.new_offsets(wanted) == {
        ("a", 0, 0): 0,
        ("a", 0, 2): 0,
        ("a", 0, 8): 2,
        ("a", 1, 9): 1,
        (HALF_TOPIC, 0, 30): 30,
    }


def test_a_prepared_message_is_in_no_queue(tmp_path: Path) -> None:
    table = new_map(tmp_path)
    table.write(QUEUES, rows_of((500, 0, 0), has_unit=False), np.array([4096]), np.array([0]))
    (row,) = pq.read_table(tmp_path / "map").to_pylist()
    assert (row["old_queue_offset"], row["queue_offset"], row["commit_log_offset"]) == (None, None, 4096)
    assert table.new_offsets([("b", 0, 0), ("b", 0, 5)]) == {}


def test_ids_of_ipv6_hosts_and_of_messages_without_an_old_offset(tmp_path: Path) -> None:
    host = bytes(range(16)) + HOST[4:]
    folder = Location.resolve(str(tmp_path / "map"))
    table = OffsetMap.create(folder, {}, (), old_store_host=HOST, store_host=host)
    table.write(QUEUES, rows_of((500, 7, 0), (-1, -1, 0)), np.array([1 << 40, (1 << 40) + 1]), np.array([0, 1]))
    first, second = pq.read_table(folder.path).sort_by("commit_log_offset").to_pylist()
    assert first["old_offset_message_id"] == encode_offset_message_id(HOST, 500)
    assert second["old_offset_message_id"] is None
    assert first["offset_message_id"] == encode_offset_message_id(host, 1 << 40)


def test_a_topic_that_gets_the_messages_of_two_has_no_old_name(tmp_path: Path) -> None:
    topics = {"a": "x", "b": "x", "c": "d", "e": "f", "f": "e", "g": "a"}
    table = OffsetMap.create(Location.resolve(str(tmp_path / "map")), topics, {"a", "b", "c", "d", "e", "f", "g"})
    assert table.old_topics == {"x": None, "d": None, "f": "e", "e": "f", "a": "g"}
    table.write([QueueCount("x", 0, 1, 0, 0)], rows_of((1, 1, 0)), np.array([0]), np.array([0]))
    assert table.new_offsets([("a", 0, 0), ("x", 0, 0)]) == {}


def test_files_of_a_killed_job_are_removed_and_no_others(tmp_path: Path) -> None:
    table = new_map(tmp_path)
    table.write(QUEUES, rows_of((1, 1, 0)), np.array([300]), np.array([0]))
    assert [path.name for path in (tmp_path / "map").iterdir()] == [f"{300:020d}.parquet"]
    new_map(tmp_path)
    complete_map(table.folder)
    assert [path.name for path in (tmp_path / "map").iterdir()] == ["_SUCCESS"]
    with pytest.raises(OutputExistsError, match="is not empty"):
        new_map(tmp_path)


offsets = st.integers(0, 30)


@given(
    st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 1), offsets), st.none(), max_size=40),
    st.randoms(use_true_random=False),
    st.sets(st.tuples(st.sampled_from("ab"), st.integers(0, 2), offsets), max_size=12),
    st.integers(1, 9),
)
def test_consumers_continue_at_the_first_message_that_they_have_not_consumed(
    kept: dict[tuple[str, int, int], None], random: object, wanted: set[tuple[str, int, int]], batch_rows: int
) -> None:
    """In any order of the new offsets, also if queues of two topics become one."""
    order = list(kept)
    random.shuffle(order)  # type: ignore[attr-defined]
    new: dict[tuple[str, int, int], int] = {}
    for topic, queue_id, old in order:
        new[topic, queue_id, old] = sum(queue == queue_id for _, queue, _ in new)
    rows = [
        {"old_topic": topic, "queue_id": queue_id, "old_queue_offset": old, "queue_offset": offset}
        for (topic, queue_id, old), offset in new.items()
    ]
    expected = {}
    for topic, queue_id, old in wanted:
        later = [new[key] for key in new if key[:2] == (topic, queue_id) and key[2] >= old]
        earlier = [new[key] for key in new if key[:2] == (topic, queue_id)]
        if earlier:
            expected[topic, queue_id, old] = min(later) if later else max(earlier) + 1
    schema = pa.schema([OFFSET_MAP_SCHEMA.field(name) for name in rows[0]]) if rows else OFFSET_MAP_SCHEMA
    table = pa.Table.from_pylist(rows, schema)
    assert find_new_offsets(table.to_batches(max_chunksize=batch_rows), wanted) == expected
