"""`spark-mq query-by-id`: messages by their offset message ids."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.arguments import add_any_host, add_body_file, add_store_and_form
from spark_mq.errors import OptionError

if TYPE_CHECKING:
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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the messages of the ids; for an id without a message, a line on stderr gives the reason."""
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.format.message_id import has_plausible_port
    from spark_mq.lifecycle.life.store_rules import Situations
    from spark_mq.store.log.record_lookup import NoRecord
    from spark_mq.store.message_store import MessageStore

    if arguments.body_file and len(arguments.ids) > 1:
        raise OptionError("--body-file takes the body of one message: give one ID")
    status = FOUND
    printer = MessagePrinter(arguments, as_table=False)
    with MessageStore(arguments.store) as store:
        situations = Situations(store, store.broker_conf)
        for message_id in arguments.ids:
            record = store.find_record_by_id(message_id, arguments.any_host)
            if not isinstance(record, NoRecord):
                printer.print(rows_of([record], situations))
                continue
            is_id = has_plausible_port(message_id)
            found, said = ([], str(record)) if is_id else _of_unique_key(store, arguments, message_id)
            if found:
                print(f"spark-mq: {message_id} is not an offset message id, but a unique key{said}", file=sys.stderr)
                printer.print(rows_of(found, situations))
            else:
                print(f"spark-mq: no message {message_id}: {visible(said)}", file=sys.stderr)
                status = NOT_FOUND
    printer.finish()
    return status


def _of_unique_key(store: MessageStore, arguments: argparse.Namespace, text: str) -> tuple[list[Record], str]:
    """The newest message that has the text as its unique key, and what to say about it."""
    from spark_mq.cli.messages.reasons import why_no_unique_key
    from spark_mq.io.s3 import shown
    from spark_mq.store.unique_key_search import find_unique_key, uncovered_parts

    command = f"spark-mq query-by-unique-key {shown(arguments.store)} {text}"
    if sum(part.size for part in uncovered_parts(store)) > _MAX_UNCOVERED:
        return [], f"it looks like a unique key: `{command}` finds it, and may read the whole log for it"
    found = find_unique_key(store, text)
    if not found:
        return [], f"it looks like a unique key, but {why_no_unique_key(store, None, text)}"
    return found[:1], "" if len(
        found
    ) == 1 else f" of {len(found)} messages; this is the newest; `{command}` prints all"
