"""Look-ups of messages in an archive, by the commands that look them up in a store; neither Java nor Spark starts."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages

Run = Callable[[argparse.Namespace], int]
Limit = Callable[[argparse.Namespace], int | None]
Find = Callable[["ArchivedMessages", argparse.Namespace], Iterator["ArchivedMessage"]]

_ROWS_AT_ONCE = 256
_OF_STORES = ("broker_conf", "check_index", "explain", "as_broker", "follow")
"""Arguments of the commands that have no meaning for an archive."""


def or_archive(run: Run, find: Find, as_table: bool = False, limit: Limit | None = None) -> Run:
    """The `run` of a command that also answers from an archive.

    Args:
        run: The command over stores.
        find: Returns the messages of an archive that the arguments ask for, in the order in which they are printed.
        limit: Returns the largest number of messages to print; None for any number.
    """

    def run_either(arguments: argparse.Namespace) -> int:
        from spark_mq.cli.archive.arguments import has_delta_log

        if getattr(arguments, "stores_file", None) is not None or not has_delta_log(arguments.store):
            return run(arguments)
        return _print(arguments, find, as_table, limit)

    return run_either


def _print(arguments: argparse.Namespace, find: Find, as_table: bool, limit: Limit | None) -> int:
    """Print what an archive has; each message has the names of its store."""
    from spark_mq.archive.archived_messages import ArchivedMessages
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.io.s3 import shown
    from spark_mq.lifecycle.life.situation import Situations

    for name in _OF_STORES:
        if getattr(arguments, name, None):
            raise OptionError(f"--{name.replace('_', '-')} has no effect: {shown(arguments.store)} is an archive")
    printer = MessagePrinter(arguments, as_table, names_stores=True)
    found = find(ArchivedMessages(arguments.store), arguments)
    most, printed = None if limit is None else limit(arguments), 0
    wanted = islice(found, most)
    while batch := list(islice(wanted, _ROWS_AT_ONCE)):
        if getattr(arguments, "body_file", None) and (printed or len(batch) > 1):
            raise OptionError("--body-file takes the body of one message: the archive has several")
        names = [vars(one.identity) for one in batch]
        rows = rows_of([one.record for one in batch], Situations(None))
        printer.print([{**of, **row} for of, row in zip(names, rows, strict=True)])
        printed += len(batch)
    if printed:
        printer.finish()
    if hasattr(arguments, "limit") and next(found, None) is not None:
        print(f"spark-mq: there are more than --limit {most} messages", file=sys.stderr)
    if not printed:
        print(f"spark-mq: the archive {visible(shown(arguments.store))} has no such message", file=sys.stderr)
    return FOUND if printed else NOT_FOUND
