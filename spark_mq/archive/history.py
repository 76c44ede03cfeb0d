"""The view `history` of an archive and its store; `history.sql`, which the shell can run too, has the rule."""

from __future__ import annotations

from importlib.resources import files

from pyspark.sql import SparkSession

from spark_mq.archive.archive_tables import ArchiveTable, ArchiveTables, StoreArchive, StoreIdentity
from spark_mq.archive.archived_log import described, names_of_log
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.store.config.named_store import DEFAULT_BROKER, DEFAULT_CLUSTER

_NOT_IN_TEXT = ("'", '"', "\\", "`", "\n", ";", "${")
"""Texts that would end a quoted text or a statement of `history.sql`, or begin a variable."""
_OTHER_VIEWS = ("consumer_offsets",)
"""Views that the file creates for the recipes, with names of a store's tables."""


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
    text = files(__package__).joinpath("history.sql").read_text("utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    for name, value in {**values, "archive": archive.sql_name}.items():
        code = code.replace(f"${{{name}}}", value)
    for statement in filter(str.strip, code.split(";")):
        spark.sql(statement)
    for view in _OTHER_VIEWS:
        spark.catalog.dropTempView(view)
