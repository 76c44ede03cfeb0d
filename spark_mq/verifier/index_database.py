"""The index in RocksDB against the log: which messages lack a record, or have another one.

The key hashes of all records are compared with those of the staged index entries. Where they differ, the message itself
says which records it has: a message without a unique key has none (`IndexRocksDBStore.buildIndex`@5.5.0). So a wrong
text that has the hash of the right one, and the same place and time, is not noticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import CorruptLogError, StorageError
from spark_mq.format.array_types import Int32s, Int64s
from spark_mq.format.dispatch import KeyType, record_keys, record_tags_key, tags_key
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import KEYS, UNIQUE_KEY, parse_properties
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import RocksDatabase
from spark_mq.store.file_tables import index_record_batches
from spark_mq.store.index.index_database import last_offset
from spark_mq.store.log.record_lookup import RecordLookup
from spark_mq.verifier.entry_match import ExpectedEntries
from spark_mq.verifier.finding import findings
from spark_mq.verifier.log_bounds import LogBounds

_AT_ONCE = 1 << 20
_MAX_DOUBTFUL = 50_000
"""Messages that are read one by one; of more, only these are judged."""
_ODD = np.int64(0x9E3779B97F4A7C15 - (1 << 64))
_Columns = tuple[Int64s, Int32s, Int64s]
"""Commit log offsets, key hashes and store times."""
_NUMBERS = ("commit_log_offset", "key_hash", "store_timestamp")


@dataclass(frozen=True)
class _Records:
    """The records in the order of their messages: one of each offset and hash."""

    offsets: Int64s
    hashes: Int32s
    times: Int64s

    def between(self, first: int, last: int) -> _Columns:
        start, stop = np.searchsorted(self.offsets, [first, last + 1]).tolist()
        return self.offsets[start:stop], self.hashes[start:stop], self.times[start:stop]


def index_database_findings(
    store: Location, folder: Location, expected: ExpectedEntries, bounds: LogBounds
) -> Iterator[pa.RecordBatch]:
    """What is wrong with the index records in the database `folder`."""
    try:
        yield from _findings(store, folder, expected, bounds)
    except StorageError as error:
        yield findings("INDEX_DATABASE", folder.name, found=str(error))


def _findings(
    store: Location, folder: Location, expected: ExpectedEntries, bounds: LogBounds
) -> Iterator[pa.RecordBatch]:
    records = _read(folder, bounds.start)
    with closing(RocksDatabase(folder)) as database:
        last, unlisted = last_offset(database), database.unlisted_tables()
    if unlisted and bounds.is_clean:
        yield findings("INDEX_DATABASE", folder.name, "tables that its MANIFEST names", ", ".join(unlisted))
    if not records.offsets.size:
        return
    doubtful = np.unique(np.fromiter(chain.from_iterable(_doubtful(records, expected)), np.int64))
    first = int(records.offsets[0])
    is_before = doubtful < first
    if is_before.any():
        found = f"index records from commit log offset {first} on; those of messages before it are not there"
        yield findings("NOT_CHECKED", folder.name, found=found)
    doubtful = doubtful[~is_before]
    if doubtful.size > _MAX_DOUBTFUL:
        found = f"{doubtful.size - _MAX_DOUBTFUL:,} more messages whose records can be wrong"
        yield findings("NOT_CHECKED", folder.name, found=found)
    doubtful = doubtful[:_MAX_DOUBTFUL]
    if not doubtful.size:
        return
    have = _records_of(folder, doubtful)
    with closing(FileReaders()) as files:
        lookup = RecordLookup(store, files)
        for offset in doubtful.tolist():
            if not bounds.is_clean and offset > last:  # the next boot puts them
                continue
            wanted, there = _wanted(lookup, offset, bounds), have.get(offset, set())
            if wanted != there and not bounds.is_lost(np.array([offset]))[0]:
                lacks, more = (_text(some) for some in (wanted - there, there - wanted))
                yield findings("INDEX_DATABASE", folder.name, lacks, more, commit_log_offset=offset)


def _read(folder: Location, log_start: int) -> _Records:
    parts = [
        [batch["commit_log_offset"].to_numpy(), batch["key_hash"].to_numpy(), _millis(batch["store_timestamp"])]
        for batch in index_record_batches(folder, _NUMBERS)
    ]
    empty = [np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64)]
    offsets, hashes, times = (np.concatenate(column) for column in zip(empty, *parts, strict=True))
    order = np.lexsort((times, hashes, offsets))
    order = order[offsets[order] >= log_start]
    return _Records(offsets[order], hashes[order], times[order])


def _millis(times: pa.Array) -> Int64s:
    millis: Int64s = times.cast(pa.int64()).fill_null(0).to_numpy() // 1000
    return millis


def _doubtful(records: _Records, expected: ExpectedEntries) -> Iterator[list[int]]:
    """The commit log offsets whose records are not those of the staged entries."""
    at, done = 0, -1
    while at < expected.count:
        batch = expected.read(at, at + _AT_ONCE)
        # The entries of the last message can go on in the next batch.
        whole = batch.commit_log_offsets != batch.commit_log_offsets[-1]
        if at + whole.size >= expected.count or not whole.any():
            whole = np.ones(whole.size, np.bool_)
        at += int(whole.sum())
        wanted = batch.commit_log_offsets[whole], batch.key_hashes[whole], batch.store_timestamps[whole]
        last = int(wanted[0][-1])
        yield _unlike(wanted, records.between(done + 1, last))
        done = last
    yield records.offsets[np.searchsorted(records.offsets, done + 1) :].tolist()


def _unlike(wanted: _Columns, found: _Columns) -> list[int]:
    """The offsets whose hashes and times are not the same on both sides."""
    (offsets, sums), (others, other_sums) = _sums(*wanted), _sums(*found)
    _, at, other_at = np.intersect1d(offsets, others, assume_unique=True, return_indices=True)
    unlike = offsets[at][sums[at] != other_sums[other_at]]
    different: list[int] = np.concatenate((unlike, np.setxor1d(offsets, others, assume_unique=True))).tolist()
    return different


def _sums(offsets: Int64s, hashes: Int32s, times: Int64s) -> tuple[Int64s, Int64s]:
    """Each offset, and a number of its different hashes and times."""
    order = np.lexsort((times, hashes, offsets))
    offsets, hashes, times = offsets[order], hashes[order], times[order]
    is_new = np.ones(order.size, np.bool_)
    is_new[1:] = (np.diff(offsets) != 0) | (np.diff(hashes) != 0) | (np.diff(times) != 0)
    offsets, hashes, times = offsets[is_new], hashes[is_new], times[is_new]
    mixed = (hashes.astype(np.int64) << 32) ^ (times * _ODD)
    mixed = (mixed ^ (mixed >> 29)) * _ODD
    starts = np.flatnonzero(np.diff(offsets, prepend=-1))
    return offsets[starts], np.add.reduceat(mixed, starts) if starts.size else mixed


Key = tuple[str, str, str, str, int]
"""Topic, index type, key, unique key, and store time of a record."""


def _records_of(folder: Location, offsets: Int64s) -> dict[int, set[Key]]:
    chosen, found = pa.array(offsets), dict[int, set[Key]]()
    columns = ("commit_log_offset", "topic", "index_type", "key", "unique_key", "store_timestamp")
    for batch in index_record_batches(folder, columns):
        some = batch.filter(pc.is_in(batch["commit_log_offset"], chosen))
        times = _millis(some["store_timestamp"]).tolist()
        for row, time in zip(some.drop_columns(["store_timestamp"]).to_pylist(), times, strict=True):
            offset, *names = row.values()
            found.setdefault(offset, set()).add((*names, time))
    return found


def _wanted(lookup: RecordLookup, offset: int, bounds: LogBounds) -> set[Key]:
    if offset >= bounds.end:
        return set()
    with suppress(CorruptLogError):
        record = lookup.record(offset)
        keys, tags, properties = record_keys(record), record_tags_key(record), parse_properties(record.properties)
        unique_key = decode_utf8(properties.get(UNIQUE_KEY, b""))
        if keys.get(unique_key) != KeyType.UNIQ_KEY:
            return set()
        pieces = set(filter(None, decode_utf8(properties.get(KEYS, b"")).split(" ")))
        found = {("U", unique_key), *(("K", piece) for piece in pieces)}
        if tags is not None:
            found.add(("T", tags.removeprefix(tags_key(""))))
        topic = decode_utf8(record.topic)
        return {(topic, kind, key, unique_key, record.store_timestamp) for kind, key in found}
    return set()


def _text(keys: Iterable[Key]) -> str:
    texts = [f"{kind} {key}" for _, kind, key, _, _ in sorted(keys)]
    return ", ".join(texts) if texts else "nothing else"
