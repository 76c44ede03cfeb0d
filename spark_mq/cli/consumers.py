"""`spark-mq consume-directly` and `reset-offset`: what a running cluster's consumers get, by the operator's will.

`consume-directly CLUSTER GROUP ID`: one message, consumed now by a connected consumer of a group. `reset-offset CLUSTER
GROUP TOPIC`: a consumer group's offsets set to a time. Without Spark or a JVM.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from spark_mq.cli.arguments import cluster_options, parse_moment
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.text_table import print_lines
from spark_mq.cli.output.value_text import print_fields, print_json
from spark_mq.errors import OptionError, first_names, similar
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.properties import UNIQUE_KEY, parse_properties
from spark_mq.live.cluster import LiveBroker, live_brokers
from spark_mq.live.look_ups import address_in_id, at_commit_log_offset
from spark_mq.live.offset_reset import FIRST, LAST, apply_resets, check_no_consumers, planned_resets
from spark_mq.remoting.client import RemotingClient, shown
from spark_mq.remoting.requests import Consumer, ConsumerConnections, consumer_connections
from spark_mq.remoting.writes import consume_message_directly
from spark_mq.tables.live import ROUTE

_CONSUMED = ("CR_SUCCESS", "CR_COMMIT")
"""What a consumer answers that consumed the message (`CMResult`)."""


@command(
    "consume-directly",
    """
    CLUSTER             a running cluster: rocketmq://NAME_SERVER:9876
    GROUP               the consumer group
    ID                  the message's offset message id, which the look-ups print
    --client-id ID      the consumer that gets the message (default: the first one, by client id, that is connected)
    --client-conf FILE
    --apply
    --json
    """,
    example="rocketmq://127.0.0.1:9876 billing 7F00000100002A9F00000000000343EF",
    description="Let a connected consumer of a group consume one message now, and print what it answers.",
    epilog="""
    Without --apply nothing is sent, and the fields say which consumer would get which message. The consumer gets the
    message beside its queues: no offset changes, and a failure is not retried. It is not asked whether it subscribes to
    the topic (`subscribed`). A broker waits 10 seconds for the answer; after that the consumer may still consume the
    message.
    """,
)
def consume_directly(arguments: argparse.Namespace) -> int:
    """Print the plan, or the consumer's answer; returns the exit status."""
    options = cluster_options(arguments.client_conf, arguments.cluster, table=ROUTE.name)
    address, commit_log_offset = address_in_id(arguments.id)
    message_id = arguments.id.upper()
    with RemotingClient(options.client) as client:
        broker = _broker_of(live_brokers(client), address, arguments)
        found = at_commit_log_offset(client, broker.address, commit_log_offset)
        if not found:
            say(f"{broker.address} has no message {message_id}: it expired, or never was there")
            return NOT_FOUND
        connected = consumer_connections(client, broker.address, arguments.group)
        consumer = _consumer(connected, arguments)
        if connected is None or consumer is None:
            say(f"no consumer of group {arguments.group} is connected to {broker.address}, which has the message")
            return NOT_FOUND
        record = found[0].record
        topic, key = decode_utf8(record.topic), parse_properties(record.properties).get(UNIQUE_KEY)
        fields: dict[str, Any] = {
            "consumer_group": arguments.group,
            "client_id": consumer.client_id,
            "client_address": consumer.address,
            "language": consumer.language,
            "broker": broker.broker.name,
            "topic": topic,
            "subscribed": topic in connected.subscriptions,
            "queue_id": record.queue_id,
            "queue_offset": record.queue_offset,
            "offset_message_id": message_id,
            "unique_key": None if key is None else decode_utf8(key),
        }
        if not arguments.apply:
            _print(arguments, fields)
            say("nothing was sent; --apply sends the message to the consumer")
            return FOUND
        answer = consume_message_directly(
            client, broker.address, arguments.group, consumer.client_id, topic, message_id
        )
    _print(arguments, fields | asdict(answer))
    return FOUND if answer.consume_result in _CONSUMED else FAILED


def _broker_of(brokers: Sequence[LiveBroker], address: str, arguments: argparse.Namespace) -> LiveBroker:
    """The broker of the cluster that an id names. No other address is asked."""
    for broker in brokers:
        if broker.address == address:
            return broker
    known = ", ".join(broker.address for broker in brokers)
    raise OptionError(
        f"{arguments.id} names {address}, which is not a broker of {arguments.cluster} ({known}): give an offset "
        "message id. Of a message with a unique key, `spark-mq query-by-unique-key` prints it"
    )


def _consumer(connected: ConsumerConnections | None, arguments: argparse.Namespace) -> Consumer | None:
    """The consumer that gets the message; None if none is connected."""
    if connected is None or not connected.consumers:
        return None
    if arguments.client_id is None:
        return next(iter(connected.consumers.values()))
    if arguments.client_id not in connected.consumers:
        raise OptionError(
            f"--client-id {arguments.client_id} is not connected"
            f"{similar(arguments.client_id, connected.consumers)}; consumers of group {arguments.group}: "
            f"{shown(first_names(connected.consumers))}"
        )
    return connected.consumers[arguments.client_id]


def _print(arguments: argparse.Namespace, fields: Mapping[str, Any]) -> None:
    if arguments.json:
        print_json([{"applied": arguments.apply, **fields}])
    else:
        print_fields([fields], list(fields))


@command(
    "reset-offset",
    """
    CLUSTER             a running cluster: rocketmq://NAME_SERVER:9876
    GROUP               the consumer group
    TOPIC
    ! --to TIME|first|last  the first message of each queue that was stored at TIME or later; first: the first message;
                        last: after the last one
    --client-conf FILE
    --apply
    --json
    """,
    example="rocketmq://127.0.0.1:9876 billing orders --to -1h",
    description="Set the offsets of a consumer group in a topic of a running cluster. A plan first.",
    epilog="""
    Without --apply nothing changes, and the table is what would be set. `skipped` is the number of messages that the
    group will not get; if it is negative, the group gets so many again. TIME is looked for by the brokers.

    Consumers that are connected would write their own offsets over the new ones. So the command does nothing while
    there are any; `mqadmin resetOffsetByTime` tells them. Every offset is read again after it was set.
    """,
)
def reset_offset(arguments: argparse.Namespace) -> int:
    """Print the plan, or set the offsets; returns the exit status."""
    to = arguments.to.strip().lower()
    if to not in (FIRST, LAST):
        to = parse_moment("--to", arguments.to, datetime.now().astimezone())
    options = cluster_options(arguments.client_conf, arguments.cluster, topic=arguments.topic)
    with RemotingClient(options.client) as client:
        brokers = live_brokers(client)
        resets = list(planned_resets(brokers, arguments.group, arguments.topic, to))
        if arguments.apply:
            changed = apply_resets(brokers, arguments.group, resets)
        else:
            check_no_consumers(brokers, arguments.group)
            changed = sum(one.consumer_offset != one.reset_offset for one in resets)
    if not resets:
        say(f"no broker of {arguments.cluster} has a queue of topic {arguments.topic} that consumers can read")
        return NOT_FOUND
    rows = [asdict(one) | {"skipped": one.skipped} for one in resets]
    if arguments.json:
        print_json([{"consumer_group": arguments.group, "applied": arguments.apply, "queues": rows}])
    else:
        print_lines([list(row.values()) for row in rows], list(rows[0]))
    what = "changed" if arguments.apply else "would change; --apply sets them"
    say(f"{changed} of {len(resets)} offsets {what}")
    return FOUND
