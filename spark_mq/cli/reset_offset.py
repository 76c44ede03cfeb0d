"""`spark-mq reset-offset CLUSTER GROUP TOPIC`: a consumer group's offsets set to a time. Without Spark or a JVM."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from datetime import datetime

from spark_mq.cli.arguments import parse_moment
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.text_table import print_lines
from spark_mq.cli.output.value_text import print_json
from spark_mq.cli.running_cluster import cluster_options
from spark_mq.live.cluster import live_brokers
from spark_mq.live.offset_reset import FIRST, LAST, OffsetReset, apply_resets, check_no_consumers, planned_resets
from spark_mq.remoting.client import RemotingClient

_COLUMNS = ("broker", "topic", "queue_id", "min_offset", "max_offset", "consumer_offset", "reset_offset", "skipped")


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
    _print(arguments, resets)
    what = "changed" if arguments.apply else "would change; --apply sets them"
    say(f"{changed} of {len(resets)} offsets {what}")
    return FOUND


def _print(arguments: argparse.Namespace, resets: list[OffsetReset]) -> None:
    rows = [asdict(one) | {"skipped": one.skipped} for one in resets]
    if arguments.json:
        print_json([{"consumer_group": arguments.group, "applied": arguments.apply, "queues": rows}])
    else:
        print_lines([[row[name] for name in _COLUMNS] for row in rows], _COLUMNS)
