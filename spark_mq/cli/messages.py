"""`spark-mq query-by-...` and `print-message`: messages of a store, without Spark or a JVM."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import add_broker_conf, add_json_rows, add_store, add_topic, count
from spark_mq.cli.exit_status import FAILED, FOUND, NOT_FOUND
from spark_mq.errors import BodyError, OptionError, StorageError

if TYPE_CHECKING:
    from spark_mq.format.message_row import Row
    from spark_mq.format.record import Record
    from spark_mq.store.log.corrupt_range import CorruptRange
    from spark_mq.store.message_store import MessageStore

_DEFAULT_LIMIT = 100
_MAX_DAMAGE_LINES = 10
"""Damaged parts of the log that get a line each; the others are counted in one more line."""
_COLUMNS = ("store_timestamp", "queue_id", "queue_offset", "tags", "keys", "offset_message_id", "body")
"""The columns of a table of messages."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands and their arguments."""
    by_id = commands.add_parser(
        "query-by-id",
        help="messages by their offset message ids",
        description="Print messages by their offset message ids (mqadmin queryMsgById).",
        allow_abbrev=False,
    )
    _add_store(by_id)
    by_id.add_argument("ids", metavar="ID", nargs="+", help="an offset message id: 32 or 56 hexadecimal digits")
    _add_any_host(by_id)
    _add_body_file(by_id)
    by_id.set_defaults(run=run_by_id)

    by_key = commands.add_parser(
        "query-by-key",
        help="messages by topic and key, through the index",
        description="Print the messages of a topic that have a key, newest first (mqadmin queryMsgByKey).",
        allow_abbrev=False,
    )
    _add_key(by_key, "KEY", "one of the keys in the messages' KEYS, or their unique key")
    _add_time(by_key)
    by_key.add_argument("--max-num", metavar="N", type=count, help="print at most N messages (default: all)")
    by_key.set_defaults(run=run_by_key)

    by_unique_key = commands.add_parser(
        "query-by-unique-key",
        help="a message by topic and unique key (the producer's message id)",
        description="Print the messages with a unique key or an offset message id (mqadmin queryMsgByUniqueKey).",
        allow_abbrev=False,
    )
    _add_key(by_unique_key, "UNIQUE_KEY", "the message id that the producer got, or an offset message id")
    _add_any_host(by_unique_key)
    _add_body_file(by_unique_key)
    by_unique_key.set_defaults(run=run_by_unique_key)

    by_offset = commands.add_parser(
        "query-by-offset",
        help="one message by topic, queue and queue offset",
        description="Print the message at a queue offset (mqadmin queryMsgByOffset).",
        allow_abbrev=False,
    )
    _add_store(by_offset)
    add_topic(by_offset)
    by_offset.add_argument("queue_id", metavar="QUEUE", type=int, help="the queue's id")
    by_offset.add_argument("offset", metavar="OFFSET", type=int, help="the message's offset in the queue")
    _add_body_file(by_offset)
    by_offset.set_defaults(run=run_by_offset)

    print_message = commands.add_parser(
        "print-message",
        help="messages of a topic, by queue, time and tag",
        description="Print messages of a topic in the order of the log (mqadmin printMsg).",
        allow_abbrev=False,
    )
    _add_store(print_message)
    add_topic(print_message)
    print_message.add_argument("--queue-id", metavar="N", type=int, help="only this queue")
    _add_time(print_message)
    print_message.add_argument("--tag", metavar="TAGS", help="only messages with one of these tags: 'a || b'")
    print_message.add_argument(
        "--limit",
        metavar="N",
        type=count,
        default=_DEFAULT_LIMIT,
        help=f"print at most N messages ({_DEFAULT_LIMIT}); 0 prints all",
    )
    print_message.set_defaults(run=run_print_message)


def _add_store(command: argparse.ArgumentParser) -> None:
    add_store(command)
    add_json_rows(command)


def _add_key(command: argparse.ArgumentParser, name: str, text: str) -> None:
    _add_store(command)
    add_topic(command)
    command.add_argument("key", metavar=name, help=text)
    add_broker_conf(command, "maxHashSlotNum and maxIndexNum")
    command.add_argument(
        "--check-index", action="store_true", help="first read all index files, and check that they are whole"
    )
    command.add_argument(
        "--explain", action="store_true", help="print the access path and its cost; do not run the query"
    )


def _add_time(command: argparse.ArgumentParser) -> None:
    time = "epoch milliseconds, ISO 8601 with a zone, a time as the commands print it, -90s, -15m, -1h, -2d, yesterday"
    command.add_argument("--begin", metavar="TIME", help=f"only messages stored at TIME or later: {time}")
    command.add_argument("--end", metavar="TIME", help="only messages stored at TIME or earlier")


def _add_any_host(command: argparse.ArgumentParser) -> None:
    text = "accept an offset message id that names another host than the message's store host: for a store that moved"
    command.add_argument("--any-host", action="store_true", help=text)


def _add_body_file(command: argparse.ArgumentParser) -> None:
    command.add_argument("--body-file", metavar="FILE", help="write the message's body, unchanged, to FILE")


def run_by_id(arguments: argparse.Namespace) -> int:
    """Print the messages of the ids; for an id without a message, a line on stderr gives the reason."""
    from spark_mq.cli.output import plain_rows
    from spark_mq.format.message_row import message_row, message_table
    from spark_mq.store.log.record_lookup import NoRecord
    from spark_mq.store.message_store import MessageStore

    if arguments.body_file and len(arguments.ids) > 1:
        raise OptionError("--body-file takes the body of one message: give one ID")
    status = FOUND
    with MessageStore(arguments.store) as store:
        for number, message_id in enumerate(arguments.ids):
            record = store.find_record_by_id(message_id, arguments.any_host)
            if isinstance(record, NoRecord):
                print(f"spark-mq: no message {message_id}: {record}", file=sys.stderr)
                status = NOT_FOUND
                continue
            if number and not arguments.json:
                print()
            _print_one(arguments, plain_rows(message_table([message_row(record)]))[0])
    return status


def run_by_key(arguments: argparse.Namespace) -> int:
    """Print the messages that have the key; stderr gets the reason if there is none, and damage of the index."""
    from spark_mq.cli.output import plain_rows, print_json, print_table

    if arguments.max_num is not None and arguments.max_num < 1:
        raise OptionError(f"--max-num {arguments.max_num}: give 1 or more")
    begin, end = _begin_and_end(arguments)
    if arguments.explain:
        times = {
            name: str(time) for name, time in (("startTimestamp", begin), ("endTimestamp", end)) if time is not None
        }
        return _explain(arguments, key=arguments.key, **times)
    with _open_index(arguments) as store:
        rows = plain_rows(store.query_message(arguments.topic, arguments.key, arguments.max_num, begin, end))
        reason = "" if rows else store.why_no_message(arguments.topic, arguments.key, begin, end)
        problems = store.index.problems
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, _COLUMNS)
    return _print_reasons(arguments, bool(rows), reason, problems)


def run_by_unique_key(arguments: argparse.Namespace) -> int:
    """Print all fields of the messages with the unique key, newest first."""
    from spark_mq.cli.output import plain_rows

    if arguments.explain:
        return _explain(arguments, uniqueKey=arguments.key)
    with _open_index(arguments) as store:
        rows = plain_rows(store.query_message_by_unique_key(arguments.topic, arguments.key, arguments.any_host))
        reason = "" if rows else store.why_no_unique_key(arguments.topic, arguments.key)
        problems = store.index.problems
    if arguments.body_file and len(rows) > 1:
        raise OptionError(f"--body-file takes the body of one message: {len(rows)} have this unique key")
    for number, row in enumerate(rows):
        if number and not arguments.json:
            print()
        _print_one(arguments, row)
    return _print_reasons(arguments, bool(rows), reason, problems)


def _open_index(arguments: argparse.Namespace) -> MessageStore:
    from spark_mq.store.message_store import MessageStore

    return MessageStore(arguments.store, broker_conf=arguments.broker_conf, check_index=arguments.check_index)


def _explain(arguments: argparse.Namespace, **options: str) -> int:
    from spark_mq.source.explain import explain

    if arguments.broker_conf is not None:
        options["brokerConf"] = arguments.broker_conf
    print(explain(arguments.store, topic=arguments.topic, **options))
    return FOUND


def _print_reasons(arguments: argparse.Namespace, is_found: bool, reason: str, problems: Sequence[str]) -> int:
    """Print damage of the index, and why there is no message; returns the exit status."""
    for problem in problems:
        print(f"spark-mq: {problem}; the log was read instead", file=sys.stderr)
    if not is_found:
        print(f"spark-mq: no message {arguments.key} in topic {arguments.topic}: {reason}", file=sys.stderr)
    return FOUND if is_found else NOT_FOUND


def run_by_offset(arguments: argparse.Namespace) -> int:
    """Print the message at the queue offset; if there is none, a line on stderr gives the reason.

    If the unit of the queue does not lead to the message, the log is searched.
    """
    from spark_mq.cli.output import plain_rows
    from spark_mq.format.message_row import message_row, message_table
    from spark_mq.store.message_store import MessageStore

    topic, queue_id, offset = arguments.topic, arguments.queue_id, arguments.offset
    with MessageStore(arguments.store) as store:
        records = store.queue_cover(topic, queue_id).messages(offset, offset + 1)
        rows = plain_rows(message_table([message_row(record) for record in records]))
        if not rows:
            return _print_no_offset(store, arguments)
    for number, row in enumerate(rows):  # a damaged log can contain a queue offset twice
        if number and not arguments.json:
            print()
        _print_one(arguments, row)
    return FOUND


def _print_no_offset(store: MessageStore, arguments: argparse.Namespace) -> int:
    """Print why the log has no message at the queue offset; returns the exit status."""
    from spark_mq.cli.output import plain_rows

    topic, queue_id, offset = arguments.topic, arguments.queue_id, arguments.offset
    if store.find_queue(topic, queue_id) is None:
        ids = store.queue_ids(topic)
        hint = f"queues of the topic: {', '.join(map(str, ids))}" if ids else "`spark-mq topics` lists the topics"
        print(f"spark-mq: there is no queue {topic}/{queue_id}; {hint}", file=sys.stderr)
        return NOT_FOUND
    result = store.get_message_result(topic, queue_id, offset, max_num=1)
    rows = plain_rows(result.messages)
    if rows and result.next_begin_offset == offset + 1:
        _print_one(arguments, rows[0])  # the unit is there, but the log does not have its message: damage
        return FAILED
    bounds = f"{topic}/{queue_id} has offsets {result.min_offset} to {result.max_offset - 1}"
    print(f"spark-mq: no message at offset {offset}: {bounds}", file=sys.stderr)
    return NOT_FOUND


def _print_one(arguments: argparse.Namespace, row: dict[str, Any]) -> None:
    from spark_mq.cli.output import print_json, print_message

    if arguments.body_file is not None:
        if row["body"] is None:
            raise BodyError(f"--body-file {arguments.body_file}: the message has no body: {row['_corrupt_record']}")
        try:
            Path(arguments.body_file).write_bytes(row["body"])
        except OSError as error:
            raise StorageError(f"--body-file {arguments.body_file}: {error.strerror}") from error
    if arguments.json:
        print_json([row])
    else:
        print_message(row, arguments.body_file)


def run_print_message(arguments: argparse.Namespace) -> int:
    """Print the matching messages; stderr gets a line for each damaged part of the log."""
    from spark_mq.cli.output import plain_rows, print_json, print_table
    from spark_mq.format.message_row import message_table
    from spark_mq.store.message_store import MessageStore

    damage: list[str] = []
    with MessageStore(arguments.store) as store:
        matching = _matching_rows(store, arguments, damage.append)
        rows = plain_rows(message_table(list(islice(matching, arguments.limit or None))))
        has_more = bool(rows) and next(matching, None) is not None
        no_topic = store.why_no_topic(arguments.topic)
    if arguments.json:
        print_json(rows)
    elif rows:
        print_table(rows, _COLUMNS)
    for reason in damage[:_MAX_DAMAGE_LINES]:
        print(f"spark-mq: skipped: {reason}", file=sys.stderr)
    if len(damage) > _MAX_DAMAGE_LINES:
        print(f"spark-mq: skipped: {len(damage) - _MAX_DAMAGE_LINES} more damaged parts of the log", file=sys.stderr)
    if has_more:
        print(f"spark-mq: there are more than --limit {arguments.limit} messages", file=sys.stderr)
    if not rows:
        reason = f": {no_topic}" if no_topic else ""
        print(f"spark-mq: no matching message in topic {arguments.topic}{reason}", file=sys.stderr)
    return FOUND if rows else NOT_FOUND


def _matching_rows(
    store: MessageStore, arguments: argparse.Namespace, on_damage: Callable[[str], None]
) -> Iterator[Row]:
    """The matching messages in the order of the log; `on_damage` gets a line for each damaged part of the log."""
    from spark_mq.format.message_row import message_row
    from spark_mq.format.record import Record

    begin, end = _begin_and_end(arguments)
    from spark_mq.format.timestamp import EARLIEST_MILLIS, LATEST_MILLIS

    first, last = EARLIEST_MILLIS if begin is None else begin, LATEST_MILLIS if end is None else end
    tags = _tags(arguments.tag)
    for part in _parts(store, arguments.topic, arguments.queue_id, begin, end):
        if not isinstance(part, Record):
            on_damage(part.describe())
        elif first <= part.store_timestamp <= last:
            row = message_row(part)
            if tags is None or row["tags"] in tags:
                yield row


def _parts(
    store: MessageStore, topic: str, queue_id: int | None, begin: int | None, end: int | None
) -> Iterator[Record | CorruptRange]:
    """The messages of a topic or of one of its queues, and damaged ranges, in the order of the log.

    All messages stored from `begin` to `end` (milliseconds, both included) are in the result; others can be, too.
    """
    from spark_mq.store.log.scan import FIRST, FOREVER
    from spark_mq.store.log.time_pruning import CLOCK_TOLERANCE_MILLIS

    if queue_id is None:
        return store.messages_of_topic(topic, begin, end)
    cover, start, stop = store.queue_cover(topic, queue_id), FIRST, FOREVER
    if begin is not None:
        earliest = begin - CLOCK_TOLERANCE_MILLIS
        early, _ = cover.around(lambda record: record.store_timestamp >= earliest)
        start = FIRST if early is None else early.queue_offset + 1
    if end is not None:
        latest = end + CLOCK_TOLERANCE_MILLIS
        _, later = cover.around(lambda record: record.store_timestamp > latest)
        stop = FOREVER if later is None else later.queue_offset
    return cover.messages_and_damage(start, stop)


def _begin_and_end(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    from datetime import datetime

    from spark_mq.cli.moments import parse_moment

    now = datetime.now().astimezone()
    begin = None if arguments.begin is None else parse_moment("--begin", arguments.begin, now)
    end = None if arguments.end is None else parse_moment("--end", arguments.end, now)
    return begin, end


def _tags(text: str | None) -> set[str] | None:
    tags = set() if text is None else {tag.strip() for tag in text.split("||")}
    return None if not tags or "*" in tags else tags
