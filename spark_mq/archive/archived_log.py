"""Which stores an archive has, and whether its messages are those of a log: one renamed, or that lost messages.

An archived message and a message of the log are the same if the fields below are equal. These include the broker's
address and the store time in milliseconds, so messages of two brokers always differ. A replica has the bytes of its
master: both are the same log.

Delta commits a change of one table at once, but a change of four tables in four commits. Every run learns from the
messages table what is archived, and under which name, so a rename changes that table last. If a run is killed before,
the next run repeats the whole rename.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import (
    IDENTITY,
    MESSAGES,
    ArchivedRows,
    ArchiveTable,
    ArchiveTables,
    StoreArchive,
    StoreIdentity,
    sql_text,
)
from spark_mq.archive.delta_log import CONFLICT, is_empty, retry, sync_newest_commits
from spark_mq.archive.last_run import KEYS_STREAM, MESSAGES_STREAM, Checkpoint
from spark_mq.errors import CorruptLogError, OptionError
from spark_mq.format.message_row import message_row
from spark_mq.format.record import Record
from spark_mq.format.timestamp import EPOCH
from spark_mq.io.location import Location
from spark_mq.store.message_store import MessageStore

_FIELDS = (
    "commit_log_offset",
    "store_size",
    "topic",
    "queue_id",
    "queue_offset",
    "flag",
    "sys_flag",
    "born_host",
    "store_host",
    "prepared_transaction_offset",
    "body_crc",
)
_TIMES = ("born_timestamp", "store_timestamp")
RUNNING_BROKER = "running broker"
"""In column `file` of a snapshot: the messages were archived from a running broker, which is not a whole log."""
_MAX_BASES = 16
_MAX_HALVINGS = 10
LOST = "#lost-"
"""In column `store`, the text between a store's name and the offset and time of an end of its log that was lost."""


def archived_stores(spark: SparkSession, tables: ArchiveTables) -> list[StoreIdentity]:
    """The names of the stores in an archive, sorted; without brokers that were archived while they ran."""
    found: set[StoreIdentity] = set()
    for table in (tables.segments, tables.snapshots):
        try:
            rows = table.read(spark).select(*IDENTITY).distinct().collect()
        except AnalysisException as error:
            raise OptionError(
                f"{tables.name} is neither a store directory nor an archive (spark-mq archive): table {table.name} "
                f"cannot be read: {str(error).partition(chr(10))[0]}"
            ) from error
        found |= set(map(StoreIdentity.of, rows))
    return sorted(found.difference(archived_brokers(spark, tables)))


def archived_brokers(spark: SparkSession, tables: ArchiveTables) -> list[StoreIdentity]:
    """The names of the brokers that were archived while they ran, sorted."""
    marks = tables.snapshots.read(spark).where(F.col("file") == RUNNING_BROKER)
    return sorted(map(StoreIdentity.of, marks.select(*IDENTITY).distinct().collect()))


def choose_store(
    spark: SparkSession, tables: ArchiveTables, cluster: str | None, broker: str | None, store_name: str | None
) -> ArchivedRows:
    """The one store of an archive that has these names. Those of a lost end (`LOST`) count if all three are given."""
    given = dict(zip(IDENTITY, (cluster, broker, store_name), strict=True))
    stores, wanted = archived_stores(spark, tables), {name: value for name, value in given.items() if value is not None}
    chosen = [store for store in stores if wanted.items() <= dataclasses.asdict(store).items()]
    if len(chosen) == 1:
        return ArchivedRows(spark, tables, chosen[0])
    if len(wanted) == len(IDENTITY) and LOST in wanted["store"]:
        lost = ArchivedRows(spark, tables, StoreIdentity(*wanted.values()))
        if not lost.rows(tables.messages).isEmpty():
            return lost
    if not stores:
        raise OptionError(
            f"{tables.name} has no messages of a store; those of a running cluster are not a whole log, and "
            "can only be read"
        )
    if chosen:
        raise OptionError(
            f"{tables.name} has messages of {len(chosen)} stores: choose one of them ({described(chosen)})"
        )
    names = (f"{name} {value}" for name, value in wanted.items())
    raise OptionError(f"{tables.name} has no store with {', '.join(names)}; it has {described(stores)}")


def names_of_log(archive: StoreArchive) -> list[StoreIdentity]:
    """The names, other than the store's own, under which messages of this store's log are in the archive.

    The function compares some dozens of messages (`sample_records`). More of them are near the end of the log, because
    the archive may have deleted old messages. Segments that have expired since are not needed. What was archived from a
    running cluster is not a part of the log, and refused: half messages are missing, and others can be.
    """
    names = names_of_records(archive, sample_records(archive.store))
    live = set(names).intersection(archived_brokers(archive.spark, archive.tables) if names else ())
    if live:
        raise OptionError(
            f"{archive.store}: messages of this log are in {archive.tables.name} as {described(live)}, archived from a "
            "running cluster, which is not the whole log: use another TABLE for the store"
        )
    return names


def names_of_records(archive: ArchivedRows, records: Iterable[Record]) -> list[StoreIdentity]:
    """The names, other than the archive's own, under which at least one of the records is in the archive."""
    samples = {record.commit_log_offset: compared_values(record) for record in records}
    # Some store times are outside of TIMESTAMP.
    samples = {offset: values for offset, values in samples.items() if values["store_timestamp"] is not None}
    if not samples:
        return []
    times = [EPOCH + timedelta(microseconds=values["store_timestamp"]) for values in samples.values()]
    rows = archive.tables.messages.read(archive.spark)
    # Files are clustered by topic and time, so the query reads few of them.
    is_sampled = (
        F.col("topic").isin(sorted({values["topic"] for values in samples.values()}))
        & F.col("store_timestamp").isin(times)
        & F.col("commit_log_offset").isin(list(samples))
        & ~archive.identity.condition()
        & ~F.col("store").contains(LOST)
    )
    identities = {
        StoreIdentity.of(row)
        for row in rows.where(is_sampled).select(*IDENTITY, *compared_columns()).collect()
        if is_equal(row, samples[row.commit_log_offset])
    }
    return sorted(identities)


def sample_records(store: Location) -> list[Record]:
    """Records spread over the log, more of them near its end.

    They are the first records of segments, the last record, and records at halving distances from the end.
    """
    from spark_mq.store.log.split_reader import last_record, next_boundary  # a check of names needs no kernels

    with MessageStore(store.uri) as opened:
        start, end = opened.get_min_phy_offset(), opened.get_max_phy_offset()
        if end <= start:
            return []
        bases = [segment.base for segment in opened.records.segments if segment.base < end]
        offsets = set(bases[:: len(bases) // _MAX_BASES + 1])
        offsets |= {next_boundary(store, end - ((end - start) >> halvings), end) for halvings in range(_MAX_HALVINGS)}
        last = last_record(store, start, end)
        offsets |= set() if last is None else {last}
        records = []
        for offset in sorted(offsets - {end}):
            try:
                records.append(opened.records.record(offset))
            except CorruptLogError:  # a blank or a corrupt range
                continue
    return records


@dataclass(frozen=True)
class LostEnd:
    """Archived messages that are no longer in the log; `newest` is the store time of the last one, in milliseconds."""

    start: int
    newest: int
    count: int

    def name(self, identity: StoreIdentity) -> StoreIdentity:
        """The name for the rows of these messages. A repeated run computes the same name."""
        return StoreIdentity(identity.cluster, identity.broker, f"{identity.store}{LOST}{self.start}-{self.newest}")


def find_lost_end(archive: StoreArchive) -> LostEnd | None:
    """The archived messages that the broker lost; None if the last archived message is in the log, or has expired."""
    if is_empty(archive.tables.messages):
        return None
    with MessageStore(archive.store.uri) as store:
        log_start, log_end = store.get_min_phy_offset(), store.get_max_phy_offset()
        newest = _newest_row(archive, [*(segment.base for segment in store.records.segments[-1:]), log_start])
        if newest is None or log_end < 0:
            return None
        if newest.commit_log_offset + newest.store_size <= log_end:
            try:
                if is_equal(newest, compared_values(store.records.record(newest.commit_log_offset))):
                    return None
            except CorruptLogError:
                pass
    types = {field.name: field.dataType.simpleString() for field in MESSAGES.columns()}
    columns = ", ".join(f"{name} {types[name]}" for name in (*_FIELDS, *_TIMES))
    log = archive.spark.read.format("rocketmq").schema(columns)
    options = {"startOffset": str(log_start), "endOffset": str(newest.commit_log_offset)}
    in_log = log.options(**options).load(archive.store.uri)
    rows = _messages(archive).where(F.col("commit_log_offset") >= log_start)
    equal = [rows[name].eqNullSafe(in_log[name]) for name in (*_FIELDS, *_TIMES)]
    lost = rows.join(in_log, equal, "left_anti")
    first = lost.agg(F.min("commit_log_offset").alias("start")).collect()[0].start
    if first is None:
        return None
    count = _messages(archive).where(F.col("commit_log_offset") >= first).count()
    return LostEnd(first, newest.store_timestamp // 1000, count)


def _newest_row(archive: StoreArchive, starts: Sequence[int]) -> Row | None:
    """The last archived message, from the first of the offsets after which there is one."""
    newest = F.max_by(F.struct(*compared_columns()), "commit_log_offset").alias("newest")
    of_starts = (_messages(archive).where(F.col("commit_log_offset") >= start).select(newest) for start in starts)
    return next((row.newest for rows in of_starts for row in rows.collect() if row.newest is not None), None)


def _messages(archive: StoreArchive) -> DataFrame:
    """The rows of the store that are messages, not corrupt ranges."""
    return archive.rows(archive.tables.messages).where(
        F.col("topic").isNotNull() & F.col("store_timestamp").isNotNull()
    )


def compared_columns() -> list[Column]:
    """The columns by which messages are compared, times in microseconds."""
    return [*map(F.col, _FIELDS), *(F.unix_micros(name).alias(name) for name in _TIMES)]


def compared_values(record: Record) -> dict[str, Any]:
    """The same values of a record."""
    row = message_row(record)
    return {name: row[name] for name in (*_FIELDS, *_TIMES)}


def is_equal(row: Row, values: dict[str, Any]) -> bool:
    """Whether an archived message is the record that has the values."""
    return all(row[name] == values[name] for name in (*_FIELDS, *_TIMES))


def described(identities: Iterable[StoreIdentity]) -> str:
    """The names, as arguments of the command."""
    return "; ".join(f"--cluster {i.cluster} --broker {i.broker} --store-name {i.store}" for i in identities)


def settle_name(archive: StoreArchive, rename: bool) -> int:
    """The number of renamed messages; afterwards the store's log is in the archive under its own name only."""
    if is_empty(archive.tables.messages):
        return 0
    names = names_of_log(archive)
    if not names:
        return 0
    problem = f"{archive.store}: the messages of this log are in {archive.tables.name} already, as {described(names)}"
    if len(names) > 1 or not archive.rows(archive.tables.messages).isEmpty():
        raise OptionError(
            f"{problem}. If {described([archive.identity])} is another log there, archive under a name that "
            "is said here. If it is this log, a message must be there once: keep one of the names, DELETE the rows of "
            "the others from the four tables, and archive under that name"
        )
    (name,) = names
    if not rename:
        count = archive.tables.messages.read(archive.spark).where(name.condition()).count()
        raise OptionError(
            f"{problem}: archive it under this name, or give the {count:,} messages there the new name with --rename"
        )
    new, tables = archive.identity, archive.tables
    for identity in (name, new):
        for stream in (MESSAGES_STREAM, KEYS_STREAM):
            Checkpoint(tables, identity, stream).retire()
    condition = (
        f"cluster = {sql_text(name.cluster)} AND broker = {sql_text(name.broker)} AND "
        f"(store = {sql_text(name.store)} OR startswith(store, {sql_text(name.store + LOST)}))"
    )
    store = f"concat({sql_text(new.store)}, substr(store, {len(name.store) + 1}))"
    changes = f"cluster = {sql_text(new.cluster)}, broker = {sql_text(new.broker)}, store = {store}"
    for table in (tables.snapshots, tables.segments, tables.keys):
        _update(archive.spark, table, changes, condition)
    return _update(archive.spark, tables.messages, changes, condition)


def rename_lost(archive: StoreArchive, lost: LostEnd) -> None:
    """Give the messages that the broker lost, and their keys, another name; the stream will start where they start.

    The keys of all messages must have been written before. The next run writes the segments of the lost part again.
    """
    tables, own = archive.tables, archive.identity.sql_condition()
    Checkpoint(tables, archive.identity, MESSAGES_STREAM).retire()
    changes = f"store = {sql_text(lost.name(archive.identity).store)}"
    delete = f"DELETE FROM {tables.segments.sql_name} WHERE {own} AND end_offset > {lost.start}"
    retry(CONFLICT, lambda: archive.spark.sql(delete).collect())
    for table in (tables.keys, tables.messages):
        _update(archive.spark, table, changes, f"{own} AND commit_log_offset >= {lost.start}")


def _update(spark: SparkSession, table: ArchiveTable, changes: str, condition: str) -> int:
    """The number of rows that were changed, in one commit."""
    statement = f"UPDATE {table.sql_name} SET {changes} WHERE {condition}"
    (row,) = retry(CONFLICT, lambda: spark.sql(statement).collect())
    sync_newest_commits(table)
    return int(row.num_affected_rows)
