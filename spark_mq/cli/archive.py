"""`spark-mq archive STORE TABLE` and `spark-mq maintain-archive TABLE`: messages in Delta tables."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_mq.cli.archive_source import check_archive_folders, check_is_archive, check_name
from spark_mq.cli.arguments import OR_CLUSTER, broker_conf_path, picked, refuse, refuse_client_conf
from spark_mq.cli.command import SPARK, command
from spark_mq.cli.output.terminal import print_answer
from spark_mq.cli.progress_printer import FollowOutput
from spark_mq.cli.several_stores import CommandStore, read_each, stores_of_file
from spark_mq.cli.spark import delta_session, given_settings, is_launched
from spark_mq.errors import OptionError
from spark_mq.io.location import Location
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.named_stores import DEFAULT_BROKER, DEFAULT_CLUSTER
from spark_mq.store.log.segment_files import segment_files
from spark_mq.tables.table import is_cluster

if TYPE_CHECKING:
    from spark_mq.archive.archive_tables import ArchiveTables, StoreIdentity
    from spark_mq.archive.report import ArchiveReport


@dataclass(frozen=True)
class _Archived:
    """A store or a broker that is archived: what was given, where the store is, and the names in the archive."""

    path: str
    location: Location | None
    identity: StoreIdentity


@command(
    "archive",
    f"""
    STORE               the broker's store directory (storePathRootDir){OR_CLUSTER}
    --stores FILE       instead of STORE: a JSON list of stores, each with name, cluster, broker, path and broker_conf.
                        They are archived into TABLE one after the other, under the names in the file
    --skip-unreadable
    TABLE
    --cluster NAME      default: brokerClusterName of --broker-conf, else DefaultCluster
    --broker NAME       default: brokerName of --broker-conf, else DEFAULT_BROKER
    --broker-conf FILE  the broker's settings file, for brokerClusterName and brokerName
    --client-conf FILE
    --store-name NAME   the value of column store (default: the path; of a running cluster, the broker's address)
    --rename            if the log is in TABLE under another name, give its rows the new name (default: refuse the log)
    --checkpoint DIR    the folder of the streams' checkpoints
    --max-bytes SIZE    bytes of the log per batch (4g)
    --data-loss {{fail,continue}}
                        if segments expired before they were archived, or the broker lost the end of its log: stop
                        (default), or continue and report how much was lost
    --follow SECONDS    keep running, and look for new messages every SECONDS
    --json
    """,
    SPARK,
    example="/data/store /lake/messages",
    description="Append the new messages of a store to a Delta table, each message exactly once.",
    epilog="""
    TABLE is a path, or a name in Spark's catalog (then give --checkpoint, too). The other tables of the archive are
    next to it: TABLE_keys, TABLE_segments and TABLE_snapshots; if TABLE is a path, the checkpoints are in
    TABLE_checkpoints. Columns cluster, broker and store have the values of --cluster, --broker and --store-name in
    every row. These values must stay the same from run to run, and must differ between the stores of one archive.
    A log that is in TABLE under another name (a mistyped one, another path, a slave of the same broker) is refused,
    because each message would be there twice. The error names the other name and its number of messages. --rename gives
    these rows the new name in all four tables; then the log has only the new name, and each message is there once.

    Of a running cluster, every broker is archived, or those that --cluster and --broker name: what brokers hand out of
    all topics except those of the system, unless --client-conf has topic or topicPattern. Half messages, files of
    config/ and segments are not there, so such an archive cannot become a store again.
    """,
    max_bytes="4g",
    data_loss="fail",
)
def run_archive(arguments: argparse.Namespace) -> int:
    """Archive, and print the report of each store; returns the exit status."""
    from spark_mq.archive.archive_tables import ArchiveTables

    # Errors in the arguments are found before a JVM starts, and before anything is created.
    stores = _given(arguments)
    tables = ArchiveTables.of(arguments.table, arguments.checkpoint)
    given = given_settings(arguments)
    for store in stores:
        check_archive_folders(tables, store.location, given)
    remaining = []
    for store in stores:
        report = None
        if store.location is not None and not arguments.rename and arguments.follow is None:
            report = _nothing_new(store.location, tables, store.identity, given)
        if report is None:
            remaining.append(store)
        else:
            print_answer(arguments.json, report.to_json, report.to_text)
    for report in _archive(arguments, remaining, tables, given) if remaining else ():
        print_answer(arguments.json, report.to_json, report.to_text)
    return 0


def _given(arguments: argparse.Namespace) -> list[_Archived]:
    """What is archived, one after the other."""
    if is_cluster(arguments.store):
        return _brokers(arguments)
    refuse_client_conf(arguments)
    return [_given_store(arguments)] if arguments.stores is None else _stores_of_file(arguments)


def _brokers(arguments: argparse.Namespace) -> list[_Archived]:
    """The brokers of a running cluster that the arguments name."""
    from spark_mq.archive.archive_tables import StoreIdentity
    from spark_mq.archive.broker_archive import all_topics
    from spark_mq.live.cluster import live_brokers
    from spark_mq.live.options import parse_live_stream_options
    from spark_mq.remoting.client import RemotingClient

    refuse(arguments, ("broker_conf", "rename", "skip_unreadable"), " has no effect on a running cluster")
    read = parse_live_stream_options({**all_topics(_client_options(arguments)), "path": arguments.store}).read
    with RemotingClient(read.client) as client:
        names = [broker.names for broker in live_brokers(client, read.from_slave)]
    found = [
        _Archived(arguments.store, None, StoreIdentity(cluster, broker, arguments.store_name or address))
        for cluster, broker, address in names
        if arguments.cluster in (None, cluster) and arguments.broker in (None, broker)
    ]
    if not found:
        known = ", ".join(f"--cluster {cluster} --broker {broker}" for cluster, broker, _ in names)
        raise OptionError(f"{arguments.store} has no broker with these names; it has {known}")
    if len(found) > 1 and arguments.follow is not None:
        raise OptionError("--follow archives one broker: run it for each one, with --broker NAME")
    for one in found:
        for name in dataclasses.astuple(one.identity):
            check_name(arguments.store, name)
    return found


def _client_options(arguments: argparse.Namespace) -> Mapping[str, str]:
    return BrokerConf.of(arguments.client_conf).settings


def _given_store(arguments: argparse.Namespace) -> _Archived:
    from spark_mq.archive.archive_tables import StoreIdentity

    refuse(arguments, ["skip_unreadable"], " has no effect on one store: it is for --stores FILE")
    broker_conf = broker_conf_path(arguments.broker_conf, arguments.store)
    conf = BrokerConf.of(broker_conf).settings
    store = Location.resolve(arguments.store)
    segment_files(store)

    def name(argument: str, setting: str, default: str) -> str:
        value = getattr(arguments, argument)
        if value is None:
            return check_name(f"{setting} in {broker_conf}", conf.get(setting, default))
        return check_name(f"--{argument}", value)

    identity = StoreIdentity(
        name("cluster", "brokerClusterName", DEFAULT_CLUSTER),
        name("broker", "brokerName", DEFAULT_BROKER),
        str(store) if arguments.store_name is None else check_name("--store-name", arguments.store_name),
    )
    return _Archived(arguments.store, store, identity)


def _stores_of_file(arguments: argparse.Namespace) -> list[_Archived]:
    """The stores of `--stores`, except those that cannot be read and are left out."""
    from spark_mq.archive.archive_tables import StoreIdentity

    names = ("cluster", "broker", "store_name", "broker_conf")
    refuse(arguments, names, " is for one store: with --stores, the file says it")
    if arguments.follow is not None:
        raise OptionError("--follow archives one store: run it for each STORE, without --stores")

    def resolved(store: CommandStore) -> Location:
        location = Location.resolve(store.path)
        segment_files(location)
        return location

    found = []
    for of, location in read_each(arguments, stores_of_file(arguments.stores), resolved):
        of_file = () if of.named is None else of.named.names
        identity = StoreIdentity(*(check_name(f"{arguments.stores}: {of.named}", name) for name in of_file))
        found.append(_Archived(of.path, location, identity))
    return found


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
    arguments: argparse.Namespace, stores: Sequence[_Archived], tables: ArchiveTables, given: Mapping[str, str]
) -> Iterator[ArchiveReport]:
    """Archive the stores, one after the other; the report of each comes when it is archived."""
    from spark_mq.archive.broker_archive import archive_broker
    from spark_mq.archive.writer import archive
    from spark_mq.datasource import register

    output = FollowOutput(sys.stderr)
    with delta_session("spark-mq archive", given, tables.addresses) as spark:
        register(spark)
        try:
            for store in stores:
                how = {
                    "cluster": store.identity.cluster,
                    "broker": store.identity.broker,
                    "store_name": store.identity.store,
                    "fail_on_data_loss": arguments.data_loss == "fail",
                    "follow_seconds": arguments.follow,
                    "stop": _stop_on_signals().is_set if arguments.follow is not None else lambda: False,
                    "on_batch": output.print_batch,
                    "on_wait": output.print_waiting,
                    **picked(arguments, "checkpoint", "max_bytes"),
                }
                if store.location is None:
                    client_options = _client_options(arguments)
                    yield archive_broker(spark, store.path, arguments.table, client_options=client_options, **how)
                else:
                    yield archive(spark, store.path, arguments.table, rename=arguments.rename, **how)
                output.end()
        finally:
            output.end()


@command(
    "maintain-archive",
    """
    TABLE
    --keep-days DAYS      delete messages and snapshots older than DAYS
    --no-optimize         do not join or cluster files
    --file-size SIZE      join files to about this size (256m)
    --vacuum-hours HOURS  remove files that no version of the last HOURS uses; Delta refuses less than 168 by default
    --apply
    | --dry-run           change nothing; print what would be deleted and removed (the default)
    --json
    """,
    SPARK,
    example="/lake/messages --keep-days 365",
    description="""
    Join and cluster the files of an archive's tables (OPTIMIZE). With --keep-days, also delete old rows; with
    --vacuum-hours, also remove unused files (VACUUM). Without --apply this is a dry run: the command changes nothing,
    and prints what would be deleted and removed.
    """,
    file_size="256m",
)
def run_maintenance(arguments: argparse.Namespace) -> int:
    """Maintain, or show what would change, and print the report."""
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.archive.maintenance import maintain

    ArchiveTables.of(arguments.table, checkpoint="")
    check_is_archive(arguments.table)
    given = given_settings(arguments)
    with delta_session("spark-mq maintain-archive", given, [arguments.table]) as spark:
        report = maintain(
            spark,
            arguments.table,
            optimize=not arguments.no_optimize,
            dry_run=not arguments.apply,
            **picked(arguments, "keep_days", "file_size", "vacuum_hours"),
        )
    print_answer(arguments.json, report.to_json, report.to_text)
    return 0


def _stop_on_signals() -> threading.Event:
    """An event that is set by Ctrl-C or a plain `kill`. Messages archived until then stay archived."""
    stop = threading.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, lambda *_: stop.set())
    return stop
