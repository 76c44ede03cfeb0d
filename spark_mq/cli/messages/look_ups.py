"""`spark-mq query-by-id`, `query-by-key`, `query-by-unique-key` and `query-by-offset`: messages by what names them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from spark_mq.cli.arguments import lines_of, refuse, whole
from spark_mq.cli.command import command
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.cli.messages.message_filter import MessageFilter, why_no_key, why_no_unique_key
from spark_mq.cli.messages.shared import (
    FORM,
    begin_and_end,
    condition_of,
    is_of_stores,
    print_found,
    refuse_any_host,
    why_nothing,
)
from spark_mq.cli.messages.stored import StoredMessages
from spark_mq.cli.output import say
from spark_mq.cli.output.message_printer import MessagePrinter
from spark_mq.cli.output.value_text import plain_rows, visible
from spark_mq.cli.several_stores import command_stores, opened_stores
from spark_mq.errors import OptionError
from spark_mq.format.dispatch import record_keys, record_tags_key, tags_key
from spark_mq.format.java_text import decode_utf8
from spark_mq.format.message_id import is_offset_message_id
from spark_mq.format.record import Record
from spark_mq.store.index.key_index import MQADMIN_MAX_NUM
from spark_mq.store.message_selection import known_topics, uncovered_parts

if TYPE_CHECKING:
    from spark_mq.cli.messages.shared import Found, Messages
    from spark_mq.store.message_store import MessageStore

_SHOWN_KEYS = 10


def _found_by_id(messages: Messages, arguments: argparse.Namespace) -> Found:
    """The messages of offset message ids; an id that is a unique key is found, too."""
    for message_id in arguments.id:
        found = list(messages.with_id(message_id, arguments.any_host))
        if not found and isinstance(messages, StoredMessages):
            found = list(messages.with_key_for_id(message_id))
        elif not found:
            found = list(islice(messages.with_key(message_id, is_unique=True), 1))
        if not found:
            yield f"no message {message_id}{why_nothing(messages, offset_message_id=message_id)}"
        yield from found
        yield None  # a later id can be an error


@command(
    "query-by-id",
    FORM,
    """
    ID...  an offset message id: 32 or 56 hexadecimal digits; a unique key is recognized, and found as by
           query-by-unique-key
    --any-host
    --body-file FILE
    """,
    example="/data/store 7F00000100002A9F00000000000343EF",
    description="Print messages by their offset message ids (mqadmin queryMsgById).",
)
def query_by_id(arguments: argparse.Namespace) -> int:
    """Print the messages of the ids; for an id without a message, a line on stderr gives the reason."""
    refuse_any_host(arguments)
    if arguments.body_file and len(arguments.id) > 1:
        raise OptionError("--body-file takes the body of one message: give one ID")
    return print_found(arguments, lambda messages: _found_by_id(messages, arguments))


@command(
    "query-by-key",
    FORM,
    """
    --full
    TOPIC
    [KEY]               one of the keys in the messages' KEYS, or their unique key
    --keys-file FILE    look up every key of a text file, one a line, in one pass; - is stdin
    --broker-conf FILE  the broker's settings file, for maxHashSlotNum and maxIndexNum
    --check-index
    --explain
    --begin TIME
    --end TIME
    --filter SQL92
    --max-num N         print at most N messages (default: all)
    --as-broker         print what a broker on these files answers: at most 64 messages (maxMsgsNumBatch), messages of
                        other keys with the same hash, times in whole seconds, only what the index files have; in the
                        order of the log
    --index-type {K,T,U}
                        with --as-broker: T looks for the tags KEY, which index files have since 5.4.0; U for the unique
                        key KEY, which an index in RocksDB does not find as a key (default: K, a key)
    """,
    example="/data/store orders order-42",
    description="Print the messages of a topic that have a key, newest first (mqadmin queryMsgByKey).",
    kinds={"max_num": whole("a number of messages", give="1 or more", least=1)},
    index_type="K",
)
def query_by_key(arguments: argparse.Namespace) -> int:
    """Print the messages that have the key; stderr gets the reason if there is none, and damage of the index."""
    if (arguments.key is None) == (arguments.keys_file is None):
        raise OptionError("give a KEY, or --keys-file FILE")
    begin, end = begin_and_end(arguments)
    topic, key = arguments.topic, arguments.key
    is_of_file = arguments.keys_file is not None
    has_own_way = is_of_file or arguments.as_broker or arguments.index_type != "K" or arguments.explain
    if has_own_way and is_of_stores(arguments):
        if is_of_file:
            return _print_of_file(arguments, begin, end)
        if arguments.as_broker:
            return _print_as_broker(arguments, begin, end)
        if arguments.index_type != "K":
            raise OptionError(f"--index-type {arguments.index_type} is a broker's own look-up: add --as-broker")
        given = {"startTimestamp": begin, "endTimestamp": end, "filter": arguments.filter}
        return _explain(arguments, key=key, **{name: str(one) for name, one in given.items() if one is not None})
    matching = MessageFilter(condition=condition_of(arguments.filter))

    def find(messages: Messages) -> Found:
        found = messages.with_key(key, topic, begin=begin, end=end)
        return (one for one in found if matching.matches(one.record))

    def why(store: MessageStore, _: object) -> str:
        found = sum(1 for _ in store.find_messages(topic, key, begin=begin, end=end))
        if found:
            return f"{found} message{' has' if found == 1 else 's have'} the key, and --filter is TRUE for none of them"
        return why_no_key(store, topic, key, begin, end)

    what = f"no message {key} in topic {topic}"
    return print_found(arguments, find, what, why, as_table=True, most=arguments.max_num)


def _print_of_file(arguments: argparse.Namespace, begin: int | None, end: int | None) -> int:
    """Print the messages of all keys of a file, newest first; stderr says how many keys have none."""
    refuse(arguments, ("as_broker", "explain"), " is for one KEY: leave out --keys-file")
    keys = list(dict.fromkeys(line for line in lines_of("--keys-file", arguments.keys_file) if line))
    matching = MessageFilter.between(begin, end, condition=condition_of(arguments.filter))
    without = set(keys)

    def find(store: MessageStore) -> Iterator[Record]:
        import pyarrow as pa

        asked = pa.table({"topic": pa.repeat(arguments.topic, len(keys)), "key": pa.array(keys, pa.string())})
        offsets: set[int] = set()
        for batch in store.query_messages(asked, ["key", "commit_log_offset"]):
            without.difference_update(batch["key"].to_pylist())
            offsets.update(batch["commit_log_offset"].to_pylist())
        return filter(matching.matches, map(store.records.record, sorted(offsets, reverse=True)))

    status = print_found(
        arguments,
        lambda messages: cast(StoredMessages, messages).of_each(find),
        f"no message with a key of {arguments.keys_file} in topic {arguments.topic}",
        lambda store, _: "none is found",
        as_table=True,
        most=arguments.max_num,
    )
    if without:
        some = ", ".join(islice((key for key in keys if key in without), _SHOWN_KEYS))
        more = ", ..." if len(without) > _SHOWN_KEYS else ""
        say(f"{len(without):,} of {len(keys):,} keys have no message: {visible(some)}{more}")
    return status


def _explain(arguments: argparse.Namespace, **options: str) -> int:
    from spark_mq.source.explain import explain

    for of in command_stores(arguments):
        if of.named is not None:
            print(f"store  {of.named}")
        conf = {} if of.broker_conf is None else {"brokerConf": of.broker_conf}
        print(explain(of.path, topic=arguments.topic, **conf, **options))
    return FOUND


def _print_as_broker(arguments: argparse.Namespace, begin: int | None, end: int | None) -> int:
    """Print what each broker answers; stderr says what is not the key's, and what the index leads to in vain."""
    refuse(
        arguments, ("filter", "check_index", "explain"), " is not part of a broker's own look-up: leave out --as-broker"
    )
    is_tag, topic, key = arguments.index_type == "T", arguments.topic, arguments.key

    def has_key(record: Record) -> bool:
        return record_tags_key(record) == tags_key(key) if is_tag else key in record_keys(record)

    printer = MessagePrinter(arguments, as_table=True)
    most = MQADMIN_MAX_NUM if arguments.max_num is None else arguments.max_num
    rows: list[Mapping[str, Any]] = []
    reasons: list[str] = []
    unreadable: list[str] = []
    others = 0
    with opened_stores(arguments) as stores:
        for of, store in stores:
            answer = store.find_as_broker(topic, key, most, begin, end, arguments.index_type)
            rows += of.rows(store, answer.records)
            others += sum(not has_key(record) for record in answer.records)
            unreadable += [of.say(str(offset)) for offset in answer.unreadable]
            if not answer.records:
                no_entry = "its index has no such entry"
                reasons.append(of.say(no_entry if is_tag else why_no_key(store, topic, key, begin, end)))
    if rows:
        printer.print(rows)
        printer.finish()
    if others:
        say(f"{others} of these messages have {'other tags' if is_tag else 'another key'} with the same hash")
    if unreadable:
        say(f"the index leads to commit log offsets without a message: {', '.join(unreadable)}")
    if not rows:
        say(f"a broker finds no message {key} in topic {topic}: {'; '.join(reasons)}")
    return FOUND if rows else NOT_FOUND


@command(
    "query-by-unique-key",
    FORM,
    """
    TOPIC               the topic's name; can be left out
    [UNIQUE_KEY]        the message id that the producer got, or an offset message id
    --broker-conf FILE  the broker's settings file, for maxHashSlotNum and maxIndexNum
    --check-index
    --explain
    --any-host
    --body-file FILE
    """,
    example="/data/store 7F0000010B5F18B4AAC28F1B3B6D0000",
    usage="STORE [TOPIC] UNIQUE_KEY",
    description="""
    Print the messages with a unique key or an offset message id (mqadmin queryMsgByUniqueKey). Without TOPIC, every
    topic is looked up in the index, and what the index does not cover is read in the log.
    """,
)
def query_by_unique_key(arguments: argparse.Namespace) -> int:
    """Print all fields of the messages with the unique key, newest first."""
    topic, key = (None, arguments.topic) if arguments.unique_key is None else (arguments.topic, arguments.unique_key)
    arguments.topic = topic
    refuse_any_host(arguments)
    if arguments.explain and is_of_stores(arguments):
        return _explain_all_topics(arguments) if topic is None else _explain(arguments, uniqueKey=key)

    def find(messages: Messages) -> Found:
        if isinstance(messages, StoredMessages):
            return messages.with_key_or_id(key, topic, arguments.any_host)
        found = list(messages.with_key(key, topic, is_unique=True))
        if not found and is_offset_message_id(key):
            by_id = messages.with_id(key, arguments.any_host)
            found = [one for one in by_id if topic is None or decode_utf8(one.record.topic) == topic]
        return iter(found)

    what = f"no message {key}{'' if topic is None else f' in topic {topic}'}"
    return print_found(arguments, find, what, lambda store, _: why_no_unique_key(store, topic, key))


def _explain_all_topics(arguments: argparse.Namespace) -> int:
    with opened_stores(arguments, check_index=arguments.check_index) as stores:
        for of, store in stores:
            if of.named is not None:
                print(f"store  {of.named}")
            size = sum(part.size for part in uncovered_parts(store))
            is_whole_log = size == store.get_max_phy_offset() - store.get_min_phy_offset()
            print(f"path   {'whole log' if is_whole_log else 'index'}")
            print(f"reads  the index, once for each of {len(known_topics(store)):,} topics")
            print(f"reads  {size:,} bytes of the log that no index file covers")
    return FOUND


@command(
    "query-by-offset",
    FORM,
    """
    TOPIC
    QUEUE
    OFFSET
    --body-file FILE
    """,
    example="/data/store orders 3 1200",
    description="Print the message at a queue offset (mqadmin queryMsgByOffset).",
)
def query_by_offset(arguments: argparse.Namespace) -> int:
    """Print the message at the queue offset, by its unit or else from the log; or on stderr why there is none."""
    if not is_of_stores(arguments):
        place = arguments.topic, arguments.queue, arguments.offset
        return print_found(arguments, lambda messages: messages.of_topic(*place))
    printer = MessagePrinter(arguments, as_table=False)
    found: list[Mapping[str, Any]] = []
    none: list[tuple[int, str]] = []
    with opened_stores(arguments) as stores:
        for of, store in stores:
            if store.find_batch_queue(arguments.topic, arguments.queue) is not None:
                result = store.get_message_result(arguments.topic, arguments.queue, arguments.offset, max_num=1)
                found += map(of.with_names, plain_rows(result.messages))
                ends = f"offsets {result.min_offset} to {result.max_offset - 1}"
                if not result.messages.num_rows:
                    none.append((NOT_FOUND, of.say(f"{arguments.topic}/{arguments.queue} has {ends}")))
                continue
            for note in store.queue_notes(arguments.topic):
                say(of.say(note))
            cover = store.queue_cover(arguments.topic, arguments.queue)
            records = list(cover.messages(arguments.offset, arguments.offset + 1))
            found += of.rows(store, records)  # a damaged log can contain a queue offset twice
            if not records:
                status, rows, reason = _no_offset(store, arguments)
                found += map(of.with_names, rows)
                none.append((status, of.say(reason)))
    if arguments.body_file and len(stores) > 1 and len(found) > 1:
        raise OptionError(f"--body-file takes the body of one message: {len(found)} brokers have this queue offset")
    if found:
        printer.print(found)
        printer.finish()
    elif none:
        say("; ".join(reason for _, reason in none))
    if any(status == FAILED for status, _ in none):
        return FAILED
    return FOUND if found else NOT_FOUND


def _no_offset(store: MessageStore, arguments: argparse.Namespace) -> tuple[int, list[Any], str]:
    """Why the log of a store has no message at the queue offset: the exit status, rows of damage, and the reason."""
    topic, queue_id, offset = arguments.topic, arguments.queue, arguments.offset
    no_queue = store.why_no_queue(topic, queue_id)
    if no_queue is not None:
        return NOT_FOUND, [], no_queue
    result = store.get_message_result(topic, queue_id, offset, max_num=1)
    rows = plain_rows(result.messages)
    if rows and result.next_begin_offset == offset + 1:  # the unit is there, but the log does not have its message
        return FAILED, rows, ""
    bounds = f"{topic}/{queue_id} has offsets {result.min_offset} to {result.max_offset - 1}"
    if result.min_offset >= result.max_offset:
        bounds = f"{topic}/{queue_id} has no message; the next one gets offset {result.max_offset}"
    return NOT_FOUND, [], f"no message at offset {offset}: {bounds}"
