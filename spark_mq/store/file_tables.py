"""Rows of tables from bytes of files, in bulk: headers and entries of index files, an index in RocksDB, and units."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.array_types import Int64s
from spark_mq.format.arrow_array import table_of, timestamps
from spark_mq.format.consume_queue import PRE_BLANK_SIZE, UNIT_SIZE, Units
from spark_mq.format.consume_queue_ext import MAX_ADDRESS
from spark_mq.format.index_file import ENTRY_DTYPE, ENTRY_SIZE, IndexLayout
from spark_mq.format.timestamp import micros
from spark_mq.io.file_reader import FileReader, FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import DEFAULT, RocksDatabase
from spark_mq.store.index.folder import IndexFileInfo, index_files
from spark_mq.store.index.index_database import HOUR
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.store.queue.batch_consume_queue import BatchConsumeQueue
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.folders import QueueFolder
from spark_mq.tables.store_files import CONSUME_QUEUE, INDEX_ENTRIES, INDEX_FILES

_NUMBER_SIZE = 8
_INDEX_RECORD = r"(?s)^@(?P<topic>[^@]+)@(?:U|(?P<index_type>[KT])@(?P<key>.*))@(?P<unique_key>[^@]+)@$"
"""A key of an index in RocksDB, without the numbers at its ends."""
_BATCH_ENTRIES = 64 << 10
_OF_EXT = ("tags_code", "ext_address", "ext_store_timestamp", "filter_bit_map")
"""The columns for which extension units are read."""
_EXT = frozenset(_OF_EXT)
_SHARE_BYTES = 32 << 20
_BATCH_UNITS = 64 << 10
_STATES = ("LIVE", "EXPIRED", "PRE_BLANK", "STALE")
_LIVE, _EXPIRED, _PRE_BLANK, _STALE = range(len(_STATES))


def index_file_rows(store: Location, layout: IndexLayout) -> pa.Table:
    """The headers of the index files, oldest first. Raises `CorruptIndexError` for a file that is not an index file."""
    rows = []
    for file in index_files(store):
        row = {"file": file.name, "file_size": file.size, **vars(file.header(layout))}
        rows.append(row | {name: micros(row[name]) for name in ("begin_timestamp", "end_timestamp")})
    return table_of(rows, INDEX_FILES.schema)


def entry_batches(file: IndexFileInfo, layout: IndexLayout, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file's entries, from entry 1 on, in batches of 65,536."""
    layout.check_file_size(file.size, str(file.location))
    stop = file.header(layout).next_entry
    with FileReader(file.location) as reader:
        for first in range(1, stop, _BATCH_ENTRIES):
            count = min(_BATCH_ENTRIES, stop - first)
            data = reader.read(layout.entries_at + ENTRY_SIZE * first, ENTRY_SIZE * count)
            entries = np.frombuffer(data, ENTRY_DTYPE)
            arrays = [
                pa.repeat(pa.scalar(file.name, pa.string()), entries.size),
                pa.array(np.arange(first, first + entries.size, dtype=np.int32)),
                pa.array(entries["key_hash"].astype(np.int32)),
                pa.array(entries["commit_log_offset"].astype(np.int64)),
                pa.array(entries["time_difference"].astype(np.int32)),
                pa.array(entries["previous_entry"].astype(np.int32)),
            ]
            arrays += [pa.nulls(entries.size, field.type) for field in list(INDEX_ENTRIES.schema)[len(arrays) :]]
            yield pa.RecordBatch.from_arrays(arrays, schema=INDEX_ENTRIES.schema).select(list(columns))


def index_record_batches(folder: Location, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The records of a database as rows of table `index_entries`, by their keys.

    Keys of another form are left out, and those of another hour than their value's: a broker does not find them
    (`MixAll.dealTimeToHourStamps`@5.5.0; the same in 5.4.0 and 5.5.1).
    """
    from spark_mq.format.kernels.index_keys import hash_keys

    with closing(RocksDatabase(folder)) as database:
        for keys, values in database.batches(DEFAULT):
            found = pc.extract_regex(pc.binary_slice(keys, _NUMBER_SIZE, -_NUMBER_SIZE), _INDEX_RECORD)
            is_record = pc.and_(found.is_valid(), pc.equal(pc.binary_length(values), _NUMBER_SIZE)).fill_null(False)
            found, keys, values = found.filter(is_record), keys.filter(is_record), values.filter(is_record)
            hours = _last_int64s(pc.binary_slice(keys, 0, _NUMBER_SIZE))
            in_hour = pa.array(hours == _last_int64s(values) // HOUR * HOUR)
            found, keys, values = found.filter(in_hour), keys.filter(in_hour), values.filter(in_hour)
            topic, kind, key, unique_key = (_text(found.field(place)) for place in range(4))
            is_unique = pc.equal(kind, "")
            kind, key = pc.if_else(is_unique, "U", kind), pc.if_else(is_unique, unique_key, key)
            hashed = pc.if_else(pc.equal(kind, "T"), pc.binary_join_element_wise("T", key, "#"), key)
            nothing = pa.nulls(len(keys), pa.int32())
            arrays = {
                "file": pa.repeat(pa.scalar(folder.name), len(keys)),
                "entry": nothing,
                "key_hash": pa.array(hash_keys(topic, hashed)),
                "commit_log_offset": pa.array(_last_int64s(keys)),
                "time_difference": nothing,
                "previous_entry": nothing,
                "topic": topic,
                "index_type": kind,
                "key": key,
                "unique_key": unique_key,
                "store_timestamp": timestamps(_last_int64s(values)),
            }
            yield pa.RecordBatch.from_pydict(arrays, INDEX_ENTRIES.schema).select(list(columns))


def _last_int64s(texts: pa.Array) -> Int64s:
    """The number in the last eight bytes of each text."""
    tails = pc.binary_slice(texts, -_NUMBER_SIZE)
    _, _, data = tails.buffers()
    found: Int64s = np.frombuffer(data or b"", ">i8", count=len(tails)).astype(np.int64)
    return found


def _text(texts: pa.Array) -> pa.Array:
    """Bytes as text; bytes that are not UTF-8 become U+FFFD."""
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())


@dataclass(frozen=True)
class QueueSplit:
    """The files of a queue from index `start_file` to `stop_file` (not included)."""

    folder: QueueFolder
    start_file: int
    stop_file: int


def plan_queue_splits(folders: Sequence[QueueFolder], share_bytes: int = _SHARE_BYTES) -> list[list[QueueSplit]]:
    """The files of all queues, in lists of about `share_bytes` bytes (at most one file more)."""
    shares: list[list[QueueSplit]] = []
    size = share_bytes
    for folder in folders:
        for index, info in enumerate(folder.files):
            if size >= share_bytes:
                shares.append([])
                size = 0
            size += info.size
            last = shares[-1][-1] if shares[-1] else None
            if last is not None and last.folder is folder:
                shares[-1][-1] = QueueSplit(folder, last.start_file, index + 1)
            else:
                shares[-1].append(QueueSplit(folder, index, index + 1))
    return shares


def unit_batches(
    share: QueueSplit, records: RecordLookup, log_end: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a share's units, except units of zeros.

    Column `state` is LIVE; EXPIRED: the message is before the log's first segment; PRE_BLANK: the unit is before the
    queue's first message; STALE: the unit is after the queue's end.

    If the tags code in a unit is the address of an extension unit, `ext_address` has it, and `tags_code`,
    `ext_store_timestamp` and `filter_bit_map` are those of the extension unit: NULL if the address leads to none.
    `filter_bit_map` is also NULL if the extension unit has no bit map.
    """
    with closing(FileReaders()) as readers:
        queue = (
            BatchConsumeQueue(share.folder, readers, records.min_offset, log_end)
            if share.folder.is_batch
            else ConsumeQueue(share.folder, readers)
        )
        max_offset = queue.max_offset(records, log_end)
        for file in queue.files[share.start_file : share.stop_file]:
            for first in range(file.first, file.first + file.count, _BATCH_UNITS):
                units = queue.units(first, min(first + _BATCH_UNITS, file.first + file.count))
                batch = _rows(queue, first, units, max_offset, records.min_offset, bool(_EXT.intersection(columns)))
                if batch.num_rows:
                    yield batch.select(list(columns))


def _rows(
    queue: ConsumeQueue, first: int, units: Units, max_offset: int, log_start: int, with_ext: bool
) -> pa.RecordBatch:
    written = np.flatnonzero(units.view((np.void, UNIT_SIZE)) != np.void(bytes(UNIT_SIZE)))
    units = units[written]
    queue_offsets = first + written
    commit_log_offsets = units["commit_log_offset"].astype(np.int64)
    store_sizes = units["store_size"].astype(np.int32)
    states = np.full(written.size, _LIVE, np.int8)
    states[commit_log_offsets < log_start] = _EXPIRED
    states[queue_offsets >= max_offset] = _STALE
    states[store_sizes == PRE_BLANK_SIZE] = _PRE_BLANK
    state_names = pa.DictionaryArray.from_arrays(pa.array(states), pa.array(_STATES)).cast(pa.string())
    arrays = [
        pa.repeat(pa.scalar(queue.topic, pa.string()), written.size),
        pa.repeat(pa.scalar(queue.queue_id, pa.int32()), written.size),
        pa.array(queue_offsets),
        pa.array(commit_log_offsets),
        pa.array(store_sizes),
        *_tags_and_ext(queue, units["tags_code"].astype(np.int64), state_names, with_ext),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=CONSUME_QUEUE.schema)


def _tags_and_ext(queue: ConsumeQueue, codes: Int64s, states: pa.Array, with_ext: bool) -> list[pa.Array]:
    """The columns from `tags_code` on; extension units are read only if a column needs them."""
    is_ext = codes <= MAX_ADDRESS
    if not with_ext or not is_ext.any():
        nothing = [pa.nulls(codes.size, CONSUME_QUEUE.schema.field(name).type) for name in _OF_EXT[1:]]
        return [pa.array(codes), states, *nothing]
    found = queue.ext.units(codes)
    lacks = ~found.is_found
    return [
        pa.array(np.where(is_ext, found.tags_code, codes), mask=is_ext & lacks),
        states,
        pa.array(codes, mask=~is_ext),
        timestamps(found.store_timestamp, found.is_found),
        pa.array(found.bit_map, pa.binary(), mask=found.bit_map == b""),
    ]
