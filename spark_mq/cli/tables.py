"""The commands that print tables: `segments`, `lag`, ...: without Spark or a JVM, except those of an archive."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.errors import OptionError
from spark_mq.tables.all_tables import COMMANDS

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.store.message_store import MessageStore
    from spark_mq.tables.table import Table

_Rows = Sequence[Mapping[str, Any]]

_OWN_TOPICS = ("queues", "topics", "consumer_offsets")
"""The tables whose rows of the broker's own topics are printed only with `--all`."""
_LEAST_WIDTH = {
    **dict.fromkeys(("topic", "problem", "reason", "expression"), 16),
    **dict.fromkeys(("consumer_group", "unique_key", "producer_group"), 12),
}
_WHOLE = ("file", "state")
_SIZES = ("file_size",)
_HINT = "--columns chooses columns, --full prints every field"

_EPILOG = """\
On a terminal, the table is cut to its width, and sizes have units. Otherwise all columns, whole values and exact
numbers are printed. If rows have a problem, or their state is UNKNOWN, a line on stderr says how many.

Columns: {columns}.
"""
_MORE_EPILOG = {
    "consumer_offsets": """\
After the table, there is one line for each group: the sum of its lags that are known, and the number of its queues
whose lag is unknown (NULL, printed as `-`), which are not in the sum. With --json or --columns there are no such lines.
With --stores, these are the sums over all brokers.
""",
    "topics": "With --stores, a line for each topic follows the table, with its sums over all brokers.\n",
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    for name, table in COMMANDS.items():
        _add_arguments(commands.add_parser(name, help=table.summary, allow_abbrev=False), table)


def _add_arguments(command: argparse.ArgumentParser, table: Table) -> None:
    from spark_mq.cli.archive.source import ARCHIVE_EPILOG, add_store_or_archive
    from spark_mq.cli.arguments import add_json_rows, add_store
    from spark_mq.cli.output.row_printer import add_columns, add_sort

    command.description = f"Print {table.summary}. One row is {table.row}."
    parts = [table.about, _EPILOG.format(columns=", ".join(table.names)), _MORE_EPILOG.get(table.name, "")]
    if table.archived_rows:
        add_store_or_archive(command)
        parts.append(ARCHIVE_EPILOG)
    else:
        add_store(command, with_several=True)
    command.epilog = "\n".join(parts)
    add_json_rows(command)
    add_columns(command)
    add_sort(command)
    for option in table.options:
        kind = _number if option.value == "N" else str
        command.add_argument(_flag(option.argument), metavar=option.value, type=kind, help=option.effect)
    if table.name in _OWN_TOPICS:
        command.add_argument(
            "--all",
            action="store_true",
            help="also print the broker's own topics, such as SCHEDULE_TOPIC_XXXX; --json always does",
        )
    command.set_defaults(run=partial(run, table))


def run(table: Table, arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit status."""
    import pyarrow as pa

    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.several_stores import columns_of, place_of

    printer = RowPrinter.of(arguments, columns_of(arguments, table.names))
    chosen = {option.argument: _chosen(option.argument, arguments) for option in table.row_options}
    answers = _answers(table, chosen, arguments)
    rows = printer.rows(pa.concat_tables([found for found, _ in answers]))
    shown = rows if arguments.json else [row for row in rows if not _is_hidden(table, arguments, row)]
    _print_rows(table, arguments, printer, shown)
    _print_problems(table, arguments, rows)
    if len(shown) < len(rows):
        hidden = len(rows) - len(shown)
        what = str(hidden) if table.name == "topics" else f"{hidden} {table.noun}s"
        print(f"spark-mq: {what} of the broker's own topics are not shown; --all shows them", file=sys.stderr)
    if not shown:
        why = "; ".join(why for _, why in answers if why and not rows)
        text = f"no {table.noun} in {place_of(arguments)}{_of(chosen)}{why and f' ({why})'}"
        _say(text)
    return FOUND if shown else NOT_FOUND


def _flag(argument: str) -> str:
    return f"--{argument.replace('_', '-')}"


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number: give 0 or more")
    return int(text)


def _chosen(argument: str, arguments: argparse.Namespace) -> Any:
    """The value of an option that chooses rows; None if it is not given."""
    from spark_mq.cli.arguments import parse_moment
    from spark_mq.sharing.topic_queues import FIRST, LAST

    value = getattr(arguments, argument)
    if value is None or argument not in ("at", "from_where"):
        return value
    word = value.strip().lower()
    if argument == "from_where" and word in (FIRST, LAST):
        return word
    return parse_moment(_flag(argument), value, datetime.now().astimezone())


def _answers(table: Table, chosen: Mapping[str, Any], arguments: argparse.Namespace) -> list[tuple[pa.Table, str]]:
    """The rows of each store, or those of the archive, and why there is none."""
    from spark_mq.cli.archive.source import archived_store, is_archive
    from spark_mq.cli.several_stores import answers

    version = getattr(arguments, "broker_version", None)
    if table.archived_rows and is_archive(arguments.store, arguments):
        if version is not None:
            raise OptionError("--broker-version has no effect on an archive")
        with archived_store(arguments.store, arguments, table.command) as archived:
            found = archived.table(table.name, **chosen)
            _print_cut(found, "")
            return [(found, "")]

    def ask(of: CommandStore, store: MessageStore) -> tuple[pa.Table, str]:
        found = table.read(store, chosen)
        _print_cut(found, of.say(""))
        why = "" if len(found) else _why_no_row(table, chosen, store)
        return of.with_columns(found), of.say(why) if why else ""

    how = {} if version is None else {"broker_version": version}
    return [answer for _, answer in answers(arguments, ask, **how)]


def _print_cut(found: pa.Table, store: str) -> None:
    """Print a line on stderr if a table does not have all keys."""
    all_keys = int((found.schema.metadata or {}).get(b"all_keys", found.num_rows))
    if all_keys > found.num_rows:
        _say(
            f"{store}{found.num_rows:,} of {all_keys:,} keys are printed, those of most messages and of most bytes; "
            "--most-keys 0 prints all"
        )


def _is_hidden(table: Table, arguments: argparse.Namespace, row: Mapping[str, Any]) -> bool:
    """Whether the row is one of the broker's own topics that nobody asked for."""
    from spark_mq.format.system_topic import is_system_topic

    if table.name not in _OWN_TOPICS or arguments.all or getattr(arguments, "topic", None) is not None:
        return False
    return is_system_topic(row["topic"])


def _print_rows(table: Table, arguments: argparse.Namespace, printer: RowPrinter, rows: _Rows) -> None:
    from spark_mq.cli.output.terminal import terminal_width
    from spark_mq.cli.output.text_table import TableStyle, TextTable
    from spark_mq.cli.several_stores import importance_of, is_of_several

    is_several = is_of_several(arguments)
    sums: tuple[Sequence[str], Sequence[Sequence[Any]]] | None = None
    if table.name == "consumer_offsets":
        sums = ("consumer_group", "queues", "known_lag", "unknown_lags"), sums_of_lags(rows, "consumer_group")
    elif table.name == "consumer_progress" and is_several:
        names = ("consumer_group", "topic")
        sums = (*names, "brokers", "known_lag", "unknown_lags"), sums_of_lags(rows, *names)
    elif table.name == "topics" and is_several:
        sums = ("topic", "brokers", "queue_count", "message_count"), sums_of_topics(rows)

    def print_sums() -> None:
        if sums is not None:
            print()
            TextTable(sums[0], width=terminal_width()).write(sums[1])

    importance = importance_of(arguments, table.importance)
    style = TableStyle(importance, _LEAST_WIDTH, whole=_WHOLE, sizes=_SIZES, hint=_HINT)
    printer.print(rows, style, print_sums if printer.columns is None else None)


def sums_of_topics(rows: _Rows) -> list[tuple[str, int, int, int | None]]:
    """A line for each topic of several stores, by name.

    Returns:
        The topic, the number of stores that have it, and the sums of its queues and messages; NULL if the messages of
        a store are not known.
    """
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    lines = []
    for topic, found in sorted(topics.items()):
        counts = [row["message_count"] for row in found]
        messages = None if None in counts else sum(counts)
        lines.append((topic, len(found), sum(row["queue_count"] or 0 for row in found), messages))
    return lines


def sums_of_lags(rows: _Rows, *names: str) -> list[tuple[Any, ...]]:
    """A line for all rows that have the same values in columns `names`, by these values.

    Returns:
        The values, the number of rows, the sum of the lags that are known, and the number of rows whose lag is unknown.
    """
    lags: dict[tuple[Any, ...], list[int | None]] = {}
    for row in rows:
        lags.setdefault(tuple(row[name] for name in names), []).append(row["lag"])
    return [
        (*values, len(found), sum(lag for lag in found if lag is not None), found.count(None))
        for values, found in sorted(lags.items())
    ]


def _of(chosen: Mapping[str, Any]) -> str:
    """The names that were asked for, as the end of a sentence."""
    named = {"topic": chosen.get("topic"), "group": chosen.get("consumer_group")}
    given = [f"{what} {name}" for what, name in named.items() if name is not None]
    return f" of {' and '.join(given)}" if given else ""


def _why_no_row(table: Table, chosen: Mapping[str, Any], store: MessageStore) -> str:
    """Similar names, or the names that there are; or what a store without any row lacks."""
    from spark_mq.errors import first_names, similar

    if not table.rows.startswith("spark_mq.store."):
        return ""  # the log would be read again
    every = table.read(store, {}).to_pylist()
    if not every:
        return table.nothing
    for argument, what in (("consumer_group", "groups"), ("topic", "topics")):
        name = chosen.get(argument)
        if name is None:
            continue
        known = {row[argument] for row in every}
        if name not in known:
            return similar(name, known).removeprefix("; ") or f"{what}: {first_names(known)}"
        every = [row for row in every if row[argument] == name]
    return ""


def _print_problems(table: Table, arguments: argparse.Namespace, rows: _Rows) -> None:
    """Print one line on stderr, if rows have a problem, or what they say is not known."""
    from spark_mq.io.location import Location
    from spark_mq.store.config.store_paths import ABORT

    unknown = [row for row in rows if row.get("reason") is not None]
    if unknown:
        name = f"{unknown[0][table.importance[0]]}: {unknown[0]['reason']}"
        _say(f"the state of {len(unknown)} of {len(rows)} {table.noun}s is UNKNOWN; the first is {name}")
    found = [row for row in rows if row.get("problem") is not None]
    if not found:
        return
    if table.name == "checkpoint":
        problem = f"the checkpoint has a problem: {found[0]['problem']}"
    else:
        problem = f"{len(found)} of {len(rows)} {table.noun}s have a problem; the first is {_name_of(found[0])}"
    if table.remedy:
        # A broker creates `abort` when it starts, and removes it when it stops cleanly.
        may_recover = table.name != "segments" and (Location.resolve(arguments.store) / ABORT).is_file
        broker = "; a broker that runs, or starts again, may complete them itself" if may_recover else ""
        problem = f"{problem}; `spark-mq rebuild` {table.remedy}{broker}"
    _say(problem)


def _name_of(row: Mapping[str, Any]) -> str:
    """Which row it is, and its problem."""
    names = [row.get("file"), row.get("topic"), row.get("commit_log_offset")]
    name = next(str(name) for name in names if name is not None)
    name = f"{name}/{row['queue_id']}" if row.get("topic") == name and "queue_id" in row else name
    name = f"{name} of {row['broker']} ({row['store']})" if "store" in row else name
    return f"{name}: {row['problem']}"


def _say(text: str) -> None:
    from spark_mq.cli.output.value_text import visible

    print(f"spark-mq: {visible(text)}", file=sys.stderr)
