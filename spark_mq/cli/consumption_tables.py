"""`spark-mq retries`, `traces`, `consumer-progress`, ...: the tables of what messages mean, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_version, add_json_rows
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.store.message_store import MessageStore


@dataclass(frozen=True)
class _Command:
    """A command: the package of its table, what it prints, its rows, its options, and the columns by importance."""

    package: str
    what: str
    row: str
    options: tuple[str, ...]
    importance: tuple[str, ...]

    def given(self, arguments: argparse.Namespace, at: int | None) -> dict[str, Any]:
        """The options that choose rows, by name."""
        names = ("topic", "consumer_group", "most_keys")
        given = {name: getattr(arguments, name) for name in self.options if name in names}
        return {**given, "at": at} if "at" in self.options else given

    def rows(self, store: MessageStore, arguments: argparse.Namespace, at: int | None) -> pa.Table:
        """The rows of the command's table, which is named as the command."""
        given, module = self.given(arguments, at), _module(arguments.table)
        table: pa.Table = getattr(module, f"{_name(arguments.table)}_rows")(store, **given)
        return table


_COMMANDS = {
    "retries": _Command(
        "consumption",
        "the attempts to consume messages that consumer groups returned",
        "retry",
        ("consumer_group", "at"),
        ("consumer_group", "attempt", "state", "final_state", "due_timestamp", "unique_key", "origin_topic", "reason"),
    ),
    "dead-letters": _Command(
        "consumption",
        "the messages that consumer groups gave up",
        "dead letter",
        ("consumer_group",),
        ("consumer_group", "store_timestamp", "reconsume_times", "unique_key", "origin_topic", "origin_message_id"),
    ),
    "traces": _Command(
        "traces",
        "the events that clients traced (mqadmin queryMsgTraceById)",
        "trace event",
        ("topic",),
        ("event_timestamp", "event_type", "group_name", "unique_key", "is_success", "cost_millis", "topic", "problem"),
    ),
    "consumer-progress": _Command(
        "consumption",
        "how far consumer groups are in each topic (mqadmin consumerProgress)",
        "consumer group",
        ("topic", "consumer_group", "at", "broker_version"),
        ("consumer_group", "topic", "state", "lag", "lag_millis", "group_retries", "group_dead_letters", "reason"),
    ),
    "duplicates": _Command(
        "statistics",
        "the messages that are stored more than once, and why",
        "duplicate",
        (),
        ("unique_key", "copy_number", "cause", "topic", "queue_id", "queue_offset", "store_timestamp"),
    ),
    "hot-keys": _Command(
        "statistics",
        "the keys of most messages and bytes",
        "key",
        ("topic", "most_keys"),
        ("topic", "key", "message_count", "log_bytes", "last_store_timestamp", "first_store_timestamp"),
    ),
    "rates": _Command(
        "statistics",
        "the messages and bytes of each topic, tag and minute",
        "message",
        ("topic",),
        ("minute", "topic", "tags", "message_count", "log_bytes"),
    ),
    "skew": _Command(
        "statistics",
        "the messages, bytes and born hosts of each queue and minute",
        "message",
        ("topic",),
        (
            "minute",
            "topic",
            "queue_id",
            "message_count",
            "log_bytes",
            "born_host_count",
            "top_born_host",
            "top_born_host_messages",
        ),
    ),
}
_MOST_KEYS = 1000
_READS = "The whole log is read, because nothing else has all messages. "
_EPILOG = """\
{reads}A state that the store does not show is UNKNOWN, and column `reason` says what is missing.

On a terminal, the table is cut to its width. Otherwise all columns and whole values are printed. Python:
help(spark_mq.RocketMQDataSource) explains all columns of table {table}.
"""
_LEAST_WIDTH = {"topic": 12, "consumer_group": 12, "unique_key": 32, "reason": 16, "problem": 16}
_HINT = "--columns chooses columns, --full prints every field"


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    from spark_mq.cli.archive.source import ARCHIVE_EPILOG, add_store_or_archive
    from spark_mq.cli.output.columns import add_columns, add_sort

    for name, command in _COMMANDS.items():
        epilog = _EPILOG.format(reads="" if name == "consumer-progress" else _READS, table=_name(name))
        added = commands.add_parser(
            name,
            help=command.what,
            description=f"Print {command.what}.",
            epilog=f"{epilog} {ARCHIVE_EPILOG}",
            allow_abbrev=False,
        )
        add_store_or_archive(added)
        add_json_rows(added)
        add_columns(added)
        add_sort(added)
        if "topic" in command.options:
            what = "the trace topic (default: RMQ_SYS_TRACE_TOPIC)" if name == "traces" else "only this topic"
            added.add_argument("--topic", metavar="TOPIC", help=what)
        if "most_keys" in command.options:
            what = f"the N keys of most messages, and of most bytes ({_MOST_KEYS:,}); 0 prints all keys"
            added.add_argument("--limit", metavar="N", dest="most_keys", type=_keys, default=_MOST_KEYS, help=what)
        if "consumer_group" in command.options:
            added.add_argument("--consumer-group", metavar="GROUP", help="only this group")
        if "at" in command.options:
            added.add_argument("--at", metavar="TIME", help="the time for which the answer is given (default: now)")
        if "broker_version" in command.options:
            add_broker_version(added)
        added.set_defaults(run=run, table=name)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit status."""
    from datetime import datetime

    from spark_mq.cli.archive.source import archived_store, is_archive
    from spark_mq.cli.moments import parse_moment
    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.output.text_table import TableStyle
    from spark_mq.cli.several_stores import columns_of, importance_of, is_of_several, place_of, union

    command = _COMMANDS[arguments.table]
    schema: list[str] = list(getattr(_module(arguments.table), f"{_name(arguments.table).upper()}_SCHEMA").names)
    schema = columns_of(arguments, schema)
    printer = RowPrinter.of(arguments, schema)
    given = getattr(arguments, "at", None)
    at = None if given is None else parse_moment("--at", given, datetime.now().astimezone())
    version = getattr(arguments, "broker_version", None)
    if is_archive(arguments.store, arguments):
        if version is not None:
            raise OptionError("--broker-version has no effect on an archive")
        with archived_store(arguments.store, arguments, arguments.table) as archived:
            found = archived.table(_name(arguments.table), **command.given(arguments, at))
            _say_cut(found, "")
            rows = printer.rows(found)
    else:
        how = {} if version is None else {"broker_version": version}

        def ask(of: CommandStore, store: MessageStore) -> pa.Table:
            table = command.rows(store, arguments, at)
            _say_cut(table, of.say(""))
            return table

        rows = printer.rows(union(arguments, ask, **how))
    known = importance_of(arguments, command.importance)
    importance = (*known, *(name for name in schema if name not in known))
    has_sums = arguments.table == "consumer-progress" and is_of_several(arguments) and printer.columns is None
    style = TableStyle(importance, _LEAST_WIDTH, hint=_HINT)
    printer.print(rows, style, (lambda: _print_sums(rows)) if has_sums else None)
    if not rows and not arguments.json:
        print(f"spark-mq: no {command.row} in {place_of(arguments)}{_chosen(arguments)}", file=sys.stderr)
    _print_unknown(command, rows)
    return FOUND if rows else NOT_FOUND


def _keys(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of keys: give 0 or more")
    return int(text)


def _say_cut(table: pa.Table, store: str) -> None:
    """Print a line on stderr if the table does not have all keys."""
    all_keys = int((table.schema.metadata or {}).get(b"all_keys", table.num_rows))
    if all_keys > table.num_rows:
        print(
            f"spark-mq: {store}{table.num_rows:,} of {all_keys:,} keys are printed, those of most messages and of most "
            "bytes; --limit 0 prints all",
            file=sys.stderr,
        )


def _print_sums(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a line for each consumer group and topic: the sum of its lags over all brokers."""
    from spark_mq.cli.output.terminal import terminal_width
    from spark_mq.cli.output.text_table import TextTable

    print()
    lags: dict[tuple[str, str], list[int | None]] = {}
    for row in rows:
        lags.setdefault((row["consumer_group"], row["topic"]), []).append(row["lag"])
    sums = TextTable(("consumer_group", "topic", "brokers", "known_lag", "unknown_lags"), width=terminal_width())
    sums.write(
        (*names, len(found), sum(lag for lag in found if lag is not None), found.count(None))
        for names, found in sorted(lags.items())
    )


def _chosen(arguments: argparse.Namespace) -> str:
    """The options that choose rows, as the end of a sentence."""
    from spark_mq.cli.output.value_text import visible

    chosen = {"topic": getattr(arguments, "topic", None), "group": getattr(arguments, "consumer_group", None)}
    given = [f"{what} {name}" for what, name in chosen.items() if name is not None]
    return visible(f" of {' and '.join(given)}") if given else ""


def _print_unknown(command: _Command, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line on stderr, if something of the rows is not known."""
    from spark_mq.cli.output.value_text import visible

    reasons = [text for row in rows if (text := row.get("reason") or row.get("problem")) is not None]
    if reasons:
        text = f"{len(reasons)} of {len(rows)} rows are not known, or not whole; the first: {reasons[0]}"
        print(f"spark-mq: {visible(text)}", file=sys.stderr)


def _name(command: str) -> str:
    return command.replace("-", "_")


def _module(command: str) -> Any:
    from importlib import import_module

    return import_module(f"spark_mq.lifecycle.{_COMMANDS[command].package}.{_name(command)}")
