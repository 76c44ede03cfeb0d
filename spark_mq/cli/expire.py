"""`spark-mq expire STORE`: old segments, queue files and index files deleted as a broker does it. Without Spark."""

from __future__ import annotations

import argparse
import sys

from spark_mq.cli.arguments import add_json_report, add_store, hours
from spark_mq.cli.exit_status import FOUND, INTERRUPTED, INTERRUPTED_LINE

_EPILOG = """\
The rules and the order are those of a broker: first segments, then queue files, then index files; whole files, the
oldest first; never the newest file of the log, of a queue or of the index. The broker must not be running: with
--apply, the command has the store's lock while it deletes. It can be killed at any moment: a broker boots from the
rest, and the same command deletes what is left.

exit status: 0 done; 1 failed; 2 an argument or its value is wrong; 130 interrupted (Ctrl-C).
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "expire",
        help="delete old segments, and the queue and index files that go with them",
        description="Delete old segments of a stopped store, and the queue files and index files that go with them. "
        "Without --apply this is a dry run: the command changes nothing, and prints what would be deleted.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_store(command)
    rule = command.add_mutually_exclusive_group(required=True)
    rule.add_argument(
        "--min-offset",
        metavar="N",
        type=_offset,
        help="delete segments that end at or before this commit log offset",
    )
    rule.add_argument(
        "--reserved-hours",
        metavar="H",
        type=hours,
        help="delete segments whose files have not changed for H hours, as a broker with fileReservedTime=H",
    )
    command.add_argument("--at", metavar="TIME", help="with --reserved-hours: the time that counts as now")
    mode = command.add_mutually_exclusive_group()
    mode.add_argument("--apply", action="store_true", help="make the changes")
    mode.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would be deleted (the default)"
    )
    command.add_argument(
        "--even-if-unread", action="store_true", help="also delete messages that a consumer group has not read"
    )
    add_json_report(command)
    command.set_defaults(run=run)


def _offset(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) >= 1 << 63:
        raise argparse.ArgumentTypeError(f"{text!r} is not a commit log offset: give 0 or more")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Delete, or show what would be deleted; returns the exit status."""
    from datetime import datetime

    from spark_mq.cli.arguments import parse_moment
    from spark_mq.cli.output import visible
    from spark_mq.cli.output.terminal import print_report
    from spark_mq.expirer import expire

    at = None if arguments.at is None else parse_moment("--at", arguments.at, datetime.now().astimezone())
    deleted = ""

    def count(_: object, number: int, total: int) -> None:
        nonlocal deleted
        deleted = f"; {number:,} of {total:,} files are deleted, and the same command deletes the rest"

    try:
        report = expire(
            arguments.store,
            min_offset=arguments.min_offset,
            reserved_hours=arguments.reserved_hours,
            at=at,
            apply=arguments.apply,
            even_if_unread=arguments.even_if_unread,
            progress=count,
        )
    except KeyboardInterrupt:
        print(f"{INTERRUPTED_LINE}{deleted}", file=sys.stderr)
        return INTERRUPTED
    print_report(report.to_json() if arguments.json else visible(report.to_text(), keep="\n"))
    return FOUND
