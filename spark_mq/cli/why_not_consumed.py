"""`spark-mq why-not-consumed STORE GROUP TOPIC QUEUE OFFSET`: why a consumer group did not get a message. No Spark."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import add_broker_conf, add_json_report, add_store, add_topic
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.arguments import add_filter, queue_id

if TYPE_CHECKING:
    from spark_mq.lifecycle.why_not_consumed import WhyNotConsumed

_EPILOG = """\
The first reason that holds is printed, with its evidence: OUT_OF_RANGE, EXPIRED, DEAD, IN_RETRY, NOT_YET,
FILTERED_BY_TAG_HASH and FILTERED_BY_SQL (by the broker), FILTERED_BY_TAG (by the client), FILTERED_BY_BIT_MAP, POPPED,
NO_OFFSET, CONSUMED or UNKNOWN.

A store has the SQL92 expressions of groups (`spark-mq consumer-filters`), but not their subscriptions to tags: --tag
gives them. Groups that consume in broadcast mode keep their offsets themselves.

Exit status 3 if the store does not have the message.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    command = commands.add_parser(
        "why-not-consumed",
        help="why a consumer group did not get a message: not yet, filtered, in retry, dead, popped",
        description="Print why a consumer group did not consume a message.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_store(command)
    command.add_argument("group", metavar="GROUP", help="the consumer group")
    add_topic(command)
    command.add_argument("queue_id", metavar="QUEUE", type=queue_id, help="the queue's id")
    command.add_argument("offset", metavar="OFFSET", type=int, help="the message's offset in the queue")
    command.add_argument("--tag", metavar="TAGS", help="the tags to which the group subscribed: 'a || b'")
    add_filter(command, "the SQL92 expression with which the group subscribed; by default the one in config/")
    command.add_argument("--at", metavar="TIME", help="the time for which the question is answered (default: now)")
    add_broker_conf(command, "delay levels and the sizes of index files")
    add_json_report(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the reason; returns the exit status."""
    from datetime import datetime

    from spark_mq.cli.arguments import broker_conf_path, parse_moment
    from spark_mq.errors import OptionError
    from spark_mq.lifecycle.why_not_consumed import why_not_consumed
    from spark_mq.store.message_store import MessageStore

    if arguments.tag is not None and arguments.filter is not None:
        raise OptionError("--tag and --filter are two kinds of subscriptions: give one of them")
    at = None if arguments.at is None else parse_moment("--at", arguments.at, datetime.now().astimezone())
    conf = broker_conf_path(arguments.broker_conf, arguments.store)
    with MessageStore(arguments.store, broker_conf=conf) as store:
        message = arguments.topic, arguments.queue_id, arguments.offset
        found = why_not_consumed(store, arguments.group, *message, arguments.tag, arguments.filter, at)
    _print(found, as_json=arguments.json)
    return NOT_FOUND if found.commit_log_offset is None else FOUND


def _print(found: WhyNotConsumed, as_json: bool) -> None:
    if as_json:
        import json

        from spark_mq.cli.output.json_lines import with_times

        print(json.dumps(with_times(found.to_dict()), ensure_ascii=False))
        return
    from spark_mq.cli.output.tree import Node, print_tree
    from spark_mq.cli.output.value_text import local_time_of

    root = Node(f"{found.reason}: {found.text}")
    if found.store_timestamp is not None:
        tags = "" if found.tags is None else f", tags {found.tags}"
        place = f"{found.topic}/{found.queue_id} offset {found.queue_offset}"
        stored = local_time_of(found.store_timestamp)
        root.add(f"message {found.unique_key or 'without a unique key'}{tags}, {place}, stored at {stored}")
    for text in found.evidence:
        root.add(text)
    for text in found.unknown:
        root.add(f"not known: {text}")
    print_tree(root)
