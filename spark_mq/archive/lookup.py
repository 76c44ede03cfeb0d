"""Looking messages up in an archive, so that files without them are skipped."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_mq.archive.place import ArchivePlace

_PLACE = ("cluster", "broker", "store", "commit_log_offset")


def query_message(spark: SparkSession, table: str, topic: str, key: str, max_num: int = 1000) -> DataFrame:
    """The messages of `topic` that have `key` among their keys, or as unique key; at most `max_num`, the newest.

    The keys table says where they are; of the messages table only files with that topic, time and offset are read.
    `table` is that of `archive`; a name in the catalog or a path.
    """
    place = ArchivePlace.of(table, checkpoint="")
    found = place.keys.read(spark).where((F.col("topic") == topic) & (F.col("key") == key))
    newest = found.orderBy(F.col("store_timestamp").desc()).select(*_PLACE, "store_timestamp").limit(max_num)
    rows = newest.distinct().collect()
    messages = place.messages.read(spark)
    if not rows:
        return messages.limit(0)
    times = [row.store_timestamp for row in rows if row.store_timestamp is not None]
    near = (F.col("topic") == topic) & F.col("commit_log_offset").isin([row.commit_log_offset for row in rows])
    if len(times) == len(rows):
        near &= F.col("store_timestamp").between(F.lit(min(times)), F.lit(max(times)))
    places = [F.struct(*(F.lit(row[name]).alias(name) for name in _PLACE)) for row in rows]
    return messages.where(near & F.struct(*_PLACE).isin(*places))
