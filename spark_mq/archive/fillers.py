"""What the segments of a store are besides their messages: sizes, and the fillers at their ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spark_mq.errors import StoreChangedError
from spark_mq.format.record import FRAME, MAGIC_BLANK, MAX_BLANK_SIZE
from spark_mq.store import tables
from spark_mq.store.message_store import MessageStore

Row = dict[str, Any]


def segment_rows(store: MessageStore, data_ends: Mapping[int, int]) -> list[Row]:
    """A row for each segment; `data_ends` says by first offset where the last message of it ends."""
    rows: list[Row] = tables.segments(store).drop_columns(["file", "first_store_timestamp"]).to_pylist()
    for row in rows:
        base, end = row["commit_log_offset"], row["commit_log_offset"] + row["file_size"]
        filler = _filler(store, data_ends.get(base, end), end)
        row["filler_offset"] = None if filler is None else data_ends[base]
        row["filler_bytes"] = filler
    return rows


def _filler(store: MessageStore, start: int, end: int) -> bytes | None:
    """The filler from `start` to the segment's `end`, without the zeros at its end; None if there is none."""
    size = end - start
    if not FRAME.size <= size <= MAX_BLANK_SIZE:
        return None
    try:
        if store.records.read(start, FRAME.size) != FRAME.pack(size, MAGIC_BLANK):
            return None
        return store.records.read(start, size).rstrip(b"\0")
    except StoreChangedError:
        return None
