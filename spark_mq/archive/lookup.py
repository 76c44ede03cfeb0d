"""Looking messages up in an archive, so that files without them are skipped."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity

_PLACE = ("cluster", "broker", "store", "commit_log_offset")


def query_message(spark: SparkSession, table: str, topic: str, key: str, max_num: int = 1000) -> DataFrame:
    """The messages of `topic` that have `key` among their keys, or as unique key; at most `max_num`, the newest.

    The keys table says where they are; of the messages table only files with that topic, time and offset are read.
    `table` is that of `archive`; a name in the catalog or a path.
    """
    place = ArchiveTables.of(table, checkpoint="")
    found = place.keys.read(spark).where((F.col("topic") == topic) & (F.col("key") == key))
    # A message has a key twice at most: in KEYS, and as its unique key.
    newest = found.orderBy(F.col("store_timestamp").desc()).select(*_PLACE, "store_timestamp").limit(2 * max_num)
    rows = list(dict.fromkeys(newest.collect()))[:max_num]
    messages = place.messages.read(spark)
    if not rows:
        return messages.limit(0)
    times = [row.store_timestamp for row in rows if row.store_timestamp is not None]
    near = F.col("topic") == topic
    if len(times) == len(rows):
        near &= F.col("store_timestamp").between(F.lit(min(times)), F.lit(max(times)))
    offsets: dict[StoreIdentity, list[int]] = {}
    for row in rows:
        offsets.setdefault(StoreIdentity(row.cluster, row.broker, row.store), []).append(row.commit_log_offset)
    places = [store.condition() & F.col("commit_log_offset").isin(of_store) for store, of_store in offsets.items()]
    return messages.where(near & reduce(Column.__or__, places))
