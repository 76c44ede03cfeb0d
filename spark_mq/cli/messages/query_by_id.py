"""`spark-mq query-by-id`: messages by their offset message ids."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.archived import or_archive
from spark_mq.cli.messages.arguments import add_any_host, add_body_file, add_store_and_form, refuse_any_host
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.cli.several_stores import CommandStore
    from spark_mq.format.record import Record
    from spark_mq.store.message_store import MessageStore

_MAX_UNCOVERED = 256 << 20
"""Bytes of the log that are read for a unique key, if no index file covers them: a second or two."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "query-by-id",
        help="messages by their offset message ids",
        description="Print messages by their offset message ids (mqadmin queryMsgById).",
        allow_abbrev=False,
    )
    add_store_and_form(command)
    command.add_argument(
        "ids",
        metavar="ID",
        nargs="+",
        help="an offset message id: 32 or 56 hexadecimal digits; a unique key is recognized, and found as by "
        "query-by-unique-key",
    )
    add_any_host(command)
    add_body_file(command)
    command.set_defaults(run=or_archive(run, _find_archived))


def run(arguments: argparse.Namespace) -> int:
    """Print the messages of the ids; for an id without a message, a line on stderr gives the reason."""
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.lifecycle.life.situation import Situations

    refuse_any_host(arguments)
    if arguments.body_file and len(arguments.ids) > 1:
        raise OptionError("--body-file takes the body of one message: give one ID")
    status = FOUND
    printer = MessagePrinter(arguments, as_table=False)
    with opened_stores(arguments) as stores:
        situations = [Situations(store, store.broker_conf) for _, store in stores]
        for message_id in arguments.ids:
            found: list[Mapping[str, Any]] = []
            reasons: list[str] = []
            for (of, store), meant in zip(stores, situations, strict=True):
                records, said = _find(store, of, arguments, message_id)
                found += [of.with_names(row) for row in rows_of(records, meant)]
                if not records:
                    reasons.append(of.say(said))
                elif said:
                    print(f"spark-mq: {message_id} {said}", file=sys.stderr)
            if arguments.body_file and len(found) > 1:
                raise OptionError(f"--body-file takes the body of one message: {len(found)} stores have this id")
            if found:
                printer.print(found)
            else:
                print(f"spark-mq: no message {message_id}: {visible('; '.join(reasons))}", file=sys.stderr)
                status = NOT_FOUND
    printer.finish()
    return status


def _find(
    store: MessageStore, of: CommandStore, arguments: argparse.Namespace, message_id: str
) -> tuple[list[Record], str]:
    """The message of an id in one store, and what to say about it: why there is none, or that it is a unique key."""
    from spark_mq.format.message_id import has_plausible_port
    from spark_mq.store.log.record_lookup import NoRecord

    record = store.find_record_by_id(message_id, arguments.any_host)
    if not isinstance(record, NoRecord):
        return [record], ""
    if has_plausible_port(message_id):
        return [], str(record)
    found, said = _of_unique_key(store, of, message_id)
    return found, f"is not an offset message id, but a unique key{said}" if found else said


def _of_unique_key(store: MessageStore, of: CommandStore, text: str) -> tuple[list[Record], str]:
    """The newest message that has the text as its unique key, and what to say about it."""
    from spark_mq.cli.messages.message_filter import why_no_unique_key
    from spark_mq.io.s3 import shown
    from spark_mq.store.message_selection import find_unique_key, uncovered_parts

    command = f"spark-mq query-by-unique-key {shown(of.path)} {text}"
    if sum(part.size for part in uncovered_parts(store)) > _MAX_UNCOVERED:
        return [], f"it looks like a unique key: `{command}` finds it, and may read the whole log for it"
    found = find_unique_key(store, text)
    if not found:
        return [], f"it looks like a unique key, but {why_no_unique_key(store, None, text)}"
    if len(found) == 1:
        return found, ""
    return found[:1], f" of {len(found)} messages; this is the newest; `{command}` prints all"


def _find_archived(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages of offset message ids; an id that is a unique key is found, too. Missing ids are said."""
    for message_id in arguments.ids:
        found = list(archive.with_id(message_id, arguments.any_host))
        found = found or list(archive.with_key(message_id, is_unique=True))[-1:]
        if not found:
            print(f"spark-mq: no message {message_id}", file=sys.stderr)
        yield from found
