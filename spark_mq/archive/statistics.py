"""The tables that count, out of an archive: Spark counts, and the driver gets the counts."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_source import ArchiveSource
from spark_mq.format.message_schema import TIMESTAMP
from spark_mq.format.system_topic import is_system_topic
from spark_mq.lifecycle.statistics import (
    ALL_KEYS,
    DUPLICATES_COLUMNS,
    DUPLICATES_PROPERTIES,
    MOST_KEYS,
    duplicates,
    hot_keys,
    rates,
    skew,
)

_MINUTE_MILLIS = 60_000


def rates_of(source: ArchiveSource, topic: str | None = None) -> pa.Table:
    """The rows of table `rates`; see `lifecycle.statistics.rates_rows`."""
    rows = _messages(source, topic)
    return rates(_arrow(rows.groupBy("topic", "tags", _minute().alias("minute")).agg(*_counts())))


def skew_of(source: ArchiveSource, topic: str | None = None) -> pa.Table:
    """The rows of table `skew`; see `lifecycle.statistics.skew_rows`."""
    host = F.regexp_replace("born_host", ":[0-9]+$", "").alias("born_host")
    by = ("topic", "queue_id", _minute().alias("minute"), host)
    return skew(_arrow(_messages(source, topic).groupBy(*by).agg(*_counts())))


def hot_keys_of(source: ArchiveSource, topic: str | None = None, most_keys: int | None = None) -> pa.Table:
    """The rows of table `hot_keys`; see `lifecycle.statistics.hot_keys_rows`."""
    rows = _messages(source, topic)
    if topic is None:
        topics = [row.topic for row in rows.select("topic").distinct().collect()]
        rows = rows.where(F.col("topic").isin([name for name in topics if not is_system_topic(name)]))
    keys = rows.select("topic", "store_size", "store_timestamp", F.explode(F.array_distinct("keys")).alias("key"))
    times = (
        F.min("store_timestamp").alias("store_timestamp_min"),
        F.max("store_timestamp").alias("store_timestamp_max"),
    )
    groups = keys.groupBy("topic", "key").agg(*_counts(), *times)
    most_keys = MOST_KEYS if most_keys is None else most_keys
    if most_keys == 0:
        return hot_keys(_arrow(groups), most_keys)
    most = [
        groups.orderBy(*(F.desc(name) for name in order), "topic", "key").limit(most_keys)
        for order in (("count", "store_size"), ("store_size", "count"))
    ]
    table = hot_keys(_arrow(most[0].union(most[1]).distinct()), most_keys)
    return table.replace_schema_metadata({ALL_KEYS: str(groups.count())})


def duplicates_of(source: ArchiveSource) -> pa.Table:
    """The rows of table `duplicates`; see `lifecycle.statistics.duplicates_rows`.

    Spark finds the unique keys that several messages have, and the driver gets only these messages.
    """
    rows = _messages(source, None).where(F.col("unique_key").isNotNull())
    repeated = rows.groupBy("unique_key").count().where(F.col("count") > 1).select("unique_key")
    columns = [F.col(name) for name in DUPLICATES_COLUMNS]
    columns += [F.col("properties")[name].alias(name) for name in DUPLICATES_PROPERTIES]
    found = rows.join(repeated, "unique_key", "left_semi").select(*columns).toArrow()
    return duplicates(found.sort_by("commit_log_offset"))


def _messages(source: ArchiveSource, topic: str | None) -> DataFrame:
    """The messages of one topic, or of all; corrupt ranges have no topic."""
    return source.messages.where(F.col("topic").isNotNull() if topic is None else F.col("topic") == topic)


def _counts() -> tuple[Column, Column]:
    return F.sum("store_size").alias("store_size"), F.count("*").alias("count")


def _minute() -> Column:
    """The beginning of the minute of the store time, in UTC."""
    millis = F.unix_millis("store_timestamp")
    return F.timestamp_millis(millis - F.pmod(millis, F.lit(_MINUTE_MILLIS)))


def _arrow(groups: DataFrame) -> pa.Table | None:
    """The groups on the driver, with times of the package's type; None if there is none."""
    found = groups.toArrow()
    for number, field in enumerate(found.schema):
        if pa.types.is_timestamp(field.type):
            found = found.set_column(number, field.name, found[field.name].cast(TIMESTAMP))
    return found if found.num_rows else None
