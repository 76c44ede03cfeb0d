"""Archives that commands name: their names and folders, checked before a JVM starts, and the one store that is read."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import broker_conf_path, picked, refuse
from spark_mq.cli.command import SPARK
from spark_mq.cli.spark import delta_session, given_settings, has_empty_catalog, is_launched, is_on_server
from spark_mq.errors import OptionError, StorageError
from spark_mq.io.location import Location, local_path
from spark_mq.io.s3 import is_s3, shown
from spark_mq.store.config.store_kind import DELTA_LOG, has_delta_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.archive.archived_store import ArchivedStore

_SUFFIXES = ("", "_keys", "_segments", "_snapshots")
_OTHER_FILES = "has files, but is not a Delta table: give a TABLE that is new, or an archive's"
_OVERLAPS = "is in the folder of the store {store}, or contains it: a store is never changed; give a TABLE"
NAMES = ("cluster", "broker", "store_name")
_OF_ARCHIVES = (*NAMES, "packages", "spark_conf")
STORE_OF_ARCHIVE = f"--cluster NAME\n--broker NAME\n--store-name NAME\n{SPARK}"
"""The arguments that choose a store of an archive, and settings of Spark."""
ARCHIVE_EPILOG = """\
STORE can be an archive: the TABLE of `spark-mq archive`, a path or a catalog name. Then Spark starts. The states are
those of the archive's last run, and it also has messages that the broker deleted since.
"""


def check_name(argument: str, value: str) -> str:
    """The value itself, if it can be a name in the rows of an archive."""
    from spark_mq.archive.archived_log import LOST

    if not value.strip() or value != value.strip():
        raise OptionError(f"{argument}: {value!r} is empty, or begins or ends with a blank: give a name")
    if not value.isprintable():
        raise OptionError(f"{argument}: {value!r} contains a character that cannot be printed: give another name")
    for text in ("${", LOST):
        if text in value:
            raise OptionError(
                f"{argument}: {value!r} contains {text!r}, which has a meaning of its own: give another name"
            )
    return value


def check_archive_folders(tables: ArchiveTables, store: Location | None, given: Mapping[str, str]) -> None:
    """Check that an archive of a store, or of a broker without one, can be in these folders. Nothing is created.

    Other URIs than those of S3 are not checked, and no local path if the session runs elsewhere. With a setting of
    Hadoop, no URI is checked: only Spark may be able to open it.
    """
    tables_of_paths = [f"{tables.name}{suffix}" for suffix in _SUFFIXES] if tables.is_path else []
    if is_s3(tables.name) and not is_launched() and not any(name.startswith("spark.hadoop.") for name in given):
        _check_on_s3(tables, store)
    for path in (*tables_of_paths, tables.checkpoints):
        folder = _local(path)
        if folder is None:
            continue
        if store is not None and store.is_local and _overlap(folder, Path(store.path)):
            raise OptionError(f"{path} {_OVERLAPS.format(store=store)} (or --checkpoint) elsewhere")
        _check_writable(path, folder)
    checkpoints = _local(tables.checkpoints)
    for path in tables_of_paths:
        folder = _local(path)
        if folder is not None and checkpoints is not None and _is_within(checkpoints, folder):
            raise OptionError(
                f"--checkpoint {tables.checkpoints} is in the folder of the table {path}, where VACUUM removes it: "
                "give another folder"
            )
        if folder is not None and folder.is_dir() and any(folder.iterdir()) and not (folder / DELTA_LOG).is_dir():
            raise OptionError(f"{path} {_OTHER_FILES}")


def _check_on_s3(tables: ArchiveTables, store: Location | None) -> None:
    Location.resolve(tables.addresses[0]).check_bucket()
    path, mark, settings = tables.addresses[0].partition("?")
    for suffix in _SUFFIXES:
        folder = Location.resolve(f"{path.rstrip('/')}{suffix}{mark}{settings}")
        if store is not None and is_s3(store.uri) and _overlap(Path(f"/{folder.path}"), Path(f"/{store.path}")):
            raise OptionError(f"{folder} {_OVERLAPS.format(store=store)} elsewhere")
        if folder.entries() and not (folder / DELTA_LOG).is_directory:
            raise OptionError(f"{folder} {_OTHER_FILES}")


def check_is_archive(table: str, *, or_store: bool = False) -> None:
    """Check that a path is the messages table of an archive; a name in the catalog is not checked.

    With `or_store`, the error says that the path is not a store either.
    """
    problem, remedy = "is not a Delta table", "give the TABLE of spark-mq archive"
    if or_store:
        problem = "is neither a store (it has no folder commitlog) nor a Delta table"
        remedy = "give a store directory, or the TABLE of spark-mq archive"
    if is_s3(table) and not is_launched() and not has_delta_log(table):
        raise OptionError(f"{shown(table)} {problem}: {remedy}")
    folder = _local(table.rstrip("/")) if "/" in table else None
    if folder is not None and not (folder / DELTA_LOG).is_dir():
        raise OptionError(f"{table} {problem if folder.exists() else 'does not exist'}: {remedy}")


def _local(path: str) -> Path | None:
    """The folder of a local path; None for a URI, and for any path if the session runs elsewhere."""
    if is_launched() or ("://" in path and not path.startswith("file:")) or path.startswith("dbfs:"):
        return None
    return Path("/" + path.removeprefix("file:").lstrip("/")) if path.startswith("file:") else Path(path)


def _overlap(first: Path, second: Path) -> bool:
    return _is_within(first, second) or _is_within(second, first)


def _is_within(inner: Path, outer: Path) -> bool:
    return inner.resolve().is_relative_to(outer.resolve())


def _check_writable(path: str, folder: Path) -> None:
    """Check that a file can be created in a folder, or in the nearest folder above it that exists."""
    present = folder.absolute()
    while not os.path.lexists(present):
        present = present.parent
    try:
        # A folder, because /proc and the like have folders in which nothing can be created.
        with tempfile.TemporaryDirectory(dir=present):
            pass
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}; give a TABLE (or --checkpoint) in a writable folder"
        ) from error


def is_archive(source: str, arguments: argparse.Namespace) -> bool:
    """Whether a source is an archive's table of messages; anything else counts as a store directory."""
    found = getattr(arguments, "stores", None) is None and is_named_archive(source, arguments)
    if not found:
        refuse_archive_options(source, arguments)
    return found


def refuse_archive_options(source: str, arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if an argument is given that is for archives only; `source` is not an archive."""
    why = f"{shown(source)} is not an archive (TABLE of spark-mq archive)"
    if getattr(arguments, "stores", None) is not None:
        why = "--stores names stores, and not an archive"
    refuse(arguments, _OF_ARCHIVES, f" has no effect: {why}")


def is_named_archive(source: str, arguments: argparse.Namespace) -> bool:
    """The same as `is_archive`, without a check of the arguments."""
    path = local_path(source)
    if path is not None and not os.path.exists(path):
        # A server can have a path that this machine lacks.
        if "/" in source:
            return is_on_server()
        can_be_name = "." in source and source.replace(".", "").replace("_", "").isalnum()
        return can_be_name and not has_empty_catalog(dict(arguments.spark_conf))
    return has_delta_log(source)


@contextmanager
def archived_store(
    source: str, arguments: argparse.Namespace, command: str, store: str | None = None
) -> Iterator[ArchivedStore]:
    """A context with the one store of an archive that the arguments name, in a session of Spark.

    `store` is the directory that was archived; without names, it is recognized by its messages.
    """
    from spark_mq.archive.archive_tables import ArchiveTables

    given = given_settings(arguments)
    conf = broker_conf_path(getattr(arguments, "broker_conf", None), None)
    if "/" not in source and os.path.exists(source):
        source = f"./{source}"
    tables = ArchiveTables.of(source, checkpoint="")
    names: Mapping[str, str | None] = picked(arguments, *NAMES)
    with delta_session(f"spark-mq {command}", given, [source], kernels=None) as spark:
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

    found = names_of_log(StoreArchive(spark, tables, StoreIdentity("", "", ""), Location.resolve(store)))
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
