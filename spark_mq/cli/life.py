"""`spark-mq life`: all that happened to a message; and `why-not-consumed`: why a group did not get it."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack

from spark_mq.cli.archive_source import STORE_OF_ARCHIVE, archived_store, is_named_archive, refuse_archive_options
from spark_mq.cli.arguments import OR_CLUSTER, ROWS, broker_conf_path, cluster_options, refuse_client_conf
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.message_filter import why_no_key_or_id
from spark_mq.cli.messages.shared import print_index_problems, refuse_any_host
from spark_mq.cli.output import say
from spark_mq.cli.output.terminal import Node, print_tree
from spark_mq.cli.output.value_text import local_time_of, print_json, with_times
from spark_mq.cli.several_stores import opened_stores
from spark_mq.errors import OptionError
from spark_mq.format.amounts import counted
from spark_mq.format.system_topic import TRACE_TOPIC
from spark_mq.io.s3 import shown
from spark_mq.lifecycle.life.life import DEFAULT_LIMIT, MessageLife, life
from spark_mq.lifecycle.life.life_store import LifeStore
from spark_mq.lifecycle.why_not_consumed import WhyNotConsumed, why_not_consumed
from spark_mq.store.message_store import MessageStore
from spark_mq.tables.table import is_cluster


@command(
    "life",
    f"""
    STORE...             the broker's store directory; several: the stores of a cluster; an archive's table of messages,
                         alone or with the store that was archived{OR_CLUSTER}
    --stores FILE
    --skip-unreadable
    --client-conf FILE
    KEY_OR_ID            a unique key, one of the keys in KEYS, or an offset message id
    --topic TOPIC        only messages that belong to this topic
    --limit N            tell of at most N messages ({DEFAULT_LIMIT})
    --at TIME
    --any-host
    --trace-topic TOPIC  the topic of trace messages (RMQ_SYS_TRACE_TOPIC)
    --broker-conf FILE   the broker's settings file, for delay levels, fileReservedTime, deleteWhen and the sizes of
                         index files
    --json
    """,
    STORE_OF_ARCHIVE,
    example="/data/store order-42",
    description="Print all that happened to the messages with a key or an id, in the order of time.",
    epilog="""
    A message is stored several times if it is delayed, retried, or part of a transaction. This command looks up all its
    copies, and what the broker noted about them. Each line has the store time of a record; lines below it follow from
    it.

    A state that the store does not prove is UNKNOWN, and the last lines say why.

    A consumer can have a limit of retries of its own, which no store knows: "retry 2 of 16" is the limit of the group's
    settings. Groups that consume in broadcast mode keep their offsets themselves, so nothing is said of them.

    STORE can be an archive (the TABLE of `spark-mq archive`): then Spark starts, and states are those of the newest
    snapshot. With the store and its archive, what expired comes from the archive, and all else from the store.

    Of a running cluster, copies are found by the brokers' indexes, and in the queues to which the message belongs. When
    it expires, and how far timers are, only the files of a store tell.
    """,
    kinds={"limit": ROWS},
    limit=DEFAULT_LIMIT,
)
def print_lives(arguments: argparse.Namespace) -> int:
    """Print the lives of the messages; stderr gets the reason if there is none, and damage of the index."""
    if not any(map(is_cluster, arguments.store)):
        refuse_client_conf(arguments)
    with ExitStack() as opened:
        archive: str | None = None
        stores: dict[str, MessageStore] = {}
        brokers: dict[str, LifeStore] = {}
        if any(map(is_cluster, arguments.store)):
            brokers = _brokers(arguments, opened)
        elif arguments.stores is not None:
            stores = _stores_of_file(arguments, opened)
        else:
            paths, archive = _paths_and_archive(arguments)
            for path in paths:
                conf = broker_conf_path(arguments.broker_conf, path)
                stores[path if len(paths) > 1 else ""] = opened.enter_context(MessageStore(path, broker_conf=conf))
        sources: dict[str, MessageStore | LifeStore] = {**stores, **brokers}
        if archive is not None:
            archived = archived_store(archive, arguments, "life", paths[0] if paths else None)
            sources[""] = opened.enter_context(archived).looked_up(stores.get(""))
        found = life(
            sources,
            arguments.key_or_id,
            arguments.topic,
            arguments.limit,
            arguments.at,
            any_host=arguments.any_host,
            trace_topic=arguments.trace_topic or TRACE_TOPIC,
        )
        nothing = not found.lives and not found.more
        reason = _why_nothing(stores, arguments, archive) if nothing else ""
        problems = [problem for store in stores.values() for problem in store.index.problems]
    if found.lives and arguments.json:
        fields = found.to_dict()
        print_json([with_times({"key": arguments.key_or_id, "messages": fields.pop("lives"), **fields})])
    else:
        for number, one in enumerate(found.lives):
            if number:
                print()
            print_tree(_tree(one))
    sys.stdout.flush()
    print_index_problems(problems)
    if found.more or found.has_even_more:
        at_least = "at least " if found.has_even_more else ""
        say(f"{at_least}{counted(found.more, 'more message')} with this key: --limit, --topic")
    if reason:
        say(f"no message {arguments.key_or_id}: {reason}")
    return FOUND if found.lives else NOT_FOUND


def _brokers(arguments: argparse.Namespace, opened: ExitStack) -> dict[str, LifeStore]:
    """The brokers of a running cluster by name; the name of the only one is empty."""
    address, *others = arguments.store
    if others or arguments.stores is not None:
        raise OptionError(f"give {shown(next(filter(is_cluster, arguments.store)))} alone, without other stores")
    refuse_archive_options(address, arguments)
    brokers = _brokers_by_name(arguments, opened)
    return {name if len(brokers) > 1 else "": one for name, one in brokers.items()}


def _brokers_by_name(arguments: argparse.Namespace, opened: ExitStack) -> dict[str, LifeStore]:
    from spark_mq.live.broker_life import BrokerLife
    from spark_mq.live.cluster import live_brokers
    from spark_mq.remoting.client import RemotingClient

    (address,) = arguments.store if isinstance(arguments.store, list) else [arguments.store]
    if arguments.broker_conf is not None:
        raise OptionError(f"--broker-conf has no effect: {shown(address)} is a running cluster, which has the settings")
    options = cluster_options(arguments.client_conf, address, topicPattern=".*")
    client = opened.enter_context(RemotingClient(options.client))
    return {one.broker.name: BrokerLife(one, options) for one in live_brokers(client, options.from_slave)}


def _broker_of_queue(arguments: argparse.Namespace, opened: ExitStack) -> LifeStore:
    """The broker of a running cluster that has the queue of a message."""
    brokers = _brokers_by_name(arguments, opened)
    topic, queue_id = arguments.topic, arguments.queue
    chosen = {
        name: one
        for name, one in brokers.items()
        if arguments.broker in (None, name) and (len(brokers) == 1 or one.why_no_queue(topic, queue_id) is None)
    }
    if len(chosen) != 1:
        has = "several brokers have" if chosen else "no such broker has"
        raise OptionError(f"{has} queue {topic}/{queue_id}: --broker chooses one of {', '.join(chosen or brokers)}")
    return next(iter(chosen.values()))


def _stores_of_file(arguments: argparse.Namespace, opened: ExitStack) -> dict[str, MessageStore]:
    if arguments.store != [arguments.stores]:
        raise OptionError("give STORE or --stores FILE, not both")
    refuse_archive_options(arguments.stores, arguments)
    refuse_any_host(arguments)
    return {str(of.named): store for of, store in opened.enter_context(opened_stores(arguments))}


def _paths_and_archive(arguments: argparse.Namespace) -> tuple[list[str], str | None]:
    given = list(dict.fromkeys(arguments.store))
    archives = [path for path in given if is_named_archive(path, arguments)]
    paths = [path for path in given if path not in archives]
    if not archives:
        refuse_archive_options(paths[0], arguments)
        return paths, None
    if len(archives) > 1 or len(paths) > 1:
        raise OptionError("give one archive, alone or with the one store that was archived")
    return paths, archives[0]


def _why_nothing(stores: dict[str, MessageStore], arguments: argparse.Namespace, archive: str | None) -> str:
    reasons = []
    for name, store in stores.items():
        reason = why_no_key_or_id(store, arguments.topic, arguments.key_or_id)
        reasons.append(f"{name}: {reason}" if name else reason)
    if is_cluster(arguments.store[0]):
        reasons.append(f"no broker of {shown(arguments.store[0])} has such a message, or its index does not find it")
    if archive is not None:
        reasons.append(f"the archive {shown(archive)} has no key and no id {arguments.key_or_id}")
    return "; ".join(reasons)


def _tree(told: MessageLife) -> Node:
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
        if group is not None and (event.parent is None or told.events[event.parent].consumer_group != group):
            parent = groups.setdefault(group, Node(f"group {group}"))
        store = f"[{event.store}] " if event.store else ""
        node = parent.add(f"{local_time_of(event.timestamp)}  {store}{event.text}")
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


@command(
    "why-not-consumed",
    f"""
    STORE               the broker's store directory{OR_CLUSTER}
    --client-conf FILE
    --broker NAME       the broker of a running cluster, if several have the queue
    GROUP               the consumer group
    TOPIC
    QUEUE
    OFFSET
    --tag TAGS          the tags to which the group subscribed: 'a || b'
    --filter SQL92      the SQL92 expression with which the group subscribed; by default the one in config/
    --at TIME
    --broker-conf FILE  the broker's settings file, for delay levels and the sizes of index files
    --json
    """,
    example="/data/store billing orders 3 1200",
    description="Print why a consumer group did not consume a message.",
    epilog="""
    The first reason that is true is printed, with its evidence: OUT_OF_RANGE, EXPIRED, DEAD, IN_RETRY, NOT_YET,
    FILTERED_BY_TAG_HASH and FILTERED_BY_SQL (by the broker), FILTERED_BY_TAG (by the client), FILTERED_BY_BIT_MAP,
    POPPED, NO_OFFSET, CONSUMED or UNKNOWN.

    A store has the SQL92 expressions of groups (`spark-mq consumer-filters`), but not their subscriptions to tags:
    --tag gives them. Groups that consume in broadcast mode keep their offsets themselves.
    """,
)
def print_reason(arguments: argparse.Namespace) -> int:
    """Print the reason; returns the exit status."""
    if arguments.tag is not None and arguments.filter is not None:
        raise OptionError("--tag and --filter are two kinds of subscriptions: give one of them")
    with ExitStack() as opened:
        if is_cluster(arguments.store):
            store: MessageStore | LifeStore = _broker_of_queue(arguments, opened)
        else:
            refuse_client_conf(arguments)
            if arguments.broker is not None:
                raise OptionError("--broker has no effect: a store directory is that of one broker")
            conf = broker_conf_path(arguments.broker_conf, arguments.store)
            store = opened.enter_context(MessageStore(arguments.store, broker_conf=conf))
        message = arguments.topic, arguments.queue, arguments.offset
        found = why_not_consumed(store, arguments.group, *message, arguments.tag, arguments.filter, arguments.at)
    if arguments.json:
        print_json([with_times(found.to_dict())])
    else:
        print_tree(_reason_tree(found))
    return NOT_FOUND if found.commit_log_offset is None else FOUND


def _reason_tree(found: WhyNotConsumed) -> Node:
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
    return root
