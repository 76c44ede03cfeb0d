"""The small tables of an archive: segments of a store without their messages, and snapshots of what is in no message.

Table `segments` has sizes of files, and the blanks at their ends. A snapshot has `config/` and `checkpoint`, and more
(`snapshot_files`).
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import gcd

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import IDENTITY, SEGMENTS_SCHEMA, ArchivedRows, StoreArchive
from spark_mq.archive.delta_log import CONFLICT, is_empty, retry, sync_newest_commits
from spark_mq.archive.snapshot_files import fact_row, small_files
from spark_mq.archive.table_file import append_rows
from spark_mq.errors import StoreChangedError
from spark_mq.format.message_row import Row
from spark_mq.format.record import BLANK_SIZE, MAX_BLANK_SIZE, is_blank
from spark_mq.store import metadata_tables
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.derived_facts import index_facts, queue_facts
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
        known: dict[int, Row] = {}
        if bases and not is_empty(table):
            names = [name for name in SEGMENTS_SCHEMA.names if name not in IDENTITY]
            of_bases = archive.rows(table).where(F.col("commit_log_offset") >= min(bases)).select(*names)
            known = {row["commit_log_offset"]: row for row in of_bases.toArrow().to_pylist()}
        bases -= {base for base, row in known.items() if row["state"] == "FULL" and row["filler_offset"] is not None}
        rows = [row for row in _rows_without_blanks(store) if row["commit_log_offset"] in bases]
        # Where a segment ends before its file does, the log ends.
        data_ends = {row["commit_log_offset"]: row["end_offset"] for row in rows}
        full = {row["commit_log_offset"] for row in rows if row["end_offset"] == _file_end(row)}
        data_ends |= _data_ends(archive, full, all_bases)
        for row in rows:
            _add_blank(row, store, data_ends[row["commit_log_offset"]])
        rows = [row for row in rows if row != known.get(row["commit_log_offset"])]
    if not rows:
        return 0
    if is_empty(table):
        # An append costs much less than a merge. Of two runs for one store that find the table empty, only one appends;
        # if their rows differ, the next run merges.
        append_rows(archive, table, rows, once=f"first segments of {archive.identity.folder}")
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
        retry(CONFLICT, lambda: spark.sql(merge))
        sync_newest_commits(table)
    finally:
        spark.catalog.dropTempView(view)
    return len(rows)


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


def _rows_without_blanks(store: MessageStore) -> list[Row]:
    names = ["file", "first_store_timestamp", "problem"]
    rows: list[Row] = metadata_tables.segments(store).drop_columns(names).to_pylist()
    return [row | {"filler_offset": None, "filler_bytes": None} for row in rows]


def _file_end(row: Row) -> int:
    return int(row["commit_log_offset"] + row["file_size"])


def _add_blank(row: Row, store: MessageStore, start: int) -> None:
    """Add the blank from `start`, the end of the last message, to the file's end, if one is there.

    The zeros at its end are left out.
    """
    size = _file_end(row) - start
    if not BLANK_SIZE <= size <= MAX_BLANK_SIZE:
        return
    try:
        if is_blank(store.records.read(start, BLANK_SIZE), size):
            row |= {"filler_offset": start, "filler_bytes": store.records.read(start, size).rstrip(b"\0")}
    except StoreChangedError:
        pass


def write_snapshot(archive: StoreArchive) -> int:
    """The number of files whose present contents were appended to the snapshots table."""
    moment = datetime.now(UTC)
    files = small_files(archive.store)
    with MessageStore(archive.store.uri) as store:
        log_range = {"log_start": store.get_min_phy_offset(), "log_end": store.get_max_phy_offset()}
        facts = [
            fact_row(CONSUME_QUEUE, lambda: queue_facts(store)),
            fact_row(INDEX, lambda: index_facts(store.location)),
        ]
    found = [row for row in facts if row is not None]
    rows = [{"snapshot_timestamp": moment, **log_range, **row} for row in (*files, *found)]
    if rows:
        append_rows(archive, archive.tables.snapshots, rows)
    return len(files)


@dataclass(frozen=True)
class NewestSnapshot:
    """The files of a snapshot, and the end of the log then; -1 if that is not known."""

    timestamp: int | None = None
    log_end: int = -1
    files: Mapping[str, bytes] = field(default_factory=dict)


def newest_snapshot(archive: ArchivedRows) -> NewestSnapshot:
    """The newest whole snapshot of a store; if no snapshot is whole, the newest one.

    A snapshot is whole if it has the contents of all its files.
    """
    rows = archive.rows(archive.tables.snapshots)
    of_snapshot = (F.count_if(F.col("content").isNull()).alias("missing"), F.max("log_end").alias("log_end"))
    snapshots = rows.groupBy("snapshot_timestamp").agg(*of_snapshot).toArrow().to_pylist()
    if not snapshots:
        return NewestSnapshot()
    whole = [row for row in snapshots if not row["missing"]] or snapshots
    newest = max(whole, key=lambda row: row["snapshot_timestamp"])
    moment = newest["snapshot_timestamp"]
    of_newest = rows.where((F.col("snapshot_timestamp") == F.lit(moment)) & F.col("content").isNotNull())
    files = {row["file"]: row["content"] for row in of_newest.select("file", "content").toArrow().to_pylist()}
    return NewestSnapshot(int(moment.timestamp() * 1000), -1 if newest["log_end"] is None else newest["log_end"], files)
