"""`spark-mq allocate STORE TOPIC`: how a topic's queues are shared out among consumers. Without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_conf, add_broker_version, add_json_report, add_store, add_topic
from spark_mq.cli.exit_status import FOUND
from spark_mq.sharing.strategies import STRATEGIES, UNNAMED

if TYPE_CHECKING:
    from spark_mq.sharing.shares import Allocation, Move, Share
    from spark_mq.sharing.topic_queues import TopicQueue

_EPILOG = """\
The answer is that of the Java client's allocation strategies (mqadmin allocateMQ). A file of consumers has a line for
each: its client id, then perhaps room=NAME (for MACHINE_ROOM_NEARBY) and queues=0,1,2 (for CONFIG). If only a number is
given, the client ids are consumer-1, consumer-2, ..., and consumers that --to adds come after the others.

The last part says how uneven the shares are: `most_to_mean` is the largest share divided by the average. The queues are
those of this store; the queues of the same topic in other brokers are not considered.
"""
_SHOWN = 40
"""Rows of a table on a terminal; the rest is a number. `--json` has all."""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "how the queues of a topic are shared out among consumers, and how uneven that is"
    command = commands.add_parser(
        "allocate", help=what, description=f"Print {what}.", epilog=_EPILOG, allow_abbrev=False
    )
    add_store(command)
    add_topic(command)
    command.add_argument(
        "--consumers", metavar="N|FILE", required=True, help="the number of consumers, or a file with their client ids"
    )
    command.add_argument(
        "--strategy",
        metavar="S",
        default="AVG",
        type=_strategy_name,
        help=f"the strategy of the consumers: {', '.join(STRATEGIES)} (default: AVG)",
    )
    command.add_argument("--to", metavar="M|FILE", help="also print which queues move if there are these consumers")
    command.add_argument("--group", metavar="GROUP", help="also print the lag of this consumer group")
    command.add_argument(
        "--broker-name",
        metavar="NAME",
        help="the broker's name, for CONSISTENT_HASH and MACHINE_ROOM (default: brokerName of --broker-conf)",
    )
    command.add_argument(
        "--points", metavar="N", type=_points, default=10, help="points of each consumer on the ring (CONSISTENT_HASH)"
    )
    command.add_argument(
        "--rooms", metavar="A,B", default="", help="the machine rooms whose queues count (MACHINE_ROOM)"
    )
    command.add_argument(
        "--broker-room",
        metavar="ROOM",
        help="the broker's machine room (MACHINE_ROOM_NEARBY; default: as in a broker name ROOM@NAME)",
    )
    command.add_argument(
        "--inner",
        metavar="S",
        default="AVG",
        type=_strategy_name,
        help="the strategy in a machine room (MACHINE_ROOM_NEARBY; default: AVG)",
    )
    add_broker_conf(command, "brokerName")
    add_broker_version(command)
    add_json_report(command)
    command.set_defaults(run=run)


def _strategy_name(text: str) -> str:
    name = text.upper().replace("-", "_")
    if name not in STRATEGIES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a strategy: give one of {', '.join(STRATEGIES)}")
    return name


def _points(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of points: give 0 to 9999")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Print the shares; returns the exit status."""
    from spark_mq.sharing.shares import allocation, moves
    from spark_mq.sharing.strategies import choose_strategy, parse_consumers
    from spark_mq.sharing.topic_queues import topic_queues
    from spark_mq.store.message_store import MessageStore

    digits = max((len(text) for text in (arguments.consumers, arguments.to) if text and text.isdigit()), default=1)
    consumers = [parse_consumers("--consumers", arguments.consumers, digits)]
    if arguments.to is not None:
        consumers.append(parse_consumers("--to", arguments.to, digits))
    broker_name = _broker_name(arguments)
    rooms = [room for room in arguments.rooms.split(",") if room]
    choices = (broker_name, arguments.inner, rooms, arguments.broker_room, arguments.points)
    with MessageStore(arguments.store, arguments.broker_version) as store:
        queues = topic_queues(store, arguments.topic, arguments.group)
    ids = [queue.queue_id for queue in queues]
    found = [
        allocation(
            choose_strategy(arguments.strategy, arguments.topic, ids, ones, *choices),
            arguments.topic,
            broker_name or UNNAMED,
            queues,
            ones.client_ids,
        )
        for ones in consumers
    ]
    moved = None if len(found) == 1 else moves(*found)
    if arguments.json:
        _print_json(arguments, queues, found, moved)
    else:
        _print_text(arguments, queues, found, moved)
    _print_notes(queues, found[0].strategy, any(ones.is_made_up for ones in consumers))
    return FOUND


def _broker_name(arguments: argparse.Namespace) -> str | None:
    from spark_mq.cli.arguments import broker_conf_path
    from spark_mq.store.config.broker_conf import BrokerConf

    if arguments.broker_name is not None:
        name: str = arguments.broker_name
        return name
    depends = {arguments.strategy, arguments.inner} & {"CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY"}
    conf = broker_conf_path(arguments.broker_conf, arguments.store) if depends or arguments.broker_conf else None
    return BrokerConf.of(conf).settings.get("brokerName")


def _print_json(
    arguments: argparse.Namespace, queues: Sequence[TopicQueue], found: Sequence[Allocation], moved: list[Move] | None
) -> None:
    import json
    from dataclasses import asdict

    from spark_mq.io.s3 import shown

    def as_fields(one: Allocation) -> dict[str, Any]:
        return {
            "shares": [{**asdict(share), "queues": share.queues} for share in one.shares],
            "unevenness": [asdict(uneven) for uneven in one.unevenness],
            "nobody": list(one.nobody),
        }

    fields: dict[str, Any] = {
        "store": shown(arguments.store),
        "topic": arguments.topic,
        "consumer_group": arguments.group,
        "strategy": found[0].strategy,
        "queues": [asdict(queue) for queue in queues],
        **as_fields(found[0]),
    }
    if moved is not None:
        fields["to"] = as_fields(found[1])
        fields["moves"] = [asdict(move) for move in moved]
    print(json.dumps(fields, ensure_ascii=False))


def _print_text(
    arguments: argparse.Namespace, queues: Sequence[TopicQueue], found: Sequence[Allocation], moved: list[Move] | None
) -> None:
    for number, one in enumerate(found):
        if number:
            print()
        after = " after the change" if number else ""
        print(f"{one.strategy}: {len(queues):,} queues, {len(one.shares):,} consumers{after}")
        _print_table(
            ("consumer", "queues", "queue_ids", "messages", "log_bytes", "lag"),
            [_line(share) for share in one.shares],
            hides_lag=arguments.group is None,
        )
        if one.nobody:
            print(f"queues that no consumer gets: {_ranges(one.nobody)}")
        print("\nhow uneven")
        rows = [
            (uneven.measure, uneven.least, round(uneven.mean, 1), uneven.most, _ratio(uneven.most_to_mean))
            for uneven in one.unevenness
        ]
        _print_table(("measure", "least", "mean", "most", "most_to_mean"), rows)
    if moved is not None:
        print(f"\n{len(moved):,} of {len(queues):,} queues move")
        if moved:
            names = [(move.queue_id, ", ".join(move.old) or None, ", ".join(move.new) or None) for move in moved]
            _print_table(("queue_id", "from", "to"), names)


def _line(share: Share) -> tuple[object, ...]:
    ids = _ranges(share.queue_ids)
    return share.consumer, share.queues, ids or None, share.messages, share.log_bytes, share.lag


def _ratio(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _ranges(queue_ids: Sequence[int]) -> str:
    """Queue ids as text, neighbours as a range: `0-3, 7`."""
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in _runs(sorted(queue_ids)))


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = None
    for number in numbers:
        if last is not None and first is not None and number != last + 1:
            yield first, last
            first = None
        first, last = number if first is None else first, number
    if first is not None and last is not None:
        yield first, last


def _print_table(names: Sequence[str], rows: Sequence[Sequence[object]], hides_lag: bool = False) -> None:
    from spark_mq.cli.output.terminal import terminal_width
    from spark_mq.cli.output.text_table import TableStyle, TextTable, print_notes

    if hides_lag:
        names, rows = names[:-1], [row[:-1] for row in rows]
    width = terminal_width()
    style = TableStyle((), {"consumer": 16, "queue_ids": 12}, sizes=("log_bytes",), hint="--json prints everything")
    table = TextTable(names, style, width)
    shown = rows if width is None else rows[:_SHOWN]
    table.write(shown)
    print_notes(table)
    if len(shown) < len(rows):
        print(f"spark-mq: {len(rows) - len(shown):,} more rows are not shown; --json prints all", file=sys.stderr)


def _print_notes(queues: Sequence[TopicQueue], strategy: str, is_made_up: bool) -> None:
    """Print what limits the answer, on stderr."""
    from spark_mq.cli.output.value_text import visible

    if is_made_up and "CONSISTENT_HASH" in strategy:
        print(
            "spark-mq: this strategy depends on the client ids, and these are made up: real consumers get other queues",
            file=sys.stderr,
        )
    uncertain = [queue for queue in queues if queue.problem is not None]
    if uncertain:
        first = uncertain[0]
        text = (
            f"{len(uncertain)} of {len(queues)} queues are not certain; the first is {first.queue_id}: {first.problem}"
        )
        print(f"spark-mq: {visible(text)}", file=sys.stderr)
