"""The schema of staged rows: one row for each run of units, and one for each split.

A *run* is consecutive queue offsets of one queue file, in the order of the log; its 20-byte units are ready to be
written. The row of a split tells what the split read and where it ended. Index entries are in files of their own
(`index/staged_entries`), which the row of a split names.
"""

from __future__ import annotations

import pyarrow as pa

UNITS = "units"
SPLIT = "split"

MAX_RUN_UNITS = 13_000
"""The limit of units in a run: about 256 KiB, so that a batch of a few dozen rows stays small."""

CORRUPT_TYPE = pa.list_(
    pa.field(
        "element",
        pa.struct(
            [
                ("file", pa.string()),
                ("commit_log_offset", pa.int64()),
                ("length", pa.int64()),
                ("code", pa.string()),
                ("reason", pa.string()),
            ]
        ),
    )
)

STAGED_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("segment", pa.int64()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("file_number", pa.int64()),
        ("first_queue_offset", pa.int64()),
        ("unit_count", pa.int64()),
        ("units", pa.binary()),
        ("commit_log_offset", pa.int64()),
        ("last_store_timestamp", pa.int64()),
        ("split_start", pa.int64()),
        ("split_stop", pa.int64()),
        ("first_position", pa.int64()),
        ("end_position", pa.int64()),
        ("messages", pa.int64()),
        ("inner_batches", pa.int64()),
        ("bytes_read", pa.int64()),
        ("first_store_timestamp", pa.int64()),
        ("time_steps_back", pa.bool_()),
        ("corrupt", CORRUPT_TYPE),
        ("entries_file", pa.string()),
        ("index_entries", pa.int64()),
        ("trailing_messages", pa.int64()),
    ]
)
"""Rows of both kinds; columns of the other kind are NULL. `commit_log_offset` is the offset of a run's first unit."""
