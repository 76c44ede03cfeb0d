"""The figures of a store in an archive for its page: the tables of what messages mean, and sums that Spark makes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archived_store import ArchivedStore
from spark_mq.archive.archived_tables import arrow_groups, counts, host_without_port
from spark_mq.lifecycle.statistics import NOT_OF_USERS, value_ranges
from spark_mq.reporter.figures import ArchiveFigures, tables_or_problems

_COUNTED = ("rates", "skew", "hot_keys")
_TOLD = ("consumer_progress", "delayed", "transactions", "dead_letters")


def archive_figures(archived: ArchivedStore) -> ArchiveFigures:
    """The figures of one store of an archive, at the newest time of which the archive knows the store."""
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
