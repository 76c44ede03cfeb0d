"""`spark-mq allocate STORE TOPIC`: how a topic's queues are shared out among consumers. Without Spark or a JVM."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any

from spark_mq.cli.arguments import broker_conf_path, whole
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND
from spark_mq.cli.output import say
from spark_mq.cli.output.text_table import TableStyle, print_lines
from spark_mq.cli.output.value_text import print_json
from spark_mq.io.s3 import shown
from spark_mq.sharing.shares import Allocation, Move, TopicQueue, allocation, moves, topic_queues
from spark_mq.sharing.strategies import STRATEGIES, UNNAMED, choose_strategy, parse_consumers
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.message_store import MessageStore

_POINTS = whole("a number of points", 9999, "0 to 9999")


def _strategy_name(text: str) -> str:
    name = text.upper().replace("-", "_")
    if name not in STRATEGIES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a strategy: give one of {', '.join(STRATEGIES)}")
    return name


@command(
    "allocate",
    f"""
    STORE
    TOPIC
    ! --consumers N|FILE  the number of consumers, or a file with their client ids
    --strategy S          the strategy of the consumers: {", ".join(STRATEGIES)} (default: AVG)
    --to M|FILE           also print which queues move if there are these consumers
    --group GROUP         also print the lag of this consumer group
    --broker-name NAME    the broker's name, for CONSISTENT_HASH and MACHINE_ROOM (default: brokerName of --broker-conf)
    --points N            points of each consumer on the ring (CONSISTENT_HASH)
    --rooms A,B           the machine rooms whose queues count (MACHINE_ROOM)
    --broker-room ROOM    the broker's machine room (MACHINE_ROOM_NEARBY; default: as in a broker name ROOM@NAME)
    --inner S             the strategy in a machine room (MACHINE_ROOM_NEARBY; default: AVG)
    --broker-conf FILE    the broker's settings file, for brokerName
    --broker-version V
    --json
    """,
    example="/data/store orders --consumers 3 --to 4",
    epilog="""
    The answer is that of the Java client's allocation strategies (mqadmin allocateMQ). A file of consumers has a line
    for each: its client id, then perhaps room=NAME (for MACHINE_ROOM_NEARBY) and queues=0,1,2 (for CONFIG). If only a
    number is given, the client ids are consumer-1, consumer-2, ..., and consumers that --to adds come after the others.

    The last part says how uneven the shares are: `most_to_mean` is the largest share divided by the average. The queues
    are those of this store; the queues of the same topic in other brokers are not considered.
    """,
    kinds={"strategy": _strategy_name, "inner": _strategy_name, "points": _POINTS},
    strategy="AVG",
    inner="AVG",
    points=10,
    rooms="",
)
def allocate(arguments: argparse.Namespace) -> int:
    """Print the shares; returns the exit status."""
    given = {"--consumers": arguments.consumers} | ({} if arguments.to is None else {"--to": arguments.to})
    digits = max((len(text) for text in given.values() if text.isdigit()), default=1)
    consumers = [parse_consumers(option, text, digits) for option, text in given.items()]
    broker_name = _broker_name(arguments)
    rooms = [room for room in arguments.rooms.split(",") if room]
    choices = (broker_name, arguments.inner, rooms, arguments.broker_room, arguments.points)
    with MessageStore(arguments.store, arguments.broker_version) as store:
        queues = topic_queues(store, arguments.topic, arguments.group)
    ids, broker = [queue.queue_id for queue in queues], broker_name or UNNAMED
    found = [
        allocation(
            choose_strategy(arguments.strategy, arguments.topic, ids, ones, *choices),
            arguments.topic,
            broker,
            queues,
            ones.client_ids,
        )
        for ones in consumers
    ]
    moved = None if len(found) == 1 else moves(*found)
    if arguments.json:
        print_json([_fields(arguments, queues, found, moved)])
    else:
        _print_text(queues, found, moved, hides_lag=arguments.group is None)
    if "CONSISTENT_HASH" in found[0].strategy and any(ones.is_made_up for ones in consumers):
        say("this strategy depends on the client ids, and these are made up: real consumers get other queues")
    uncertain = [queue for queue in queues if queue.problem is not None]
    if uncertain:
        first = f"{uncertain[0].queue_id}: {uncertain[0].problem}"
        say(f"{len(uncertain)} of {len(queues)} queues are not certain; the first is {first}")
    return FOUND


def _broker_name(arguments: argparse.Namespace) -> str | None:
    if arguments.broker_name is not None:
        name: str = arguments.broker_name
        return name
    depends = {arguments.strategy, arguments.inner} & {"CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY"}
    conf = broker_conf_path(arguments.broker_conf, arguments.store) if depends or arguments.broker_conf else None
    return BrokerConf.of(conf).settings.get("brokerName")


def _fields(
    arguments: argparse.Namespace, queues: Sequence[TopicQueue], found: Sequence[Allocation], moved: list[Move] | None
) -> dict[str, Any]:
    def of_one(one: Allocation) -> dict[str, Any]:
        return {
            "shares": [{**asdict(share), "queues": share.queues} for share in one.shares],
            "unevenness": [asdict(uneven) for uneven in one.unevenness],
            "nobody": list(one.nobody),
        }

    return {
        "store": shown(arguments.store),
        "topic": arguments.topic,
        "consumer_group": arguments.group,
        "strategy": found[0].strategy,
        "queues": [asdict(queue) for queue in queues],
        **of_one(found[0]),
        **({} if moved is None else {"to": of_one(found[1]), "moves": [asdict(move) for move in moved]}),
    }


def _print_text(
    queues: Sequence[TopicQueue], found: Sequence[Allocation], moved: list[Move] | None, hides_lag: bool
) -> None:
    for number, one in enumerate(found):
        if number:
            print()
        after = " after the change" if number else ""
        print(f"{one.strategy}: {len(queues):,} queues, {len(one.shares):,} consumers{after}")
        columns = ("consumer", "queues", "queue_ids", "messages", "log_bytes", "lag")[: -1 if hides_lag else None]
        _print_table(
            columns,
            [
                [_ranges(share.queue_ids) or None if name == "queue_ids" else getattr(share, name) for name in columns]
                for share in one.shares
            ],
        )
        if one.nobody:
            print(f"queues that no consumer gets: {_ranges(one.nobody)}")
        print("\nhow uneven")
        rows = [
            (
                uneven.measure,
                uneven.least,
                round(uneven.mean, 1),
                uneven.most,
                uneven.most_to_mean and round(uneven.most_to_mean, 2),
            )
            for uneven in one.unevenness
        ]
        _print_table(("measure", "least", "mean", "most", "most_to_mean"), rows)
    if moved is not None:
        print(f"\n{len(moved):,} of {len(queues):,} queues move")
        if moved:
            names = [(move.queue_id, ", ".join(move.old) or None, ", ".join(move.new) or None) for move in moved]
            _print_table(("queue_id", "from", "to"), names)


def _ranges(queue_ids: Sequence[int]) -> str:
    """Queue ids as text, neighbours as a range: `0-3, 7`."""

    def runs() -> Iterator[str]:
        for _, run in groupby(enumerate(sorted(queue_ids)), key=lambda pair: pair[1] - pair[0]):
            ids = [queue_id for _, queue_id in run]
            yield str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}"

    return ", ".join(runs())


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    least = {"consumer": 16, "queue_ids": 12}
    print_lines(rows, columns, TableStyle((), least, sizes=("log_bytes",), hint="--json prints everything"), most=40)
