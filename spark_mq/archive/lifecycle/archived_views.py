"""The tables of what archived messages mean as views of Spark, of all stores of an archive."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import ArchiveTables
from spark_mq.archive.archived_stores import archived_stores
from spark_mq.archive.lifecycle.archive_source import ArchiveSource
from spark_mq.archive.lifecycle.archived_store import ArchivedStore
from spark_mq.errors import OptionError
from spark_mq.store.config.broker_conf import BrokerConf

IDENTITY = ("cluster", "broker", "store")
"""The first columns of such a view: the names of the store in the archive."""


def create_view(spark: SparkSession, archive: str, table: str, view: str, broker_conf: str | None = None) -> None:
    """Create a temporary view of a table of what messages mean, or create it again.

    The columns are `IDENTITY`, and then those of the table. The rows are those of all stores of the archive, as they
    are now: the driver gets them.

    Args:
        spark: A session with Delta tables.
        archive: The archive's table of messages: a path or URI, or a name in the catalog.
        table: The name of the table, such as `transactions`.
        view: The name of the view.
        broker_conf: The file of the settings of the brokers.

    Raises:
        OptionError: The table is not an archive, or has no messages of a store.
        CorruptLogError: Two stores were archived under one name.
    """
    tables, conf = ArchiveTables.of(archive, checkpoint="").connected(spark), BrokerConf.of(broker_conf)
    parts = []
    for identity in archived_stores(spark, tables):
        rows = ArchivedStore(ArchiveSource(spark, tables, identity, conf)).table(table)
        for place, name in enumerate(IDENTITY):
            value = pa.scalar(getattr(identity, name), pa.string())
            rows = rows.add_column(place, name, pa.repeat(value, rows.num_rows))
        parts.append(rows)
    if not parts:
        raise OptionError(f"{tables.name} has no messages of a store")
    spark.createDataFrame(pa.concat_tables(parts)).createOrReplaceTempView(view)
