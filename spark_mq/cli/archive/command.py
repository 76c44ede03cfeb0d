"""`spark-mq archive STORE TABLE` and `spark-mq maintain-archive TABLE`: messages in Delta tables."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, TextIO

from spark_mq.cli.archive.arguments import check_archive_folders, check_is_archive, check_name, number
from spark_mq.cli.arguments import (
    add_archive_table,
    add_broker_conf,
    add_json_report,
    add_skip_unreadable,
    add_spark_settings,
    add_store,
    broker_conf_path,
)
from spark_mq.cli.output.terminal import print_report
from spark_mq.cli.spark import (
    delta_session_settings,
    given_settings,
    is_launched,
    known_filesystem,
    spark_errors,
    spark_session,
)
from spark_mq.errors import OptionError, SparkMqError

if TYPE_CHECKING:
    from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
    from spark_mq.archive.report import ArchiveReport, BatchProgress
    from spark_mq.io.location import Location

_SECONDS_BETWEEN_LINES = 300.0
"""The interval of the lines in a log. A terminal has one line, which is rewritten every second."""
_SECONDS_BETWEEN_REWRITES = 1.0
_CLEAR = "\r\x1b[K"
EPILOG = """\
TABLE is a path, or a name in Spark's catalog (then give --checkpoint, too). The other tables of the archive are next to
it: TABLE_keys, TABLE_segments and TABLE_snapshots; if TABLE is a path, the checkpoints are in TABLE_checkpoints.
Columns cluster, broker and store have the values of --cluster, --broker and --store-name in every row. These values
must stay the same from run to run, and must differ between the stores of one archive.
A log that is in TABLE under another name (a mistyped one, another path, a slave of the same broker) is refused, because
each message would be there twice. The error names the other name and its number of messages. --rename gives these rows
the new name in all four tables; then the log has only the new name, and each message is there once.
"""


class FollowOutput:
    """Prints batches, and how long nothing was new. On a terminal that is one line, which the next line replaces."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        """Print to `stream`; `clock` returns epoch seconds."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._since: float | None = None
        self._printed = 0.0
        self._is_line_open = False

    def print_batch(self, batch: BatchProgress) -> None:
        """Print the line of a batch."""
        self.end()
        self._since = None
        print(f"{_moment(self._clock())} {batch}", file=self._stream, flush=True)

    def print_waiting(self, archived_to: int) -> None:
        """Print that nothing is new, if it is time to. `archived_to` is a commit log offset, -1 if unknown."""
        now = self._clock()
        if self._since is None:
            self._since, self._printed = now, now
            if not self._is_terminal:
                return
        elif now - self._printed < (_SECONDS_BETWEEN_REWRITES if self._is_terminal else _SECONDS_BETWEEN_LINES):
            return
        self._printed = now
        place = f", log offset {archived_to:,}" if archived_to >= 0 else ""
        since = _moment(self._since).partition("T")[2] if self._is_terminal else _moment(self._since)
        line = f"waiting: nothing new since {since} ({_duration(now - self._since)}){place}"
        if self._is_terminal:
            # A line that is as wide as the terminal would wrap, and could not be rewritten.
            width = shutil.get_terminal_size().columns - 1
            print(f"{_CLEAR}{line[:width]}", end="", file=self._stream, flush=True)
            self._is_line_open = True
        else:
            print(f"{_moment(now)} {line}", file=self._stream, flush=True)

    def end(self) -> None:
        """Remove the line that is rewritten, so that another line can be printed."""
        if self._is_line_open:
            print(_CLEAR, end="", file=self._stream, flush=True)
            self._is_line_open = False


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


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
    command.add_argument(
        "--stores",
        metavar="FILE",
        dest="stores_file",
        help="instead of STORE: a JSON list of stores, each with name, cluster, broker, path and broker_conf. "
        "They are archived into TABLE one after the other, under the names in the file",
    )
    add_skip_unreadable(command)
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
        "--follow",
        metavar="SECONDS",
        type=number("an interval in seconds", 0.1, 86_400),
        help="keep running, and look for new messages every SECONDS",
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
        "--keep-days",
        metavar="DAYS",
        type=number("a number of days", 0, 365_000),
        help="delete messages and snapshots older than DAYS",
    )
    command.add_argument("--no-optimize", action="store_true", help="do not join or cluster files")
    command.add_argument("--file-size", metavar="SIZE", default="256m", help="join files to about this size (256m)")
    command.add_argument(
        "--vacuum-hours",
        metavar="HOURS",
        type=number("a number of hours", 0, 8_760_000),
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


@dataclass(frozen=True)
class _Archived:
    """A store that is archived: its path as it was given, where it is, and its names in the archive."""

    path: str
    location: Location
    identity: StoreIdentity


def run_archive(arguments: argparse.Namespace) -> int:
    """Archive, and print the report of each store; returns the exit status."""
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.source.options import parse_size

    # Errors in the arguments are found before a JVM starts, and before anything is created.
    max_bytes = parse_size("--max-bytes", arguments.max_bytes)
    stores = [_given_store(arguments)] if arguments.stores_file is None else _stores_of_file(arguments)
    tables = ArchiveTables.of(arguments.table, arguments.checkpoint)
    given = given_settings(arguments)
    for store in stores:
        check_archive_folders(tables, store.location, given)
    remaining = []
    for store in stores:
        is_new = arguments.rename or arguments.follow is not None
        report = None if is_new else _nothing_new(store.location, tables, store.identity, given)
        if report is None:
            remaining.append(store)
        else:
            _print(arguments, report)
    for report in _archive(arguments, remaining, tables, given, max_bytes) if remaining else ():
        _print(arguments, report)
    return 0


def _print(arguments: argparse.Namespace, report: ArchiveReport) -> None:
    print_report(report.to_json() if arguments.json else report.to_text())
    sys.stdout.flush()


def _given_store(arguments: argparse.Namespace) -> _Archived:
    """The store of the arguments."""
    from spark_mq.archive.archive_tables import StoreIdentity
    from spark_mq.io.location import Location
    from spark_mq.store.config.broker_conf import BrokerConf
    from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
    from spark_mq.store.log.segment_files import segment_files

    if arguments.skip_unreadable:
        raise OptionError("--skip-unreadable has no effect on one store: it is for --stores FILE")
    broker_conf = broker_conf_path(arguments.broker_conf, arguments.store)
    conf = BrokerConf.of(broker_conf).settings
    store = Location.resolve(arguments.store)
    segment_files(store)
    in_conf = f"{{}} in {broker_conf}".format
    identity = StoreIdentity(
        _name(
            "--cluster", arguments.cluster, in_conf("brokerClusterName"), conf.get("brokerClusterName", DEFAULT_CLUSTER)
        ),
        _name("--broker", arguments.broker, in_conf("brokerName"), conf.get("brokerName", DEFAULT_BROKER)),
        str(store) if arguments.store_name is None else check_name("--store-name", arguments.store_name),
    )
    return _Archived(arguments.store, store, identity)


def _stores_of_file(arguments: argparse.Namespace) -> list[_Archived]:
    """The stores of `--stores`, except those that cannot be read and are left out."""
    from spark_mq.archive.archive_tables import StoreIdentity
    from spark_mq.cli.several_stores import left_out
    from spark_mq.io.location import Location
    from spark_mq.io.s3 import OPTIONS, with_settings
    from spark_mq.store.config.named_stores import load_stores
    from spark_mq.store.log.segment_files import segment_files

    for name in ("cluster", "broker", "store_name", "broker_conf"):
        if getattr(arguments, name):
            raise OptionError(f"--{name.replace('_', '-')} is for one store: with --stores, the file says it")
    if arguments.follow is not None:
        raise OptionError("--follow archives one store: run it for each STORE, without --stores")
    found: list[_Archived] = []
    problems: list[Exception] = []
    for named in load_stores(arguments.stores_file):
        path = with_settings(named.path, {name: named.options[name] for name in OPTIONS if name in named.options})
        names = [check_name(f"{arguments.stores_file}: {named}", name) for name in named.names]
        try:
            location = Location.resolve(path)
            segment_files(location)
        except (SparkMqError, OSError) as error:
            left_out(arguments, named, error)
            problems.append(error)
            continue
        found.append(_Archived(path, location, StoreIdentity(*names)))
    if not found:
        raise problems[0]
    return found


def _name(argument: str, value: str | None, source: str, default: str) -> str:
    """The name in an argument, or else the default, which is from `source`."""
    return check_name(source, default) if value is None else check_name(argument, value)


def _nothing_new(
    store: Location, tables: ArchiveTables, identity: StoreIdentity, given: Mapping[str, str]
) -> ArchiveReport | None:
    """The report of a run that would find nothing new; None if Spark must run, or if paths are not this machine's."""
    from spark_mq.archive.last_run import end_if_nothing_is_new
    from spark_mq.archive.report import ArchiveReport

    started = time.monotonic()
    if is_launched() or any(name.startswith("spark.hadoop.") for name in given):
        return None
    end = end_if_nothing_is_new(store, tables, identity)
    if end is None:
        return None
    seconds = time.monotonic() - started
    return ArchiveReport(str(store), tables.name, identity.cluster, identity.broker, archived_to=end, seconds=seconds)


def _archive(
    arguments: argparse.Namespace,
    stores: Sequence[_Archived],
    tables: ArchiveTables,
    given: Mapping[str, str],
    max_bytes: int,
) -> Iterator[ArchiveReport]:
    """Archive the stores, one after the other; the report of each comes when it is archived."""
    from spark_mq.archive.writer import archive
    from spark_mq.datasource import register

    output = FollowOutput(sys.stderr)
    with (
        known_filesystem(tables.name),
        spark_errors(),
        spark_session("spark-mq archive", partial(delta_session_settings, given, *tables.addresses), given) as spark,
    ):
        register(spark)
        try:
            for store in stores:
                yield archive(
                    spark,
                    store.path,
                    arguments.table,
                    cluster=store.identity.cluster,
                    broker=store.identity.broker,
                    store_name=store.identity.store,
                    rename=arguments.rename,
                    checkpoint=arguments.checkpoint,
                    max_bytes=max_bytes,
                    fail_on_data_loss=arguments.data_loss == "fail",
                    follow_seconds=arguments.follow,
                    stop=_stop_on_signals().is_set if arguments.follow is not None else lambda: False,
                    on_batch=output.print_batch,
                    on_wait=output.print_waiting,
                )
                output.end()
        finally:
            output.end()


def run_maintenance(arguments: argparse.Namespace) -> int:
    """Maintain, or show what would change, and print the report."""
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.archive.maintenance import maintain
    from spark_mq.source.options import parse_size

    file_size = parse_size("--file-size", arguments.file_size)
    ArchiveTables.of(arguments.table, checkpoint="")
    check_is_archive(arguments.table)
    given = given_settings(arguments)
    with (
        known_filesystem(arguments.table),
        spark_errors(),
        spark_session(
            "spark-mq maintain-archive", partial(delta_session_settings, given, arguments.table), given
        ) as spark,
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
    print_report(report.to_json() if arguments.json else report.to_text())
    return 0


def _stop_on_signals() -> threading.Event:
    """An event that is set by Ctrl-C or a plain `kill`. Messages archived until then stay archived."""
    stop = threading.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: stop.set())
    return stop
