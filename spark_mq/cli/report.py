"""`spark-mq report STORE...`: a page about stores that people keep. No Spark."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from spark_mq.cli.archive_source import STORE_OF_ARCHIVE, archived_store, is_named_archive, refuse_archive_options
from spark_mq.cli.arguments import broker_conf_path, refuse
from spark_mq.cli.command import command
from spark_mq.cli.engine import LOCAL, job_tasks
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.terminal import print_answer
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.reporter.report import Report

_OF_STORES = ("at", "archive", "broker_version", "cores")
_HTML = "spark-mq-report.html"


@command(
    "report",
    f"""
    STORE...            the store directories (storePathRootDir); several are shown side by side
    --html FILE         the file that gets the page ({_HTML})
    --at TIME           the time to which ages refer (default: now)
    --archive TABLE     also say what of the stores is not in this archive yet (spark-mq archive)
    --history DIR       keep the figures of this run in DIR, and show those of the runs before
    --broker-version V  the version of the broker that starts next, such as 5.3.3 (default: all that the files allow)
    --broker-conf FILE  the brokers' settings file, for file sizes, and settings of the index and of retention
    --json              print the figures that --history keeps as one JSON object
    --quiet
    --cores CORES
    """,
    STORE_OF_ARCHIVE,
    example="/data/store --html store.html",
    description="""
    Make a page about stores: how they are and what to do, damage, how far back messages go, who lags by how much time,
    what expires and who loses messages by it, what waits, disk use, and statistics of messages.
    """,
    epilog="""
    The page is one HTML file, which needs nothing else. Each table has the query that prints all its rows. A store is
    not changed, and its broker can run. The packages of
    `pip install 'spark-mq[report]'` are needed.

    STORE can be one archive: the TABLE of `spark-mq archive`. Then Spark starts, and the page has what the messages
    say, at the time of the archive's last run, and which part of the log is archived.
    """,
    html=_HTML,
)
def print_report(arguments: argparse.Namespace) -> int:
    """Write the page, and print the state of each store; returns the exit status."""
    from spark_mq.reporter.report import report_with
    from spark_mq.store.retention import moment_of

    if any(is_named_archive(path, arguments) for path in arguments.store):
        return _print(arguments, _of_archive(arguments))
    refuse_archive_options(arguments.store[0], arguments)
    stores = [(path, broker_conf_path(arguments.broker_conf, path)) for path in arguments.store]
    with job_tasks("report", arguments, LOCAL, ()) as tasks:
        at, version = moment_of(arguments.at), arguments.broker_version
        found = report_with(tasks, stores, arguments.html, arguments.archive, at, arguments.history, version)
    return _print(arguments, found)


def _of_archive(arguments: argparse.Namespace) -> Report:
    from spark_mq.reporter.figures import archive_figures
    from spark_mq.reporter.report import report_of

    if len(arguments.store) > 1:
        raise OptionError("give one archive alone: its stores are chosen by --cluster, --broker and --store-name")
    refuse(arguments, _OF_STORES, " has no effect on an archive: leave it out")
    with archived_store(arguments.store[0], arguments, "report") as archived:
        return report_of([archive_figures(archived)], arguments.html, arguments.history)


def _print(arguments: argparse.Namespace, found: Report) -> int:
    print_answer(arguments.json, lambda: {"stores": [one.summary for one in found.stores]}, lambda: _lines(found))
    say(f"the page is {arguments.html}")
    return FOUND


def _lines(report: Report) -> Iterator[str]:
    from spark_mq.reporter.status import status_of

    for figures in report.stores:
        for name, lines in status_of(figures).lines:
            for number, line in enumerate(lines):
                yield f"  {'' if number else name:<15} {line}"
        yield ""
