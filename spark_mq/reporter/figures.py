"""The figures of a store for its page: what the functions of the tables and commands say, and nothing computed again.

The log is read by the model of the next boot (`store_state`), once by the check (`verify`), and once for everything
that messages say.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.archive.snapshot_files import small_files, snapshot_location
from spark_mq.errors import SparkMqError
from spark_mq.io.s3 import shown
from spark_mq.job.tasks import Tasks
from spark_mq.lifecycle import delayed, retry_copies, transactions
from spark_mq.lifecycle.consumer_progress import consumer_progress_rows
from spark_mq.lifecycle.message_arrays import MergedGroups, flags, integers
from spark_mq.lifecycle.retries import dead_letters_rows
from spark_mq.lifecycle.selected_messages import EVERYTHING, LogReadOnce, Selection
from spark_mq.lifecycle.statistics import (
    BY_QUEUE,
    BY_TAGS,
    NOT_OF_USERS,
    delay_millis,
    hot_keys,
    key_sums,
    minute_sums,
    rates,
    skew,
    value_ranges,
    value_sums,
)
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.store_paths import COMMIT_LOG
from spark_mq.store.log.log_range import LogRange
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.message_store import MessageStore
from spark_mq.store.metadata_tables import queues
from spark_mq.store.retention import Retention, moment_of, retention
from spark_mq.store.store_state import LogState, StoreState, store_state
from spark_mq.tables.all_tables import TABLES
from spark_mq.verifier.check import VerifyRequest
from spark_mq.verifier.codes import Severity
from spark_mq.verifier.result import VerifyReport
from spark_mq.verifier.verify import verify_with

if TYPE_CHECKING:
    from pyspark.sql import Column

    from spark_mq.archive.archived_store import ArchivedStore

CELLS = 200
"""The parts into which the log is divided for the map of damage."""
_COUNTED = ("rates", "skew", "hot_keys")
_TOLD = ("consumer_progress", "delayed", "transactions", "dead_letters")
_PLACES = pa.schema(
    [
        *((name, pa.string()) for name in ("code", "severity", "file", "topic")),
        ("queue_id", pa.int32()),
        ("cell", pa.int64()),
    ]
)
"""Where findings are counted together."""


_PRODUCERS: dict[str, list[Any]] = {"topic": [], "born_host": [], "count": [], "store_size": []}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What the messages of a store say, whether they are in its files or in an archive.

    Attributes:
        at: The time to which ages refer, in milliseconds.
        tables: The rows of tables, by the table's name; of `delays` and `sizes`, which `value_ranges` describes;
            and of `producers`: messages and bytes of topics and born hosts.
        sizes: How many messages of users' topics have which size: columns `value` and `count`.
        problems: Why a table is empty although the store may have rows, by the table's name.
    """

    store: str
    at: int
    tables: Mapping[str, pa.Table]
    sizes: pa.Table
    problems: Mapping[str, str] = field(default_factory=dict)

    def open(self, name: str, *states: str) -> list[dict[str, Any]]:
        """The rows of a table that have one of the states."""
        rows: list[dict[str, Any]] = self.tables[name].to_pylist()
        return [row for row in rows if row["state"] in states]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures that are kept of each run, and compared among stores; None if one is not known."""
        lags, known = self.tables["consumer_progress"], self.problems.keys().isdisjoint
        return {
            "store": self.store,
            "at": self.at,
            **dict.fromkeys(("verdict", "messages", "log_bytes", "disk_bytes", "retained_millis")),
            "lag": pc.sum(lags["lag"]).as_py() if known({"consumer_progress"}) else None,
            "lag_millis": pc.max(lags["lag_millis"]).as_py() if known({"consumer_progress"}) else None,
            "overdue": len(self.open("delayed", "OVERDUE")) if known({"delayed"}) else None,
            "pending": len(self.open("transactions", "PENDING")) if known({"transactions"}) else None,
            "dead_letters": self.tables["dead_letters"].num_rows if known({"dead_letters"}) else None,
            **dict.fromkeys(("errors", "lost_at_boot")),
        }


@dataclass(frozen=True, kw_only=True)
class StoreFigures(Figures):
    """What is known of a store directory.

    Attributes:
        checked_at: When the check began, in milliseconds.
        damage: The findings of the check, counted by code and place: columns of `_PLACES`, and `count`. `cell` is the
            part of the log for findings of the log, else NULL.
        archived_to: The commit log offset up to which the store is archived; None if that is not known.
    """

    checked_at: int
    state: StoreState
    check: VerifyReport
    damage: pa.Table
    retention: Retention
    archive: str | None = None
    archived_to: int | None = None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures that are kept of each run, and compared among stores; None if one is not known."""
        boots, are_known = self.state.boots, all(boot.is_full for boot in self.state.boots)
        first = min((one for one in self.tables["queues"]["first_store_timestamp"].to_pylist() if one), default=None)
        return super().summary | {
            "verdict": self.check.verdict,
            "messages": self.check.messages,
            "log_bytes": self.check.log_bytes,
            "disk_bytes": sum(use.size for use in self.state.disk),
            "retained_millis": None if first is None else max(self.at - round(first.timestamp() * 1000), 0),
            "errors": self.check.count(Severity.ERROR),
            "lost_at_boot": max((one.lost + one.cut_messages for one in boots), default=None) if are_known else None,
        }


@dataclass(frozen=True, kw_only=True)
class ArchiveFigures(Figures):
    """What is known of a store in an archive.

    Attributes:
        archive: The archive's table of messages.
        names: Cluster, broker and store, as the rows of the archive name them.
        log: The part of the log that is archived.
        damage: What of it is damaged or missing.
        newest: When the newest archived message was stored, in milliseconds.
        snapshot: When the newest snapshot of `config/` was made, in milliseconds; None without one.
        lost_end: Why messages at the end of the log can be missing; None if they are there.
    """

    archive: str
    names: Mapping[str, str]
    log: LogRange
    damage: Sequence[CorruptRange]
    newest: int
    snapshot: int | None
    lost_end: str | None

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The figures that are kept of each run, and compared among stores; None if one is not known."""
        return super().summary | {
            "messages": sum(self.tables["rates"]["message_count"].to_pylist()),
            "log_bytes": self.log.size,
            "retained_millis": None if self.oldest is None else max(self.at - self.oldest, 0),
            "errors": len(self.damage),
        }

    @property
    def oldest(self) -> int | None:
        """The first minute in which an archived message was stored, in milliseconds."""
        first = pc.min(self.tables["rates"]["minute"]).cast(pa.timestamp("ms", "UTC"))
        return first.value if first.is_valid else None


def store_figures(
    path: str,
    tasks: Tasks,
    at: int | None = None,
    broker_conf: str | None = None,
    archive: str | None = None,
    broker_version: str | None = None,
) -> StoreFigures:
    """The figures of the store at `path`. Nothing in the store is changed.

    Args:
        path: The store directory, a path or a URI.
        tasks: Where the check runs.
        at: The time to which ages refer, in milliseconds; by default now.
        broker_conf: The file of the broker's settings.
        archive: An archive: the figures say what of the store is not there yet.
        broker_version: The version of the broker that starts next; by default, all that the files allow.
    """
    moment, conf = moment_of(at), BrokerConf.of(broker_conf)
    request, started = VerifyRequest.of(path, broker_conf), moment_of(None)
    state = store_state(path, broker_version, broker_conf, full=True)
    check, damage = _checked(request, tasks, state.log)
    problems: dict[str, str] = {}
    with MessageStore(path, broker_conf=broker_conf) as store:
        tables = dict(_tables(store, moment, conf, problems))
        sizes = tables.pop("size_counts")
        return StoreFigures(
            store=shown(str(store.location)),
            at=moment,
            tables=tables,
            sizes=sizes,
            problems=problems,
            checked_at=started,
            state=state,
            check=check,
            damage=damage,
            retention=retention(path, None, moment, broker_conf, by_topic=True),
            archive=archive,
            archived_to=None if archive is None else _archived_end(store, archive, conf),
        )


def _archived_end(store: MessageStore, archive: str, conf: BrokerConf) -> int | None:
    from spark_mq.archive.last_run import archived_end  # needs the package pyspark, as an archive does

    return archived_end(store, archive, conf)


def _tables(store: MessageStore, at: int, conf: BrokerConf, problems: dict[str, str]) -> Iterator[tuple[str, pa.Table]]:
    delays = value_sums(("born_timestamp_millis", "store_timestamp_millis"), delay_millis)
    sizes = value_sums(("store_size",), lambda batch: batch["store_size"].cast(pa.int64()))
    sums = (minute_sums(BY_TAGS), minute_sums(BY_QUEUE, "born_host"), key_sums(), delays, sizes)

    def add(batch: pa.RecordBatch) -> None:
        for one in sums:
            one.add(batch)

    columns = tuple(dict.fromkeys(name for one in sums for name in one.columns))
    small = {row["file"]: row["content"] for row in small_files(store.location) if row["content"] is not None}
    before = snapshot_location(small, str(store.location))
    selections = (delayed.RECORDS, transactions.RECORDS, transactions.OPS, retry_copies.RECORDS)
    log = LogReadOnce(store, before, selections, Selection(EVERYTHING, columns), add)
    by_rates, by_skew, by_key, by_delay, by_size = (one.groups.result() for one in sums)
    yield "rates", rates(by_rates)
    yield "skew", skew(by_skew)
    yield "producers", pa.table(_PRODUCERS) if by_skew is None else by_skew.select(list(_PRODUCERS))
    yield "hot_keys", hot_keys(by_key)
    yield "delays", value_ranges(by_delay)
    yield "sizes", value_ranges(by_size)
    yield "size_counts", pa.table({"value": [], "count": []}) if by_size is None else by_size.select(["value", "count"])
    yield from tables_or_problems(
        problems,
        {
            "queues": lambda: queues(store),
            "consumer_progress": lambda: consumer_progress_rows(store, at=at),
            "delayed": lambda: delayed.delayed_rows(log, at, conf),
            "transactions": lambda: transactions.transaction_rows(log, at, conf),
            "dead_letters": lambda: dead_letters_rows(log),
        },
    )


def tables_or_problems(
    problems: dict[str, str], rows: Mapping[str, Callable[[], pa.Table]]
) -> Iterator[tuple[str, pa.Table]]:
    """The rows of tables; one that cannot be read is empty, and `problems` gets the reason."""
    for name, read in rows.items():
        try:
            yield name, read()
        except SparkMqError as error:  # such as a file of config/ that cannot be read: the other figures are right
            problems[name] = str(error)
            yield name, TABLES[name].schema.empty_table()


def _checked(request: VerifyRequest, tasks: Tasks, log: LogState) -> tuple[VerifyReport, pa.Table]:
    """The report of the check, and its findings, counted by code and place."""
    counts = MergedGroups(_PLACES.names)
    result = verify_with(tasks, request)
    try:
        for batch in result.batches():
            cells = (integers(batch["commit_log_offset"], log.start) - log.start) * CELLS // max(log.end - log.start, 1)
            is_of_log = flags(pc.starts_with(batch["file"], COMMIT_LOG))
            cell = pa.array(np.clip(cells, 0, CELLS - 1), mask=~is_of_log)
            counts.add(pa.table(batch).append_column("cell", cell).select(_PLACES.names))
    finally:
        result.close()
    return result.report, counts.result() or _PLACES.append(pa.field("count", pa.int64())).empty_table()


def archive_figures(archived: ArchivedStore) -> ArchiveFigures:
    """The figures of one store of an archive, at the newest time of which the archive knows the store.

    Its sums are made by Spark.
    """
    from pyspark.sql import functions as F  # noqa: N812

    from spark_mq.archive.archived_tables import arrow_groups, counts, host_without_port

    source, problems = archived.source, dict[str, str]()
    rows = source.messages.where(F.col("topic").isNotNull())
    of_users = rows.where(~F.col("topic").rlike(NOT_OF_USERS))

    def values(value: Column) -> pa.Table | None:
        return arrow_groups(of_users.groupBy("topic", value.alias("value")).agg(F.count("*").alias("count")))

    born, stored = source.column("born_timestamp_millis"), source.column("store_timestamp_millis")
    sizes = values(F.col("store_size").cast("long"))
    producers = arrow_groups(rows.groupBy("topic", host_without_port()).agg(*counts()))
    read: dict[str, Callable[[], pa.Table]] = {name: partial(archived.table, name) for name in _TOLD}
    tables = {name: archived.table(name) for name in _COUNTED} | dict(tables_or_problems(problems, read))
    tables |= {
        "producers": pa.table({"topic": [], "born_host": []}) if producers is None else producers,
        "delays": value_ranges(values(F.greatest(F.lit(0), stored - born))),
        "sizes": value_ranges(sizes),
    }
    names, cover = asdict(source.archive.identity), source.cover
    return ArchiveFigures(
        store=f"{source.archive.tables.name} ({', '.join(names.values())})",
        at=source.known_until,
        tables=tables,
        sizes=pa.table({"value": [], "count": []}) if sizes is None else sizes.select(["value", "count"]),
        problems=problems,
        archive=source.archive.tables.name,
        names=names,
        log=cover.log,
        damage=cover.damage,
        newest=cover.newest_timestamp,
        snapshot=source.snapshot.timestamp,
        lost_end=source.lost_end(cover.newest_timestamp),
    )
