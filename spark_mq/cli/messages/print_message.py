"""`spark-mq print-message`: messages of a topic, the first or the last ones, or as they are written."""

from __future__ import annotations

import argparse
import heapq
import time
from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, TypeVar, cast

from spark_mq.cli.arguments import QUEUE_ID, ROWS
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.message_filter import MessageFilter, Selection, why_no_match
from spark_mq.cli.messages.shared import FORM, filter_of, or_elsewhere, why_nothing
from spark_mq.cli.output import say
from spark_mq.cli.output.message_printer import MessagePrinter
from spark_mq.cli.several_stores import opened_stores
from spark_mq.errors import OptionError
from spark_mq.source.topic_messages import topic_messages
from spark_mq.store.log.scan import InQueue
from spark_mq.store.message_selection import FollowedLog, select_messages

if TYPE_CHECKING:
    from spark_mq.cli.messages.shared import Found, Messages
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.format.record import Record
    from spark_mq.live.cluster_messages import ClusterMessages
    from spark_mq.store.message_store import MessageStore

    _Found = tuple[Record, CommandStore, MessageStore]

_T = TypeVar("_T")
_DEFAULT_LIMIT = 100
_MAX_DAMAGE_LINES = 10
"""Damaged parts of the log that get a line each; the others are counted in one more line."""
_ROWS_AT_ONCE = 256
_POLL_SECONDS = 1.0


def _found_elsewhere(messages: Messages, arguments: argparse.Namespace) -> Found:
    """The matching messages of an archive or a cluster; of a cluster also new ones, with `--follow`."""
    _check(arguments)
    matching, begin, end = filter_of(arguments)
    is_backwards = arguments.newest_first or arguments.last is not None
    found = messages.of_topic(arguments.topic, arguments.queue_id, None, begin, end, is_backwards)
    if arguments.follow and arguments.last is None and begin is None:
        why = why_nothing(messages, topic=arguments.topic, queue_id=arguments.queue_id)
        say(f"waiting for new messages{why}")
    else:
        yield from _last((one for one in found if matching.matches(one.record)), arguments)
    while arguments.follow:
        yield None
        time.sleep(_POLL_SECONDS)
        yield from (one for one in cast("ClusterMessages", messages).new_messages() if matching.matches(one.record))


def _limit(arguments: argparse.Namespace) -> int | None:
    if arguments.limit is not None:
        return arguments.limit or None
    return None if arguments.last is not None or arguments.follow else _DEFAULT_LIMIT


@command(
    "print-message",
    FORM,
    f"""
    --full
    TOPIC
    --queue-id N           only this queue
    --begin TIME
    --end TIME
    --tag TAGS
    --key KEY
    --property NAME=VALUE
    --filter SQL92
    --body-contains TEXT
    --limit N              print at most N messages ({_DEFAULT_LIMIT}); 0 prints all
    --last N               print the last N matching messages; the log is read from its end
    --newest-first         begin with the newest message; the log is read from its end
    --follow               print each new message, until Ctrl-C; before them, only those that --last or --begin select
    """,
    example="/data/store orders --last 3",
    description="Print messages of a topic in the order of the log (mqadmin printMsg).",
    kinds={"queue_id": QUEUE_ID, "limit": ROWS, "last": ROWS},
)
@or_elsewhere(_found_elsewhere, as_table=True, limit=_limit)
def print_message(arguments: argparse.Namespace) -> int:
    """Print the matching messages; stderr gets a line for each damaged part of the log."""
    _check(arguments)
    message_filter, begin, end = filter_of(arguments)
    printer = MessagePrinter(arguments, as_table=True)
    damage: list[str] = []
    limit = _limit(arguments)
    with opened_stores(arguments) as stores:
        selections = [Selection(message_filter, damage.append) for _ in stores]
        follows = stores[0][1].get_max_phy_offset() if arguments.follow else -1
        matching = _in_order(
            [
                _of(of, store, _matching(store, arguments, selection, begin, end))
                for (of, store), selection in zip(stores, selections, strict=True)
            ],
            arguments,
        )
        printed = _print(printer, islice(matching, limit))
        if arguments.follow:
            printer.flush()
            _print_damage(damage)
            return _follow(*stores[0], arguments, message_filter, printer, follows, printed)
        has_more = arguments.last is None and printed > 0 and next(matching, None) is not None
        has_times = begin is not None or end is not None
        reasons = [
            of.say(why_no_match(store, arguments.topic, arguments.queue_id, selection, has_times))
            for (of, store), selection in zip(stores, selections, strict=True)
            if not printed
        ]
    printer.finish()
    _print_damage(damage)
    if has_more:
        say(f"there are more than --limit {limit} messages")
    if not printed:
        say(f"no matching message in topic {arguments.topic}: {'; '.join(reasons)}")
    return FOUND if printed else NOT_FOUND


def _of(of: CommandStore, store: MessageStore, records: Iterator[Record]) -> Iterator[_Found]:
    return ((record, of, store) for record in records)


def _in_order(sources: Sequence[Iterator[_Found]], arguments: argparse.Namespace) -> Iterator[_Found]:
    """The matching messages of all stores, in the order in which they are printed: by store time, if there are several.

    The messages of one store keep the order of its log.
    """
    if len(sources) == 1:
        return sources[0]
    sign = -1 if arguments.newest_first else 1
    merged = heapq.merge(*sources, key=lambda found: sign * found[0].store_timestamp)
    if arguments.last is None:
        return merged
    # Each store has given its last messages; the last ones of all are among them.
    found = list(merged)
    return iter(found[: arguments.last] if arguments.newest_first else found[-arguments.last :])


def _check(arguments: argparse.Namespace) -> None:
    if arguments.follow and arguments.stores is not None:
        raise OptionError("--follow prints the messages of one store: give STORE, without --stores")
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


def _matching(
    store: MessageStore, arguments: argparse.Namespace, selection: Selection, begin: int | None, end: int | None
) -> Iterator[Record]:
    """The matching messages that are in the log, in the order in which they are printed."""
    if arguments.follow and arguments.last is None and arguments.begin is None:
        return iter(())
    is_backwards = arguments.newest_first or arguments.last is not None
    if arguments.queue_id is None:
        parts = topic_messages(store, arguments.topic, begin, end, newest_first=is_backwards)
    else:
        parts = select_messages(store, arguments.topic, arguments.queue_id, begin, end, newest_first=is_backwards)
    return _last(selection.of(parts), arguments)


def _last(found: Iterator[_T], arguments: argparse.Namespace) -> Iterator[_T]:
    """Those of the messages that `--last` leaves: they come from the end of the log, but are printed in its order."""
    if arguments.last is None:
        return found
    last = list(islice(found, arguments.last))
    return iter(last if arguments.newest_first else last[::-1])


def _print(printer: MessagePrinter, found: Iterator[_Found]) -> int:
    printed = 0
    while batch := list(islice(found, _ROWS_AT_ONCE)):
        for store, part in groupby(batch, key=lambda found: found[2]):
            records = list(part)
            printer.print(records[0][1].rows(store, [record for record, _, _ in records]))
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
    if printed == 0 and arguments.last is None and arguments.begin is None:
        unknown = store.why_no_topic(arguments.topic)
        say(f"waiting for new messages{f'; {unknown}' if unknown else ''}")
    log = FollowedLog(store.location, InQueue(arguments.topic, arguments.queue_id), log_end)
    limit = arguments.limit or None
    try:
        while limit is None or printed < limit:
            damage: list[str] = []
            selection = Selection(message_filter, damage.append)
            rest = None if limit is None else limit - printed
            printed += _print(printer, islice(_of(of, store, selection.of(log.new_parts())), rest))
            printer.flush()
            _print_damage(damage)
            if limit is None or printed < limit:
                time.sleep(_POLL_SECONDS)
    finally:
        printer.finish()
    return FOUND


def _print_damage(damage: list[str]) -> None:
    for reason in damage[:_MAX_DAMAGE_LINES]:
        say(f"skipped: {reason}")
    if len(damage) > _MAX_DAMAGE_LINES:
        say(f"skipped: {len(damage) - _MAX_DAMAGE_LINES} more damaged parts of the log")
