"""The commands that print tables: `segments`, `lag`, ...: without Spark or a JVM, except those of an archive."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from spark_mq.cli.archive_source import ARCHIVE_EPILOG, STORE_OF_ARCHIVE, archived_store, is_archive
from spark_mq.cli.arguments import OR_CLUSTER, cluster_options, picked, refuse_client_conf, whole
from spark_mq.cli.command import STORES, Command
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.metrics import Metric, write_metrics
from spark_mq.cli.output.terminal import terminal_width
from spark_mq.cli.output.text_table import RowPrinter, Rows, TableStyle, TextTable
from spark_mq.cli.several_stores import CommandStore, answers, is_of_several
from spark_mq.errors import OptionError, first_names, similar
from spark_mq.format.system_topic import is_system_topic
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown as shown_path
from spark_mq.store.config.named_stores import STORE_COLUMNS
from spark_mq.store.config.store_paths import ABORT
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.all_tables import COMMANDS as TABLES
from spark_mq.tables.live import LIVE_TABLES
from spark_mq.tables.table import Table, is_cluster

_OWN_TOPICS = ("queues", "topics", "consumer_offsets")
"""The tables whose rows of the broker's own topics are printed only with `--all`."""
_LEAST_WIDTH = {
    **dict.fromkeys(("topic", "problem", "reason", "expression"), 16),
    **dict.fromkeys(("consumer_group", "producer_group"), 12),
    "unique_key": 56,  # with an IPv6 address: each row has what a look-up needs
}
_WHOLE = ("file", "state")
_SIZES = ("file_size",)
_HINT = "--columns chooses columns, --full prints every field"
_FORM = """
--json         print one JSON object per row, bytes in Base64
--columns A,B,C
--full
--sort COLUMN  sort the rows by COLUMN, or by -COLUMN from the largest value on; NULL is last
"""

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


def _command(table: Table) -> Command:
    options = [
        f"--{option.argument.replace('_', '-')} {option.value or 'V'}  {option.effect}" for option in table.options
    ]
    if table.name in LIVE_TABLES:
        options.append("--client-conf FILE")
    if table.name in _OWN_TOPICS:
        options.append("--all  also print the broker's own topics, such as SCHEDULE_TOPIC_XXXX; --json always does")
    if table.name == "consumer_offsets":
        options.append("--metrics FILE")
    about = [table.about, _EPILOG.format(columns=", ".join(table.names)), _MORE_EPILOG.get(table.name, "")]
    store: tuple[str, ...] = ("STORE", STORES)
    if table.name in LIVE_TABLES:
        store = (f"STORE  the broker's store directory{OR_CLUSTER}", STORES)
    if table.archived_rows:
        live = OR_CLUSTER if table.name in LIVE_TABLES else ""
        text = f"STORE  the broker's store directory, or an archive's table of messages{live}"
        store = (text, STORES, STORE_OF_ARCHIVE)
        about.append(ARCHIVE_EPILOG)
    return Command(
        table.command,
        (*store, _FORM, *options),
        partial(_print_table, table),
        f"/data/store{_example(table)}",
        description=f"Print {table.summary}. One row is {table.row}.",
        epilog="\n".join(about),
        kinds={option.argument: whole("a number") for option in table.options if option.value == "N"},
    )


def _example(table: Table) -> str:
    """The option that a table needs, and one that chooses rows, if it has them."""
    given = {option.argument for option in table.options}
    needed = " --tiered-storage /data/tiered" if "tiered_storage" in given else ""
    chosen = {"topic": " --topic orders", "consumer_group": " --consumer-group billing"}
    return needed + next((text for argument, text in chosen.items() if argument in given), "")


def _print_table(table: Table, arguments: argparse.Namespace) -> int:
    import pyarrow as pa

    if getattr(arguments, "tiered_storage", "") is None:
        raise OptionError("give --tiered-storage DIR, the broker's tieredStoreFilePath: no file of a store names it")
    is_several = _is_of_several(arguments)
    printer = RowPrinter(arguments, [*(STORE_COLUMNS if is_several else ()), *table.names])
    chosen = picked(arguments, *(option.argument for option in table.row_options))
    answers = _answers(table, chosen, arguments)
    rows = printer.rows(pa.concat_tables([found for found, _ in answers]))
    shown = rows
    if table.name in _OWN_TOPICS and not (arguments.json or arguments.all or chosen.get("topic") is not None):
        shown = [row for row in rows if not is_system_topic(row["topic"])]
    if table.name == "consumer_offsets":
        write_metrics(arguments.metrics, metrics_of_lags(rows, arguments.store))
    _print_rows(table, arguments, printer, shown)
    _print_problems(table, arguments, rows)
    if len(shown) < len(rows):
        hidden = len(rows) - len(shown)
        what = str(hidden) if table.name == "topics" else f"{hidden} {table.noun}s"
        say(f"{what} of the broker's own topics are not shown; --all shows them")
    if not shown:
        where = shown_path(arguments.store)
        where = f"the stores of {shown_path(arguments.stores)}" if is_of_several(arguments) else where
        asked = ((what, chosen.get(name)) for what, name in (("topic", "topic"), ("group", "consumer_group")))
        of = " and ".join(f"{what} {name}" for what, name in asked if name is not None)
        why = "; ".join(why for _, why in answers if why and not rows)
        say(f"no {table.noun} in {where}{of and f' of {of}'}{why and f' ({why})'}")
    return FOUND if shown else NOT_FOUND


def metrics_of_lags(rows: Rows, store: str) -> Iterator[Metric]:
    """The figures of rows of `lag`; a lag that is not known has none."""
    for row in rows:
        names = ("cluster", "broker", "store", "consumer_group", "topic", "queue_id")
        labels = {"store": shown_path(store)} | {name: row[name] for name in names if name in row}
        yield Metric("lag_messages", "messages that a consumer group has not consumed", row["lag"], labels)
        yield Metric("lag_unknown", "whether the lag is not known: 1 or 0", row["lag"] is None, labels)
        yield Metric("lag_consumer_offset", "the offset of a consumer group in a queue", row["consumer_offset"], labels)
    labels = {"store": shown_path(store)}
    yield Metric("lag_time_seconds", "when offsets were read, in seconds since the epoch", round(time.time()), labels)


def _is_of_several(arguments: argparse.Namespace) -> bool:
    """Whether rows say which broker they are of."""
    return is_of_several(arguments) or is_cluster(arguments.store)


def _live_rows(table: Table, chosen: Mapping[str, Any], arguments: argparse.Namespace) -> pa.Table:
    import pyarrow as pa

    from spark_mq.live.tables import live_rows

    if getattr(arguments, "broker_version", None) is not None:
        raise OptionError("--broker-version has no effect on a running cluster")
    given = {option.name: chosen[option.argument] for option in table.row_options}
    options = cluster_options(arguments.client_conf, arguments.store, table=table.name, **given)
    return pa.concat_tables(live_rows(options))


def _answers(table: Table, chosen: Mapping[str, Any], arguments: argparse.Namespace) -> list[tuple[pa.Table, str]]:
    if is_cluster(arguments.store):
        return [(_live_rows(table, chosen, arguments), "")]
    refuse_client_conf(arguments)
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
    return answers(arguments, ask, **how)


def _print_cut(found: pa.Table, store: str) -> None:
    all_keys = int((found.schema.metadata or {}).get(b"all_keys", found.num_rows))
    if all_keys > found.num_rows:
        say(
            f"{store}{found.num_rows:,} of {all_keys:,} keys are printed, those of most messages and of most bytes; "
            "--most-keys 0 prints all"
        )


def _print_rows(table: Table, arguments: argparse.Namespace, printer: RowPrinter, rows: Rows) -> None:
    is_several = _is_of_several(arguments)
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

    importance = ("broker", *table.importance, "store", "cluster") if is_several else table.importance
    style = TableStyle(importance, _LEAST_WIDTH, whole=_WHOLE, sizes=_SIZES, hint=_HINT)
    printer.print(rows, style, print_sums if printer.columns is None else None)


def sums_of_topics(rows: Rows) -> list[tuple[str, int, int, int | None]]:
    """A line for each topic of several stores, by name."""
    topics: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        topics.setdefault(row["topic"], []).append(row)
    lines = []
    for topic, found in sorted(topics.items()):
        counts = [row["message_count"] for row in found]
        messages = None if None in counts else sum(counts)
        lines.append((topic, len(found), sum(row["queue_count"] or 0 for row in found), messages))
    return lines


def sums_of_lags(rows: Rows, *names: str) -> list[tuple[Any, ...]]:
    """A line for all rows that have the same values in columns `names`, by these values."""
    lags: dict[tuple[Any, ...], list[int | None]] = {}
    for row in rows:
        lags.setdefault(tuple(row[name] for name in names), []).append(row["lag"])
    return [
        (*values, len(found), sum(lag for lag in found if lag is not None), found.count(None))
        for values, found in sorted(lags.items())
    ]


def _why_no_row(table: Table, chosen: Mapping[str, Any], store: MessageStore) -> str:
    """Similar names, or the names that there are; or what a store without any row lacks."""
    if not table.rows.startswith("spark_mq.store."):
        return ""  # the log would be read again
    names = {"consumer_group": "groups", "topic": "topics"}
    every = table.read(
        store, {argument: value for argument, value in chosen.items() if argument not in names}
    ).to_pylist()
    if not every:
        return table.nothing
    for argument, what in names.items():
        name = chosen.get(argument)
        if name is None:
            continue
        known = {row[argument] for row in every}
        if name not in known:
            return similar(name, known).removeprefix("; ") or f"{what}: {first_names(known)}"
        every = [row for row in every if row[argument] == name]
    return ""


def _print_problems(table: Table, arguments: argparse.Namespace, rows: Rows) -> None:
    """Print one line on stderr, if rows have a problem, or what they say is not known."""
    unknown = [row for row in rows if row.get("reason") is not None]
    if unknown:
        name = f"{unknown[0][table.importance[0]]}: {unknown[0]['reason']}"
        say(f"the state of {len(unknown)} of {len(rows)} {table.noun}s is UNKNOWN; the first is {name}")
    found = [row for row in rows if row.get("problem") is not None]
    if not found:
        return
    if table.name == "checkpoint":
        problem = f"the checkpoint has a problem: {found[0]['problem']}"
    else:
        problem = f"{len(found)} of {len(rows)} {table.noun}s have a problem; the first is {_name_of(found[0])}"
    if table.remedy and not is_cluster(arguments.store):
        # A broker creates `abort` when it starts, and removes it when it stops cleanly.
        may_recover = table.name != "segments" and (Location.resolve(arguments.store) / ABORT).is_file
        broker = "; a broker that runs, or starts again, may complete them itself" if may_recover else ""
        problem = f"{problem}; {table.remedy}{broker}"
    say(problem)


def _name_of(row: Mapping[str, Any]) -> str:
    names = [row.get("file"), row.get("topic"), row.get("commit_log_offset")]
    name = next(str(name) for name in names if name is not None)
    name = f"{name}/{row['queue_id']}" if row.get("topic") == name and "queue_id" in row else name
    name = f"{name} of {row['broker']} ({row['store']})" if "store" in row else name
    return f"{name}: {row['problem']}"


COMMANDS = tuple(map(_command, TABLES.values()))
