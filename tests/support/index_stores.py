"""Index files of real stores, and the same made here out of their commit logs. No Spark here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from spark_mq.format.array_types import Bytes, Int32s, Int64s
from spark_mq.format.index_file import ENTRY_SIZE, IndexHeader, IndexLayout, decode_header
from spark_mq.format.kernels.big_endian import int64s_at
from spark_mq.format.kernels.index_keys import IndexKeys, index_keys
from spark_mq.format.kernels.index_put import new_index_head, put_keys
from spark_mq.indexer.index_files import place_entries
from spark_mq.indexer.staged_files import STAGED_ENTRY_DTYPE
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.log.commit_log import CommitLog, SegmentSource
from spark_mq.store.log.live_reader import LiveReader
from spark_mq.store.log.record_reader import RecordChunk, RecordReader
from spark_mq.testing.plain_index import plain_key_hash
from tests.support.stores import Fact, RealStore, usual_stores


@dataclass(frozen=True)
class Messages:
    """All messages of a log: offsets and store times of each, and the entries they put."""

    commit_log_offset: Int64s
    store_timestamp: Int64s
    keys: IndexKeys

    def entries(self) -> tuple[Int32s, Int64s, Int64s]:
        """Hash, offset and time of each entry."""
        counts = self.keys.entry_count
        return self.keys.key_hash, np.repeat(self.commit_log_offset, counts), np.repeat(self.store_timestamp, counts)

    def not_indexed(self, last: IndexHeader) -> Messages:
        """What is left of them for a store with this last index file.

        The message at its end is put again (`IndexService.buildIndex`@5.3.3 compares with <); one that is left out
        stays, with no entry.
        """
        is_indexed = self.commit_log_offset < last.end_commit_log_offset
        is_left = ~np.repeat(is_indexed, self.keys.entry_count)
        entry_count = np.where(is_indexed, 0, self.keys.entry_count).astype(np.int32)
        return Messages(
            self.commit_log_offset, self.store_timestamp, IndexKeys(self.keys.key_hash[is_left], entry_count)
        )


def staged_entries(hashes: Int32s, offsets: Int64s, timestamps: Int64s) -> Bytes:
    """Entries as they are staged."""
    entries = np.empty(hashes.size, STAGED_ENTRY_DTYPE)
    for name, values in zip(STAGED_ENTRY_DTYPE.names or (), (hashes, offsets, timestamps), strict=True):
        entries[name] = values
    return entries.view(np.uint8)


def new_index_file(
    layout: IndexLayout, end_timestamp: int = 0, end_commit_log_offset: int = 0, index_count: int = 1
) -> Bytes:
    """A whole index file without entries."""
    head = new_index_head(layout, end_timestamp, end_commit_log_offset, index_count)
    return np.concatenate((head, np.zeros(layout.file_size - head.size, np.uint8)))


def put_into(
    data: Bytes, layout: IndexLayout, hashes: Int32s, offsets: Int64s, timestamps: Int64s, file: str = "file"
) -> int:
    """Put entries into a whole index file, in place; returns their number."""
    entries, first = staged_entries(hashes, offsets, timestamps), decode_header(data, layout, file).next_entry
    count = put_keys(data[: layout.entries_at], layout, entries, file)
    at = layout.entries_at + first * ENTRY_SIZE
    data[at : at + count * ENTRY_SIZE] = entries[: count * ENTRY_SIZE]
    return count


def layout_of(store: RealStore) -> IndexLayout:
    """The sizes of the store's index files."""
    settings = BrokerConf.load(Location.resolve(str(store.broker_conf))).settings
    return IndexLayout(int(settings["maxHashSlotNum"]), int(settings["maxIndexNum"]))


def index_files(folder: Path) -> list[Path]:
    """The index files of a store, oldest first."""
    return sorted((folder / "index").iterdir())


def messages_of(folder: Path) -> Messages:
    """The live messages of a store."""
    offsets, timestamps, hashes, counts = [], [], [], []
    for segment in CommitLog.open(Location.resolve(str(folder))).segments:
        with SegmentSource(segment) as source:
            reader = LiveReader(source) if segment.is_last else RecordReader(source, 0)
            for part in reader.read(segment.data_end):
                assert isinstance(part, RecordChunk), part
                keys = index_keys(part.buffer, part.frames)
                offsets.append(part.base + part.frames.position)
                timestamps.append(int64s_at(part.buffer, part.frames.store_timestamp_at))
                hashes.append(keys.key_hash)
                counts.append(keys.entry_count)
    keys = IndexKeys(np.concatenate(hashes), np.concatenate(counts))
    return Messages(np.concatenate(offsets), np.concatenate(timestamps), keys)


def runs_of(entry_count: Int32s, size: int) -> tuple[Int64s, Int64s]:
    """Entries of runs of `size` messages, and how many messages each has after the last of them."""
    bounds = [*range(0, entry_count.size, size), entry_count.size]
    pieces = [entry_count[start:stop] for start, stop in pairwise(bounds)]
    trailing = [piece.size - 1 - int(np.flatnonzero(piece)[-1]) if piece.any() else piece.size for piece in pieces]
    return np.array([piece.sum() for piece in pieces], np.int64), np.array(trailing, np.int64)


def build_index(
    messages: Messages,
    layout: IndexLayout,
    last: Bytes | None = None,
    run_size: int = 100,
    untouched_index_count: int = 1,
) -> list[Bytes]:
    """All index files of the messages, run by run.

    `last` is the store's last file: where it is not full, the first of the files made is that file, continued.
    """
    last_header = IndexHeader() if last is None else decode_header(last, layout, "last")
    entry_counts, trailing_messages = runs_of(messages.keys.entry_count, run_size)
    placement = place_entries(entry_counts, trailing_messages, layout, None if last is None else last_header)
    run_starts = np.cumsum(entry_counts) - entry_counts
    hashes, offsets, timestamps = messages.entries()
    files = []
    for file in range(placement.files):
        before = placement.entry_before(file)
        if last is not None and file == 0 and placement.continues_last:
            data = last.copy()
        elif before is None:
            end = last_header.end_timestamp, last_header.end_commit_log_offset
            data = new_index_file(layout, *end, untouched_index_count)
        else:
            entry = int(run_starts[before[0]]) + before[1]
            data = new_index_file(layout, int(timestamps[entry]), int(offsets[entry]), untouched_index_count)
        for piece in np.flatnonzero(placement.file == file):
            start, count = int(run_starts[placement.run[piece]] + placement.start[piece]), int(placement.count[piece])
            part = slice(start, start + count)
            assert put_into(data, layout, hashes[part], offsets[part], timestamps[part]) == count
        files.append(data)
    return files


def untouched_index_count(store: RealStore) -> int:
    """What a last file without entries says, where the broker that wrote the store was stopped."""
    return 0 if store.name.endswith("49x") else 1


def read_files(files: Sequence[Path]) -> list[bytes]:
    """Their bytes."""
    return [file.read_bytes() for file in files]


STORES = usual_stores()


WHOLE = [store for store in STORES if not store.name.startswith(("abort", "killed", "deleted", "stale"))]
"""Stores whose index has what was dispatched, all of it, and once."""


Put = tuple[int, int]


def puts_of(fact: Fact) -> Iterator[Put]:
    """Key hash and commit log offset of the entries of a message, from what the Java store says of it."""
    if fact["sysFlag"] & 0xC != 0xC:
        keys = [fact["uniqKey"] or "", *(fact["keys"] or "").split(" ")]
        yield from ((plain_key_hash(fact["topic"], key), fact["offset"]) for key in keys if key)
