"""`spark-mq segments`, `queues`, `topics`, `lag`: what a store holds, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.exit_status import FOUND, NOT_FOUND

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.store.message_store import MessageStore

_HELP = {
    "segments": "the files of the commit log",
    "queues": "the consume queues and their offsets (mqadmin topicStatus)",
    "topics": "the topics, their settings and messages (mqadmin topicList)",
    "lag": "how far consumer groups have got (mqadmin consumerProgress)",
}
_REMEDY = {
    "segments": "reads the whole log and names all damage (with --mode permissive and --output DIR)",
    "queues": "makes the consume queues from the log",
    "topics": "makes the consume queues from the log",
    "lag": "makes the consume queues from the log",
}
_ROW = {"segments": "segment", "queues": "queue", "topics": "topic", "lag": "consumer offset"}


_EPILOG = """\
Column `problem` says what a quick look found: at both edges of each segment, at the first and last unit and the files
of each queue, at the last 256 KiB of the log, and at consumer groups' offsets. A line on stderr says how many rows have
one. What is damaged elsewhere only a whole read finds: `spark-mq rebuild`.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    for name, what in _HELP.items():
        command = commands.add_parser(name, help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False)
        command.add_argument("store", metavar="STORE", help="the broker's store directory (storePathRootDir)")
        command.add_argument("--json", action="store_true", help="one JSON object a line")
        if name in ("queues", "lag"):
            command.add_argument("--topic", metavar="TOPIC", help="only this topic")
        if name == "lag":
            command.add_argument("--consumer-group", metavar="GROUP", help="only this group")
        if name != "segments":
            command.add_argument("--broker-version", metavar="V", help="4.9 or 5 (default: as config/ shows)")
        command.set_defaults(run=run, table=name)


def run(arguments: argparse.Namespace) -> int:
    """Print the table."""
    from spark_mq.cli.output import plain_rows, print_json, print_table
    from spark_mq.store.message_store import MessageStore

    with MessageStore(arguments.store, getattr(arguments, "broker_version", None)) as store:
        table = _table(arguments)(store)
    rows = plain_rows(table)
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, table.column_names)
    _say_problems(arguments, rows)
    if not rows:
        print(f"spark-mq: there is no such {_ROW[arguments.table]} in {arguments.store}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _say_problems(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """One line on stderr, if a quick look at the files found something wrong."""
    from spark_mq.cli.output import visible
    from spark_mq.io.location import Location
    from spark_mq.store.config.store_paths import ABORT

    found = [row for row in rows if row["problem"] is not None]
    if not found:
        return
    row, what = found[0], _ROW[arguments.table]
    name = row["file"] if arguments.table == "segments" else row["topic"]
    name = f"{name}/{row['queue_id']}" if "queue_id" in row else name
    said = f"{len(found)} of {len(rows)} {what}s have a problem, first {name}: {row['problem']}"
    is_open = arguments.table != "segments" and (Location.resolve(arguments.store) / ABORT).is_file
    broker = "; a broker that runs, or starts again, may complete them itself" if is_open else ""
    print(f"spark-mq: {visible(said)}; `spark-mq rebuild` {_REMEDY[arguments.table]}{broker}", file=sys.stderr)


def _table(arguments: argparse.Namespace) -> Callable[[MessageStore], pa.Table]:
    from spark_mq.store import metadata_tables

    if arguments.table == "queues":
        return lambda store: metadata_tables.queues(store, arguments.topic)
    if arguments.table == "lag":
        return lambda store: metadata_tables.consumer_offsets(store, arguments.topic, arguments.consumer_group)
    return metadata_tables.topics if arguments.table == "topics" else metadata_tables.segments
