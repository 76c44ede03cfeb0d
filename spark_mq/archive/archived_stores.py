"""The stores that an archive has, and the choice of one of them."""

from __future__ import annotations

import dataclasses

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import IDENTITY, ArchiveTables, StoreIdentity
from spark_mq.archive.archived_log import described
from spark_mq.errors import OptionError


def archived_stores(spark: SparkSession, tables: ArchiveTables) -> list[StoreIdentity]:
    """The names of the stores in an archive, sorted.

    Args:
        spark: A session with Delta tables.
    """
    found: set[StoreIdentity] = set()
    for table in (tables.segments, tables.snapshots):
        try:
            rows = table.read(spark).select(*IDENTITY).distinct().collect()
        except AnalysisException as error:
            raise OptionError(
                f"{tables.name} is neither a store directory nor an archive (spark-mq archive): table {table.name} "
                f"cannot be read: {str(error).partition(chr(10))[0]}"
            ) from error
        found |= {StoreIdentity(row.cluster, row.broker, row.store) for row in rows}
    return sorted(found, key=dataclasses.astuple)


def choose_store(
    spark: SparkSession, tables: ArchiveTables, cluster: str | None, broker: str | None, store_name: str | None
) -> StoreIdentity:
    """The one store of an archive that has these names.

    The names of a lost end of a log (`archive.archived_log.LOST`) count only if all three are given.

    Args:
        spark: A session with Delta tables.
        cluster: The cluster; None for any.
        broker: The broker; None for any.
        store_name: The store's name in the archive; None for any.
    """
    given = dict(zip(IDENTITY, (cluster, broker, store_name), strict=True))
    stores = archived_stores(spark, tables)
    chosen = [store for store in stores if _matches(store, given)]
    if len(chosen) == 1:
        return chosen[0]
    if cluster is not None and broker is not None and store_name is not None:
        identity = StoreIdentity(cluster, broker, store_name)
        if not tables.messages.read(spark).where(identity.condition()).isEmpty():
            return identity
    if not stores:
        raise OptionError(f"{tables.name} has no messages of a store")
    if chosen:
        raise OptionError(
            f"{tables.name} has messages of {len(chosen)} stores: choose one of them ({described(chosen)})"
        )
    names = (f"{name} {value}" for name, value in given.items() if value is not None)
    raise OptionError(f"{tables.name} has no store with {', '.join(names)}; it has {described(stores)}")


def _matches(store: StoreIdentity, given: dict[str, str | None]) -> bool:
    return all(value is None or getattr(store, name) == value for name, value in given.items())
