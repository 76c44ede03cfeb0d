"""`spark-mq resend SOURCE [CLUSTER]`: stored messages sent again, each of them once. Without Spark or a JVM."""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from spark_mq.cli.arguments import cluster_options, lines_of, refuse
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.cli.messages.shared import filter_of, why_nothing
from spark_mq.cli.messages.stored import StoredMessages
from spark_mq.cli.output import say
from spark_mq.cli.output.text_table import print_lines
from spark_mq.cli.output.value_text import print_json
from spark_mq.cli.several_stores import CommandStore
from spark_mq.errors import OptionError
from spark_mq.format.message_id import normalize_offset_message_id
from spark_mq.format.record import Record
from spark_mq.io.s3 import shown
from spark_mq.lifecycle.retry_topic import DLQ_PREFIX
from spark_mq.live.cluster import live_brokers
from spark_mq.producer.resend import Receipt, Resender, check_target
from spark_mq.producer.resend_journal import Journal
from spark_mq.remoting.client import RemotingClient
from spark_mq.remoting.requests import READABLE
from spark_mq.store.config.store_kind import has_delta_log
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.live import ROUTE
from spark_mq.tables.table import LIVE_SCHEME, is_cluster

if TYPE_CHECKING:
    from spark_mq.cli.messages.shared import Messages

_MOST_LINES = 10
"""Lines about what is missing, and about what is refused, that are printed for a person."""
_NOT_OF_IDS = ("key", "begin", "end", "tag", "property", "filter", "body_contains")


@command(
    "resend",
    """
    SOURCE                 where the messages are stored: a broker's store directory, an archive's table of messages, or
                           a running cluster: rocketmq://NAME_SERVER:9876
    [CLUSTER]              the running cluster to which they are sent (default: SOURCE)
    ! --dead-letters GROUP  the dead letters of a consumer group, each to the topic from which it came
    | --topic TOPIC        messages of a topic
    | --ids FILE           messages by their offset message ids, one a line, or JSON lines with offset_message_id, as
                           spark-mq sql --format json prints them; - is stdin
    --key KEY
    --begin TIME
    --end TIME
    --tag TAGS
    --property NAME=VALUE
    --filter SQL92
    --body-contains TEXT
    --to-topic TOPIC       the topic to which all messages are sent
    --journal FILE         the file that says what was sent: with it, no run sends a message twice; needed to send
    --send-uncertain       also send messages that may have been sent: of a run that was killed, or without an answer
    --client-conf FILE
    --source-conf FILE     the same of SOURCE, if that is another cluster than CLUSTER
    --apply
    --json
    """,
    example="/data/store rocketmq://127.0.0.1:9876 --dead-letters billing",
    description="Send stored messages again, such as the dead letters of a consumer group. A receipt first.",
    epilog="""
    Without --apply nothing is sent, and the receipt says what would be. Every group that subscribes to the topic gets
    the messages; `consume-directly` gives one message to one group.

    A message is sent with its body, tags, keys and the other properties of its producer, and with properties
    RESENT_FROM_TOPIC, RESENT_FROM_MESSAGE_ID and RESENT_FROM_UNIQUE_KEY, which name the stored one. It gets a unique
    key of its own, and is delivered at once, also if the stored one was delayed.

    Each message is noted in the journal before it is sent, and after the broker's answer. One that may have been sent
    is looked for by its unique key, and counts as sent if the cluster has it.
    """,
)
def resend(arguments: argparse.Namespace) -> int:
    """Print the receipt of what was sent, or would be; returns the exit status."""
    cluster = _check(arguments)
    options = cluster_options(arguments.client_conf, cluster, table=ROUTE.name)
    named = {"source": _name(arguments.source), "cluster": cluster, "to_topic": arguments.to_topic}
    missing: list[str] = []
    with ExitStack() as stack:
        journal = (
            stack.enter_context(Journal.writing(arguments.journal, named))
            if arguments.apply
            else Journal.read(arguments.journal, named)
        )
        client = stack.enter_context(RemotingClient(options.client))
        resender = Resender(client, journal, arguments.to_topic, arguments.apply, arguments.send_uncertain)
        try:
            resender.send(_selected(arguments, cluster, missing.append))
        finally:
            _print(arguments, resender.receipt, missing)
    receipt = resender.receipt
    if receipt.refused or receipt.uncertain or missing:
        return FAILED
    return FOUND if receipt.found else NOT_FOUND


def _check(arguments: argparse.Namespace) -> str:
    """Check the arguments; returns the address to which messages are sent."""
    cluster = arguments.cluster or arguments.source
    if not is_cluster(cluster):
        raise OptionError(f"give CLUSTER, to which messages are sent: {LIVE_SCHEME}NAME_SERVER:9876")
    if arguments.apply and arguments.journal is None:
        raise OptionError("--apply needs --journal FILE: without it, a second run would send all messages again")
    reason = None if arguments.to_topic is None else check_target(arguments.to_topic)
    if reason is not None:
        raise OptionError(f"--to-topic: {reason}")
    if arguments.ids is not None:
        refuse(arguments, _NOT_OF_IDS, " has no effect on --ids: choose the ids")
    if arguments.source_conf is not None and (arguments.source == cluster or not is_cluster(arguments.source)):
        raise OptionError("--source-conf is of a SOURCE that is another cluster than CLUSTER")
    return str(cluster)


def _name(source: str) -> str:
    """What a journal calls a source: an address without secrets, or a whole path."""
    return shown(source) if "://" in source else os.path.abspath(source)


def _selected(arguments: argparse.Namespace, cluster: str, on_missing: Callable[[str], None]) -> Iterator[Record]:
    """The selected messages; `on_missing` gets a line for each part of the source, or id, that has none."""
    matching, begin, end = filter_of(arguments)
    topic = arguments.topic or f"{DLQ_PREFIX}{arguments.dead_letters}"
    with _messages(arguments, cluster, topic, on_missing) as messages:
        if arguments.ids is not None:
            for message_id in _ids(arguments.ids):
                found = list(messages.with_id(message_id))
                if not found:
                    on_missing(f"{shown(arguments.source)} has no message {message_id}")
                yield from (one.record for one in found)
            return
        if arguments.key is not None:
            of_topic = reversed(list(messages.with_key(arguments.key, topic)))
        else:
            of_topic = messages.of_topic(topic, begin=begin, end=end)
        is_empty = True
        for one in of_topic:
            if matching.matches(one.record):
                is_empty = False
                yield one.record
        if is_empty:
            say(f"no matching message in {topic}{why_nothing(messages, topic=topic)}")


@contextmanager
def _messages(
    arguments: argparse.Namespace, cluster: str, topic: str, on_missing: Callable[[str], None]
) -> Iterator[Messages]:
    """A context with the messages of the source."""
    source = arguments.source
    if is_cluster(source):
        from spark_mq.live.cluster_messages import ClusterMessages

        conf = arguments.client_conf if source == cluster else arguments.source_conf
        options = cluster_options(conf, source, topicPattern=".*", tag=arguments.tag, filter=arguments.filter)
        with RemotingClient(options.client) as client, _warnings(on_missing):
            for broker in live_brokers(client):
                found = broker.topics.get(topic)
                if found is not None and not found.perm & READABLE:
                    on_missing(
                        f"{broker.address}: topic {topic} cannot be read, as its perm is {found.perm}: make it 6 "
                        "(mqadmin updateTopicPerm)"
                    )
            yield ClusterMessages(client, options)
    elif has_delta_log(source):
        from spark_mq.archive.archived_messages import ArchivedMessages

        yield ArchivedMessages(source)
    else:
        with MessageStore(source) as store:
            of = [(CommandStore(source, None, None), store)]
            yield StoredMessages(of, on_damage=lambda reason: on_missing(f"skipped: {reason}"))


@contextmanager
def _warnings(on_missing: Callable[[str], None]) -> Iterator[None]:
    """A context in which `on_missing` gets the warnings about messages that a cluster does not show."""

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            on_missing(record.getMessage())

    logger, lines = logging.getLogger("spark_mq.live"), Lines(logging.WARNING)
    logger.addHandler(lines)
    try:
        yield
    finally:
        logger.removeHandler(lines)


def _ids(file: str) -> Iterator[str]:
    """The ids of a file: a line has an id, or a JSON object with `offset_message_id`."""
    for number, line in enumerate(lines_of("--ids", file), 1):
        text = line.strip()
        if not text:
            continue
        try:
            yield normalize_offset_message_id(
                str(json.loads(text)["offset_message_id"]) if text.startswith("{") else text
            )
        except (ValueError, KeyError) as error:
            raise OptionError(
                f"--ids {file}: line {number} is neither an offset message id nor a JSON object with "
                f"offset_message_id: {text[:80]}"
            ) from error


def _print(arguments: argparse.Namespace, receipt: Receipt, missing: Sequence[str]) -> None:
    topics = [
        {"from_topic": source, "to_topic": target, "messages": count}
        for (source, target), count in sorted(receipt.sent.items())
    ]
    refused = [
        {"reason": reason, "messages": count, "first": receipt.examples[reason]}
        for reason, count in receipt.refused.most_common()
    ]
    sent = receipt.sent.total()
    if arguments.json:
        counts = {
            "applied": arguments.apply,
            "found": receipt.found,
            "would_send": 0 if arguments.apply else sent,
            "sent": sent if arguments.apply else 0,
            "already_sent": receipt.already_sent,
            "uncertain": receipt.uncertain,
            "copies": receipt.copies,
            "refused": receipt.refused.total(),
        }
        print_json([{**counts, "topics": topics, "reasons": refused, "missing": list(missing)}])
    elif topics:
        names = ("from_topic", "to_topic", "messages")
        print_lines([[row[name] for name in names] for row in topics], names)
    lines = [f"{row['messages']} refused: {row['reason']}; the first is {row['first']}" for row in refused]
    for part in (missing, lines):
        for line in part[:_MOST_LINES]:
            say(line)
        if len(part) > _MOST_LINES:
            say(f"and {len(part) - _MOST_LINES} more such lines: --json has all")
    at_least = "at least " if missing else ""
    how = " (--apply --journal FILE sends them)" if sent and not arguments.apply else ""
    parts = [f"{sent} {'sent' if arguments.apply else f'would be sent{how}'}"]
    parts += [
        f"{count} {what}"
        for count, what in (
            (receipt.already_sent, "sent before"),
            (receipt.copies, "copies of another one"),
            (receipt.refused.total(), "refused"),
            (receipt.uncertain, "may have been sent, and were not sent again (--send-uncertain sends them)"),
        )
        if count
    ]
    say(f"{at_least}{receipt.found} found: {', '.join(parts)}")
