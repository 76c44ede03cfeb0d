"""STORE of a command that also reads an archive: a store directory, or an archive's table of messages."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_spark_settings, add_stores_file, broker_conf_path
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.archive.archived_store import ArchivedStore

NAMES = ("cluster", "broker", "store_name")
_OF_ARCHIVES = (*NAMES, "packages", "spark_conf")
ARCHIVE_EPILOG = """\
STORE can be an archive: the TABLE of `spark-mq archive`, a path or a catalog name. Then Spark starts. The states are
those of the archive's last run, and it also has messages that the broker deleted since.
"""


def add_store_or_archive(command: argparse.ArgumentParser) -> None:
    """Add STORE, and the arguments that choose a store of an archive."""
    command.add_argument(
        "store", metavar="STORE", help="the broker's store directory, or an archive's table of messages"
    )
    add_stores_file(command)
    add_archive_names(command)


def add_archive_names(command: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a store of an archive, and settings of Spark."""
    for name in ("cluster", "broker", "store-name"):
        what = "name" if name == "store-name" else name
        command.add_argument(f"--{name}", metavar="NAME", help=f"the store's {what}, in an archive of several stores")
    add_spark_settings(command)


def is_archive(source: str, arguments: argparse.Namespace) -> bool:
    """Whether a source is an archive's table of messages; anything else counts as a store directory.

    Args:
        source: A path, a URI or a name in the catalog.
    """
    found = getattr(arguments, "stores_file", None) is None and is_named_archive(source, arguments)
    if not found:
        refuse_archive_options(source, arguments)
    return found


def refuse_archive_options(source: str, arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if an argument is given that is for archives only; `source` is not an archive."""
    from spark_mq.io.s3 import shown

    for name in _OF_ARCHIVES:
        if getattr(arguments, name) and getattr(arguments, "stores_file", None) is not None:
            raise OptionError(f"--{name.replace('_', '-')} has no effect: --stores names stores, and not an archive")
        if getattr(arguments, name):
            option = f"--{name.replace('_', '-')}"
            raise OptionError(f"{option} has no effect: {shown(source)} is not an archive (TABLE of spark-mq archive)")


def is_named_archive(source: str, arguments: argparse.Namespace) -> bool:
    """The same as `is_archive`, without a check of the arguments."""
    from spark_mq.cli.archive.arguments import has_delta_log
    from spark_mq.cli.spark import is_on_server
    from spark_mq.io.location import local_path

    path = local_path(source)
    if path is not None and not os.path.exists(path):
        # A server can have a path that this machine lacks.
        return is_on_server() if "/" in source else _is_in_catalog(source, arguments)
    return has_delta_log(source)


def _is_in_catalog(name: str, arguments: argparse.Namespace) -> bool:
    """Whether a name that is not a path can be that of a table in the catalog of Spark."""
    from spark_mq.cli.spark import has_empty_catalog

    given = dict(arguments.spark_conf)
    return name.replace(".", "").replace("_", "").isalnum() and "." in name and not has_empty_catalog(given)


@contextmanager
def archived_store(
    source: str, arguments: argparse.Namespace, command: str, store: str | None = None
) -> Iterator[ArchivedStore]:
    """A context with the one store of an archive that the arguments name, in a session of Spark.

    Args:
        source: The archive's table of messages.
        store: The store directory that was archived; without names, it is recognized by its messages.
    """
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.cli.spark import delta_session_settings, given_settings, known_filesystem, spark_errors, spark_session

    given = given_settings(arguments)
    conf = broker_conf_path(getattr(arguments, "broker_conf", None), None)
    if "/" not in source and os.path.exists(source):
        source = f"./{source}"
    tables = ArchiveTables.of(source, checkpoint="")
    names: Mapping[str, str | None] = {name: getattr(arguments, name) for name in NAMES}
    with known_filesystem(source), spark_errors():
        settings = delta_session_settings(given, source)
        with spark_session(f"spark-mq {command}", lambda: settings, given, kernels=None) as spark:
            from spark_mq.archive.archived_store import ArchivedStore

            if store is not None:
                names = _names_of_log(spark, store, tables.connected(spark), names)
            yield ArchivedStore.open(spark, source, **names, broker_conf=conf)


def _names_of_log(
    spark: SparkSession, store: str, tables: ArchiveTables, given: Mapping[str, str | None]
) -> Mapping[str, str | None]:
    """The names of a store's log in an archive, by its messages; the given names if no message is in both."""
    from spark_mq.archive.archive_tables import StoreArchive, StoreIdentity
    from spark_mq.archive.archived_log import described, names_of_log
    from spark_mq.io.location import Location
    from spark_mq.io.s3 import shown

    found = names_of_log(StoreArchive(spark, Location.resolve(store), tables, StoreIdentity("", "", "")))
    names = [{"cluster": one.cluster, "broker": one.broker, "store_name": one.store} for one in found]
    chosen = [one for one in names if all(given[name] in (None, one[name]) for name in NAMES)]
    if len(chosen) == 1:
        return chosen[0]
    if names:
        raise OptionError(
            f"{tables.name} has the messages of {shown(store)} under {described(found)}: give these names"
        )
    if not any(given.values()):
        raise OptionError(f"no message of {shown(store)} is in {tables.name}: give --broker NAME if it is the same log")
    return given
