"""`spark-mq query-by-key`: messages by topic and key, through the index."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_topic, count
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.archived import or_archive
from spark_mq.cli.messages.arguments import (
    add_filter,
    add_index,
    add_store_and_form,
    add_time,
    begin_and_end,
    condition_of,
)
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.format.record import Record
    from spark_mq.store.message_store import MessageStore


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "query-by-key",
        help="messages by topic and key, through the index",
        description="Print the messages of a topic that have a key, newest first (mqadmin queryMsgByKey).",
        allow_abbrev=False,
    )
    add_store_and_form(command, with_full=True)
    add_topic(command)
    command.add_argument("key", metavar="KEY", help="one of the keys in the messages' KEYS, or their unique key")
    add_index(command)
    add_time(command)
    add_filter(command)
    command.add_argument("--max-num", metavar="N", type=count, help="print at most N messages (default: all)")
    command.add_argument(
        "--as-broker",
        action="store_true",
        help="print what a broker on these files answers: at most 64 messages (maxMsgsNumBatch), messages of other "
        "keys with the same hash, times in whole seconds, only what the index files have; in the order of the log",
    )
    command.add_argument(
        "--index-type",
        choices=("K", "T"),
        default="K",
        help="with --as-broker: T looks for the tags KEY, which index files have since 5.4.0 (default: K, a key)",
    )
    command.set_defaults(run=or_archive(run, _find_archived, as_table=True, limit=lambda arguments: arguments.max_num))


def run(arguments: argparse.Namespace) -> int:
    """Print the messages that have the key; stderr gets the reason if there is none, and damage of the index."""
    from spark_mq.cli.messages.message_filter import MessageFilter
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.lifecycle.life.situation import Situations

    if arguments.max_num is not None and arguments.max_num < 1:
        raise OptionError(f"--max-num {arguments.max_num}: give 1 or more")
    begin, end = begin_and_end(arguments)
    if arguments.as_broker:
        return _print_as_broker(arguments, begin, end)
    if arguments.index_type != "K":
        raise OptionError("--index-type T is a broker's own look-up: add --as-broker")
    message_filter = MessageFilter(condition=condition_of(arguments.filter))
    printer = MessagePrinter(arguments, as_table=True)
    if arguments.explain:
        times = {
            name: str(time) for name, time in (("startTimestamp", begin), ("endTimestamp", end)) if time is not None
        }
        options = times if arguments.filter is None else {**times, "filter": arguments.filter}
        return print_access_path(arguments, key=arguments.key, **options)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    reasons: list[str] = []
    problems: list[str] = []
    with opened_stores(arguments, check_index=arguments.check_index) as stores:
        for of, store in stores:
            found = store.find_messages(arguments.topic, arguments.key, begin=begin, end=end)
            records = list(islice(filter(message_filter.matches, found), arguments.max_num))
            rows += with_times(of, records, rows_of(records, Situations(store, store.broker_conf)))
            reasons += [] if records else [of.say(_why_nothing(store, arguments, begin, end))]
            problems += store.index.problems
    if rows:
        printer.print(newest_first(rows)[: arguments.max_num])
        printer.finish()
    print_index_problems(problems)
    if not rows:
        line = f"no message {arguments.key} in topic {arguments.topic}: {'; '.join(reasons)}"
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def with_times(
    of: CommandStore, records: Sequence[Record], rows: Sequence[Mapping[str, Any]]
) -> list[tuple[int, Mapping[str, Any]]]:
    """The rows of messages, with the names of their store if there are several, each after its store time."""
    return [(record.store_timestamp, of.with_names(row)) for record, row in zip(records, rows, strict=True)]


def newest_first(rows: Sequence[tuple[int, Mapping[str, Any]]]) -> list[Mapping[str, Any]]:
    """The rows of several stores, the newest first; those of one store keep their order."""
    is_several = any("store" in row for _, row in rows)
    return [row for _, row in (sorted(rows, key=lambda one: -one[0]) if is_several else rows)]


def _print_as_broker(arguments: argparse.Namespace, begin: int | None, end: int | None) -> int:
    """Print what a broker answers; stderr says which messages do not have the key."""
    from spark_mq.cli.messages.message_filter import why_no_key
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.format.dispatch import record_keys, record_tags_key, tags_key
    from spark_mq.lifecycle.life.situation import Situations
    from spark_mq.store.index.key_index import MQADMIN_MAX_NUM

    for name in ("filter", "check_index", "explain"):
        if getattr(arguments, name):
            raise OptionError(f"--as-broker is a broker's own look-up: leave out --{name.replace('_', '-')}")

    is_tag, key = arguments.index_type == "T", arguments.key

    def has_key(record: Record) -> bool:
        return record_tags_key(record) == tags_key(key) if is_tag else key in record_keys(record)

    printer = MessagePrinter(arguments, as_table=True)
    rows: list[Mapping[str, Any]] = []
    reasons: list[str] = []
    others, unreadable = 0, []
    with opened_stores(arguments) as stores:  # each broker answers for itself
        for of, store in stores:
            most = MQADMIN_MAX_NUM if arguments.max_num is None else arguments.max_num
            answer = store.find_as_broker(arguments.topic, arguments.key, most, begin, end, arguments.index_type)
            found = rows_of(answer.records, Situations(store, store.broker_conf))
            rows += map(of.with_names, found)
            others += sum(not has_key(record) for record in answer.records)
            unreadable += [of.say(str(offset)) for offset in answer.unreadable]
            if not found and is_tag:
                reasons.append(of.say("its index has no such entry"))
            elif not found:
                reasons.append(of.say(why_no_key(store, arguments.topic, arguments.key, begin, end)))
    if rows:
        printer.print(rows)
        printer.finish()
    if others:
        what = "other tags" if is_tag else "another key"
        print(f"spark-mq: {others} of these messages have {what} with the same hash", file=sys.stderr)
    if unreadable:
        places = visible(", ".join(unreadable))
        print(f"spark-mq: the index leads to commit log offsets without a message: {places}", file=sys.stderr)
    if not rows:
        line = f"a broker finds no message {arguments.key} in topic {arguments.topic}: {'; '.join(reasons)}"
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _why_nothing(store: MessageStore, arguments: argparse.Namespace, begin: int | None, end: int | None) -> str:
    """Why no message is printed."""
    from spark_mq.cli.messages.message_filter import why_no_key

    found = sum(1 for _ in store.find_messages(arguments.topic, arguments.key, begin=begin, end=end))
    if found:
        return f"{found} message{' has' if found == 1 else 's have'} the key, and --filter is TRUE for none of them"
    return why_no_key(store, arguments.topic, arguments.key, begin, end)


def print_access_path(arguments: argparse.Namespace, **options: str) -> int:
    """Print how a look-up in a topic would be done; returns the exit status."""
    from spark_mq.cli.several_stores import command_stores
    from spark_mq.source.explain import explain

    for of in command_stores(arguments):
        if of.named is not None:
            print(f"store  {of.named}")
        conf = {} if of.broker_conf is None else {"brokerConf": of.broker_conf}
        print(explain(of.path, topic=arguments.topic, **conf, **options))
    return FOUND


def print_index_problems(problems: Sequence[str]) -> None:
    """Print the damage of the index on stderr."""
    for problem in problems:
        print(f"spark-mq: {problem}; the log was read instead", file=sys.stderr)


def _find_archived(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of a topic that have a key, the newest first."""
    from spark_mq.cli.messages.message_filter import MessageFilter
    from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS

    begin, end = begin_and_end(arguments)
    first, last = EARLIEST_MILLIS if begin is None else begin, LATEST_MILLIS if end is None else end
    matching = MessageFilter(first, last, condition=condition_of(arguments.filter))
    found = [one for one in archive.with_key(arguments.key, arguments.topic) if matching.matches(one.record)]
    return reversed(found)
