"""`spark-mq segments`, `queues`, `topics`, `lag`: metadata tables of a store, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_version, add_json_rows, add_store
from spark_mq.cli.exit_status import FOUND, NOT_FOUND

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.store.message_store import MessageStore

_HELP = {
    "segments": "the files of the commit log",
    "queues": "the consume queues and their offsets (mqadmin topicStatus)",
    "topics": "the topics, their settings and messages (mqadmin topicList)",
    "lag": "the offsets of consumer groups, and how many messages remain (mqadmin consumerProgress)",
}
_REMEDY = {
    "segments": "reads the whole log and names all damage (with --mode permissive and --output DIR)",
    "queues": "builds the consume queues from the log",
    "topics": "builds the consume queues from the log",
    "lag": "builds the consume queues from the log",
}
_ROW = {"segments": "segment", "queues": "queue", "topics": "topic", "lag": "consumer offset"}


_EPILOG = """\
Column `problem` has the result of a quick check: both edges of each segment; the files, and the first and last unit, of
each queue; the messages in the last 256 KiB of the log; the offsets of consumer groups. If rows have a problem, a line
on stderr says how many. Damage elsewhere is found only by reading the whole log: `spark-mq rebuild`.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    for name, what in _HELP.items():
        command = commands.add_parser(name, help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False)
        add_store(command)
        add_json_rows(command)
        if name in ("queues", "lag"):
            command.add_argument("--topic", metavar="TOPIC", help="only this topic")
        if name == "lag":
            command.add_argument("--consumer-group", metavar="GROUP", help="only this group")
        if name != "segments":
            add_broker_version(command)
        command.set_defaults(run=run, table=name)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit status."""
    from spark_mq.cli.output import plain_rows, print_json, print_table
    from spark_mq.store.message_store import MessageStore

    with MessageStore(arguments.store, getattr(arguments, "broker_version", None)) as store:
        table = _table(arguments)(store)
    rows = plain_rows(table)
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, table.column_names)
    _print_problems(arguments, rows)
    if not rows:
        print(f"spark-mq: no matching {_ROW[arguments.table]} in {arguments.store}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _print_problems(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line on stderr, if rows have a problem."""
    from spark_mq.cli.output import visible
    from spark_mq.io.location import Location
    from spark_mq.store.config.store_paths import ABORT

    problem_rows = [row for row in rows if row["problem"] is not None]
    if not problem_rows:
        return
    row, what = problem_rows[0], _ROW[arguments.table]
    name = row["file"] if arguments.table == "segments" else row["topic"]
    name = f"{name}/{row['queue_id']}" if "queue_id" in row else name
    problem = f"{len(problem_rows)} of {len(rows)} {what}s have a problem; the first is {name}: {row['problem']}"
    # A broker creates `abort` when it starts, and removes it when it stops cleanly.
    may_recover = arguments.table != "segments" and (Location.resolve(arguments.store) / ABORT).is_file
    broker = "; a broker that runs, or starts again, may complete them itself" if may_recover else ""
    print(f"spark-mq: {visible(problem)}; `spark-mq rebuild` {_REMEDY[arguments.table]}{broker}", file=sys.stderr)


def _table(arguments: argparse.Namespace) -> Callable[[MessageStore], pa.Table]:
    from spark_mq.store import metadata_tables

    if arguments.table == "queues":
        return lambda store: metadata_tables.queues(store, arguments.topic)
    if arguments.table == "lag":
        return lambda store: metadata_tables.consumer_offsets(store, arguments.topic, arguments.consumer_group)
    return metadata_tables.topics if arguments.table == "topics" else metadata_tables.segments
