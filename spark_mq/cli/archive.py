"""`spark-mq archive STORE TABLE` and `spark-mq maintain-archive TABLE`: messages in Delta tables."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_archive_table, add_broker_conf, add_json_report, add_spark_settings, add_store
from spark_mq.cli.spark import given_settings, spark_errors, spark_session
from spark_mq.errors import SparkMqError, StorageError, UnsupportedSparkError

if TYPE_CHECKING:
    from spark_mq.archive.progress import BatchProgress

_NO_FILESYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")

EPILOG = """\
TABLE is a path, or a name in Spark's catalog (then give --checkpoint, too). The other tables of the archive are next to
it: TABLE_keys, TABLE_segments and TABLE_snapshots; if TABLE is a path, the checkpoints are in TABLE_checkpoints.
Columns cluster, broker and store have the values of --cluster, --broker and --store-name in every row. These values
must stay the same from run to run, and must differ between the stores of one archive.
A log that is in TABLE under another name (a mistyped one, another path, a slave of the same broker) is refused, because
each message would be there twice. The error names the other name and its number of messages. --rename gives these rows
the new name in all four tables; then the log has only the new name, and each message is there once.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    _add_archive(commands)
    _add_maintenance(commands)


def _add_archive(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "archive",
        help="append new messages to a Delta table",
        description="Append the new messages of a store to a Delta table, each message exactly once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_store(command)
    add_archive_table(command)
    command.add_argument(
        "--cluster", metavar="NAME", help="default: brokerClusterName of --broker-conf, else DefaultCluster"
    )
    command.add_argument("--broker", metavar="NAME", help="default: brokerName of --broker-conf, else DEFAULT_BROKER")
    add_broker_conf(command, "brokerClusterName and brokerName")
    command.add_argument("--store-name", metavar="NAME", help="the value of column store (default: the path)")
    command.add_argument(
        "--rename",
        action="store_true",
        help="if the log is in TABLE under another name, give its rows the new name (default: refuse the log)",
    )
    command.add_argument("--checkpoint", metavar="DIR", help="the folder of the streams' checkpoints")
    command.add_argument("--max-bytes", metavar="SIZE", default="4g", help="bytes of the log per batch (4g)")
    command.add_argument(
        "--data-loss",
        choices=["fail", "continue"],
        default="fail",
        help="if segments expired before they were archived, or the broker lost the end of its log: stop (default), or "
        "continue and report how much was lost",
    )
    command.add_argument(
        "--follow", metavar="SECONDS", type=float, help="keep running, and look for new messages every SECONDS"
    )
    add_json_report(command)
    add_spark_settings(command)
    command.set_defaults(run=run_archive)


def _add_maintenance(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "maintain-archive",
        help="join and cluster an archive's files, delete old rows",
        description="Join and cluster the files of an archive's tables (OPTIMIZE). With --keep-days, also delete old "
        "rows; with --vacuum-hours, also remove unused files (VACUUM). Without --apply this is a dry run: "
        "the command changes nothing, and prints what would be deleted and removed.",
        allow_abbrev=False,
    )
    add_archive_table(command)
    command.add_argument(
        "--keep-days", metavar="DAYS", type=float, help="delete messages and snapshots older than DAYS"
    )
    command.add_argument("--no-optimize", action="store_true", help="do not join or cluster files")
    command.add_argument("--file-size", metavar="SIZE", default="256m", help="join files to about this size (256m)")
    command.add_argument(
        "--vacuum-hours",
        metavar="HOURS",
        type=float,
        help="remove files that no version of the last HOURS uses; Delta refuses less than 168 by default",
    )
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--apply", action="store_true", help="make the changes")
    mode.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would be deleted and removed (the default)"
    )
    add_json_report(command)
    add_spark_settings(command)
    command.set_defaults(run=run_maintenance)


def run_archive(arguments: argparse.Namespace) -> int:
    """Archive, and print the report; returns the exit status."""
    from spark_mq.archive.archive_tables import DEFAULT_BROKER, DEFAULT_CLUSTER, ArchiveTables
    from spark_mq.archive.delta import delta_settings
    from spark_mq.archive.writer import archive
    from spark_mq.io.location import Location
    from spark_mq.source.option_values import parse_size
    from spark_mq.store.config.broker_conf import BrokerConf
    from spark_mq.store.log.segment_files import segment_files

    max_bytes = parse_size("--max-bytes", arguments.max_bytes)
    conf = BrokerConf.of(arguments.broker_conf).settings
    # Errors in the arguments are found before a JVM starts.
    tables = ArchiveTables.of(arguments.table, arguments.checkpoint)
    segment_files(Location.resolve(arguments.store))
    for path in (tables.name, tables.checkpoints) if tables.is_path else (tables.checkpoints,):
        _check_folder(path)
    with (
        _known_filesystem(tables.name),
        spark_errors(),
        spark_session("spark-mq archive", delta_settings, given_settings(arguments)) as spark,
    ):
        report = archive(
            spark,
            arguments.store,
            arguments.table,
            cluster=arguments.cluster or conf.get("brokerClusterName", DEFAULT_CLUSTER),
            broker=arguments.broker or conf.get("brokerName", DEFAULT_BROKER),
            store_name=arguments.store_name,
            rename=arguments.rename,
            checkpoint=arguments.checkpoint,
            max_bytes=max_bytes,
            fail_on_data_loss=arguments.data_loss == "fail",
            follow_seconds=arguments.follow,
            stop=_stop_on_signals().is_set if arguments.follow is not None else lambda: False,
            on_batch=_print_batch,
        )
    print(report.to_json() if arguments.json else report.to_text())
    return 0


def run_maintenance(arguments: argparse.Namespace) -> int:
    """Maintain, or show what would change, and print the report."""
    from spark_mq.archive.delta import delta_settings
    from spark_mq.archive.maintenance import maintain
    from spark_mq.source.option_values import parse_size

    file_size = parse_size("--file-size", arguments.file_size)
    with (
        _known_filesystem(arguments.table),
        spark_errors(),
        spark_session("spark-mq maintain-archive", delta_settings, given_settings(arguments)) as spark,
    ):
        report = maintain(
            spark,
            arguments.table,
            keep_days=arguments.keep_days,
            optimize=not arguments.no_optimize,
            file_size=file_size,
            vacuum_hours=arguments.vacuum_hours,
            dry_run=not arguments.apply,
        )
    print(report.to_json() if arguments.json else report.to_text())
    return 0


def _check_folder(path: str) -> None:
    """Create a local folder, and check that files can be created in it.

    A URI, and any path if Spark runs elsewhere, is not checked. Raises `StorageError` if no file can be created.
    """
    if "://" in path or not os.environ.get("SPARK_REMOTE", "local").startswith("local"):
        return
    local = path.removeprefix("file:")
    try:
        os.makedirs(local, exist_ok=True)
        with tempfile.TemporaryFile(dir=local):
            pass
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written: {error.strerror or error}; give a TABLE (or --checkpoint) in a writable folder"
        ) from error


@contextmanager
def _known_filesystem(table: str) -> Iterator[None]:
    """A context in which an error about a missing filesystem of the table's URI names the remedy."""
    try:
        yield
    except SparkMqError as error:
        if not _NO_FILESYSTEM.search(str(error)):
            raise
        scheme = table.partition(":")[0]
        raise UnsupportedSparkError(
            f"{table}: this Spark has no filesystem for {scheme}: ({error}). For S3, write s3a:// and give Spark the "
            "library: --packages org.apache.hadoop:hadoop-aws:VERSION, where VERSION is that of Spark's Hadoop jars"
        ) from error


def _print_batch(batch: BatchProgress) -> None:
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    print(f"{moment} {batch}", file=sys.stderr, flush=True)


def _stop_on_signals() -> threading.Event:
    """An event that is set by Ctrl-C or a plain `kill`. Messages archived until then stay archived."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop
