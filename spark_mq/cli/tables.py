"""`spark-mq segments`, `queues`, `topics`, `lag`, ...: metadata tables of a store, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_version, add_json_rows, add_store
from spark_mq.cli.exit_status import FOUND, NOT_FOUND

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.store.message_store import MessageStore

_HELP = {
    "segments": "the files of the commit log",
    "queues": "the consume queues and their offsets (mqadmin topicStatus)",
    "topics": "the topics, their settings and messages (mqadmin topicList)",
    "lag": "the offsets of consumer groups, and how many messages remain (mqadmin consumerProgress)",
    "subscription-groups": "the consumer groups and their settings",
    "consumer-filters": "the SQL92 filters of consumer groups, and the bits that their messages must have",
    "delay-offsets": "the delay levels, and how many delayed messages wait",
    "checkpoint": "the times up to which log, queues and index were flushed",
}
_BEGIN_OFFSETS = "begin-offsets"
"""What `lag --from-where` prints: a table of its own."""
_REMEDY = {
    "segments": "reads the whole log and names all damage (with --mode permissive and --output DIR)",
    "queues": "builds the consume queues from the log",
    "topics": "builds the consume queues from the log",
    "lag": "builds the consume queues from the log",
    "delay-offsets": "builds the consume queues from the log",
    "checkpoint": "writes a checkpoint with the queues and the index",
}
_ROW = {
    "segments": "segment",
    "queues": "queue",
    "topics": "topic",
    "lag": "consumer offset",
    "subscription-groups": "consumer group",
    "consumer-filters": "consumer filter",
    "delay-offsets": "delay level",
    "checkpoint": "checkpoint",
}
_OWN_TOPICS = ("queues", "topics", "lag")
"""The commands whose tables also have rows of the broker's own topics."""

_IMPORTANCE = {
    "segments": (
        "file",
        "state",
        "file_size",
        "first_store_timestamp",
        "problem",
        "end_offset",
        "commit_log_offset",
        "modification_timestamp",
    ),
    "queues": (
        "topic",
        "queue_id",
        "min_offset",
        "max_offset",
        "state",
        "problem",
        "last_store_timestamp",
        "first_store_timestamp",
        "file_count",
        "last_commit_log_offset",
        "first_commit_log_offset",
    ),
    "topics": (
        "topic",
        "message_count",
        "last_store_timestamp",
        "queue_count",
        "problem",
        "perm",
        "read_queue_nums",
        "write_queue_nums",
        "attributes",
        "is_order",
        "topic_filter_type",
        "topic_sys_flag",
    ),
    "lag": (
        "consumer_group",
        "topic",
        "queue_id",
        "lag",
        "state",
        "consumer_offset",
        "max_offset",
        "problem",
        "last_consumed_timestamp",
        "min_offset",
    ),
    _BEGIN_OFFSETS: (
        "topic",
        "queue_id",
        "begin_offset",
        "begin_lag",
        "begin_in_memory",
        "reset_offset",
        "reset_lag",
        "problem",
        "consumer_offset",
        "min_offset",
        "max_offset",
        "consumer_group",
    ),
    "subscription-groups": (
        "consumer_group",
        "consume_enable",
        "retry_max_times",
        "consume_message_orderly",
        "consume_broadcast_enable",
        "consume_timeout_minute",
        "retry_queue_nums",
        "attributes",
        "broker_id",
        "which_broker_when_consume_slowly",
    ),
    "consumer-filters": (
        "consumer_group",
        "topic",
        "expression",
        "is_dead",
        "problem",
        "born_timestamp",
        "dead_timestamp",
        "bit_positions",
        "bit_count",
        "client_version",
        "expression_type",
    ),
    "delay-offsets": (
        "delay_level",
        "lag",
        "delay_offset",
        "max_offset",
        "state",
        "problem",
        "min_offset",
        "queue_id",
        "topic",
    ),
    "checkpoint": (
        "physic_msg_timestamp",
        "logics_msg_timestamp",
        "is_clean",
        "problem",
        "index_msg_timestamp",
        "min_timestamp",
        "confirm_phy_offset",
        "logics_physical_offset",
        "master_flushed_offset",
    ),
}
"""The columns of each table by importance: on a narrow terminal, the last ones are hidden."""
_LEAST_WIDTH = {"topic": 20, "consumer_group": 16, "problem": 16, "expression": 16}
_WHOLE = ("file", "state")
_SIZES = ("file_size",)
_HINT = "--columns chooses columns, --full prints every field"

_CHECKED = ("segments", "queues", "topics", "lag", "delay-offsets")
_WIDTH_EPILOG = """\
On a terminal, the table is cut to its width, and sizes have units. Otherwise all columns, whole values and exact
numbers are printed.
"""
_EPILOG = f"""\
Column `problem` has the result of a quick check: both edges of each segment; the files, and the first and last unit, of
each queue; the messages in the last 256 KiB of the log; the offsets of consumer groups. If rows have a problem, a line
on stderr says how many. Damage elsewhere is found only by reading the whole log: `spark-mq rebuild`.

{_WIDTH_EPILOG}"""
_TOTALS_EPILOG = """

After the table, there is one line for each group: the sum of its lags that are known, and the number of its queues
whose lag is unknown (NULL, printed as `-`), which are not in the sum. With --json or --columns there are no such lines.
With --stores, these are the sums over all brokers.

With --from-where, the table has other rows: one for each queue that consumers can read. begin_offset is where a group
begins that has no offset yet, if its consumers have ConsumeFromWhere first, last or a time (in whole seconds). If
begin_in_memory is 0, a group begins at 0 instead, whatever its consumers say, while the broker has the queue's first
message in memory. reset_offset is what mqadmin resetOffsetByTime would set. Nothing is changed.
"""
_MORE_EPILOG = {
    "lag": _TOTALS_EPILOG,
    "topics": "\n\nWith --stores, a line for each topic follows the table, with its sums over all brokers.\n",
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    from spark_mq.cli.output.columns import add_columns, add_sort

    for name, what in _HELP.items():
        epilog = (_EPILOG if name in _CHECKED else _WIDTH_EPILOG) + _MORE_EPILOG.get(name, "")
        command = commands.add_parser(name, help=what, description=f"Print {what}.", epilog=epilog, allow_abbrev=False)
        add_store(command, with_several=True)
        add_json_rows(command)
        add_columns(command)
        add_sort(command)
        if name in ("queues", "lag", "consumer-filters"):
            command.add_argument("--topic", metavar="TOPIC", help="only this topic")
        if name in ("lag", "subscription-groups", "consumer-filters"):
            command.add_argument("--consumer-group", metavar="GROUP", help="only this group")
        if name == "lag":
            command.add_argument(
                "--from-where",
                metavar="first|last|TIME",
                help="instead: the queue offsets at which a new or reset group would begin",
            )
        if name in _OWN_TOPICS:
            command.add_argument(
                "--all",
                action="store_true",
                help="also print the broker's own topics, such as SCHEDULE_TOPIC_XXXX; --json always does",
            )
        if name in (*_OWN_TOPICS, "delay-offsets"):
            add_broker_version(command)
        command.set_defaults(run=run, table=name)


def run(arguments: argparse.Namespace) -> int:
    """Print the table; returns the exit status."""
    import pyarrow as pa

    from spark_mq.cli.output.row_printer import RowPrinter
    from spark_mq.cli.several_stores import answers, columns_of, place_of

    printer = RowPrinter.of(arguments, columns_of(arguments, _schema(_shown_table(arguments))))
    read = _table(arguments)
    found = answers(arguments, lambda of, store: _answer(arguments, of, store, read(store)), **_version_of(arguments))
    rows = printer.rows(pa.concat_tables([table for _, (table, _) in found]))
    reason = "" if rows else "; ".join(of.say(why.removeprefix(": ")) for of, (_, why) in found if why)
    reason = f": {reason}" if reason else ""
    shown = rows if arguments.json else [row for row in rows if not _is_hidden(arguments, row)]
    _print_rows(arguments, printer, shown)
    _print_problems(arguments, rows)
    if len(shown) < len(rows):
        hidden = len(rows) - len(shown)
        what = str(hidden) if arguments.table == "topics" else f"{hidden} {_ROW[arguments.table]}s"
        print(f"spark-mq: {what} of the broker's own topics are not shown; --all shows them", file=sys.stderr)
    if not shown:
        print(f"spark-mq: no matching {_ROW[arguments.table]} in {place_of(arguments)}{reason}", file=sys.stderr)
    return FOUND if shown else NOT_FOUND


def _version_of(arguments: argparse.Namespace) -> dict[str, Any]:
    version = getattr(arguments, "broker_version", None)
    return {} if version is None else {"broker_version": version}


def _answer(
    arguments: argparse.Namespace, of: CommandStore, store: MessageStore, table: pa.Table
) -> tuple[pa.Table, str]:
    """The rows of one store, and why there is none."""
    return of.with_columns(table), "" if len(table) else _why_no_row(arguments, store)


def _is_hidden(arguments: argparse.Namespace, row: Mapping[str, Any]) -> bool:
    """Whether the row is one of the broker's own topics that nobody asked for."""
    from spark_mq.format.system_topic import is_system_topic

    if arguments.table not in _OWN_TOPICS or arguments.all or getattr(arguments, "topic", None) is not None:
        return False
    return is_system_topic(row["topic"])


def _print_rows(arguments: argparse.Namespace, printer: RowPrinter, rows: Sequence[Mapping[str, Any]]) -> None:
    from spark_mq.cli.output.terminal import terminal_width
    from spark_mq.cli.output.text_table import TableStyle, TextTable
    from spark_mq.cli.several_stores import importance_of, is_of_several

    table = _shown_table(arguments)

    def print_totals() -> None:
        print()
        if table == "lag":
            totals = TextTable(("consumer_group", "queues", "known_lag", "unknown_lags"), width=terminal_width())
            totals.write(lag_of_groups(rows))
        else:
            sums = TextTable(("topic", "brokers", "queue_count", "message_count"), width=terminal_width())
            sums.write(sums_of_topics(rows))

    has_totals = table == "lag" or (table == "topics" and is_of_several(arguments))
    importance = importance_of(arguments, _IMPORTANCE[table])
    style = TableStyle(importance, _LEAST_WIDTH, whole=_WHOLE, sizes=_SIZES, hint=_HINT)
    printer.print(rows, style, print_totals if has_totals and printer.columns is None else None)


def sums_of_topics(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int, int | None]]:
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


def lag_of_groups(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, int, int]]:
    """A line for each consumer group, by name.

    Returns:
        The group, the number of its queues, the sum of the lags that are known, and the number of queues whose lag is
        unknown.

    """
    groups: dict[str, list[int | None]] = {}
    for row in rows:
        groups.setdefault(row["consumer_group"], []).append(row["lag"])
    lines = []
    for group, lags in sorted(groups.items()):
        known = [lag for lag in lags if lag is not None]
        lines.append((group, len(lags), sum(known), len(lags) - len(known)))
    return lines


def _shown_table(arguments: argparse.Namespace) -> str:
    """The table that is printed."""
    return arguments.table if getattr(arguments, "from_where", None) is None else _BEGIN_OFFSETS


def _why_no_row(arguments: argparse.Namespace, store: MessageStore) -> str:
    """Why no row matches, as the end of a sentence: similar names, or the names that there are."""
    from spark_mq.cli.output.value_text import visible
    from spark_mq.similar_names import first_names, similar
    from spark_mq.store.config.consumer_offsets import load_consumer_offsets

    topic, group = getattr(arguments, "topic", None), getattr(arguments, "consumer_group", None)
    if arguments.table == "queues" and topic is not None:
        topics = {name for name, _ in store.queues}
        return visible(f": there is no queue of topic {topic}{similar(topic, topics)}") if topics else ""
    if arguments.table == "subscription-groups":
        return _why_no_group(group, store)
    if arguments.table == "consumer-filters":
        return ": config/consumerFilter.json has none; a store does not know subscriptions to tags"
    if arguments.table == "delay-offsets":
        return ": config/delayOffset.json has no delay level, or does not exist"
    if _shown_table(arguments) != "lag":
        return ""
    offsets = load_consumer_offsets(store.location)
    groups, topics = {one.consumer_group for one in offsets}, {one.topic for one in offsets}
    if not offsets:
        return ": config/consumerOffset.json has no offset of any group, or does not exist"
    if group is not None and group not in groups:
        known = similar(group, groups) or f"; groups: {first_names(groups)}"
        return visible(f": there is no group {group}{known}")
    if topic is not None and topic not in topics:
        known = similar(topic, topics) or f"; topics: {first_names(topics)}"
        return visible(f": no group has an offset in topic {topic}{known}")
    consumed = {one.topic for one in offsets if one.consumer_group == group}
    return visible(f": group {group} has no offset in topic {topic}; its topics: {first_names(consumed)}")


def _why_no_group(group: str | None, store: MessageStore) -> str:
    from spark_mq.cli.output.value_text import visible
    from spark_mq.similar_names import first_names, similar
    from spark_mq.store.metadata_tables import subscription_groups

    groups = set(subscription_groups(store)["consumer_group"].to_pylist())
    if group is None or not groups:
        return ": config/subscriptionGroup.json has no group, or does not exist"
    known = similar(group, groups) or f"; groups: {first_names(groups)}"
    return visible(f": there is no group {group}{known}")


def _print_problems(arguments: argparse.Namespace, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print one line on stderr, if rows have a problem."""
    from spark_mq.cli.output.value_text import visible
    from spark_mq.io.location import Location
    from spark_mq.store.config.store_paths import ABORT

    problem_rows = [row for row in rows if row.get("problem") is not None]
    if not problem_rows:
        return
    row, what = problem_rows[0], _ROW[arguments.table]
    if arguments.table == "checkpoint":
        problem = f"the checkpoint has a problem: {row['problem']}"
    else:
        name = row["file"] if arguments.table == "segments" else row["topic"]
        name = f"{name}/{row['queue_id']}" if "queue_id" in row else name
        name = f"{name} of {row['broker']} ({row['store']})" if "store" in row else name
        problem = f"{len(problem_rows)} of {len(rows)} {what}s have a problem; the first is {name}: {row['problem']}"
    if arguments.table not in _REMEDY:
        print(f"spark-mq: {visible(problem)}", file=sys.stderr)
        return
    # A broker creates `abort` when it starts, and removes it when it stops cleanly.
    may_recover = arguments.table != "segments" and (Location.resolve(arguments.store) / ABORT).is_file
    broker = "; a broker that runs, or starts again, may complete them itself" if may_recover else ""
    print(f"spark-mq: {visible(problem)}; `spark-mq rebuild` {_REMEDY[arguments.table]}{broker}", file=sys.stderr)


def _table(arguments: argparse.Namespace) -> Callable[[MessageStore], pa.Table]:
    from spark_mq.store import metadata_tables

    if _shown_table(arguments) == _BEGIN_OFFSETS:
        return _begin_offsets(arguments)
    if arguments.table == "queues":
        return lambda store: metadata_tables.queues(store, arguments.topic)
    if arguments.table == "lag":
        return lambda store: metadata_tables.consumer_offsets(store, arguments.topic, arguments.consumer_group)
    if arguments.table == "subscription-groups":
        return lambda store: metadata_tables.subscription_groups(store, arguments.consumer_group)
    if arguments.table == "consumer-filters":
        from spark_mq.store.consumer_filter_rows import consumer_filters

        return lambda store: consumer_filters(store, arguments.topic, arguments.consumer_group)
    tables = {
        "segments": metadata_tables.segments,
        "topics": metadata_tables.topics,
        "delay-offsets": metadata_tables.delay_offsets,
        "checkpoint": metadata_tables.checkpoint,
    }
    return tables[arguments.table]


def _begin_offsets(arguments: argparse.Namespace) -> Callable[[MessageStore], pa.Table]:
    from datetime import datetime

    from spark_mq.cli.moments import parse_moment
    from spark_mq.sharing.begin_offsets import FIRST, LAST, begin_offsets

    given: str = arguments.from_where
    word = given.strip().lower()
    now = datetime.now().astimezone()
    from_where = word if word in (FIRST, LAST) else parse_moment("--from-where", given, now)
    return lambda store: begin_offsets(store, from_where, arguments.topic, arguments.consumer_group)


def _schema(table: str) -> list[str]:
    """The names of the table's columns."""
    from spark_mq.sharing.begin_offsets import BEGIN_OFFSETS_SCHEMA
    from spark_mq.store import metadata_tables
    from spark_mq.store.consumer_filter_rows import CONSUMER_FILTERS_SCHEMA

    schemas = {
        _BEGIN_OFFSETS: BEGIN_OFFSETS_SCHEMA,
        "segments": metadata_tables.SEGMENTS_SCHEMA,
        "queues": metadata_tables.QUEUES_SCHEMA,
        "topics": metadata_tables.TOPICS_SCHEMA,
        "lag": metadata_tables.CONSUMER_OFFSETS_SCHEMA,
        "subscription-groups": metadata_tables.SUBSCRIPTION_GROUPS_SCHEMA,
        "consumer-filters": CONSUMER_FILTERS_SCHEMA,
        "delay-offsets": metadata_tables.DELAY_OFFSETS_SCHEMA,
        "checkpoint": metadata_tables.CHECKPOINT_SCHEMA,
    }
    return list(schemas[table].names)
