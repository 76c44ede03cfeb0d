"""Whether archived messages are those of a store's log: the same log under another name, and what a broker lost.

A message of the archive is that of the log if the fields below are equal. Among them are the broker's address and the
store time in milliseconds, so messages of two brokers always differ, while a replica has the bytes of its master: it is
the same log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import StoreIdentity
from spark_mq.archive.store_archive import StoreArchive
from spark_mq.archive.tables import MESSAGES
from spark_mq.errors import CorruptLogError
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
_MOST_BASES = 16
_HALVES = 10


def names_of_log(archive: StoreArchive) -> list[StoreIdentity]:
    """The names, other than its own, under which messages of this store's log are in the archive.

    Some dozens of messages are compared: the first of segments, the last one, and more of them towards the end, for an
    archive may have let go of what is old. Segments that expired since are not needed.
    """
    samples = {record.commit_log_offset: _values(record) for record in sample_records(archive.store)}
    if not samples:
        return []
    times = [EPOCH + timedelta(microseconds=values["store_timestamp"]) for values in samples.values()]
    rows = archive.place.messages.read(archive.spark)
    # Files are clustered by topic and time: this reads few.
    near = (
        F.col("topic").isin(sorted({values["topic"] for values in samples.values()}))
        & F.col("store_timestamp").isin(times)
        & F.col("commit_log_offset").isin(list(samples))
        & ~archive.identity.condition()
        & ~F.col("store").contains(LOST)
    )
    found = {
        StoreIdentity(row.cluster, row.broker, row.store)
        for row in rows.where(near).select("cluster", "broker", "store", *_compared()).collect()
        if _is_equal(row, samples[row.commit_log_offset])
    }
    return sorted(found, key=lambda identity: (identity.cluster, identity.broker, identity.store))


def sample_records(store: Location) -> list[Record]:
    """Records of the log, spread over it and denser towards its end; none that a row of a table cannot hold."""
    from spark_mq.store.log.boundaries import last_record, next_boundary

    with MessageStore(store.uri) as opened:
        start, end = opened.get_min_phy_offset(), opened.get_max_phy_offset()
        if end <= start:
            return []
        bases = [segment.base for segment in opened.records.segments if segment.base < end]
        places = set(bases[:: len(bases) // _MOST_BASES + 1])
        places |= {next_boundary(store, end - ((end - start) >> halves), end) for halves in range(_HALVES)}
        last = last_record(store, start, end)
        places |= set() if last is None else {last}
        records = []
        for place in sorted(places - {end}):
            try:
                records.append(opened.records.record(place))
            except CorruptLogError:  # a blank, or damage
                continue
    return [record for record in records if _values(record)["store_timestamp"] is not None]


LOST = "#lost-"
"""In column `store`, before the place and the time of the end of a log that the broker lost."""


@dataclass(frozen=True)
class LostEnd:
    """Archived messages that are no longer in the log, from commit log offset `start` on."""

    start: int
    newest: int
    """The store time of the last of them, milliseconds."""
    count: int

    def name(self, identity: StoreIdentity) -> StoreIdentity:
        """What their rows are called. It follows from them, so a run that is tried again calls them the same."""
        return StoreIdentity(identity.cluster, identity.broker, f"{identity.store}{LOST}{self.start}-{self.newest}")


def find_lost_end(archive: StoreArchive) -> LostEnd | None:
    """What the broker lost of the messages that are archived; None if the last one is in the log, or has expired."""
    with MessageStore(archive.store.uri) as store:
        log_start, log_end = store.get_min_phy_offset(), store.get_max_phy_offset()
        newest = _newest_row(archive, [store.records.segments[-1].base] if store.records.segments else [], log_start)
        if newest is None or log_end < 0:
            return None
        if newest.commit_log_offset + newest.store_size <= log_end:
            try:
                if _is_equal(newest, _values(store.records.record(newest.commit_log_offset))):
                    return None
            except CorruptLogError:
                pass
    log = archive.spark.read.format("rocketmq").schema(_schema())
    options = {"startOffset": str(log_start), "endOffset": str(newest.commit_log_offset)}
    in_log = log.options(**options).load(archive.store.uri)
    rows = _messages(archive).where(F.col("commit_log_offset") >= log_start)
    equal = [rows[name].eqNullSafe(in_log[name]) for name in (*_FIELDS, *_TIMES)]
    gone = rows.join(in_log, equal, "left_anti")
    first = gone.agg(F.min("commit_log_offset").alias("start")).collect()[0].start
    if first is None:
        return None
    count = _messages(archive).where(F.col("commit_log_offset") >= first).count()
    return LostEnd(first, newest.store_timestamp // 1000, count)


def _schema() -> str:
    types = {field.name: field.dataType.simpleString() for field in MESSAGES.columns()}
    return ", ".join(f"{name} {types[name]}" for name in (*_FIELDS, *_TIMES))


def _newest_row(archive: StoreArchive, starts: Sequence[int], log_start: int) -> Row | None:
    """The last archived message of what the log still has, looked for from each of the offsets on."""
    for start in (*starts, log_start):
        rows = _messages(archive).where(F.col("commit_log_offset") >= start)
        newest = F.max_by(F.struct(*_compared()), "commit_log_offset").alias("newest")
        (row,) = rows.select(newest).collect()
        if row.newest is not None:
            found: Row = row.newest
            return found
    return None


def _messages(archive: StoreArchive) -> DataFrame:
    """The rows of the store that are messages, not damage."""
    return archive.rows(archive.place.messages).where(F.col("topic").isNotNull() & F.col("store_timestamp").isNotNull())


def _compared() -> list[Column]:
    return [*map(F.col, _FIELDS), *(F.unix_micros(name).alias(name) for name in _TIMES)]


def _values(record: Record) -> dict[str, Any]:
    row = message_row(record)
    return {name: row[name] for name in (*_FIELDS, *_TIMES)}


def _is_equal(row: Row, values: dict[str, Any]) -> bool:
    return all(row[name] == values[name] for name in (*_FIELDS, *_TIMES))


def described(identities: Iterable[StoreIdentity]) -> str:
    """Names as the command's arguments say them."""
    return "; ".join(f"--cluster {i.cluster} --broker {i.broker} --store-name {i.store}" for i in identities)
