"""Which parts of a log an archive has, and which are missing: the tables of what messages mean depend on that.

Rows can be missing: segments expired before they were archived, or somebody deleted rows. Spark adds up the sizes of
rows by parts of the log of 256 MiB, which reads two columns of integers and a time. Where the sums show that rows are
missing, it compares neighbours, too. The driver gets one row for each part, and the rows of corrupt ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.errors import CorruptLogError
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import MISSING, CorruptRange

_PART_BITS = 28
"""A part of the log has 256 MiB."""

_LONG_RANGE = re.compile(r": \d+ bytes, up to commit log offset (\d+)$")
"""The end of the text about a range that is too long for column `store_size` (`source.messages`)."""


@dataclass(frozen=True)
class LogCover:
    """The log of a store as an archive has it."""

    log: LogRange
    damage: tuple[CorruptRange, ...]
    newest_timestamp: int


@dataclass
class Part:
    """A part of the log: the first archived offset in it, the end of the last row, and the bytes of all rows."""

    first: int
    stop: int
    bytes: int


def log_cover(messages: DataFrame, segments: DataFrame, stored: Column, name: str) -> LogCover:
    """The part of the log that the archive has of a store."""
    rows = messages.where(F.col("commit_log_offset").isNotNull())
    offset, size = F.col("commit_log_offset").alias("offset"), F.coalesce("store_size", F.lit(0)).cast("long")
    placed = rows.select(offset, size.alias("size"), F.when(F.col("topic").isNotNull(), stored).alias("stored"))
    sums = (
        F.min("offset").alias("first"),
        F.max(F.col("offset") + F.col("size")).alias("stop"),
        F.sum("size").alias("bytes"),
        F.max("stored").alias("newest"),
    )
    found = placed.groupBy(_part().alias("part")).agg(*sums).toArrow().to_pylist()
    if not found:
        return LogCover(LogRange(0, 0), (), 0)
    parts = {row["part"]: Part(row["first"], row["stop"], row["bytes"]) for row in found}
    newest = max((row["newest"] for row in found if row["newest"] is not None), default=0)
    damage = list(_corrupt_ranges(rows, name))
    # A range whose length is not in column store_size, and the blanks at the ends of segments.
    others = [(one.commit_log_offset, one.length) for one in damage if one.length > _MAX_STORE_SIZE]
    start, end = min(part.first for part in parts.values()), max(part.stop for part in parts.values())
    end = max([end, *(offset + length for offset, length in others)])
    columns = ("commit_log_offset", "file_size", "filler_offset")
    blanks = segments.where(F.col("filler_offset").isNotNull()).select(*columns).toArrow().to_pylist()
    others += [
        (row["filler_offset"], row["commit_log_offset"] + row["file_size"] - row["filler_offset"])
        for row in blanks
        if start <= row["filler_offset"] < end
    ]
    add_bytes(parts, others)
    ranges, unclear = missing_between(parts)
    if unclear:
        ranges += _missing_within(placed, unclear, others)
    missing = [
        CorruptRange(name, first, stop - first, MISSING, f"the archive lacks {count} bytes of the log here")
        for first, stop, count in ranges
    ]
    return LogCover(LogRange(start, end), (*damage, *missing), max(newest, 0))


_MAX_STORE_SIZE = (1 << 31) - 1


def _part() -> Column:
    return F.shiftright("offset", _PART_BITS)


def add_bytes(parts: dict[int, Part], others: Sequence[tuple[int, int]]) -> None:
    """Add ranges of the log without a size in a row to the parts in which they start: offsets and lengths."""
    for offset, length in sorted(others):
        part = parts.setdefault(offset >> _PART_BITS, Part(offset, offset, 0))
        part.first, part.stop = min(part.first, offset), max(part.stop, offset + length)
        part.bytes += length


def missing_between(parts: dict[int, Part]) -> tuple[list[tuple[int, int, int]], list[int]]:
    """The missing ranges between parts, as start, stop and bytes; and the parts within which rows are missing.

    A part whose rows have more bytes than its range is also among the latter: its rows overlap.
    """
    missing, unclear = [], []
    stop = None
    for number, part in sorted(parts.items()):
        if stop is not None and part.first > stop:
            missing.append((stop, part.first, part.first - stop))
        elif stop is not None and part.first < stop:
            raise _overlap(part.first)
        if part.bytes != part.stop - part.first:
            unclear.append(number)
        stop = part.stop
    return missing, unclear


def _overlap(offset: int) -> CorruptLogError:
    return CorruptLogError(
        f"the archive has several rows with the same bytes of one log, near commit log offset {offset}: two stores "
        "were archived under one name, or rows were added twice"
    )


def _missing_within(
    placed: DataFrame, parts: Sequence[int], others: Sequence[tuple[int, int]]
) -> list[tuple[int, int, int]]:
    """One missing range for each of the parts, with the number of missing bytes in it."""
    rows = placed.where((F.col("size") > 0) & _part().isin(list(parts))).select("offset", "size")
    wanted = set(parts)
    mine = [(offset, length) for offset, length in others if offset >> _PART_BITS in wanted]
    if mine:
        rows = rows.unionByName(placed.sparkSession.createDataFrame(mine, "offset BIGINT, size BIGINT"))
    before = Window.partitionBy("part").orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    stop = F.max(F.col("offset") + F.col("size")).over(before)
    gaps = rows.withColumn("part", _part()).withColumn("stop", stop).where(F.col("stop") != F.col("offset"))
    is_missing = F.col("offset") > F.col("stop")
    sums = (
        F.min("stop").alias("first"),
        F.max("offset").alias("last"),
        F.sum(F.col("offset") - F.col("stop")).alias("bytes"),
        F.min(F.when(~is_missing, F.col("offset"))).alias("overlap"),
    )
    found = gaps.groupBy("part").agg(*sums).toArrow().to_pylist()
    for row in found:
        if row["overlap"] is not None:
            raise _overlap(row["overlap"])
    return [(row["first"], row["last"], row["bytes"]) for row in found]


def _corrupt_ranges(rows: DataFrame, name: str) -> Iterator[CorruptRange]:
    """The corrupt ranges of the store's log, which have rows without a topic."""
    columns = ("commit_log_offset", "store_size", "_corrupt_record")
    for row in rows.where(F.col("topic").isNull()).select(*columns).toArrow().to_pylist():
        code, _, reason = (row["_corrupt_record"] or "").partition(": ")
        offset, length, long_range = row["commit_log_offset"], row["store_size"], _LONG_RANGE.search(reason)
        if length is None:
            length = int(long_range[1]) - offset if long_range else 0
        yield CorruptRange(name, offset, length, code, reason)
