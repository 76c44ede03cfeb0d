"""`spark-mq sql`: Spark SQL over stores, from the command line or at a prompt."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_skip_unreadable, add_spark_settings, broker_conf_path, pair
from spark_mq.cli.output import visible
from spark_mq.cli.spark import given_settings, has_empty_catalog, is_on_server, spark_session
from spark_mq.cli.sql.console import Console, Session, Tables
from spark_mq.errors import OptionError, StoreNotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.query.catalog import Store

_EPILOG = """\
examples:
  spark-mq sql "SELECT topic, count(*) FROM messages GROUP BY topic" --store prod=/data/store
  spark-mq sql --store prod=/data/store --store dev=/data/dev
  spark-mq> SELECT m.topic FROM prod.messages m LEFT ANTI JOIN dev.messages d ON m.unique_key = d.unique_key;
"""
_BROKER_CONF = "brokerconf"
_PATHS = ("path", _BROKER_CONF)
"""Options that are paths, in lower case."""
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "sql",
        help="Spark SQL over stores",
        description="Run Spark SQL over the tables of stores: messages, consume_queue, segments, queues, topics,\n"
        "consumer_offsets, ... Only the rows and columns that the query needs are read of each table.\n"
        "SHOW TABLES lists the tables, and DESCRIBE NAME.messages its columns.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "query", metavar="QUERY", nargs="?", help="statements, separated by ; (default: read from a prompt or stdin)"
    )
    command.add_argument(
        "--store",
        metavar="NAME=PATH",
        dest="stores",
        action="append",
        type=pair("prod=/data/store"),
        default=[],
        help="a broker's store directory (storePathRootDir). Its tables are NAME.messages, ...; if there is one store, "
        "also messages; if there are several, also all.messages, ... with the rows of all of them. A relative path is "
        "resolved here, even if the query runs on a Spark Connect server",
    )
    command.add_argument(
        "--stores",
        metavar="FILE",
        dest="stores_file",
        help="a JSON list of stores, each with name, cluster, broker, path and broker_conf. Their tables are "
        "NAME.messages, ..., and all.messages, ... with the rows of all of them",
    )
    add_skip_unreadable(command)
    command.add_argument(
        "--archive",
        metavar="NAME=TABLE",
        dest="archives",
        action="append",
        type=pair("old=/lake/messages"),
        default=[],
        help="an archive, the TABLE of `spark-mq archive`: a path, or a name in Spark's catalog. Its tables are "
        "NAME.messages, NAME.keys, NAME.segments and NAME.snapshots, and those of what messages mean: "
        "NAME.transactions, NAME.delayed, NAME.retries, ... If there is one archive and no store, its tables are also "
        "messages, ... With one store and one archive there is also the view history: each message once, from the "
        "archive, or else from the store",
    )
    command.add_argument(
        "--option",
        metavar="KEY=VALUE",
        dest="options",
        action="append",
        type=pair("mode=FAILFAST"),
        default=[],
        help="an option of the data source, for all stores: brokerConf=FILE, mode=FAILFAST, ...",
    )
    command.add_argument(
        "--format", choices=["table", "csv", "json"], default="table", help="the form of the rows (table)"
    )
    command.add_argument(
        "--explain",
        action="store_true",
        help="print what would be read of each store: columns, conditions, access path, bytes. The query does not run, "
        "and Spark does not start",
    )
    add_spark_settings(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the statements of the argument, or else of the prompt or stdin; returns the exit status."""
    settings = given_settings(arguments)
    tables = _tables(arguments)
    session = Session(
        lambda: _session(settings, [table for _, table in arguments.archives]),
        settings,
        has_empty_catalog(settings),
        sees_stores=not is_on_server(),
    )
    if session.sees_stores:
        _check_files(arguments)
    console = Console(session, tables, arguments.format, arguments.explain)
    if arguments.query is None and sys.stdin.isatty():
        return console.prompt()
    return console.run_all(sys.stdin.read() if arguments.query is None else arguments.query)


@contextmanager
def _session(settings: Mapping[str, str], archives: Sequence[str]) -> Iterator[SparkSession]:
    """A context with the session, which can open the archives."""
    if not archives:
        with spark_session("spark-mq sql", given=settings) as spark:
            yield spark
        return
    from spark_mq.archive.archive_tables import ArchiveTables
    from spark_mq.cli.spark import delta_session_settings

    needed = partial(delta_session_settings, settings, *archives)
    with spark_session("spark-mq sql", needed, settings) as spark:
        for table in archives:
            ArchiveTables.of(table, checkpoint="").connected(spark)
        yield spark


def _tables(arguments: argparse.Namespace) -> Tables:
    """The tables that the arguments name. Raises `OptionError` for wrong names and options."""
    from spark_mq.query.catalog import options_of, with_all
    from spark_mq.tables.all_tables import TABLES

    _check_names(arguments)
    options = {name: _absolute(value) if name.lower() in _PATHS else value for name, value in arguments.options}
    if arguments.skip_unreadable:
        options["skipUnreadable"] = "true"
    paths = {name: _absolute(path) for name, path in arguments.stores}
    stores: Mapping[str, Store]
    stores = with_all({name: {**_settings_file(options, path), "path": path} for name, path in paths.items()})
    if arguments.stores_file is not None:
        stores = _stores_of_file(arguments.stores_file, options)
        paths = {name: store["path"] for name, store in stores.items() if "path" in store}  # type: ignore[index]
    for store in stores.values():
        for table in TABLES:
            options_of(store, table)
    if not arguments.archives:
        return Tables(stores)
    from spark_mq.cli.sql.archive import Meanings, archive_tables, history_of

    archives = {name: _absolute(table) if "/" in table else table for name, table in arguments.archives}
    broker_conf = next((value for name, value in options.items() if name.lower() == _BROKER_CONF), None)
    return Tables(
        stores, archive_tables(archives), history_of(paths, archives), Meanings(archives, broker_conf, bool(stores))
    )


def _stores_of_file(file: str, options: Mapping[str, str]) -> Mapping[str, Store]:
    """The stores of a file by their names, and the store `all`."""
    from spark_mq.query.catalog import ALL
    from spark_mq.store.config.named_stores import load_stores, stores_text

    stores: dict[str, Store] = {}
    listed = load_stores(_absolute(file))
    for store in listed:
        conf = {} if store.broker_conf is None else {"brokerConf": store.broker_conf}
        if store.store.lower() in (ALL, *map(str.lower, stores)):
            raise OptionError(f"--stores {file}: the name {store.store} is used twice, or is {ALL}: give another name")
        stores[store.store] = {**options, **store.options, **conf, "path": store.path}
    return {**stores, ALL: {**options, "stores": stores_text(listed)}}


def _settings_file(options: Mapping[str, str], store: str) -> dict[str, str]:
    """The options, with the broker's settings file of a store; a server is not told of files that are here."""
    if is_on_server() or _BROKER_CONF in map(str.lower, options):
        return dict(options)
    broker_conf = broker_conf_path(None, store)
    return dict(options) if broker_conf is None else {**options, "brokerConf": os.path.abspath(broker_conf)}


def _check_names(arguments: argparse.Namespace) -> None:
    if arguments.stores and arguments.stores_file is not None:
        raise OptionError("--store and --stores exclude each other: add the store to the file")
    if not arguments.stores and arguments.stores_file is None and not arguments.archives:
        raise OptionError("give --store NAME=PATH, once for each store, or --stores FILE, or --archive NAME=TABLE")
    if arguments.skip_unreadable and len(arguments.stores) == 1:
        raise OptionError("--skip-unreadable has no effect on one store: it is for several, and for --stores FILE")
    given: dict[str, str] = {}
    for option, pairs in (("--store", arguments.stores), ("--archive", arguments.archives)):
        for name, _ in pairs:
            other = given.setdefault(name.lower(), option)
            if other != option:
                raise OptionError(f"--store and --archive both have the name {name}: give one of them another name")
        names = [name.lower() for name, _ in pairs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise OptionError(f"{option} {repeated}=... is given twice: each needs a name of its own")
    for name, _ in arguments.options:
        if name.lower() == "path":
            raise OptionError("--option path=... has no effect: --store NAME=PATH has the path")


def _check_files(arguments: argparse.Namespace) -> None:
    """Check that the paths are stores, and that settings files can be read. Raises `SparkMqError` if not."""
    from spark_mq.io.location import Location
    from spark_mq.io.s3 import OPTIONS, with_settings
    from spark_mq.store.config.broker_conf import BrokerConf
    from spark_mq.store.config.named_stores import is_pattern, matching_stores
    from spark_mq.store.log.segment_files import segment_files

    settings = {name.lower(): value for name, value in arguments.options if name.lower() in OPTIONS}
    for _, given in arguments.stores:
        path = with_settings(_absolute(given), settings)
        try:
            if is_pattern(path):
                matching_stores(path)
            else:
                segment_files(Location.resolve(path))
        except StoreNotFoundError as error:
            if not arguments.skip_unreadable:
                raise
            print(f"spark-mq: left out of all.messages, ...: {visible(str(error))}", file=sys.stderr)
    for name, value in arguments.options:
        if name.lower() == _BROKER_CONF:
            BrokerConf.of(_absolute(value))


def _absolute(path: str) -> str:
    """The path in a form that is right in any working folder: Spark looks for stores in processes of its own."""
    return path if _HAS_SCHEME.match(path) else os.path.abspath(path)
