"""The messages that an index lacks, from the entries of the files that a broker keeps when it starts.

A file that agrees with the log at both ends (`index.coverage`) has the entries of all messages between them if it was
flushed, or if all of its entries are there, in the order of the log, and lead to messages. In the other parts of the
log, the entries of each message are counted: those of a damaged one have the keys that it had.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Set

import numpy as np

from spark_mq.format.array_types import is_in, leading
from spark_mq.format.dispatch import record_keys
from spark_mq.format.index_file import Entries, IndexLayout
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.kernels.index_keys import index_keys
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.index.folder import (
    MOST_KEYS,
    NO_ENTRIES,
    entries_from,
    found_entries,
    index_files,
    index_layout,
    read_entries,
)
from spark_mq.store.log.commit_log import list_offset_range
from spark_mq.store.log.log_range import LogRange, between
from spark_mq.store.log.record_reader import RecordChunk
from spark_mq.store.log.scan import WithKey
from spark_mq.store.log.split_reader import WHOLE, read_split
from spark_mq.store.message_store import MessageStore


def find_lacking_entries(store: MessageStore, kept: Set[str], stop: int, flushed_timestamp: int) -> LogRange | None:
    """The first part of the log before `stop` in which a message has fewer entries than keys; None if there is none.

    The part begins after the last message before that has its entries, and ends where that message starts.

    Args:
        kept: The names of the files that the broker keeps, which are the oldest ones.
        flushed_timestamp: Files that end later were perhaps not flushed (`Checkpoint.index_msg_timestamp`).
    """
    files = index_files(store.location)
    layout = index_layout(store.location, store.broker_conf, files)
    spans = [
        part
        for part in store.index.parts
        if isinstance(part, IndexedRange)
        and part.info.name in kept
        and (part.header.end_timestamp <= flushed_timestamp or _are_live(store, part, layout))
    ]
    parts = [(span.start, span.stop) for span in spans]
    if spans and len(kept) < len(files):  # the other keys of its last message can be in a deleted file
        parts[-1] = spans[-1].start, min(spans[-1].stop, spans[-1].header.end_commit_log_offset)
    others = kept - {span.info.name for span in spans}
    read = [found_entries(file, layout) for file in files if file.name in others]
    for gap in between(parts, max(store.get_min_phy_offset(), 0), stop):
        before = (span for span in spans if span.start < gap.start <= span.header.end_commit_log_offset)
        after = (span for span in spans if span.header.begin_commit_log_offset in gap)
        edges = [entries_from(gap.start, span.info, span.header, layout) for span in before]
        edges += [read_entries(span.info, layout, MOST_KEYS) for span in after]
        found = _find_lacking(store, gap, np.concatenate([NO_ENTRIES, *read, *edges]))
        if found is not None:
            return found
    return None


def count_entries(store: MessageStore, part: LogRange) -> Counter[int]:
    """How many entries a query can find of each message of a part of the log, by commit log offset."""
    layout = index_layout(store.location, store.broker_conf)
    spans = [one for one in store.index.parts if isinstance(one, IndexedRange)]
    elsewhere = {one.info.name for one in spans if one.stop <= part.start or one.start >= part.stop}
    counts: Counter[int] = Counter()
    for file in index_files(store.location):
        if file.name not in elsewhere:
            entries = found_entries(file, layout)
            offsets = entries["commit_log_offset"][entries["key_hash"] != 0].astype(np.int64)  # lost ones are zeros
            counts.update(offsets[(offsets >= part.start) & (offsets < part.stop)].tolist())
    return counts


def _are_live(store: MessageStore, file: IndexedRange, layout: IndexLayout) -> bool:
    """Whether all entries are there, in the order of the log, and lead to messages that have their keys."""
    entries = read_entries(file.info, layout)
    offsets = entries["commit_log_offset"].astype(np.int64)
    if entries.size < file.header.next_entry - 1 or (np.diff(offsets) < 0).any():
        return False
    dead = bisect_left(range(entries.size), True, key=lambda number: not _is_live(store, entries, number))
    return dead == entries.size


def _is_live(store: MessageStore, entries: Entries, number: int) -> bool:
    """Whether the entry with this index is before the log, or leads to a message of the log that has its key."""
    offset = int(entries["commit_log_offset"][number])
    if offset < store.get_min_phy_offset():
        return True
    record = store.records.find(offset) if offset < store.get_max_phy_offset() else None
    if record is None:
        return False
    hashes = {WithKey(decode_utf8(record.topic), key).key_hash for key in record_keys(record)}
    same = entries[number - len(hashes) - 1 if number > len(hashes) else 0 : number + 2 + len(hashes)]
    return not hashes.isdisjoint(same["key_hash"][same["commit_log_offset"] == offset].tolist())


def _find_lacking(store: MessageStore, part: LogRange, entries: Entries) -> LogRange | None:
    """The same in one part of the log, whose messages have no other entries than these."""
    entries = entries[entries["key_hash"] != 0]  # lost ones are zeros
    known, counts = np.unique(entries["commit_log_offset"].astype(np.int64), return_counts=True)
    counts = np.append(counts, 0)
    start = part.start
    for split in list_offset_range(store.location, part.start, part.stop).splits(WHOLE, is_start_known=False):
        for chunk in read_split(split):
            if isinstance(chunk, RecordChunk):
                key_counts = index_keys(chunk.buffer, chunk.frames).entry_count
                offsets = (chunk.base + chunk.frames.position)[key_counts > 0]
                found = np.where(is_in(offsets, known), np.searchsorted(known, offsets), known.size)
                are_there = leading(counts[found] >= key_counts[key_counts > 0])
                start = int(offsets[are_there - 1]) + 1 if are_there else start
                if are_there < offsets.size:
                    return LogRange(start, int(offsets[are_there]))
    return None
