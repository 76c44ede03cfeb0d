"""Look-ups of messages in an archive, by the commands that look them up in a store; neither Java nor Spark starts."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages

Run = Callable[[argparse.Namespace], int]
Find = Callable[["ArchivedMessages", argparse.Namespace], Iterator["ArchivedMessage"]]

_ROWS_AT_ONCE = 256
_OF_STORES = ("broker_conf", "check_index", "explain", "as_broker", "follow")
"""Arguments of the commands that have no meaning for an archive."""


def or_archive(run: Run, find: Find, as_table: bool = False) -> Run:
    """The `run` of a command that also answers from an archive.

    Args:
        run: The command over stores.
        find: Returns the messages of an archive that the arguments ask for, in the order in which they are printed.
        as_table: Whether the command prints a table.

    """

    def run_either(arguments: argparse.Namespace) -> int:
        if getattr(arguments, "stores_file", None) is not None or not _is_archive(arguments.store):
            return run(arguments)
        return _print(arguments, find, as_table)

    return run_either


def _is_archive(path: str) -> bool:
    from spark_mq.cli.archive.arguments import has_delta_log
    from spark_mq.io.location import local_path

    local = local_path(path)
    return (local is None or os.path.exists(local)) and has_delta_log(path)


def _print(arguments: argparse.Namespace, find: Find, as_table: bool) -> int:
    """Print what an archive has; each message has the names of its store."""
    from spark_mq.archive.archived_messages import ArchivedMessages
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.lifecycle.life.store_rules import DefaultSituations

    for name in _OF_STORES:
        if getattr(arguments, name, None):
            raise OptionError(f"--{name.replace('_', '-')} has no effect: {arguments.store} is an archive")
    printer = MessagePrinter(arguments, as_table, names_stores=True)
    found = find(ArchivedMessages(arguments.store), arguments)
    limit, says_more = _limit(arguments)
    shown, printed = islice(found, limit), 0
    while batch := list(islice(shown, _ROWS_AT_ONCE)):
        if getattr(arguments, "body_file", None) and (printed or len(batch) > 1):
            raise OptionError("--body-file takes the body of one message: the archive has several")
        names = [vars(one.identity) for one in batch]
        rows = rows_of([one.record for one in batch], DefaultSituations())
        printer.print([{**of, **row} for of, row in zip(names, rows, strict=True)])
        printed += len(batch)
    if printed:
        printer.finish()
    if says_more and next(found, None) is not None:
        print(f"spark-mq: there are more than {limit} messages: --limit 0 prints all", file=sys.stderr)
    if not printed:
        print(f"spark-mq: the archive {visible(arguments.store)} has no such message", file=sys.stderr)
    return FOUND if printed else NOT_FOUND


def _limit(arguments: argparse.Namespace) -> tuple[int | None, bool]:
    """The largest number of messages to print, and whether a line says that there are more."""
    if getattr(arguments, "max_num", None) is not None:
        return arguments.max_num, False
    if not hasattr(arguments, "limit") or arguments.last is not None:
        return None, False
    from spark_mq.cli.messages.print_message import DEFAULT_LIMIT

    return (DEFAULT_LIMIT if arguments.limit is None else arguments.limit or None), True


def find_by_key(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of a topic that have a key, the newest first."""
    from spark_mq.cli.messages.arguments import begin_and_end, condition_of
    from spark_mq.cli.messages.message_filter import MessageFilter
    from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS

    begin, end = begin_and_end(arguments)
    first, last = EARLIEST_MILLIS if begin is None else begin, LATEST_MILLIS if end is None else end
    matching = MessageFilter(first, last, condition=condition_of(arguments.filter))
    found = [one for one in archive.with_key(arguments.key, arguments.topic) if matching.matches(one.record)]
    return reversed(found)


def find_by_unique_key(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages with a unique key or an offset message id, the newest first."""
    from spark_mq.format.java_text import decode_utf8
    from spark_mq.format.message_id import is_offset_message_id

    topic, key = (None, arguments.topic) if arguments.key is None else (arguments.topic, arguments.key)
    found = list(archive.with_key(key, topic, is_unique=True))
    if not found and is_offset_message_id(key):
        by_id = archive.with_id(key, arguments.any_host)
        found = [one for one in by_id if topic is None or decode_utf8(one.record.topic) == topic]
    return reversed(found)


def find_by_ids(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of offset message ids; an id that is a unique key is found, too. Missing ids are said."""
    for message_id in arguments.ids:
        found = list(archive.with_id(message_id, arguments.any_host))
        found = found or list(archive.with_key(message_id, is_unique=True))[-1:]
        if not found:
            print(f"spark-mq: no message {message_id}", file=sys.stderr)
        yield from found


def find_by_offset(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages at a queue offset."""
    return archive.at_queue_offset(arguments.topic, arguments.queue_id, arguments.offset)


def find_of_topic(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of a topic that the arguments of `print-message` select."""
    from spark_mq.cli.messages.arguments import begin_and_end
    from spark_mq.cli.messages.print_message import filter_of

    begin, end = begin_and_end(arguments)
    matching = filter_of(arguments, begin, end)
    is_backwards = arguments.newest_first or arguments.last is not None
    messages = archive.of_topic(arguments.topic, arguments.queue_id, begin, end, newest_first=is_backwards)
    found = (one for one in messages if matching.matches(one.record))
    if arguments.last is None:
        return found
    last = list(islice(found, arguments.last))
    return iter(last if arguments.newest_first else last[::-1])
