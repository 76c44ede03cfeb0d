"""`spark-mq query-by-unique-key`: messages by the message id that the producer got, with or without a topic."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.archived import or_archive
from spark_mq.cli.messages.arguments import add_any_host, add_body_file, add_index, add_store_and_form, refuse_any_host
from spark_mq.cli.messages.query_by_key import newest_first, print_access_path, print_index_problems, with_times
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.format.record import Record
    from spark_mq.store.message_store import MessageStore


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "query-by-unique-key",
        usage="spark-mq query-by-unique-key [OPTION]... STORE [TOPIC] UNIQUE_KEY",
        help="a message by unique key (the producer's message id), and topic if it is known",
        description="Print the messages with a unique key or an offset message id (mqadmin queryMsgByUniqueKey). "
        "Without TOPIC, every topic is looked up in the index, and what the index does not cover is read in the log.",
        allow_abbrev=False,
    )
    add_store_and_form(command)
    command.add_argument("topic", metavar="TOPIC", help="the topic's name; can be left out")
    command.add_argument(
        "key",
        metavar="UNIQUE_KEY",
        nargs="?",
        help="the message id that the producer got, or an offset message id",
    )
    add_index(command)
    add_any_host(command)
    add_body_file(command)
    command.set_defaults(run=or_archive(run, _find_archived))


def run(arguments: argparse.Namespace) -> int:
    """Print all fields of the messages with the unique key, newest first."""
    from spark_mq.cli.messages.message_filter import why_no_unique_key
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.lifecycle.life.situation import Situations

    if arguments.key is None:
        arguments.topic, arguments.key = None, arguments.topic
    refuse_any_host(arguments)
    printer = MessagePrinter(arguments, as_table=False)
    if arguments.explain:
        if arguments.topic is None:
            return _print_access_path(arguments)
        return print_access_path(arguments, uniqueKey=arguments.key)
    rows: list[tuple[int, Mapping[str, Any]]] = []
    reasons: list[str] = []
    problems: list[str] = []
    with opened_stores(arguments, check_index=arguments.check_index) as stores:
        for of, store in stores:
            records = _find(store, arguments)
            rows += with_times(of, records, rows_of(records, Situations(store, store.broker_conf)))
            reasons += [] if records else [of.say(why_no_unique_key(store, arguments.topic, arguments.key))]
            problems += store.index.problems
    if arguments.body_file and len(rows) > 1:
        raise OptionError(f"--body-file takes the body of one message: {len(rows)} have this unique key")
    if rows:
        printer.print(newest_first(rows))
        printer.finish()
    print_index_problems(problems)
    if not rows:
        place = "" if arguments.topic is None else f" in topic {arguments.topic}"
        line = f"no message {arguments.key}{place}: {'; '.join(reasons)}"
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _find(store: MessageStore, arguments: argparse.Namespace) -> list[Record]:
    from spark_mq.format.message_id import is_offset_message_id
    from spark_mq.format.record import Record
    from spark_mq.store.message_selection import find_unique_key

    if arguments.topic is not None:
        return store.find_by_unique_key(arguments.topic, arguments.key, arguments.any_host)
    if is_offset_message_id(arguments.key):
        record = store.find_record_by_id(arguments.key, arguments.any_host)
        if isinstance(record, Record):
            return [record]
    return find_unique_key(store, arguments.key)


def _print_access_path(arguments: argparse.Namespace) -> int:
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.store.message_selection import known_topics, uncovered_parts

    with opened_stores(arguments, check_index=arguments.check_index) as stores:
        for of, store in stores:
            if of.named is not None:
                print(f"store  {of.named}")
            uncovered = uncovered_parts(store)
            size = sum(part.size for part in uncovered)
            is_whole_log = size == store.get_max_phy_offset() - store.get_min_phy_offset()
            print(f"path   {'whole log' if is_whole_log else 'index'}")
            print(f"reads  the index, once for each of {len(known_topics(store)):,} topics")
            print(f"reads  {size:,} bytes of the log that no index file covers")
    return FOUND


def _find_archived(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages with a unique key or an offset message id, the newest first."""
    from spark_mq.format.java_text import decode_utf8
    from spark_mq.format.message_id import is_offset_message_id

    topic, key = (None, arguments.topic) if arguments.key is None else (arguments.topic, arguments.key)
    found = list(archive.with_key(key, topic, is_unique=True))
    if not found and is_offset_message_id(key):
        by_id = archive.with_id(key, arguments.any_host)
        found = [one for one in by_id if topic is None or decode_utf8(one.record.topic) == topic]
    return reversed(found)
