"""`spark-mq life STORE KEY-OR-ID`: all that happened to a message, in the order of time; an archive needs Spark."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from spark_mq.cli.archive.source import add_archive_names
from spark_mq.cli.arguments import add_broker_conf, add_json_report, add_stores_file, count
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.arguments import add_any_host, refuse_any_host
from spark_mq.errors import OptionError

if TYPE_CHECKING:
    from spark_mq.lifecycle.life.event import Event
    from spark_mq.lifecycle.life.life import Lives, MessageLife
    from spark_mq.lifecycle.life.life_store import LifeStore
    from spark_mq.store.message_store import MessageStore

_DEFAULT_LIMIT = 10
_EPILOG = """\
A message is stored several times if it is delayed, retried, or part of a transaction. This command looks up all its
copies, and what the broker noted about them. Each line has the store time of a record; lines below it follow from it.

A state that the store does not prove is UNKNOWN, and the last lines say why.

A consumer can have a limit of retries of its own, which no store knows: "retry 2 of 16" is the limit of the group's
settings. Groups that consume in broadcast mode keep their offsets themselves, so nothing is said of them.

STORE can be an archive (the TABLE of `spark-mq archive`): then Spark starts, and states are those of the newest
snapshot. With the store and its archive, what expired comes from the archive, and all else from the store.
"""


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command and its arguments."""
    what = "what happened to a message: transaction, delays, retries, dead letters, consumers"
    command = commands.add_parser(
        "life",
        usage="spark-mq life [OPTION]... STORE... KEY_OR_ID\n       spark-mq life [OPTION]... --stores FILE KEY_OR_ID",
        help=what,
        description="Print all that happened to the messages with a key or an id, in the order of time.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument(
        "stores",
        metavar="STORE",
        nargs="+",
        help="the broker's store directory; several: the stores of a cluster; an archive's table of messages, alone or "
        "with the store that was archived",
    )
    add_stores_file(command)
    command.add_argument(
        "key", metavar="KEY_OR_ID", help="a unique key, one of the keys in KEYS, or an offset message id"
    )
    command.add_argument("--topic", metavar="TOPIC", help="only messages that belong to this topic")
    command.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=_DEFAULT_LIMIT,
        help=f"tell of at most N messages ({_DEFAULT_LIMIT})",
    )
    command.add_argument("--at", metavar="TIME", help="the time for which the question is answered (default: now)")
    add_any_host(command)
    command.add_argument("--trace-topic", metavar="TOPIC", help="the topic of trace messages (RMQ_SYS_TRACE_TOPIC)")
    add_broker_conf(command, "delay levels, fileReservedTime, deleteWhen and the sizes of index files")
    add_archive_names(command)
    add_json_report(command)
    command.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the lives of the messages; stderr gets the reason if there is none, and damage of the index."""
    from datetime import datetime

    from spark_mq.cli.arguments import broker_conf_path, parse_moment
    from spark_mq.cli.messages.query_by_key import print_index_problems
    from spark_mq.cli.output.value_text import visible
    from spark_mq.format.system_topic import TRACE_TOPIC
    from spark_mq.lifecycle.life.life import life
    from spark_mq.store.message_store import MessageStore

    at = None if arguments.at is None else parse_moment("--at", arguments.at, datetime.now().astimezone())
    with ExitStack() as opened:
        archive: str | None = None
        paths: list[str] = []
        if arguments.stores_file is not None:
            stores = opened.enter_context(_of_file(arguments))
        else:
            paths, archive = _paths_and_archive(arguments)
            stores = {}
            for path in paths:
                conf = broker_conf_path(arguments.broker_conf, path)
                stores[path if len(paths) > 1 else ""] = opened.enter_context(MessageStore(path, broker_conf=conf))
        sources: dict[str, MessageStore | LifeStore] = {**stores}
        if archive is not None:
            sources[""] = opened.enter_context(_with_archive(archive, paths, stores.get(""), arguments))
        found = life(
            sources,
            arguments.key,
            arguments.topic,
            arguments.limit,
            at,
            any_host=arguments.any_host,
            trace_topic=arguments.trace_topic or TRACE_TOPIC,
        )
        nothing = not found.lives and not found.more
        reason = _why_nothing(stores, arguments, archive) if nothing else ""
        problems = [problem for store in stores.values() for problem in store.index.problems]
    if found.lives:
        _print(found, arguments)
    sys.stdout.flush()
    print_index_problems(problems)
    if found.more or found.has_even_more:
        at_least = "at least " if found.has_even_more else ""
        many = f"{at_least}{found.more} more message{'' if found.more == 1 else 's'}"
        print(f"spark-mq: {many} with this key: --limit, --topic", file=sys.stderr)
    if reason:
        print(f"spark-mq: {visible(f'no message {arguments.key}: {reason}')}", file=sys.stderr)
    return FOUND if found.lives else NOT_FOUND


@contextmanager
def _of_file(arguments: argparse.Namespace) -> Iterator[dict[str, MessageStore]]:
    """A context with the stores of `--stores`, by the names that events give them."""
    from spark_mq.cli.archive.source import refuse_archive_options
    from spark_mq.cli.several_stores import opened_stores

    if arguments.stores != [arguments.stores_file]:
        raise OptionError("give STORE or --stores FILE, not both")
    refuse_archive_options(arguments.stores_file, arguments)
    refuse_any_host(arguments)
    with opened_stores(arguments) as stores:
        yield {str(of.named): store for of, store in stores}


def _paths_and_archive(arguments: argparse.Namespace) -> tuple[list[str], str | None]:
    """The store directories, and the archive; None if there is no archive."""
    from spark_mq.cli.archive.source import is_named_archive, refuse_archive_options

    given = list(dict.fromkeys(arguments.stores))
    archives = [path for path in given if is_named_archive(path, arguments)]
    paths = [path for path in given if path not in archives]
    if not archives:
        refuse_archive_options(paths[0], arguments)
        return paths, None
    if len(archives) > 1 or len(paths) > 1:
        raise OptionError("give one archive, alone or with the one store that was archived")
    return paths, archives[0]


@contextmanager
def _with_archive(
    archive: str, paths: Sequence[str], store: MessageStore | None, arguments: argparse.Namespace
) -> Iterator[LifeStore]:
    """A context with the look-ups of an archive, and of its store if it is given."""
    from spark_mq.cli.archive.source import archived_store

    with archived_store(archive, arguments, "life", paths[0] if paths else None) as archived:
        yield archived.looked_up(store)


def _why_nothing(stores: dict[str, MessageStore], arguments: argparse.Namespace, archive: str | None) -> str:
    from spark_mq.cli.messages.message_filter import why_no_key_or_id
    from spark_mq.io.s3 import shown

    reasons = []
    for name, store in stores.items():
        reason = why_no_key_or_id(store, arguments.topic, arguments.key)
        reasons.append(f"{name}: {reason}" if name else reason)
    if archive is not None:
        reasons.append(f"the archive {shown(archive)} has no key and no id {arguments.key}")
    return "; ".join(reasons)


def _print(found: Lives, arguments: argparse.Namespace) -> None:
    if arguments.json:
        import json

        from spark_mq.cli.output.json_lines import with_times

        fields = found.to_dict()
        report: dict[str, Any] = {"key": arguments.key, "messages": fields.pop("lives"), **fields}
        print(json.dumps(with_times(report), ensure_ascii=False))
        return
    from spark_mq.cli.output.tree import print_tree

    for number, one in enumerate(found.lives):
        if number:
            print()
        print_tree(_tree(one))


def _tree(told: MessageLife) -> Any:
    """The lines of one message's life."""
    from spark_mq.cli.output.tree import Node

    where = "" if told.topic is None else f" of {told.topic}"
    queue = "" if told.queue_id is None else f", queue {told.queue_id}"
    reason = "" if told.reason is None else f": {told.reason}"
    keys = f", keys {' '.join(told.keys)}" if told.keys else ""
    root = Node(f"message {told.unique_key or 'without a unique key'}{where}{queue}{keys}: {told.state}{reason}")
    below: dict[int, Node] = {}
    """The node below which events are shown that follow from an event: checks of a transaction are not nested."""
    groups: dict[str, Node] = {}
    for event in told.events:
        parent = root if event.parent is None else below[event.parent]
        group = event.consumer_group
        if group is not None and not _is_of_group(told.events, event.parent, group):
            parent = groups.setdefault(group, Node(f"group {group}"))
        node = parent.add(_line(event))
        below[event.number] = parent if event.kind == "CHECKED" else node
    texts: dict[str, list[str]] = {}
    for consumer in told.consumers:
        texts.setdefault(consumer.consumer_group, []).append(consumer.text)
    for group, said in texts.items():
        groups.setdefault(group, Node("")).text = f"group {group}: {'; '.join(said)}"
    root.children += [groups[group] for group in sorted(groups)]
    for text in told.next:
        root.add(f"next: {text}")
    for text in told.unknown:
        root.add(f"not known: {text}")
    return root


def _is_of_group(events: Sequence[Event], number: int | None, group: str) -> bool:
    return number is not None and events[number].consumer_group == group


def _line(event: Event) -> str:
    from spark_mq.cli.output.value_text import local_time_of

    store = f"[{event.store}] " if event.store else ""
    return f"{local_time_of(event.timestamp)}  {store}{event.text}"
