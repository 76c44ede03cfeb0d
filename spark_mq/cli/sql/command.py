"""`spark-mq sql`: Spark SQL over stores, from the command line or at a prompt."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import broker_conf_path
from spark_mq.cli.command import SPARK, command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.interrupt import cancels_on_interrupt
from spark_mq.cli.output import say
from spark_mq.cli.output.value_text import visible
from spark_mq.cli.spark import (
    delta_session_settings,
    given_settings,
    has_empty_catalog,
    is_on_server,
    sail_session,
    spark_errors,
    spark_session,
)
from spark_mq.cli.sql.prompt import HELP, Completer, line_editing
from spark_mq.errors import OptionError, SparkMqError, StoreNotFoundError
from spark_mq.io.location import Location
from spark_mq.io.s3 import OPTIONS, with_settings
from spark_mq.query.lexer import first_word, is_blank, split_statements
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.named_stores import is_pattern, load_stores, matching_stores, stores_text
from spark_mq.store.log.segment_files import segment_files
from spark_mq.tables.all_tables import TABLES
from spark_mq.tables.live import LIVE_TABLES
from spark_mq.tables.table import is_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.archive.sql import Archives
    from spark_mq.query.catalog import Store
    from spark_mq.query.statement_check import StatementCheck

_PROMPT, _MORE = "spark-mq> ", "       -> "
_LEAVE = re.compile(r"\s*(?:quit|exit)\s*;?\s*", re.IGNORECASE)
_HELP = re.compile(r"\s*(?:help|\?|\\\?|\\h)\s*;?\s*", re.IGNORECASE)
_BROKER_CONF = "brokerconf"
_PATHS = ("path", _BROKER_CONF)
"""Options that are paths, in lower case."""
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


@dataclass
class Console:
    """Runs or explains statements; Spark starts with the first one that needs it, by the context `start`."""

    start: Callable[[], AbstractContextManager[SparkSession]]
    settings: Mapping[str, str]
    stores: Mapping[str, Store]
    archives: Archives
    form: str
    explain: bool
    _stack: ExitStack = field(default_factory=ExitStack)
    _spark: SparkSession | None = None
    _is_prompt: bool = False

    def run_all(self, text: str) -> int:
        """Check all statements, and then run them in order; returns the exit status."""
        statements, last = split_statements(text)
        statements = statements if is_blank(last) else [*statements, last]
        leave = next((index for index, text in enumerate(statements) if _LEAVE.fullmatch(text)), len(statements))
        check = self._new_check()
        for statement in statements[:leave]:
            check.check(statement)
        check = self._new_check()
        with self._stack:
            for statement in statements[:leave]:
                self._run(statement, check)
        return FOUND

    def prompt(self) -> int:
        """Run the statements that are typed; returns the exit status. Errors do not end the prompt."""
        tables = {**{store: list(TABLES) for store in self.stores}, **self.archives.tables}
        check, completer, self._is_prompt = self._new_check(), Completer(tables, self._columns), True
        text = ""
        with self._stack, line_editing(completer):
            while True:
                try:
                    completer.pending = text
                    line = input(_PROMPT if is_blank(text) else _MORE)
                    if is_blank(text) and _LEAVE.fullmatch(line):
                        return FOUND
                    if is_blank(text) and _HELP.fullmatch(line):
                        print(visible(HELP.format(stores=", ".join(self.stores)), keep="\n"))
                        continue
                    statements, rest = split_statements(f"{text}{line}\n")
                    text = rest.lstrip()  # so that an error's line number is that of the statement
                    for statement in statements:
                        self._run(statement, check)
                except SparkMqError as error:
                    print(f"spark-mq: {error}", file=sys.stderr)
                except KeyboardInterrupt:  # Spark has cancelled the query; or the user drops a line
                    print(file=sys.stderr)
                    text = ""
                except EOFError:
                    print()
                    return FOUND

    def _new_check(self) -> StatementCheck:
        from spark_mq.query.statement_check import StatementCheck

        return StatementCheck(self.stores, self.archives.tables, has_empty_catalog(self.settings))

    def _run(self, statement: str, check: StatementCheck) -> None:
        answer = check.answer(statement)
        plan = check.plan(statement, needs_parser=True) if self.explain else None
        check.check(statement)
        if plan is not None:
            from spark_mq.cli.sql.explain import explained

            archives = self.archives.archives.values()
            for line in explained(plan, self.stores, archives, self.settings, sees_stores=not is_on_server()):
                print(visible(line))
        elif answer is not None and (answer.with_session_tables is None or self._spark is None):
            from spark_mq.cli.output.dataframe_output import print_rows

            print_rows(iter(answer.rows), answer.columns, self.form)
        else:
            self._run_in_spark(statement)

    def _run_in_spark(self, statement: str) -> None:
        from spark_mq.cli.output.dataframe_output import print_dataframe
        from spark_mq.query.sql import run_statement

        if self._spark is None:
            from spark_mq.datasource import register

            self._spark = self._stack.enter_context(self.start())
            register(self._spark)
            if self._is_prompt:
                self._stack.enter_context(cancels_on_interrupt(self._spark))
        spark = self._spark
        with spark_errors():
            self.archives.prepare(spark, statement)
            frame = run_statement(spark, statement, None, self.stores, self.archives.tables, self.archives.load)
            if self.form == "table" and first_word(statement) == "EXPLAIN":
                print(visible(str(frame.collect()[0][0]).strip(), keep="\n"))  # a table would have it in one line
            else:
                print_dataframe(frame, self.form)

    def _columns(self, owner: str, table: str) -> list[str]:
        from spark_mq.archive.sql import archive_columns
        from spark_mq.query.catalog import columns_of

        if owner not in self.stores:
            return archive_columns(table)
        columns = columns_of(self.stores[owner], table)
        return [*columns.default, *columns.extra]


@command(
    "sql",
    """
    [QUERY]               statements, separated by ; (default: read from a prompt or stdin)
    --store NAME=PATH     a broker's store directory (storePathRootDir), or a running cluster:
                          rocketmq://NAME_SERVER:9876. Its tables are NAME.messages, ...; if there is
                          one store, also messages; if there are several, also all.messages, ... with the rows of all of
                          them. A relative path is resolved here, even if the query runs on a Spark Connect server
    --stores FILE         a JSON list of stores, each with name, cluster, broker, path and broker_conf. Their tables are
                          NAME.messages, ..., and all.messages, ... with the rows of all of them
    --skip-unreadable
    --archive NAME=TABLE  an archive, the TABLE of `spark-mq archive`: a path, or a name in Spark's catalog. Its tables
                          are NAME.messages, NAME.keys, NAME.segments and NAME.snapshots, and those of what messages
                          mean: NAME.transactions, NAME.delayed, NAME.retries, ... If there is one archive and no store,
                          its tables are also messages, ... With one store and one archive there is also the view
                          history: each message once, those of the archive, and from its end on those of the store, or
                          of the brokers of the cluster
    --option KEY=VALUE    an option of the data source, for all stores: brokerConf=FILE, mode=FAILFAST, ...
    --client-conf FILE    of a running cluster: a properties file with options of docs/live.md, such as accessKey
    --format {table,csv,json}
                          the form of the rows (table)
    --explain             print what would be read of each store: columns, conditions, access path, bytes. The query
                          does not run, and Spark does not start
    --engine {spark,sail}
                          what runs the queries (spark): Spark, or Sail, which needs no Java: pip install
                          'spark-mq[sail]'. Sail has no --archive
    """,
    SPARK,
    example='"SELECT topic, count(*) FROM messages GROUP BY topic" --store prod=/data/store',
    description="""
    Run Spark SQL over the tables of stores: messages, consume_queue, segments, queues, topics,
    consumer_offsets, ... Only the rows and columns that the query needs are read of each table.
    SHOW TABLES lists the tables, and DESCRIBE NAME.messages its columns.
    """,
    epilog="""
    a prompt, over two stores:
      spark-mq sql --store prod=/data/store --store dev=/data/dev
      spark-mq> SELECT m.topic FROM prod.messages m LEFT ANTI JOIN dev.messages d ON m.unique_key = d.unique_key;
    """,
    format="table",
    engine="spark",
)
def run_sql(arguments: argparse.Namespace) -> int:
    """Run the statements of the argument, or else of the prompt or stdin; returns the exit status."""
    settings = given_settings(arguments)
    _check_names(arguments)
    stores, archives = _stores_and_archives(arguments)
    if not is_on_server():
        _check_files(arguments)
    start: Callable[[], AbstractContextManager[SparkSession]]
    start = partial(_session, settings, [table for _, table in arguments.archive])
    if arguments.engine == "sail":
        start = partial(sail_session, arguments)
    console = Console(start, settings, stores, archives, arguments.format, arguments.explain)
    if arguments.query is None and sys.stdin.isatty():
        return console.prompt()
    return console.run_all(sys.stdin.read() if arguments.query is None else arguments.query)


def _session(settings: Mapping[str, str], archives: Sequence[str]) -> AbstractContextManager[SparkSession]:
    needed = partial(delta_session_settings, settings, *archives) if archives else dict
    return spark_session("spark-mq sql", needed, settings)


def _stores_and_archives(arguments: argparse.Namespace) -> tuple[Mapping[str, Store], Archives]:
    from spark_mq.archive.sql import Archives
    from spark_mq.query.catalog import options_of, with_all

    options = {name: _absolute(value) if name.lower() in _PATHS else value for name, value in arguments.option}
    if arguments.skip_unreadable:
        options["skipUnreadable"] = "true"
    paths = {name: _absolute(path) for name, path in arguments.store}
    stores: Mapping[str, Store]
    live = BrokerConf.of(arguments.client_conf).settings
    own = {path: options | live if is_cluster(path) else _settings_file(options, path) for path in paths.values()}
    stores = with_all({name: {**own[path], "path": path} for name, path in paths.items()})
    if arguments.stores is not None:
        stores = _stores_of_file(arguments.stores, options)
    for name, store in stores.items():
        for table in LIVE_TABLES.keys() & TABLES if is_cluster(paths.get(name, "")) else TABLES:
            options_of(store, table)
    archives = {name: _absolute(table) if "/" in table else table for name, table in arguments.archive}
    broker_conf = next((value for name, value in options.items() if name.lower() == _BROKER_CONF), None)
    return stores, Archives(archives, broker_conf, is_alone=not stores)


def _stores_of_file(file: str, options: Mapping[str, str]) -> Mapping[str, Store]:
    """The stores of a file by their names, and the store `all`."""
    from spark_mq.query.table_names import ALL

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
    if arguments.store and arguments.stores is not None:
        raise OptionError("--store and --stores exclude each other: add the store to the file")
    if not arguments.store and arguments.stores is None and not arguments.archive:
        raise OptionError("give --store NAME=PATH, once for each store, or --stores FILE, or --archive NAME=TABLE")
    if arguments.skip_unreadable and len(arguments.store) == 1:
        raise OptionError("--skip-unreadable has no effect on one store: it is for several, and for --stores FILE")
    if arguments.archive and arguments.engine == "sail":
        raise OptionError("--archive needs Spark: leave out --engine sail")
    given: dict[str, str] = {}
    for option, pairs in (("--store", arguments.store), ("--archive", arguments.archive)):
        for name, _ in pairs:
            other = given.setdefault(name.lower(), option)
            if other != option:
                raise OptionError(f"--store and --archive both have the name {name}: give one of them another name")
        names = [name.lower() for name, _ in pairs]
        repeated = next((name for name in names if names.count(name) > 1), None)
        if repeated is not None:
            raise OptionError(f"{option} {repeated}=... is given twice: each needs a name of its own")
    if arguments.client_conf is not None and not any(is_cluster(path) for _, path in arguments.store):
        raise OptionError("--client-conf has only an effect on a running cluster, rocketmq://NAME_SERVER:9876")
    for name, _ in arguments.option:
        if name.lower() == "path":
            raise OptionError("--option path=... has no effect: --store NAME=PATH has the path")


def _check_files(arguments: argparse.Namespace) -> None:
    """Check that the paths are stores, and that settings files can be read. Raises `SparkMqError` if not."""
    settings = {name.lower(): value for name, value in arguments.option if name.lower() in OPTIONS}
    for _, given in arguments.store:
        path = with_settings(_absolute(given), settings)
        if is_cluster(path):
            continue
        try:
            if is_pattern(path):
                matching_stores(path)
            else:
                segment_files(Location.resolve(path))
        except StoreNotFoundError as error:
            if not arguments.skip_unreadable:
                raise
            say(f"left out of all.messages, ...: {error}")
    for name, table in arguments.archive:
        if "/" in table and "://" not in table and not os.path.isdir(f"{table.rstrip('/')}/_delta_log"):
            raise OptionError(
                f"--archive {name}={table} is not a Delta table: give the TABLE of `spark-mq archive STORE TABLE`"
            )
    for name, value in arguments.option:
        if name.lower() == _BROKER_CONF:
            BrokerConf.of(_absolute(value))


def _absolute(path: str) -> str:
    """The path in a form that is right in any working folder: Spark looks for stores in processes of its own."""
    return path if _HAS_SCHEME.match(path) else os.path.abspath(path)
