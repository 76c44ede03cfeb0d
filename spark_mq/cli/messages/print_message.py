"""`spark-mq print-message`: messages of a topic, the first or the last ones, or as they are written."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_topic, count, pair
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.arguments import (
    add_filter,
    add_store_and_form,
    add_time,
    begin_and_end,
    condition_of,
    queue_id,
)
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.cli.messages.message_filter import MessageFilter, Selection
    from spark_mq.cli.output.message_printer import MessagePrinter
    from spark_mq.format.record import Record
    from spark_mq.lifecycle.life.store_rules import Situations
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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the matching messages; stderr gets a line for each damaged part of the log."""
    from spark_mq.cli.messages.message_filter import Selection
    from spark_mq.cli.messages.reasons import why_no_match
    from spark_mq.cli.output.message_printer import MessagePrinter
    from spark_mq.cli.output.value_text import visible
    from spark_mq.lifecycle.life.store_rules import Situations
    from spark_mq.store.message_store import MessageStore

    _check(arguments)
    begin, end = begin_and_end(arguments)
    message_filter = _filter(arguments, begin, end)
    printer = MessagePrinter(arguments, as_table=True)
    damage: list[str] = []
    selection = Selection(message_filter, damage.append)
    with MessageStore(arguments.store) as store:
        log_end = store.get_max_phy_offset() if arguments.follow else -1
        matching = _matching(store, arguments, selection, begin, end)
        limit = _limit(arguments)
        situations = Situations(store, store.broker_conf)
        printed = _print(printer, islice(matching, limit), situations)
        if arguments.follow:
            printer.flush()
            _print_damage(damage)
            return _follow(store, arguments, message_filter, printer, situations, log_end, printed)
        has_more = arguments.last is None and printed > 0 and next(matching, None) is not None
        reason = "" if printed else why_no_match(store, arguments.topic, arguments.queue_id, message_filter, selection)
    printer.finish()
    _print_damage(damage)
    if has_more:
        print(f"spark-mq: there are more than --limit {limit} messages", file=sys.stderr)
    if not printed:
        line = f"no matching message in topic {arguments.topic}: {reason}"
        print(f"spark-mq: {visible(line)}", file=sys.stderr)
    return FOUND if printed else NOT_FOUND


def _check(arguments: argparse.Namespace) -> None:
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


def _print(printer: MessagePrinter, records: Iterable[Record], situations: Situations) -> int:
    """Print the messages as they are found; returns their number."""
    from spark_mq.cli.output.message_printer import rows_of

    printed, remaining = 0, iter(records)
    while batch := list(islice(remaining, _ROWS_AT_ONCE)):
        printer.print(rows_of(batch, situations))
        printed += len(batch)
    return printed


def _follow(
    store: MessageStore,
    arguments: argparse.Namespace,
    message_filter: MessageFilter,
    printer: MessagePrinter,
    situations: Situations,
    log_end: int,
    printed: int,
) -> int:
    """Print new messages until `--limit` is reached or Ctrl-C; returns the exit status."""
    from spark_mq.cli.messages.message_filter import Selection
    from spark_mq.store.followed_log import FollowedLog
    from spark_mq.store.log.scan import InQueue

    if printed == 0 and arguments.last is None and arguments.begin is None:
        unknown = store.why_no_topic(arguments.topic)
        print(f"spark-mq: waiting for new messages{f'; {unknown}' if unknown else ''}", file=sys.stderr)
    log = FollowedLog(store.location, InQueue(arguments.topic, arguments.queue_id), log_end)
    limit = arguments.limit or None
    try:
        while limit is None or printed < limit:
            damage: list[str] = []
            selection = Selection(message_filter, damage.append)
            rest = None if limit is None else limit - printed
            printed += _print(printer, islice(selection.of(log.new_parts()), rest), situations)
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
