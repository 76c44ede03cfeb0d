"""Files that tasks write: the rows of keys, and statistics that cover every value. Without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_mq.archive.archive_tables import KEYS, KEYS_SCHEMA, StoreIdentity
from spark_mq.archive.streams import key_rows
from spark_mq.archive.table_file import TableFile, read_written_file
from spark_mq.format.message_schema import ALL_MESSAGE_FIELDS

IDENTITY = StoreIdentity("c", "b", "s")


def messages(rows: list[tuple[int, list[str] | None, str | None]]) -> pa.RecordBatch:
    """Messages with these commit log offsets, keys and unique keys."""
    names = ["topic", "keys", "unique_key", "store_timestamp", "commit_log_offset", "queue_id", "queue_offset"]
    values: list[dict[str, Any]] = [
        {"commit_log_offset": offset, "keys": keys, "unique_key": unique_key, "topic": "T"}
        for offset, keys, unique_key in rows
    ]
    return pa.RecordBatch.from_pylist(values, schema=pa.schema([ALL_MESSAGE_FIELDS[name] for name in names]))


def test_each_distinct_key_of_a_message_is_a_row() -> None:
    batch = messages(
        [(0, ["x"], "x"), (10, ["a", "b", "a"], "a"), (20, None, None), (30, [], "u"), (40, ["b", "b"], None)]
    )
    rows = key_rows(batch.slice(1), IDENTITY)
    assert rows.schema == KEYS_SCHEMA
    assert sorted((row["commit_log_offset"], row["key"], row["key_type"]) for row in rows.to_pylist()) == [
        (10, "a", "KEYS"),
        (10, "a", "UNIQ_KEY"),
        (10, "b", "KEYS"),
        (30, "u", "UNIQ_KEY"),
        (40, "b", "KEYS"),
    ]
    assert {(row["cluster"], row["broker"], row["store"], row["topic"]) for row in rows.to_pylist()} == {
        ("c", "b", "s", "T")
    }
    assert key_rows(batch.slice(2, 1), IDENTITY).num_rows == 0


@pytest.mark.parametrize("batches", [1, 3])
def test_statistics_cover_every_value(tmp_path: Path, batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [datetime(1, 1, 1, tzinfo=UTC), None, datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)]
    keys = ["\U0001f600" * 40, "é" * 33, "k"]
    rows = [{"topic": None, "key": key, "store_timestamp": at} for key, at in zip(keys, moments, strict=True)]
    file = TableFile(str(tmp_path / "f.parquet"), KEYS)
    for batch in pa.Table.from_pylist(rows, KEYS_SCHEMA).to_batches(max_chunksize=3 // batches):
        monkeypatch.setattr(file, "_bytes", 1 << 30)  # each batch is a row group
        file.add(batch)
    file.close("a note")
    assert pq.read_metadata(tmp_path / "f.parquet").num_row_groups == batches
    written = read_written_file(str(tmp_path / "f.parquet"), KEYS)
    assert written is not None
    assert (written.rows, written.note) == (3, "a note")
    statistics = json.loads(written.statistics)
    assert statistics["numRecords"] == 3
    assert statistics["nullCount"] == {"broker": 3, "topic": 3, "key": 0, "store_timestamp": 1}
    least, greatest = statistics["minValues"], statistics["maxValues"]
    assert {*least} == {*greatest} == {"key", "store_timestamp"}
    assert (least["key"], greatest["key"]) == ("k", "\U0001f600" * 32 + "\U0010ffff")
    assert greatest["key"].encode() >= max(key.encode() for key in keys)
    assert (least["store_timestamp"], greatest["store_timestamp"]) == (
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999Z",
    )


def test_files_of_others_and_discarded_files_are_not_taken(tmp_path: Path) -> None:
    assert read_written_file(str(tmp_path / "none.parquet"), KEYS) is None
    pq.write_table(pa.table({"topic": ["T"]}), tmp_path / "other.parquet")
    assert read_written_file(str(tmp_path / "other.parquet"), KEYS) is None
    empty = TableFile(str(tmp_path / "empty.parquet"), KEYS)
    empty.close()
    file = TableFile(str(tmp_path / "f.parquet"), KEYS)
    file._bytes = 1 << 30
    file.add(pa.Table.from_pylist([{"key": "k"}], KEYS_SCHEMA).to_batches()[0])
    assert (tmp_path / "f.parquet").exists()
    file.discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.parquet"]
