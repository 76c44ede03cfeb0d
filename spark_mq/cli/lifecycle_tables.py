"""`spark-mq transactions`, `delayed`, ...: tables of what messages mean, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_conf, add_json_rows
from spark_mq.cli.exit_status import FOUND, NOT_FOUND

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.store.message_store import MessageStore

_HELP = {
    "transactions": "what became of each half message: committed, rolled back, discarded, or pending",
    "delayed": "the delayed messages: when each is due, and where it was delivered",
}
_ROW = {"transactions": "transaction", "delayed": "delayed message"}
_CONF = {
    "transactions": "transactionTimeOut, transactionCheckInterval, transactionCheckMax and fileReservedTime",
    "delayed": "messageDelayLevel, if the consume queue is lost",
}
_IMPORTANCE = {
    "transactions": (
        "unique_key",
        "topic",
        "state",
        "checks",
        "age_millis",
        "reason",
        "next_check_timestamp",
        "next_step",
        "producer_group",
        "born_timestamp",
        "end_timestamp",
        "half_queue_offsets",
        "commit_offsets",
        "half_offsets",
        "op_offsets",
        "discard_offset",
        "queue_id",
        "half_queue_id",
    ),
    "delayed": (
        "unique_key",
        "topic",
        "state",
        "due_timestamp",
        "delay_level",
        "delivered_offsets",
        "reason",
        "delivered_timestamp",
        "rolls",
        "waiting_queue_offsets",
        "waiting_offsets",
        "store_timestamp",
        "born_timestamp",
        "cancel_offset",
        "slot_timestamp",
        "delayed_by",
        "queue_id",
        "waiting_queue_id",
    ),
}
"""The columns of each table by importance: on a narrow terminal, the last ones are hidden."""
_LEAST_WIDTH = {"topic": 16, "unique_key": 12, "reason": 16, "producer_group": 12}
_HINT = "--columns chooses columns, --full prints every field"
_EPILOG = """\
The whole log is read once. On a terminal, the table is cut to its width. Otherwise all columns and whole values are
printed. If the state of a row is UNKNOWN, column `reason` says what is missing, and a line on stderr says how many rows
these are.
"""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    from spark_mq.cli.archive.source import ARCHIVE_EPILOG, add_store_or_archive
    from spark_mq.cli.output.columns import add_columns, add_sort

    for name, what in _HELP.items():
        epilog = f"{_EPILOG} {ARCHIVE_EPILOG}"
        command = commands.add_parser(name, help=what, description=f"Print {what}.", epilog=epilog, allow_abbrev=False)
        add_store_or_archive(command)
        command.add_argument("--at", metavar="TIME", help="the time to which ages and due times refer (default: now)")
        add_broker_conf(command, _CONF[name])
        add_json_rows(command)
        add_columns(command)
        add_sort(command)
        command.set_defaults(run=run, table=name)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit status."""
    from datetime import datetime

    from spark_mq.cli.archive.source import archived_store, is_archive
    from spark_mq.cli.moments import parse_moment
    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.output.text_table import TableStyle
    from spark_mq.cli.several_stores import columns_of, importance_of, place_of, union

    schema, rows_of = _table(arguments.table)
    printer = RowPrinter.of(arguments, columns_of(arguments, schema.names))
    at = None if arguments.at is None else parse_moment("--at", arguments.at, datetime.now().astimezone())
    if is_archive(arguments.store, arguments):
        with archived_store(arguments.store, arguments, arguments.table) as archived:
            rows = printer.rows(archived.table(arguments.table, at=at))
    else:
        rows = printer.rows(union(arguments, lambda of, store: rows_of(store, at, store.broker_conf)))
    importance = importance_of(arguments, _IMPORTANCE[arguments.table])
    printer.print(rows, TableStyle(importance, _LEAST_WIDTH, whole=("state",), hint=_HINT))
    _print_unknown(arguments, rows)
    if not rows:
        print(f"spark-mq: no {_ROW[arguments.table]} in {place_of(arguments)}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _table(name: str) -> tuple[pa.Schema, Callable[[MessageStore, int | None, Any], pa.Table]]:
    """The schema of a table, and the function that reads its rows."""
    if name == "transactions":
        from spark_mq.lifecycle.transactions.transactions import TRANSACTIONS_SCHEMA, transaction_rows

        return TRANSACTIONS_SCHEMA, transaction_rows
    from spark_mq.lifecycle.delays.delayed import DELAYED_SCHEMA, delayed_rows

    return DELAYED_SCHEMA, delayed_rows


def _print_unknown(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line on stderr, if the state of rows is UNKNOWN."""
    from spark_mq.cli.output.value_text import visible

    unknown = [row for row in rows if row["state"] == "UNKNOWN"]
    if unknown:
        line = (
            f"the state of {len(unknown)} of {len(rows)} {_ROW[arguments.table]}s is UNKNOWN; the first is "
            f"{unknown[0]['unique_key']}: {unknown[0]['reason']}"
        )
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
