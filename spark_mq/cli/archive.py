"""`spark-mq archive STORE TABLE` and `spark-mq maintain-archive TABLE`: messages in Delta tables, and their upkeep."""

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

from spark_mq.cli.interrupt import ends_on_interrupt
from spark_mq.cli.spark import spark_errors, spark_session
from spark_mq.errors import OptionError, SparkMqError

if TYPE_CHECKING:
    from spark_mq.archive.progress import BatchProgress

_NO_FILESYSTEM = re.compile(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found")

EPILOG = """\
TABLE is a path, or a name in Spark's catalog (then with --checkpoint). Beside it lie TABLE_keys, TABLE_segments and
TABLE_snapshots, and beside a path TABLE_checkpoints. --cluster, --broker and --store-name say in every row where it
comes from: they must stay the same from run to run, and differ between the stores of one archive. The same log under
another name (a mistyped one, another path, a slave of the broker) is refused, for its messages would be there twice;
the line that refuses it says the name it has and how many rows. --rename changes those rows, in all four tables: after
it the log has the new name only, each message once.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    _add_archive(commands)
    _add_maintenance(commands)


def _add_archive(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "archive",
        help="append new messages to a Delta table",
        description="Append what is new in a store to a Delta table, each message exactly once.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("store", metavar="STORE", help="the broker's store directory (storePathRootDir)")
    command.add_argument("table", metavar="TABLE", help="the table of messages")
    command.add_argument("--cluster", metavar="NAME", help="brokerClusterName (DefaultCluster)")
    command.add_argument("--broker", metavar="NAME", help="brokerName (DEFAULT_BROKER)")
    command.add_argument("--broker-conf", metavar="FILE", help="the broker's settings, which have both names")
    command.add_argument("--store-name", metavar="NAME", help="what column store says (the path)")
    command.add_argument(
        "--rename",
        action="store_true",
        help="the log is in TABLE under another name: give its rows the name said here (else it is refused)",
    )
    command.add_argument("--checkpoint", metavar="DIR", help="where the streams keep how far they are")
    command.add_argument("--max-bytes", metavar="SIZE", default="4g", help="bytes of the log for a batch (4g)")
    command.add_argument(
        "--data-loss",
        choices=["fail", "continue"],
        default="fail",
        help="if segments expired before they were archived, or the broker lost the end of its log: stop (default), or "
        "continue and count",
    )
    command.add_argument("--follow", metavar="SECONDS", type=float, help="go on, and look every so many seconds")
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.set_defaults(run=run_archive)


def _add_maintenance(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "maintain-archive",
        help="join and cluster an archive's files, and delete old rows",
        description="OPTIMIZE an archive's tables; with arguments also delete old rows, and VACUUM. Without --apply "
        "this is a dry run: the command changes nothing, and prints what would be deleted and removed.",
        allow_abbrev=False,
    )
    command.add_argument("table", metavar="TABLE", help="the table of messages, as in archive")
    command.add_argument("--keep-days", metavar="DAYS", type=float, help="delete what was stored longer ago")
    command.add_argument("--no-optimize", action="store_true", help="leave files as they are")
    command.add_argument("--file-size", metavar="SIZE", default="256m", help="join files to this size (256m)")
    command.add_argument("--vacuum-hours", metavar="HOURS", type=float, help="remove files unused for so long")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--apply", action="store_true", help="make the changes")
    mode.add_argument(
        "--dry-run", action="store_true", help="change nothing, print what would be deleted and removed (the default)"
    )
    command.add_argument("--json", action="store_true", help="print the report as one JSON object")
    command.set_defaults(run=run_maintenance)


def run_archive(arguments: argparse.Namespace) -> int:
    """Archive, and print the report."""
    from spark_mq.archive.archive_tables import DEFAULT_BROKER, DEFAULT_CLUSTER, ArchiveTables
    from spark_mq.archive.delta import delta_settings
    from spark_mq.archive.writer import archive
    from spark_mq.io.location import Location
    from spark_mq.source.option_values import parse_size
    from spark_mq.store.config.broker_conf import BrokerConf
    from spark_mq.store.log.segment_files import segment_files

    max_bytes = parse_size("--max-bytes", arguments.max_bytes)
    conf = BrokerConf.of(arguments.broker_conf).settings
    # What is wrong with the arguments is said before a JVM starts.
    place = ArchiveTables.of(arguments.table, arguments.checkpoint)
    segment_files(Location.resolve(arguments.store))
    for path in (place.name, place.checkpoints) if place.is_path else (place.checkpoints,):
        _check_folder(path)
    with (
        _known_filesystem(place.name),
        spark_errors(),
        spark_session("spark-mq archive", delta_settings) as spark,
        ends_on_interrupt(spark),
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
        spark_session("spark-mq maintain-archive", delta_settings) as spark,
        ends_on_interrupt(spark),
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
    """Make a local folder, and see that files can be made in it.

    A URI, and any path of a Spark that is elsewhere, is not looked at. Raises `OptionError` if no file can be made.
    """
    if "://" in path or not os.environ.get("SPARK_REMOTE", "local").startswith("local"):
        return
    local = path.removeprefix("file:")
    try:
        os.makedirs(local, exist_ok=True)
        with tempfile.TemporaryFile(dir=local):
            pass
    except OSError as error:
        raise OptionError(
            f"{path} cannot be written: {error.strerror or error}; give a TABLE (or --checkpoint) in a folder that can"
        ) from error


@contextmanager
def _known_filesystem(table: str) -> Iterator[None]:
    """Say what to do if Spark lacks the filesystem of a table's URI."""
    try:
        yield
    except SparkMqError as error:
        if not _NO_FILESYSTEM.search(str(error)):
            raise
        scheme = table.partition(":")[0]
        raise OptionError(
            f"{table}: this Spark has no filesystem for {scheme}: ({error}). For S3 write s3a://, and give Spark the "
            "library: PYSPARK_SUBMIT_ARGS='--packages org.apache.hadoop:hadoop-aws:VERSION pyspark-shell', with the "
            "version of the Hadoop jars that Spark has"
        ) from error


def _print_batch(batch: BatchProgress) -> None:
    moment = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    print(f"{moment} {batch}", file=sys.stderr, flush=True)


def _stop_on_signals() -> threading.Event:
    """An event that Ctrl-C or a plain `kill` sets; what was archived until then stays."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked
