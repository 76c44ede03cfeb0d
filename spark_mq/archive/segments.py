"""The segments of a store without their messages: sizes, and the blanks at the ends of files."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from math import gcd

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import IDENTITY, StoreArchive
from spark_mq.archive.delta_log import is_empty, retry_on_conflict
from spark_mq.archive.file_commit import append_rows
from spark_mq.archive.tables import SEGMENTS, SEGMENTS_SCHEMA
from spark_mq.errors import StoreChangedError
from spark_mq.format.message_row import Row
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, is_blank
from spark_mq.store import metadata_tables
from spark_mq.store.message_store import MessageStore

_OFFSETS_PER_SEGMENT = 4


def write_segments(archive: StoreArchive, archived_to: int) -> int:
    """The number of rows of the segments table that were written.

    Messages are archived up to commit log offset `archived_to`. Segments that start at this offset or later are left
    out: a broker creates segments in advance, and removes them when it stops. Rows of full segments that have a blank
    stay unchanged. Rows that are in the table already are not written again.
    """
    spark, table = archive.spark, archive.tables.segments
    with MessageStore(archive.store.uri) as store:
        all_bases = [segment.base for segment in store.records.segments]
        bases = {base for base in all_bases if base < archived_to}
        known = _known_rows(archive, bases)
        bases -= {base for base, row in known.items() if row["state"] == "FULL" and row["filler_offset"] is not None}
        ends = _data_ends(archive, bases, all_bases)
        rows = [row for row in segment_rows(store, ends) if row["commit_log_offset"] in bases]
        rows = [row for row in rows if row != known.get(row["commit_log_offset"])]
    if not rows:
        return 0
    if is_empty(table):
        # An append costs much less than a merge. Of two runs for one store that find the table empty, only one appends;
        # if their rows differ, the next run merges.
        append_rows(archive, table, SEGMENTS, rows, once=f"first segments of {archive.identity.folder}")
        return len(rows)
    view = f"spark_mq_segments_{uuid.uuid4().hex}"
    spark.createDataFrame(archive.named(rows, SEGMENTS_SCHEMA)).createOrReplaceTempView(view)
    keys = (*IDENTITY, "commit_log_offset")
    condition = " AND ".join(f"new.{name} = old.{name}" for name in keys)
    merge = (
        f"MERGE INTO {table.sql_name} AS old USING {view} AS new ON {condition} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    try:
        retry_on_conflict(lambda: spark.sql(merge))
    finally:
        spark.catalog.dropTempView(view)
    return len(rows)


def _known_rows(archive: StoreArchive, bases: Set[int]) -> dict[int, Row]:
    """The rows of segments that are in the table, by the segment's first offset."""
    if not bases or is_empty(archive.tables.segments):
        return {}
    names = [name for name in SEGMENTS_SCHEMA.names if name not in IDENTITY]
    rows = archive.rows(archive.tables.segments).where(F.col("commit_log_offset") >= min(bases)).select(*names)
    return {row["commit_log_offset"]: row for row in rows.toArrow().to_pylist()}


def _data_ends(archive: StoreArchive, bases: Set[int], all_bases: Sequence[int]) -> dict[int, int]:
    """The end of the last archived record of each segment at `bases`, by the segment's first offset."""
    if not bases:
        return {}
    read_bases = [base for base in sorted(all_bases) if base >= min(bases)]
    rows = archive.rows(archive.tables.messages).where(F.col("commit_log_offset") >= read_bases[0])
    end = F.max(F.col("commit_log_offset") + F.col("store_size")).alias("end")
    ends: dict[int, int] = {}
    for row in rows.groupBy(_offset_in_segment(read_bases).alias("offset")).agg(end).collect():
        base = read_bases[bisect_right(read_bases, row.offset) - 1]
        ends[base] = max(ends.get(base, 0), row.end)
    return {base: end for base, end in ends.items() if base in bases}


def _offset_in_segment(bases: Sequence[int]) -> Column:
    """An offset in the segment of a message. There are few different ones for each segment; `bases` is sorted."""
    first, last = bases[0], bases[-1]
    step = gcd(*(base - first for base in bases))
    if step == 0:
        return F.lit(first)
    if (last - first) // step <= _OFFSETS_PER_SEGMENT * len(bases):
        return F.col("commit_log_offset") - (F.col("commit_log_offset") - first) % step
    # The broker had another segment size. Spark does not compile lambdas.
    return F.array_max(F.filter(F.array(*map(F.lit, bases)), lambda base: base <= F.col("commit_log_offset")))


def segment_rows(store: MessageStore, data_ends: Mapping[int, int]) -> list[Row]:
    """A row for each segment; `data_ends` has the end of a segment's last message, by the segment's first offset."""
    rows: list[Row] = (
        metadata_tables.segments(store).drop_columns(["file", "first_store_timestamp", "problem"]).to_pylist()
    )
    for row in rows:
        base, end = row["commit_log_offset"], row["commit_log_offset"] + row["file_size"]
        blank = _blank(store, data_ends.get(base, end), end)
        row["filler_offset"] = None if blank is None else data_ends[base]
        row["filler_bytes"] = blank
    return rows


def _blank(store: MessageStore, start: int, end: int) -> bytes | None:
    """The blank from `start` to the segment's `end`, without the zeros at its end; None if there is none."""
    size = end - start
    if not BLANK_SIZE <= size <= MAX_BLANK_SIZE:
        return None
    try:
        if not is_blank(store.records.read(start, BLANK_SIZE), size):
            return None
        return store.records.read(start, size).rstrip(b"\0")
    except StoreChangedError:
        return None
