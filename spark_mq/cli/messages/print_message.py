"""`spark-mq print-message`: messages of a topic, the first or the last ones, or as they are written."""

from __future__ import annotations

import argparse
import time
from itertools import islice
from typing import TYPE_CHECKING, cast

from spark_mq.cli.arguments import QUEUE_ID, ROWS
from spark_mq.cli.command import command
from spark_mq.cli.messages.message_filter import why_no_match
from spark_mq.cli.messages.shared import FORM, begin_and_end, filter_of, print_found, why_nothing
from spark_mq.cli.output import say
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.cli.messages.message_filter import MessageFilter
    from spark_mq.cli.messages.shared import Found, Messages
    from spark_mq.cli.messages.stored import StoredMessages
    from spark_mq.live.cluster_messages import ClusterMessages

_DEFAULT_LIMIT = 100
_POLL_SECONDS = 1.0


def _found(messages: Messages, arguments: argparse.Namespace, matching: MessageFilter) -> Found:
    """The matching messages; also new ones, with `--follow`."""
    is_backwards = arguments.newest_first or arguments.last is not None
    times = begin_and_end(arguments)
    found = messages.of_topic(arguments.topic, arguments.queue_id, None, *times, is_backwards)
    if arguments.follow and arguments.last is None and arguments.begin is None:
        say(f"waiting for new messages{why_nothing(messages, topic=arguments.topic, queue_id=arguments.queue_id)}")
    else:
        last = islice((one for one in found if matching.matches(one.record)), arguments.last)
        # They come from the end of the log, but are printed in its order.
        yield from last if arguments.last is None or arguments.newest_first else reversed(list(last))
    while arguments.follow:
        yield None
        time.sleep(_POLL_SECONDS)
        new = cast("ClusterMessages | StoredMessages", messages).new_messages()
        yield from (one for one in new if matching.matches(one.record))


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
def print_message(arguments: argparse.Namespace) -> int:
    """Print the matching messages; stderr gets a line for each damaged part of the log."""
    _check(arguments)
    matching, begin, end = filter_of(arguments)
    has_times = begin is not None or end is not None
    return print_found(
        arguments,
        lambda messages: _found(messages, arguments, matching),
        f"no matching message in topic {arguments.topic}",
        lambda store, selection: why_no_match(store, arguments.topic, arguments.queue_id, selection, has_times),
        as_table=True,
        most=_limit(arguments),
        matching=matching,
    )


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
