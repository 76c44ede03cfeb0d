"""Every name that is newer than Spark 4.0, with what stands in for it there."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame


def repartition_by_id(frame: DataFrame, partitions: int, partition_id: Column) -> DataFrame:
    """Send each row to the partition that `partition_id` (0 ... `partitions` - 1) names.

    `DataFrame.repartitionById` is new in Spark 4.1; before it, a hash of the id spreads less evenly.
    """
    direct = getattr(frame, "repartitionById", None)
    if direct is None:
        return frame.repartition(partitions, partition_id)
    result: DataFrame = direct(partitions, partition_id)
    return result
