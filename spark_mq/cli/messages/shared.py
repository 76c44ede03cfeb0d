"""What the commands for messages share: their arguments, and look-ups in an archive, for which no Spark starts."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING

from spark_mq.cli.archive_source import has_delta_log
from spark_mq.cli.command import Run
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.message_filter import MessageFilter, parse_tags
from spark_mq.cli.output import say
from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
from spark_mq.cli.output.value_text import local_time_of
from spark_mq.errors import OptionError
from spark_mq.filters.parser import parse_sql92
from spark_mq.io.s3 import shown
from spark_mq.lifecycle.life.situation import Situations

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.filters.expression import Expression

FORM = """
STORE
--stores FILE
--skip-unreadable
--json    print one JSON object per row, bytes in Base64
--columns A,B,C
--body {text,json,hex,base64,raw,none}
"""
"""The stores, and how messages are printed."""
_ROWS_AT_ONCE = 256
_OF_STORES = ("broker_conf", "check_index", "explain", "as_broker", "follow")
"""Arguments of the commands that have no meaning for an archive."""


def or_archive(
    find: Callable[[ArchivedMessages, argparse.Namespace], Iterator[ArchivedMessage]],
    as_table: bool = False,
    limit: Callable[[argparse.Namespace], int | None] = lambda arguments: None,
) -> Callable[[Run], Run]:
    """A decorator of the function of a command that also answers from an archive."""

    def decorated(run: Run) -> Run:
        @wraps(run)
        def run_either(arguments: argparse.Namespace) -> int:
            if arguments.stores is not None or not has_delta_log(arguments.store):
                return run(arguments)
            return _print(arguments, find, as_table, limit(arguments))

        return run_either

    return decorated


def _print(
    arguments: argparse.Namespace,
    find: Callable[[ArchivedMessages, argparse.Namespace], Iterator[ArchivedMessage]],
    as_table: bool,
    most: int | None,
) -> int:
    """Print what an archive has; each message has the names of its store."""
    from spark_mq.archive.archived_messages import ArchivedMessages

    for name in _OF_STORES:
        if getattr(arguments, name, None):
            raise OptionError(f"--{name.replace('_', '-')} has no effect: {shown(arguments.store)} is an archive")
    printer = MessagePrinter(arguments, as_table, names_stores=True)
    found = find(ArchivedMessages(arguments.store), arguments)
    printed, wanted = 0, islice(found, most)
    while batch := list(islice(wanted, _ROWS_AT_ONCE)):
        if getattr(arguments, "body_file", None) and (printed or len(batch) > 1):
            raise OptionError("--body-file takes the body of one message: the archive has several")
        rows = rows_of([one.record for one in batch], Situations(None))
        printer.print([{**vars(one.identity), **row} for one, row in zip(batch, rows, strict=True)])
        printed += len(batch)
    if printed:
        printer.finish()
    if hasattr(arguments, "limit") and next(found, None) is not None:
        say(f"there are more than --limit {most} messages")
    if not printed:
        say(f"the archive {shown(arguments.store)} has no such message")
    return FOUND if printed else NOT_FOUND


def condition_of(text: str | None) -> Expression | None:
    """The parsed value of `--filter`; None without one."""
    if text is None:
        return None
    parsed = parse_sql92(text)
    if parsed.ignored:
        raise OptionError(f"--filter: {parsed.warning}: write the whole condition")
    return parsed.condition


def refuse_any_host(arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if an id shall be answered by any host, and there are several stores to answer it."""
    if arguments.any_host and arguments.stores is not None:
        raise OptionError(
            "--any-host has no effect with --stores: the address in an offset message id chooses the store. Give the "
            "STORE that moved, without --stores"
        )


def begin_and_end(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The values of `--begin` and `--end` in milliseconds; None for an option that was not given."""
    begin, end = arguments.begin, arguments.end
    if begin is not None and end is not None and begin > end:
        raise OptionError(f"--begin ({local_time_of(begin)}) is after --end ({local_time_of(end)})")
    return begin, end


def filter_of(arguments: argparse.Namespace) -> tuple[MessageFilter, int | None, int | None]:
    """The rule by which messages are selected, and the bounds of their store times."""
    begin, end = begin_and_end(arguments)
    return (
        MessageFilter.between(
            begin,
            end,
            tags=parse_tags(arguments.tag),
            properties=arguments.property,
            key=arguments.key,
            body_text=arguments.body_contains,
            condition=condition_of(arguments.filter),
        ),
        begin,
        end,
    )


def print_index_problems(problems: Sequence[str]) -> None:
    """Print the damage of the index on stderr."""
    for problem in problems:
        say(f"{problem}; the log was read instead")
