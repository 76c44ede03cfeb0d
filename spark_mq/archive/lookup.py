"""Looking messages up in an archive by key. Files without such messages are skipped."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import POSITION, ArchiveTables, StoreIdentity


def query_message(spark: SparkSession, table: str, topic: str, key: str, max_num: int = 1000) -> DataFrame:
    """The messages of a topic that have a key, in KEYS or as unique key.

    The keys table gives their offsets and times. Of the messages table, Delta then reads only the files whose
    statistics cover the topic, a time and an offset.

    Args:
        table: The table of messages, as in `archive`: a path or URI, or a name in the catalog.
        max_num: The largest number of messages; the newest ones are returned, in no order.

    Examples:
        >>> query_message(spark, "/lake/messages", "orders", "order-42").show()
    """
    tables = ArchiveTables.of(table, checkpoint="").connected(spark)
    key_rows = tables.keys.read(spark).where((F.col("topic") == topic) & (F.col("key") == key))
    # A message has a key at most twice: in KEYS, and as its unique key.
    newest = key_rows.orderBy(F.col("store_timestamp").desc()).select(*POSITION, "store_timestamp").limit(2 * max_num)
    rows = list(dict.fromkeys(newest.collect()))[:max_num]
    messages = tables.messages.read(spark)
    if not rows:
        return messages.limit(0)
    times = [row.store_timestamp for row in rows if row.store_timestamp is not None]
    condition = F.col("topic") == topic
    if len(times) == len(rows):
        condition &= F.col("store_timestamp").between(F.lit(min(times)), F.lit(max(times)))
    offsets: dict[StoreIdentity, list[int]] = {}
    for row in rows:
        offsets.setdefault(StoreIdentity.of(row), []).append(row.commit_log_offset)
    positions = [
        store.condition() & F.col("commit_log_offset").isin(store_offsets) for store, store_offsets in offsets.items()
    ]
    return messages.where(condition & reduce(Column.__or__, positions))
