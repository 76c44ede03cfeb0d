"""`spark-mq query-by-offset`: one message by topic, queue and queue offset."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_topic
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.cli.messages.arguments import add_body_file, add_store_and_form, queue_id

if TYPE_CHECKING:
    from spark_mq.cli.output.message_printer import MessagePrinter
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
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the message at the queue offset; if there is none, a line on stderr gives the reason.

    If the unit of the queue does not lead to the message, the log is searched.
    """
    from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
    from spark_mq.lifecycle.life.store_rules import Situations
    from spark_mq.store.message_store import MessageStore

    topic, offset = arguments.topic, arguments.offset
    printer = MessagePrinter(arguments, as_table=False)
    with MessageStore(arguments.store) as store:
        records = list(store.queue_cover(topic, arguments.queue_id).messages(offset, offset + 1))
        if not records:
            return _print_no_offset(store, arguments, printer)
        rows = rows_of(records, Situations(store, store.broker_conf))
    printer.print(rows)  # a damaged log can contain a queue offset twice
    printer.finish()
    return FOUND


def _print_no_offset(store: MessageStore, arguments: argparse.Namespace, printer: MessagePrinter) -> int:
    """Print why the log has no message at the queue offset; returns the exit status."""
    from spark_mq.cli.output.json_lines import plain_rows
    from spark_mq.cli.output.value_text import visible

    topic, offset = arguments.topic, arguments.offset
    no_queue = store.why_no_queue(topic, arguments.queue_id)
    if no_queue is not None:
        print(f"spark-mq: {visible(no_queue)}", file=sys.stderr)
        return NOT_FOUND
    result = store.get_message_result(topic, arguments.queue_id, offset, max_num=1)
    rows = plain_rows(result.messages)
    if rows and result.next_begin_offset == offset + 1:
        printer.print(rows)  # the unit is there, but the log does not have its message: damage
        printer.finish()
        return FAILED
    bounds = f"{topic}/{arguments.queue_id} has offsets {result.min_offset} to {result.max_offset - 1}"
    if result.min_offset >= result.max_offset:
        bounds = f"{topic}/{arguments.queue_id} has no message; the next one gets offset {result.max_offset}"
    print(f"spark-mq: no message at offset {offset}: {visible(bounds)}", file=sys.stderr)
    return NOT_FOUND
