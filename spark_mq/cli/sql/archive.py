"""Archives in `spark-mq sql`: their tables under a name, what their messages mean, and the view `history`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

from spark_mq.cli.spark import is_on_server
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.query.table_names import may_read, may_read_of
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
from spark_mq.tables.all_tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.archive_tables import StoreIdentity
    from spark_mq.query.table_names import NamedTables

VIEWS = "`spark_mq_"
"""How the names of views of what archived messages mean begin, as SQL text."""
_NOT_IN_TEXT = ("'", '"', "\\", "`", "\n", ";", "${")
"""Texts that would end a quoted text or a statement of `history.sql`, or begin a variable."""
_OTHER_VIEWS = ("consumer_offsets",)
"""Views that `history.sql` creates for the recipes, with names of a store's tables."""
_HISTORY = ("history", "history_archive", "history_store")
_MEANINGS = tuple(table.name for table in TABLES.values() if table.archived_rows)
"""The names of the tables of what archived messages mean."""


class Archives:
    """The archives that statements can name; `tables` has the names of their tables for Spark."""

    def __init__(self, archives: Mapping[str, str], stores: Mapping[str, str], broker_conf: str | None) -> None:
        """Both mappings are by name: an archive's table of messages, and a store's path."""
        self.tables: NamedTables = {name.lower(): _sql_names(name, table) for name, table in archives.items()}
        self._archives = archives
        self._broker_conf = broker_conf
        self._is_alone = len(archives) == 1 and not stores
        self._history = (*stores.values(), *archives.values()) if len(stores) == len(archives) == 1 else None
        self._identity: StoreIdentity | None = None

    def history_in(self, statement: str) -> str | None:
        """A line about the view `history`; None if the statement does not read it, or there is none."""
        if self._history is None or not may_read(statement, _HISTORY):
            return None
        store, archive = map(shown, self._history)
        return f"history: the archive {archive}, and of the store {store} the log after the archive's end"

    def prepare(self, spark: SparkSession, statement: str) -> None:
        """Create the views that a statement may name.

        Each time: the archive can have grown, and a view keeps the plan of its first query.
        """
        if self._history is not None and self.history_in(statement) is not None:
            self._create_history(spark, *self._history)
        for name, archive in self._archives.items():
            owners = [name.lower(), *([""] if self._is_alone else [])]
            read = {table for owner in owners for table in may_read_of(statement, owner, _MEANINGS)}
            for table in sorted(read):
                from spark_mq.archive.archived_store import create_view

                create_view(spark, archive, table, _view_name(name, table)[1:-1], self._broker_conf)

    def _create_history(self, spark: SparkSession, store: str, table: str) -> None:
        from spark_mq.archive.archive_tables import ArchiveTables

        archive = ArchiveTables.of(table, checkpoint="")
        self._identity = self._identity or _identity_in_archive(spark, store, table)
        values = {
            "store": store,
            "cluster": self._identity.cluster,
            "broker": self._identity.broker,
            "store_name": self._identity.store,
        }
        for name, value in values.items():
            if any(text in value for text in _NOT_IN_TEXT):
                raise OptionError(f"history: {name} {value!r} has a quote or another character that ends a text in SQL")
        text = files("spark_mq.archive").joinpath("history.sql").read_text("utf-8")
        code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
        for name, value in {**values, "archive": archive.messages.sql_name}.items():
            code = code.replace(f"${{{name}}}", value)
        for statement in filter(str.strip, code.split(";")):
            spark.sql(statement)
        for view in _OTHER_VIEWS:
            spark.catalog.dropTempView(view)


def _sql_names(name: str, table: str) -> dict[str, str]:
    from spark_mq.archive.archive_tables import ArchiveTables

    tables = ArchiveTables.of(table, checkpoint="")
    is_local_path = tables.is_path and "://" not in table and not is_on_server()
    if is_local_path and not os.path.isdir(f"{tables.name}/_delta_log"):
        raise OptionError(
            f"--archive {name}={table} is not a Delta table: give the TABLE of `spark-mq archive STORE TABLE`"
        )
    return {
        **{each: getattr(tables, each).sql_name for each in ("messages", "keys", "segments", "snapshots")},
        **{table: _view_name(name, table) for table in _MEANINGS},
    }


def _view_name(archive: str, table: str) -> str:
    name = f"{archive.lower()}_{table}".replace("`", "``")
    return f"{VIEWS}{name}`"


def _identity_in_archive(spark: SparkSession, store: str, table: str) -> StoreIdentity:
    """The name of a store in an archive, which is recognized by its messages.

    A store that is not archived gets the names that `spark-mq archive` writes by default.
    """
    from spark_mq.archive.archive_tables import ArchiveTables, StoreArchive, StoreIdentity
    from spark_mq.archive.archived_log import described, names_of_log

    location, tables = Location.resolve(store), ArchiveTables.of(table, checkpoint="")
    identities = names_of_log(StoreArchive(spark, tables, StoreIdentity("", "", ""), location))
    if len(identities) > 1:
        raise OptionError(
            f"{location} is in {tables.name} under several names ({described(identities)}): each of its messages would "
            "be in history several times"
        )
    return identities[0] if identities else StoreIdentity(DEFAULT_CLUSTER, DEFAULT_BROKER, str(location))


def archive_columns(table: str) -> list[str]:
    """The columns of a table of an archive."""
    from spark_mq.archive.archive_tables import IDENTITY, KEYS, MESSAGES, SEGMENTS, SNAPSHOTS
    from spark_mq.query.catalog import table_columns

    if table in _MEANINGS:
        return [*IDENTITY, *table_columns(table).default]
    layouts = {"messages": MESSAGES, "keys": KEYS, "segments": SEGMENTS, "snapshots": SNAPSHOTS}
    return list(layouts[table].schema.names)
