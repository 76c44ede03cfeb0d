"""SQL over stores, running clusters and archives, run by Spark: `spark_mq.sql`, and the archives that it can name."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from spark_mq.archive.archive_tables import IDENTITY, KEYS, MESSAGES, SEGMENTS, SNAPSHOTS, ArchiveTables
from spark_mq.query.catalog import Store, StoreRead, table_columns
from spark_mq.query.sql import Arguments, run_statement
from spark_mq.query.table_names import NamedTables, may_read_of
from spark_mq.tables.all_tables import ARCHIVED_TABLES

_LAYOUTS = {"messages": MESSAGES, "keys": KEYS, "segments": SEGMENTS, "snapshots": SNAPSHOTS}
VIEWS = "`spark_mq_"
"""How the names of views of what archived messages mean begin, as SQL text."""


class Archives:
    """The archives that statements can name; `tables` has the names of their tables for Spark."""

    def __init__(self, archives: Mapping[str, str], broker_conf: str | None = None, is_alone: bool = False) -> None:
        """Make nothing yet.

        Args:
            archives: By name, the archive's table of messages.
            broker_conf: The broker's settings file, for what messages mean.
            is_alone: Whether there is no store, so that tables of the only archive need not be qualified.
        """
        self.tables: NamedTables = {}
        for name, table in archives.items():
            found = ArchiveTables.of(table, checkpoint="")
            views = {told: _view_name(name, told) for told in ARCHIVED_TABLES}
            self.tables[name.lower()] = {each: getattr(found, each).sql_name for each in _LAYOUTS} | views
        self.archives = archives
        self._broker_conf = broker_conf
        self._is_alone = is_alone and len(archives) == 1

    def prepare(self, spark: SparkSession, statement: str) -> None:
        """Create the views that a statement may name.

        Each time: the archive can have grown, and a view keeps the plan of its first query.
        """
        for name, archive in self.archives.items():
            ArchiveTables.of(archive, checkpoint="").connected(spark)
            owners = [name.lower(), *([""] if self._is_alone else [])]
            read = {table for owner in owners for table in may_read_of(statement, owner, ARCHIVED_TABLES)}
            for table in sorted(read):
                from spark_mq.archive.archived_store import create_view

                create_view(spark, archive, table, _view_name(name, table)[1:-1], self._broker_conf)

    def load(self, read: StoreRead, spark: SparkSession) -> DataFrame:
        """The rows of a reference to a store's table, or to `history`."""
        if not read.reference.is_history:
            return read.load(spark)
        from spark_mq.archive.history import load_history

        (archive,) = self.archives.values()
        return load_history(spark, archive, read)


def archive_columns(table: str) -> list[str]:
    """The columns of a table of an archive."""
    if table in ARCHIVED_TABLES:
        return [*IDENTITY, *table_columns(table).default]
    return list(_LAYOUTS[table].schema.names)


def _view_name(archive: str, table: str) -> str:
    name = f"{archive.lower()}_{table}".replace("`", "``")
    return f"{VIEWS}{name}`"


def sql(
    spark: SparkSession,
    query: str,
    args: Arguments | None = None,
    *,
    stores: Mapping[str, Store],
    archives: Mapping[str, str] | None = None,
) -> DataFrame:
    """The result of a query over stores: `prod.messages` is the table `messages` of the store named `prod`.

    Each table is read as far as the query needs it. Everything else is Spark's: functions, views, tables of other
    sources, settings. The name of a store takes precedence over a database of the same name. With one store, `messages`
    alone is a table of that store, unless the query or the session has a table or view of this name. With several
    stores, `all.messages` is the union of their tables, with columns cluster, broker and store (the name) before the
    others. A store can also be several itself: a pattern such as `/data/broker-*`, or a mapping with option `stores`.
    It can be a running cluster, `rocketmq://namesrv:9876`, too, which has fewer tables, also with columns cluster,
    broker and store (the broker's address).

    With one store and one archive, `history` has each message of both once: those of the archive, and from its end on
    those of the store, or of the brokers of the cluster. The session needs Delta Lake for archives.

    `SHOW TABLES` lists the tables of the stores and those of the session's current database. `SHOW TABLES IN prod` and
    `DESCRIBE prod.messages` are answered without reading the store.

    A statement that names no store's table goes to Spark unchanged, whatever its kind. A statement that names one must
    be a query, `EXPLAIN` of a query, `INSERT`, or `CREATE TABLE ... AS`. Columns that `messages` has only if a schema
    names them (`store_timestamp_millis`, ...) can be named in the query, and are not in `*`.

    Args:
        spark: The session that runs the query.
        query: One statement of Spark SQL.
        args: The values of parameters, as `spark.sql` takes them.
        stores: By name, the path or URI of a store, or a mapping of read options (`path`, `mode`, `brokerConf`, ...);
            each table gets the options that it has.
        archives: By name, the TABLE of `spark-mq archive`: a path, or a name in the catalog. The tables of `old` are
            `old.messages`, `old.keys`, `old.segments` and `old.snapshots`, and those of what messages mean.

    Returns:
        The DataFrame that `spark.sql` returns for the query.

    Raises:
        OptionError: The parser does not know the statement (Spark may know more statements), a store has no path or an
            unknown option, or neither the stores nor Spark have a table whose name resembles that of a store's table;
            or `history` is asked for, and the archive has no store of the cluster. Other errors that Spark raises are
            passed on.
        LogCutError: `history` is asked for, and the log lacks messages that the archive has.

    Examples:
        >>> stores = {"prod": "/data/prod", "dev": {"path": "/data/dev", "mode": "FAILFAST"}}
        >>> query = "SELECT count(*) FROM dev.messages WHERE topic = :topic"
        >>> spark_mq.sql(spark, query, {"topic": "orders"}, stores=stores).show()
        >>> stores, archives = {"prod": "rocketmq://namesrv:9876"}, {"old": "/lake/messages"}
        >>> query = "SELECT * FROM history WHERE topic = 'orders'"
        >>> spark_mq.sql(spark, query, stores=stores, archives=archives).show()
    """
    named = Archives(archives or {}, is_alone=not stores)
    named.prepare(spark, query)
    return run_statement(spark, query, args, stores, named.tables, named.load)
