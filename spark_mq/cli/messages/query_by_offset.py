"""`spark-mq query-by-offset`: one message by topic, queue and queue offset."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_topic
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.cli.messages.archived import or_archive
from spark_mq.cli.messages.arguments import add_body_file, add_store_and_form, queue_id
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessage, ArchivedMessages
    from spark_mq.store.message_store import MessageStore


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "query-by-offset",
        help="one message by topic, queue and queue offset",
        description="Print the message at a queue offset (mqadmin queryMsgByOffset).",
        allow_abbrev=False,
    )
    add_store_and_form(command)
    add_topic(command)
    command.add_argument("queue_id", metavar="QUEUE", type=queue_id, help="the queue's id")
    command.add_argument("offset", metavar="OFFSET", type=int, help="the message's offset in the queue")
    add_body_file(command)
    command.set_defaults(run=or_archive(run, _find_archived))


def run(arguments: argparse.Namespace) -> int:
    """Print the message at the queue offset; if there is none, a line on stderr gives the reason.

    If the unit of the queue does not lead to the message, the log is searched.
    """
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.cli.output.value_text import visible
    from spark_mq.cli.several_stores import opened_stores
    from spark_mq.lifecycle.life.situation import Situations

    printer = MessagePrinter(arguments, as_table=False)
    found: list[Mapping[str, Any]] = []
    none: list[tuple[int, str]] = []
    with opened_stores(arguments) as stores:
        for of, store in stores:
            for note in store.queue_notes(arguments.topic):
                print(f"spark-mq: {visible(of.say(note))}", file=sys.stderr)
            cover = store.queue_cover(arguments.topic, arguments.queue_id)
            records = list(cover.messages(arguments.offset, arguments.offset + 1))
            rows = rows_of(records, Situations(store, store.broker_conf))
            found += map(of.with_names, rows)  # a damaged log can contain a queue offset twice
            if not records:
                status, rows, reason = _no_offset(store, arguments)
                found += map(of.with_names, rows)
                none.append((status, of.say(reason)))
    if arguments.body_file and len(found) > 1 and len(stores) > 1:
        raise OptionError(f"--body-file takes the body of one message: {len(found)} brokers have this queue offset")
    if found:
        printer.print(found)
        printer.finish()
    elif none:
        print(f"spark-mq: {visible('; '.join(reason for _, reason in none))}", file=sys.stderr)
    if any(status == FAILED for status, _ in none):
        return FAILED
    return FOUND if found else NOT_FOUND


def _no_offset(store: MessageStore, arguments: argparse.Namespace) -> tuple[int, list[Any], str]:
    """Why the log of a store has no message at the queue offset: the exit status, rows of damage, and the reason."""
    from spark_mq.cli.output.json_lines import plain_rows

    topic, offset = arguments.topic, arguments.offset
    no_queue = store.why_no_queue(topic, arguments.queue_id)
    if no_queue is not None:
        return NOT_FOUND, [], no_queue
    result = store.get_message_result(topic, arguments.queue_id, offset, max_num=1)
    rows = plain_rows(result.messages)
    if rows and result.next_begin_offset == offset + 1:  # the unit is there, but the log does not have its message
        return FAILED, rows, ""
    bounds = f"{topic}/{arguments.queue_id} has offsets {result.min_offset} to {result.max_offset - 1}"
    if result.min_offset >= result.max_offset:
        bounds = f"{topic}/{arguments.queue_id} has no message; the next one gets offset {result.max_offset}"
    return NOT_FOUND, [], f"no message at offset {offset}: {bounds}"


def _find_archived(archive: ArchivedMessages, arguments: argparse.Namespace) -> Iterator[ArchivedMessage]:
    """The messages at a queue offset."""
    return archive.of_topic(arguments.topic, arguments.queue_id, arguments.offset)
