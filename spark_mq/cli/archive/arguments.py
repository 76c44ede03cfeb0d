"""The values of arguments of `archive` and `maintain-archive`, checked before a JVM starts."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from spark_mq.cli.spark import is_launched
from spark_mq.errors import OptionError, StorageError

if TYPE_CHECKING:
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.io.location import Location

_SUFFIXES = ("", "_keys", "_segments", "_snapshots")
_LOG = "_delta_log"


def number(what: str, least: float, most: float) -> Callable[[str], float]:
    """A parser of a number from `least` to `most`, for `argparse`; its error says what the number is."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}: give a number from {least:,g} to {most:,.0f}")
        return value

    return parse


def check_name(argument: str, value: str) -> str:
    """The value itself, if it can be a name in the rows of an archive.

    Args:
        argument: Where the value comes from, for the error.
        value: The name of a cluster, a broker or a store.
    """
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


def check_archive_folders(tables: ArchiveTables, store: Location, given: Mapping[str, str]) -> None:
    """Check that an archive can be in these folders. Nothing is created.

    Other URIs than those of S3 are not checked, and no local path if the session runs elsewhere.

    Args:
        given: The user's settings of Spark. With one of Hadoop's, no URI is checked: only Spark may be able to open it.
    """
    from spark_mq.io.s3 import is_s3

    tables_of_paths = [f"{tables.name}{suffix}" for suffix in _SUFFIXES] if tables.is_path else []
    if is_s3(tables.name) and not is_launched() and not any(name.startswith("spark.hadoop.") for name in given):
        _check_on_s3(tables, store)
    for path in (*tables_of_paths, tables.checkpoints):
        folder = _local(path)
        if folder is None:
            continue
        if store.is_local and _overlap(folder, Path(store.path)):
            raise OptionError(
                f"{path} is in the folder of the store {store}, or contains it: a store is never changed; give a TABLE "
                "(or --checkpoint) elsewhere"
            )
        _check_writable(path, folder)
    checkpoints = _local(tables.checkpoints)
    for path in tables_of_paths:
        folder = _local(path)
        if folder is not None and checkpoints is not None and _is_within(checkpoints, folder):
            raise OptionError(
                f"--checkpoint {tables.checkpoints} is in the folder of the table {path}, where VACUUM removes it: "
                "give another folder"
            )
        if folder is not None and _has_entries(folder) and not (folder / _LOG).is_dir():
            raise OptionError(f"{path} has files, but is not a Delta table: give a TABLE that is new, or an archive's")


def _check_on_s3(tables: ArchiveTables, store: Location) -> None:
    """Check that the tables of an archive can be in these folders of a bucket."""
    from spark_mq.io.location import Location
    from spark_mq.io.s3 import is_s3

    Location.resolve(tables.addresses[0]).check_bucket()
    path, mark, settings = tables.addresses[0].partition("?")
    for suffix in _SUFFIXES:
        folder = Location.resolve(f"{path.rstrip('/')}{suffix}{mark}{settings}")
        if is_s3(store.uri) and _overlap(Path(f"/{folder.path}"), Path(f"/{store.path}")):
            raise OptionError(
                f"{folder} is in the folder of the store {store}, or contains it: a store is never changed; give a "
                "TABLE elsewhere"
            )
        if folder.entries() and not (folder / _LOG).is_directory:
            raise OptionError(
                f"{folder} has files, but is not a Delta table: give a TABLE that is new, or an archive's"
            )


def check_is_archive(table: str) -> None:
    """Check that a path is the messages table of an archive; a name in the catalog is not checked.

    Raises `OptionError` if there is no Delta table.
    """
    from spark_mq.io.s3 import is_s3, shown

    if is_s3(table) and not is_launched() and not has_delta_log(table):
        raise OptionError(f"{shown(table)} is not a Delta table: give the TABLE of spark-mq archive")
    folder = _local(table.rstrip("/")) if "/" in table else None
    if folder is not None and not (folder / _LOG).is_dir():
        problem = "is not a Delta table" if folder.exists() else "does not exist"
        raise OptionError(f"{table} {problem}: give the TABLE of spark-mq archive")


def has_delta_log(table: str) -> bool:
    """Whether a path or URI is that of a Delta table; of a URI that pyarrow cannot open, True if it is not a store."""
    from spark_mq.errors import SparkMqError
    from spark_mq.io.location import Location
    from spark_mq.store.config.store_paths import COMMIT_LOG

    try:
        location = Location.resolve(table.rstrip("/"))
        return not (location / COMMIT_LOG).is_directory and (location / _LOG).is_directory
    except (SparkMqError, OSError):
        return "://" in table


def _local(path: str) -> Path | None:
    """The folder of a local path; None for a URI, and for any path if the session runs elsewhere."""
    if is_launched() or ("://" in path and not path.startswith("file:")) or path.startswith("dbfs:"):
        return None
    return Path("/" + path.removeprefix("file:").lstrip("/")) if path.startswith("file:") else Path(path)


def _overlap(first: Path, second: Path) -> bool:
    return _is_within(first, second) or _is_within(second, first)


def _is_within(inner: Path, outer: Path) -> bool:
    return inner.resolve().is_relative_to(outer.resolve())


def _has_entries(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


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
