"""`spark-mq print-message`: messages of a topic, the first or the last ones, or as they are written."""

from __future__ import annotations

import argparse
import heapq
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_topic, count, pair
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.archived import or_archive
from spark_mq.cli.messages.arguments import (
    add_filter,
    add_store_and_form,
    add_time,
    begin_and_end,
    condition_of,
    queue_id,
)
from spark_mq.errors import OptionError
from spark_mq.format.record import Record

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.cli.messages.message_filter import MessageFilter, Selection
    from spark_mq.cli.output.message_printer import MessagePrinter
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.format.record import Record
    from spark_mq.lifecycle.life.situation import Situations
    from spark_mq.store.message_store import MessageStore

_DEFAULT_LIMIT = 100
_MAX_DAMAGE_LINES = 10
"""Damaged parts of the log that get a line each; the others are counted in one more line."""
_ROWS_AT_ONCE = 256
_POLL_SECONDS = 1.0


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "print-message",
        help="messages of a topic, by queue, time, tag, key, property and text",
        description="Print messages of a topic in the order of the log (mqadmin printMsg).",
        allow_abbrev=False,
    )
    add_store_and_form(command, with_full=True)
    add_topic(command)
    command.add_argument("--queue-id", metavar="N", type=queue_id, help="only this queue")
    add_time(command)
    command.add_argument("--tag", metavar="TAGS", help="only messages with one of these tags: 'a || b'")
    command.add_argument("--key", metavar="KEY", help="only messages with this key, in KEYS or as unique key")
    command.add_argument(
        "--property",
        metavar="NAME=VALUE",
        action="append",
        type=pair("region=eu"),
        default=[],
        help="only messages whose property NAME has this value; can be repeated",
    )
    add_filter(command)
    command.add_argument("--body-contains", metavar="TEXT", help="only messages whose body contains TEXT, as UTF-8")
    command.add_argument(
        "--limit", metavar="N", type=count, help=f"print at most N messages ({_DEFAULT_LIMIT}); 0 prints all"
    )
    command.add_argument(
        "--last", metavar="N", type=count, help="print the last N matching messages; the log is read from its end"
    )
    command.add_argument(
        "--newest-first", action="store_true", help="begin with the newest message; the log is read from its end"
    )
    command.add_argument(
        "--follow",
        action="store_true",
        help="print each new message, until Ctrl-C; before them, only those that --last or --begin select",
    )
    command.set_defaults(run=or_archive(run, _find_archived, as_table=True, limit=_limit))


def run(arguments: argparse.Namespace) -> int:
    """Print the matching messages; stderr gets a line for each damaged part of the log."""
    from spark_mq.cli.messages.message_filter import Selection, why_no_match
    from spark_mq.cli.output.message_printer import MessagePrinter
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.lifecycle.life.situation import Situations

    _check(arguments)
    begin, end = begin_and_end(arguments)
    message_filter = _filter(arguments, begin, end)
    printer = MessagePrinter(arguments, as_table=True)
    damage: list[str] = []
    limit = _limit(arguments)
    with opened_stores(arguments) as stores:
        selections = [Selection(message_filter, damage.append) for _ in stores]
        follows = stores[0][1].get_max_phy_offset() if arguments.follow else -1
        matching = _of_all(
            [
                _Source(of, Situations(store, store.broker_conf), _matching(store, arguments, selection, begin, end))
                for (of, store), selection in zip(stores, selections, strict=True)
            ],
            arguments,
        )
        printed = _print(printer, islice(matching, limit))
        if arguments.follow:
            printer.flush()
            _print_damage(damage)
            (of, store), *_ = stores
            return _follow(of, store, arguments, message_filter, printer, follows, printed)
        has_more = arguments.last is None and printed > 0 and next(matching, None) is not None
        reasons = [
            of.say(why_no_match(store, arguments.topic, arguments.queue_id, message_filter, selection))
            for (of, store), selection in zip(stores, selections, strict=True)
            if not printed
        ]
    printer.finish()
    _print_damage(damage)
    if has_more:
        print(f"spark-mq: there are more than --limit {limit} messages", file=sys.stderr)
    if not printed:
        line = f"no matching message in topic {arguments.topic}: {'; '.join(reasons)}"
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return FOUND if printed else NOT_FOUND


@dataclass(frozen=True)
class _Source:
    """A store, what its messages mean, and those of them that match."""

    of: CommandStore
    situations: Situations
    records: Iterator[Record]

    def each(self) -> Iterator[tuple[Record, _Source]]:
        return ((record, self) for record in self.records)


def _of_all(sources: Sequence[_Source], arguments: argparse.Namespace) -> Iterator[tuple[Record, _Source]]:
    """The matching messages of all stores, in the order in which they are printed: by store time, if there are several.

    The messages of one store keep the order of its log.
    """
    if len(sources) == 1:
        return sources[0].each()
    sign = -1 if arguments.newest_first else 1
    merged = heapq.merge(*(source.each() for source in sources), key=lambda one: sign * one[0].store_timestamp)
    if arguments.last is None:
        return merged
    # Each store has given its last messages; the last ones of all are among them.
    found = list(merged)
    return iter(found[: arguments.last] if arguments.newest_first else found[-arguments.last :])


def _check(arguments: argparse.Namespace) -> None:
    if arguments.follow and arguments.stores_file is not None:
        raise OptionError("--follow prints the messages of one store: give STORE, without --stores")
    """Raise `OptionError` if arguments contradict each other."""
    if arguments.last is not None and arguments.limit is not None:
        raise OptionError("--last and --limit are both a number of messages: give one of them")
    if arguments.last == 0:
        raise OptionError("--last 0: give 1 or more")
    if arguments.last is not None and arguments.begin is not None and arguments.follow:
        raise OptionError("--follow: give --last or --begin, not both")
    for option in ("key", "body_contains"):
        if getattr(arguments, option) == "":
            raise OptionError(f"--{option.replace('_', '-')} '' is empty: give a text, or leave the option out")
    if arguments.follow and (arguments.end is not None or arguments.newest_first):
        raise OptionError(
            "--follow prints messages until Ctrl-C, in the order of the log: leave out --end and --newest-first"
        )


def _filter(arguments: argparse.Namespace, begin: int | None, end: int | None) -> MessageFilter:
    """The rule by which messages are printed; `begin` and `end` are milliseconds since the epoch."""
    from spark_mq.cli.messages.message_filter import MessageFilter, parse_tags
    from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS

    return MessageFilter(
        EARLIEST_MILLIS if begin is None else begin,
        LATEST_MILLIS if end is None else end,
        parse_tags(arguments.tag),
        arguments.property,
        arguments.key,
        arguments.body_contains,
        condition_of(arguments.filter),
    )


def _limit(arguments: argparse.Namespace) -> int | None:
    """The largest number of messages to print; None for any number."""
    if arguments.limit is not None:
        return arguments.limit or None
    return None if arguments.last is not None or arguments.follow else _DEFAULT_LIMIT


def _matching(
    store: MessageStore, arguments: argparse.Namespace, selection: Selection, begin: int | None, end: int | None
) -> Iterator[Record]:
    """The matching messages that are in the log, in the order in which they are printed."""
    from spark_mq.source.topic_messages import topic_messages
    from spark_mq.store.message_selection import select_messages

    if arguments.follow and arguments.last is None and arguments.begin is None:
        return iter(())
    is_backwards = arguments.newest_first or arguments.last is not None
    if arguments.queue_id is None:
        parts = topic_messages(store, arguments.topic, begin, end, newest_first=is_backwards)
    else:
        parts = select_messages(store, arguments.topic, arguments.queue_id, begin, end, newest_first=is_backwards)
    matching = selection.of(parts)
    if arguments.last is None:
        return matching
    last = list(islice(matching, arguments.last))
    return iter(last if arguments.newest_first else last[::-1])


def _print(printer: MessagePrinter, records: Iterable[tuple[Record, _Source]]) -> int:
    """Print the messages as they are found; returns their number."""
    from spark_mq.cli.output.message_printer import rows_of

    printed, remaining = 0, iter(records)
    while batch := list(islice(remaining, _ROWS_AT_ONCE)):
        for source, part in groupby(batch, key=lambda one: one[1]):
            rows = rows_of([record for record, _ in part], source.situations)
            printer.print(map(source.of.with_names, rows))
        printed += len(batch)
    return printed


def _follow(
    of: CommandStore,
    store: MessageStore,
    arguments: argparse.Namespace,
    message_filter: MessageFilter,
    printer: MessagePrinter,
    log_end: int,
    printed: int,
) -> int:
    """Print new messages until `--limit` is reached or Ctrl-C; returns the exit status."""
    from spark_mq.cli.messages.message_filter import Selection
    from spark_mq.lifecycle.life.situation import Situations
    from spark_mq.store.log.scan import InQueue
    from spark_mq.store.message_selection import FollowedLog

    if printed == 0 and arguments.last is None and arguments.begin is None:
        unknown = store.why_no_topic(arguments.topic)
        print(f"spark-mq: waiting for new messages{f'; {unknown}' if unknown else ''}", file=sys.stderr)
    log = FollowedLog(store.location, InQueue(arguments.topic, arguments.queue_id), log_end)
    limit = arguments.limit or None
    situations = Situations(store, store.broker_conf)
    try:
        while limit is None or printed < limit:
            damage: list[str] = []
            selection = Selection(message_filter, damage.append)
            rest = None if limit is None else limit - printed
            source = _Source(of, situations, selection.of(log.new_parts()))
            printed += _print(printer, islice(source.each(), rest))
            printer.flush()
            _print_damage(damage)
            if limit is None or printed < limit:
                time.sleep(_POLL_SECONDS)
    finally:
        printer.finish()
    return FOUND


def _print_damage(damage: list[str]) -> None:
    from spark_mq.cli.output.value_text import visible

    for reason in damage[:_MAX_DAMAGE_LINES]:
        print(f"spark-mq: skipped: {visible(reason)}", file=sys.stderr)
    if len(damage) > _MAX_DAMAGE_LINES:
        print(f"spark-mq: skipped: {len(damage) - _MAX_DAMAGE_LINES} more damaged parts of the log", file=sys.stderr)


def _find_archived(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of a topic that the arguments of `print-message` select."""
    begin, end = begin_and_end(arguments)
    matching = _filter(arguments, begin, end)
    is_backwards = arguments.newest_first or arguments.last is not None
    messages = archive.of_topic(arguments.topic, arguments.queue_id, None, begin, end, is_backwards)
    found = (one for one in messages if matching.matches(one.record))
    if arguments.last is None:
        return found
    last = list(islice(found, arguments.last))
    return iter(last if arguments.newest_first else last[::-1])
