"""Archives in `spark-mq sql`: their tables under a name, what their messages mean, and the view `history`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.archived_log import described, names_of_log
from spark_mq.cli.spark import is_on_server
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
    from spark_mq.query.table_names import NamedTables

_NOT_IN_TEXT = ("'", '"', "\\", "`", "\n", ";", "${")
"""Texts that would end a quoted text or a statement of `history.sql`, or begin a variable."""
_OTHER_VIEWS = ("consumer_offsets",)
"""Views that the file creates for the recipes, with names of a store's tables."""
VIEWS = "`spark_mq_"
"""How the names of views of what archived messages mean begin, as SQL text."""
_HISTORY = ("history", "history_archive", "history_store")


def identity_in_archive(spark: SparkSession, store: str, tables: ArchiveTables) -> StoreIdentity:
    """The name of a store in an archive, which is recognized by its messages.

    A store that is not archived gets the names that `spark-mq archive` writes by default.

    Args:
        spark: A session with Delta tables.
    """
    location = Location.resolve(store)
    nobody = StoreIdentity("", "", "")
    identities = names_of_log(StoreArchive(spark, location, tables, nobody))
    if len(identities) > 1:
        raise OptionError(
            f"{location} is in {tables.name} under several names ({described(identities)}): each of its messages would "
            "be in history several times"
        )
    return identities[0] if identities else StoreIdentity(DEFAULT_CLUSTER, DEFAULT_BROKER, str(location))


def create_history(spark: SparkSession, store: str, archive: ArchiveTable, identity: StoreIdentity) -> None:
    """Create the temporary views `history`, `history_archive` and `history_store`, or create them again.

    Args:
        spark: A session with Delta tables and the `rocketmq` source.
        identity: The name of the store in the archive.
    """
    values = {
        "store": store,
        "cluster": identity.cluster,
        "broker": identity.broker,
        "store_name": identity.store,
    }
    for name, value in values.items():
        if any(text in value for text in _NOT_IN_TEXT):
            raise OptionError(f"history: {name} {value!r} has a quote or another character that ends a text in SQL")
    text = files("spark_mq.archive").joinpath("history.sql").read_text("utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    for name, value in {**values, "archive": archive.sql_name}.items():
        code = code.replace(f"${{{name}}}", value)
    for statement in filter(str.strip, code.split(";")):
        spark.sql(statement)
    for view in _OTHER_VIEWS:
        spark.catalog.dropTempView(view)


def archive_tables(archives: Mapping[str, str]) -> NamedTables:
    """By name of an archive, and name of its table: the table's name for Spark.

    Args:
        archives: By name: the archive's table of messages, a path or a name in Spark's catalog.
    """
    named = {}
    for name, table in archives.items():
        tables = _tables(table)
        is_local_path = tables.is_path and "://" not in table and not is_on_server()
        if is_local_path and not os.path.isdir(f"{tables.name}/_delta_log"):
            raise OptionError(
                f"--archive {name}={table} is not a Delta table: give the TABLE of `spark-mq archive STORE TABLE`"
            )
        named[name.lower()] = {
            "messages": tables.messages.sql_name,
            "keys": tables.keys.sql_name,
            "segments": tables.segments.sql_name,
            "snapshots": tables.snapshots.sql_name,
            **{table: _view_name(name, table) for table in _meanings()},
        }
    return named


def _meanings() -> tuple[str, ...]:
    """The names of the tables of what archived messages mean."""
    from spark_mq.archive.archived_store import TABLE_NAMES

    return TABLE_NAMES


def _view_name(archive: str, table: str) -> str:
    """The name of the view of a table of what archived messages mean, as SQL text."""
    name = f"{archive.lower()}_{table}".replace("`", "``")
    return f"{VIEWS}{name}`"


def archive_columns(table: str) -> list[str]:
    """The columns of a table of an archive."""
    from spark_mq.archive.archive_tables import KEYS, MESSAGES, SEGMENTS, SNAPSHOTS

    if table in _meanings():
        from spark_mq.archive.archive_tables import IDENTITY
        from spark_mq.query.catalog import table_columns

        return [*IDENTITY, *table_columns(table).default]
    layouts = {"messages": MESSAGES, "keys": KEYS, "segments": SEGMENTS, "snapshots": SNAPSHOTS}
    return list(layouts[table].schema.names)


def history_of(stores: Mapping[str, str], archives: Mapping[str, str]) -> History | None:
    """The view of a store and its archive; None unless there is one of each.

    Args:
        archives: The archives' tables of messages, by name.
    """
    if len(stores) != 1 or len(archives) != 1:
        return None
    return History(*stores.values(), *archives.values())


class Meanings:
    """The views of what archived messages mean, which are created when a statement names them."""

    def __init__(self, archives: Mapping[str, str], broker_conf: str | None, has_stores: bool) -> None:
        """Prepare the views.

        Args:
            archives: The archives' tables of messages, by name.
            has_stores: Whether there are stores, too; if not, the tables of a single archive need no qualifier.
        """
        self._archives = archives
        self._is_alone = len(archives) == 1 and not has_stores
        self._broker_conf = broker_conf

    def prepare(self, spark: SparkSession, statement: str) -> None:
        """Create the views that a statement may name: each time, because the archive can have grown."""
        from spark_mq.query.table_names import may_read_of

        for name, archive in self._archives.items():
            owners = [name.lower(), *([""] if self._is_alone else [])]
            read = {table for owner in owners for table in may_read_of(statement, owner, _meanings())}
            for table in sorted(read):
                from spark_mq.archive.archived_store import create_view

                create_view(spark, archive, table, _view_name(name, table)[1:-1], self._broker_conf)


class History:
    """The view `history` of an archive and its store, which is created when a statement names it."""

    def __init__(self, store: str, table: str) -> None:
        """Prepare the view."""
        self._store = store
        self._table = table
        self._identity: StoreIdentity | None = None

    def is_in(self, statement: str) -> bool:
        """Whether a statement may read the view."""
        from spark_mq.query.table_names import may_read

        return may_read(statement, _HISTORY)

    def __str__(self) -> str:
        """One line of text: the parts of the view."""
        archive, store = shown(self._table), shown(self._store)
        return f"history: the archive {archive}, and of the store {store} the log after the archive's end"

    def prepare(self, spark: SparkSession, statement: str) -> None:
        """Create the view if a statement may name it: each time, because a view keeps the plan of its first query."""
        if not self.is_in(statement):
            return
        from spark_mq.cli.sql.archive import create_history, identity_in_archive

        tables = _tables(self._table)
        if self._identity is None:
            self._identity = identity_in_archive(spark, self._store, tables)
        create_history(spark, self._store, tables.messages, self._identity)


def _tables(table: str) -> ArchiveTables:
    from spark_mq.archive.archive_tables import ArchiveTables

    return ArchiveTables.of(table, checkpoint="")
