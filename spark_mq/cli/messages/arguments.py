"""Arguments that several commands for messages share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_broker_conf, add_json_rows, add_store
from spark_mq.cli.output.row_printer import add_columns
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.filters.expression import Expression

_FORMS = ("text", "json", "hex", "base64", "raw", "none")
_MAX_QUEUE_ID = (1 << 31) - 1


def add_store_and_form(command: argparse.ArgumentParser, with_full: bool = False) -> None:
    """Add STORE or `--stores`, and how messages are printed: `--json`, `--columns`, `--body`; for a table `--full`."""
    add_store(command, with_several=True)
    add_json_rows(command)
    add_columns(command, with_full)
    command.add_argument(
        "--body",
        choices=_FORMS,
        help="the form of bodies: text, json (indented, if the body is JSON), hex, base64, raw (only the bodies, "
        "unchanged, a line break after each), or none to leave them out. Without it, the form that fits the body: "
        "indented JSON, text, or a hex dump of the first 512 bytes; in a table text. With --json base64 is the "
        "default, and in another form a body that is not text is an object with its Base64",
    )


def add_index(command: argparse.ArgumentParser) -> None:
    """Add the arguments of a look-up in the index."""
    add_broker_conf(command, "maxHashSlotNum and maxIndexNum")
    command.add_argument(
        "--check-index",
        action="store_true",
        help="read each index file whole before it is used, and check that it is sound",
    )
    command.add_argument(
        "--explain", action="store_true", help="print the access path and its cost; do not run the query"
    )


def add_time(command: argparse.ArgumentParser) -> None:
    """Add `--begin` and `--end`."""
    time = "epoch milliseconds, ISO 8601 with a zone, a time as the commands print it, -90s, -15m, -1h, -2d, yesterday"
    command.add_argument("--begin", metavar="TIME", help=f"only messages stored at TIME or later: {time}")
    command.add_argument("--end", metavar="TIME", help="only messages stored at TIME or earlier")


def add_filter(command: argparse.ArgumentParser, what: str = "") -> None:
    """Add `--filter`; `what` is its help if it does not select the messages to print."""
    selects = "only messages for which this expression of RocketMQ is TRUE: \"price > 5 AND region = 'eu'\""
    command.add_argument("--filter", metavar="SQL92", help=what or selects)


def condition_of(text: str | None) -> Expression | None:
    """The parsed value of `--filter`; None without one."""
    from spark_mq.filters.parser import parse_sql92

    if text is None:
        return None
    parsed = parse_sql92(text)
    if parsed.ignored:
        raise OptionError(f"--filter: {parsed.warning}: write the whole condition")
    return parsed.condition


def add_any_host(command: argparse.ArgumentParser) -> None:
    """Add `--any-host`."""
    text = "accept an offset message id that names another host than the message's store host: for a store that moved"
    command.add_argument("--any-host", action="store_true", help=text)


def refuse_any_host(arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if an id shall be answered by any host, and there are several stores to answer it."""
    if arguments.any_host and getattr(arguments, "stores_file", None) is not None:
        raise OptionError(
            "--any-host has no effect with --stores: the address in an offset message id chooses the store. Give the "
            "STORE that moved, without --stores"
        )


def add_body_file(command: argparse.ArgumentParser) -> None:
    """Add `--body-file`."""
    command.add_argument(
        "--body-file",
        metavar="FILE",
        help="write the message's body, unchanged, to FILE; - is stdout, which then gets nothing else",
    )


def queue_id(text: str) -> int:
    """A queue id: 0 or a positive integer of 31 bits."""
    if not text.isascii() or not text.isdigit() or int(text) > _MAX_QUEUE_ID:
        raise argparse.ArgumentTypeError(f"{text!r} is not a queue id: give 0 or more")
    return int(text)


def begin_and_end(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The values of `--begin` and `--end` in milliseconds; None for an option that was not given."""
    from datetime import datetime

    from spark_mq.cli.arguments import parse_moment
    from spark_mq.cli.output.value_text import local_time_of

    now = datetime.now().astimezone()
    begin = None if arguments.begin is None else parse_moment("--begin", arguments.begin, now)
    end = None if arguments.end is None else parse_moment("--end", arguments.end, now)
    if begin is not None and end is not None and begin > end:
        raise OptionError(f"--begin ({local_time_of(begin)}) is after --end ({local_time_of(end)})")
    return begin, end
