"""A store in an archive as the source of the tables of what messages mean (`LogSource`).

Of the table of messages, Delta reads the files whose statistics cover the selected topics, and of these the requested
columns. The driver gets the selected messages, and nothing else of the table.

These tables depend on which parts of the log an archive has. Rows can be missing: segments expired before they were
archived, or somebody deleted rows. Spark adds up the sizes of rows by parts of the log of 256 MiB, which reads two
columns of integers and a time. Where the sums show that rows are missing, it compares neighbours, too. The driver gets
one row for each part, and the rows of corrupt ranges.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import MESSAGES, ArchivedRows
from spark_mq.archive.small_tables import NewestSnapshot, newest_snapshot
from spark_mq.archive.snapshot_files import snapshot_location
from spark_mq.errors import CorruptLogError, OptionError
from spark_mq.format.array_types import Flags, Int64s
from spark_mq.format.broker_version import BrokerVersions
from spark_mq.format.message_schema import CORRUPT_RECORD, MAX_STORE_SIZE, WRONG_BODY_CRC
from spark_mq.format.record import CRC_MASK
from spark_mq.format.timestamp import iso_text
from spark_mq.io.location import Location
from spark_mq.lifecycle.delayed import due_by_level
from spark_mq.lifecycle.selected_messages import LogSource, SelectedMessages, Selection
from spark_mq.store.broker_versions import find_broker_versions
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import lost_end
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import MISSING, CorruptRange
from spark_mq.store.retention import moment_of

_PART_BITS = 28
"""A part of the log has 256 MiB."""

_LONG_RANGE = re.compile(r": \d+ bytes, up to commit log offset (\d+)$")
"""The end of the text about a range that is too long for column `store_size` (`source.messages`)."""
_MAX_TOPICS = 1_000
"""Real topics that a condition names; with more of them, the messages of all topics are looked at."""
_BATCH_ROWS = 1 << 16


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
    others = [(one.commit_log_offset, one.length) for one in damage if one.length > MAX_STORE_SIZE]
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


class ArchiveSource(LogSource):
    """One store of an archive, as its last run left it.

    Files of `config/` are those of the newest snapshot. Timer logs are not archived, nor are consume queues, so a
    delayed message is due by the settings of the broker.
    """

    timer_location: Location | None = None

    def __init__(self, archive: ArchivedRows, conf: BrokerConf) -> None:
        self.archive, self.conf = archive, conf

    @cached_property
    def snapshot(self) -> NewestSnapshot:
        """The newest snapshot of the store."""
        return newest_snapshot(self.archive)

    @cached_property
    def cover(self) -> LogCover:
        """The part of the log that the archive has."""
        tables = self.archive.tables
        segments, stored = self.archive.rows(tables.segments), self.column("store_timestamp_millis")
        return log_cover(self.messages, segments, stored, tables.name)

    @cached_property
    def messages(self) -> DataFrame:
        """The store's rows of the table of messages."""
        return self.archive.rows(self.archive.tables.messages)

    @cached_property
    def location(self) -> Location:
        """The folder with the files of the newest snapshot."""
        return snapshot_location(self.snapshot.files, self.archive.tables.snapshots.name)

    @cached_property
    def broker_versions(self) -> BrokerVersions:
        return find_broker_versions(self.location)

    @property
    def config_end(self) -> int:
        return self.snapshot.log_end

    @property
    def known_until(self) -> int:
        """The newest time of which the archive knows the store, in milliseconds.

        That is when the newest snapshot was made, if all messages before it are archived, or else when the newest
        archived message was stored.
        """
        # A clock can have been wrong, or bytes damaged: the archive knows nothing of the future.
        snapshot, newest = self.snapshot, min(self.cover.newest_timestamp, moment_of(None))
        has_all = snapshot.timestamp is not None and self.cover.log.stop >= snapshot.log_end
        return max(newest, snapshot.timestamp or 0) if has_all else newest

    def moment(self, at: int | datetime | None) -> int:
        """The time `at`; `known_until` for None."""
        if at is None:
            return self.known_until
        moment = moment_of(at)
        if moment > self.known_until:
            raise OptionError(
                f"at={iso_text(moment)}: the archive {self.archive.tables.name} knows the store until "
                f"{iso_text(self.known_until)}: give that time or an earlier one"
            )
        return moment

    def lost_end(self, newest_timestamp: int) -> str | None:
        """Why the end of the log can be missing in the archive; None if it is there."""
        if self.cover.log.stop < self.snapshot.log_end:
            return (
                f"the archive ends at commit log offset {self.cover.log.stop}, and the log ended at "
                f"{self.snapshot.log_end} when the newest snapshot was made: run spark-mq archive"
            )
        return lost_end(self.location, newest_timestamp)

    def due_times(
        self, commit_log_offset: Int64s, queue_id: Int64s, queue_offset: Int64s, stored: Int64s
    ) -> tuple[Int64s, Flags]:
        is_known: Flags = stored >= 0
        return due_by_level(queue_id, stored, self.conf), is_known

    def selections_of(self, *selections: Selection) -> tuple[SelectedMessages, ...]:
        cover = self.cover
        return tuple(
            SelectedMessages(self._selected(selection), cover.damage, cover.log, cover.newest_timestamp)
            for selection in selections
        )

    def batches_of(self, selection: Selection) -> Iterator[pa.RecordBatch]:
        yield from self._selected(selection).to_batches(_BATCH_ROWS)

    def _selected(self, selection: Selection) -> pa.Table:
        rule = selection.rule
        conditions = [F.col("topic").startswith(prefix) for prefix in rule.prefixes]
        for name, values in (("topic", rule.names), ("transaction_type", rule.transaction_types)):
            if values:
                conditions.append(F.col(name).isin(sorted(values)))
        is_named = reduce(Column.__or__, conditions, F.lit(False))
        found = self._read(is_named, selection)
        if rule.properties:
            has_one = reduce(Column.__or__, (F.col("properties")[name].isNotNull() for name in rule.properties))
            if "REAL_TOPIC" in found.column_names:  # only messages of topics that waiting messages name can follow them
                topics = pc.drop_null(pc.unique(found["REAL_TOPIC"])).to_pylist()
                has_one &= F.col("topic").isin(topics) if len(topics) <= _MAX_TOPICS else F.lit(True)
            found = pa.concat_tables([found, self._read(has_one & ~is_named, selection)])
        return found.sort_by("commit_log_offset")

    def _read(self, condition: Column, selection: Selection) -> pa.Table:
        schema = selection.schema
        if selection.rule.tags:
            is_damaged = F.contains(self.column("properties_bytes"), F.lit(b"\0"))
            condition &= F.col("tags").isin(sorted(selection.rule.tags)) | is_damaged
        columns = [self.column(name, selection.check_crc) for name in selection.columns]
        columns += [F.col("properties")[name].alias(name) for name in selection.properties]
        rows = self.messages.where(F.col("topic").isNotNull() & condition).select(*columns).toArrow()
        return pa.table([rows[field.name].cast(field.type) for field in schema], schema=schema)

    def column(self, name: str, check_crc: bool = False) -> Column:
        """A column of table `messages`, out of the columns of the archive."""
        if name in ("born_timestamp_millis", "store_timestamp_millis"):
            known = F.unix_millis(name.removesuffix("_millis"))
            return (F.coalesce(known, self._own(name)) if name in self.messages.columns else known).alias(name)
        if name == "properties_bytes":
            return F.coalesce(self._own(name), F.lit(b"")).alias(name)
        if name == CORRUPT_RECORD and check_crc:
            stored = F.coalesce(self._own("stored_body"), F.col("body"))
            is_wrong = (F.length(stored) > 0) & (F.crc32(stored).bitwiseAND(CRC_MASK) != F.col("body_crc"))
            return F.coalesce(F.col(name), F.when(is_wrong, F.lit(WRONG_BODY_CRC))).alias(name)
        return self._own(name)

    def _own(self, name: str) -> Column:
        """A column that older archives lack; NULL then."""
        if name in self.messages.columns:
            return F.col(name)
        return F.lit(None).cast(MESSAGES.columns()[name].dataType).alias(name)
