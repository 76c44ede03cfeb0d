"""Messages that queues or the index show, and that the log no longer has: the log is older than they are.

A log can be copied before its queues, or lose its end with a machine. Then units and index entries lead past its end.
Units of messages that a recovery cut off do so, too: a recovery clears nothing. But it does not clear the log either,
so the old records are still at their places, and such units do not count here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spark_mq.errors import CorruptLogError, UnsupportedStoreError
from spark_mq.format.array_types import Int64s
from spark_mq.format.consume_queue import PRE_BLANK_SIZE
from spark_mq.store.index.folder import index_files
from spark_mq.store.message_store import MessageStore
from spark_mq.store.queue.consume_queue import ConsumeQueue

_BLOCK = 1024
_LOOKED_AT = 1000
"""Places after the end of the log at which old records are looked for; later units count as the last one of these."""


@dataclass(frozen=True)
class GoneMessages:
    """What leads past the end of the log, to no record.

    Attributes:
        by_queue: The number of such units of each queue that has some.
        count: The number of messages; a message can be in several queues. At least that many are gone.
    """

    by_queue: Mapping[tuple[str, int], int]
    count: int


def find_gone_messages(store: MessageStore) -> GoneMessages:
    """The messages after the end of the log that queues or the index show.

    A running broker appends before it dispatches, so units are read before the end of the log is asked for again.
    """
    try:
        queues = store.queues
    except UnsupportedStoreError:
        queues = {}
    end = max(store.get_max_phy_offset(), 0)
    found = {name: _after(queue, end) for name, queue in queues.items()}
    found = {name: offsets for name, offsets in found.items() if offsets.size}
    looked_at = sorted({offset for offsets in found.values() for offset in offsets[:_LOOKED_AT].tolist()})[:_LOOKED_AT]
    gone = {offset for offset in looked_at if not _is_record(store, offset)}
    first_unknown = looked_at[-1] + 1 if looked_at else end
    are_later_gone = bool(looked_at) and looked_at[-1] in gone
    counts, chosen = {}, []
    for name, offsets in found.items():
        is_gone = np.isin(offsets, np.array(sorted(gone), np.int64))
        if are_later_gone:
            is_gone |= offsets >= first_unknown
        if is_gone.any():
            counts[name] = int(is_gone.sum())
            chosen.append(offsets[is_gone])
    count = np.unique(np.concatenate(chosen)).size if chosen else 0
    return GoneMessages(counts, max(count, _in_index(store, end)))


def _after(queue: ConsumeQueue, end: int) -> Int64s:
    """The commit log offsets of the last units of a queue, as far back as they lead past the log's end."""
    stop, first = queue.written_end, queue.files[0].first if queue.files else 0
    blocks = []
    while stop > first:
        start = max(first, stop - _BLOCK)
        units = queue.units(start, stop)
        is_after = (units["commit_log_offset"] >= end) & (units["store_size"] > 0)
        is_after &= units["store_size"] != PRE_BLANK_SIZE
        blocks.append(units["commit_log_offset"][is_after].astype(np.int64))
        if not is_after[0]:
            break
        stop = start
    return np.concatenate(blocks[::-1]) if blocks else np.empty(0, np.int64)


def _in_index(store: MessageStore, end: int) -> int:
    """1 if the last message of the index was after the end of the log, and is not there; else 0."""
    headers = [file.stored_header() for file in index_files(store.location)]
    newest = max((header.end_commit_log_offset for header in headers if header.next_entry > 1), default=-1)
    return int(newest >= end and not _is_record(store, newest))


def _is_record(store: MessageStore, commit_log_offset: int) -> bool:
    """Whether a whole record is at the offset."""
    try:
        store.records.record(commit_log_offset)
    except CorruptLogError:
        return False
    return True
