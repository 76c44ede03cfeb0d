"""`spark-mq sql`: Spark SQL over stores, from the command line or at a prompt."""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_spark_settings, pair
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.interrupt import cancels_on_interrupt
from spark_mq.cli.output import visible
from spark_mq.cli.spark import given_settings, spark_errors, spark_session
from spark_mq.errors import SparkMqError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_mq.query.catalog import Store

_EPILOG = """\
examples:
  spark-mq sql "SELECT topic, count(*) FROM messages GROUP BY topic" --store prod=/data/store
  spark-mq sql --store prod=/data/store --store dev=/data/dev
  spark-mq> SELECT m.topic FROM prod.messages m LEFT ANTI JOIN dev.messages d ON m.unique_key = d.unique_key;
"""
_PROMPT, _MORE = "spark-mq> ", "       -> "
_PATHS = ("path", "brokerconf")
"""Options that are paths, in lower case."""
_HAS_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LEAVE = re.compile(r"\s*(?:quit|exit)\s*;?\s*", re.IGNORECASE)


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "sql",
        help="Spark SQL over stores",
        description="Run Spark SQL over the tables of stores: messages, consume_queue, segments, queues, topics,\n"
        "consumer_offsets, ... Only the rows and columns that the query needs are read of each table.",
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
        required=True,
        help="a broker's store directory (storePathRootDir). Its tables are NAME.messages, ...; if there is one store, "
        "also messages. A relative path is resolved here, even if the query runs on a Spark Connect server",
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
        "--explain", action="store_true", help="print what would be read of each store; do not run the query"
    )
    add_spark_settings(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the statements of the argument, or else of the prompt or stdin; returns the exit status."""
    with spark_session("spark-mq sql", given=given_settings(arguments)) as spark:
        from spark_mq.source.datasource import register

        register(spark)
        console = _Console(spark, arguments)
        if arguments.query is None and sys.stdin.isatty():
            with cancels_on_interrupt(spark):
                return console.prompt()
        return console.run_all(sys.stdin.read() if arguments.query is None else arguments.query)


class _Console:
    """Runs statements, and prints their rows."""

    def __init__(self, spark: SparkSession, arguments: argparse.Namespace) -> None:
        options = {name: _absolute(value) if name.lower() in _PATHS else value for name, value in arguments.options}
        self._spark = spark
        self._stores: dict[str, Store] = {name: {**options, "path": _absolute(path)} for name, path in arguments.stores}
        self._form = arguments.format
        self._explain = arguments.explain

    def run_all(self, text: str) -> int:
        """Run statements in order; returns the exit status. Raises the `SparkMqError` of the first that fails."""
        from spark_mq.query.statement import is_blank, split_statements

        statements, last = split_statements(text)
        for statement in statements if is_blank(last) else [*statements, last]:
            if _LEAVE.fullmatch(statement):
                break
            self._run(statement)
        return FOUND

    def prompt(self) -> int:
        """Run the statements that are typed; returns the exit status. Errors do not end the prompt."""
        from spark_mq.query.statement import is_blank, split_statements

        _use_history()
        text = ""
        while True:
            try:
                line = input(_PROMPT if is_blank(text) else _MORE)
                if is_blank(text) and _LEAVE.fullmatch(line):
                    return FOUND
                statements, text = split_statements(f"{text}{line}\n")
                for statement in statements:
                    self._run(statement)
            except SparkMqError as error:
                print(f"spark-mq: {error}", file=sys.stderr)
            except KeyboardInterrupt:  # Spark has cancelled the query; or the user drops a line
                print(file=sys.stderr)
                text = ""
            except EOFError:
                print()
                return FOUND

    def _run(self, statement: str) -> None:
        from spark_mq.cli.dataframe_output import print_dataframe
        from spark_mq.query.sql import reads_of, sql

        with spark_errors():
            if self._explain:
                for read in reads_of(self._spark, statement, stores=self._stores):
                    print(visible(str(read)))
            else:
                print_dataframe(sql(self._spark, statement, stores=self._stores), self._form)


def _absolute(path: str) -> str:
    """The path in a form that is right in any working folder: Spark looks for stores in processes of its own."""
    return path if _HAS_SCHEME.match(path) else os.path.abspath(path)


def _use_history() -> None:
    """Let arrow keys recall typed lines, if Python has the library for it."""
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401
