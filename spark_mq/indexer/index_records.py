"""Index records for RocksDB out of the messages of a split, as sorted tables (`*.sst`).

Which records a message has says `IndexRocksDBStore.buildIndex`@5.5.0, and `store/index/index_database` has their form.
A message needs a unique key. Each different piece of KEYS has a record, the tags have one in every version, and the
unique key itself. Tables have a limited size, because RocksDB needs their records sorted: nothing else limits the
memory, as a message of 32 KiB can have thousands of keys.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Int64s
from spark_mq.format.kernels.columns import MessageColumns
from spark_mq.format.properties import UNIQUE_KEY
from spark_mq.format.record import TRANSACTION_ROLLBACK_TYPE, TRANSACTION_TYPE_MASK
from spark_mq.indexer.staged_files import RecordTable
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import write_table
from spark_mq.store.index.index_database import HOUR
from spark_mq.store.log.record_reader import RecordChunk

_TABLE_SIZE = 32 << 20
"""Bytes of keys and values after which a table is written."""
_AROUND = 32
"""More than the bytes of a key that are neither topic, key nor unique key."""


class RecordTablesWriter:
    """Writes the index records of the chunks of a split into `folder`; `tables` names what is written."""

    def __init__(self, folder: Location) -> None:
        self.tables: list[RecordTable] = []
        self._folder = folder
        self._parts: list[pa.Table] = []
        self._size = 0

    def add(self, part: RecordChunk) -> None:
        """Add the records of a chunk."""
        for records in index_records(part):
            self._parts.append(records)
            self._size += records.nbytes
            if self._size >= _TABLE_SIZE:
                self.write()

    def write(self) -> None:
        """Write a table of the records that are in none."""
        if not self._size:
            return
        records, self._parts, self._size = pa.concat_tables(self._parts).combine_chunks(), [], 0
        records = records.sort_by("key")
        keys = records["key"].combine_chunks()
        is_new = pc.not_equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        records = records.filter(pa.array(np.append(True, is_new)))
        # Names are unique, so the file of a task that Spark ran again is never read.
        name = f"{uuid.uuid4().hex}.sst"
        size = write_table((self._folder / name).path, _pairs(records))
        last, newest = (pc.max(records[column]).as_py() for column in ("commit_log_offset", "store_timestamp"))
        self.tables.append(RecordTable(name, size, records.num_rows, last, newest))


def index_records(part: RecordChunk) -> Iterator[pa.Table]:
    """The records of the messages of a chunk, in parts of a limited size; the value of each is its store time."""
    columns = MessageColumns(part.buffer, part.frames)
    times, types = columns.store_timestamp_millis(), part.frames.sys_flag & TRANSACTION_TYPE_MASK
    is_indexed = columns.has_property(UNIQUE_KEY) & (types != TRANSACTION_ROLLBACK_TYPE)
    frames = part.frames[is_indexed & (times >= HOUR) & (part.frames.topic_length > 0)]
    columns = columns.with_frames(frames)
    times, offsets = columns.store_timestamp_millis(), part.base + frames.position
    messages = columns.record_batch(["topic", "keys", "tags", "unique_key"])
    begin = _joined(_int64_texts(times // HOUR * HOUR), b"@", messages["topic"], b"@")
    end = _joined(messages["unique_key"], b"@", _int64_texts(offsets))
    counts = 2 + pc.list_value_length(messages["keys"]).fill_null(0).to_numpy()
    around = (frames.topic_length + pc.binary_length(end).to_numpy() + _AROUND).astype(np.int64)
    parts = np.cumsum(counts * around + frames.properties_length) // _TABLE_SIZE
    for start, stop in pairwise([0, *(np.flatnonzero(np.diff(parts)) + 1).tolist(), frames.size]):
        some, before, after = (of_all.slice(start, stop - start) for of_all in (messages, begin, end))
        of_key = pc.list_parent_indices(some["keys"])
        with_tags = np.flatnonzero(some["tags"].is_valid().to_numpy(zero_copy_only=False))
        keys = [
            _joined(before.take(of_key), b"K@", pc.list_flatten(some["keys"]), b"@", after.take(of_key)),
            _joined(before, b"T@", some["tags"], b"@", after).drop_null(),
            _joined(before, b"U@", after),
        ]
        rows = start + np.concatenate((of_key.to_numpy(), with_tags, np.arange(stop - start)))
        yield pa.table(
            {"key": pa.concat_arrays(keys), "commit_log_offset": offsets[rows], "store_timestamp": times[rows]}
        )


def _pairs(records: pa.Table) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values, as `rocksdict` takes them: one by one."""
    _, ends, texts = pa.concat_arrays(records["key"].chunks).buffers()
    text, values = texts.to_pybytes(), records["store_timestamp"].to_numpy().astype(">i8").view("V8")
    keys = (text[start:stop] for start, stop in pairwise(np.frombuffer(ends, np.int32, values.size + 1).tolist()))
    return zip(keys, values.tolist(), strict=True)


def _joined(*parts: pa.Array | bytes) -> pa.Array:
    texts = [part if isinstance(part, bytes) else part.cast(pa.binary()) for part in parts]
    return pc.binary_join_element_wise(*texts, b"")


def _int64_texts(values: Int64s) -> pa.Array:
    """Each number as eight bytes."""
    return pa.Array.from_buffers(pa.binary(8), values.size, [None, pa.py_buffer(values.astype(">i8"))])
