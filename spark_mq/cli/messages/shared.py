"""What the commands for messages share: their arguments, and look-ups in stores, in an archive or a cluster."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from spark_mq.cli.arguments import OR_CLUSTER, cluster_options, refuse, refuse_client_conf
from spark_mq.cli.exit_status import FOUND, NOT_FOUND
from spark_mq.cli.messages.message_filter import MessageFilter, Selection, asked_tags
from spark_mq.cli.messages.stored import StoredMessages
from spark_mq.cli.output import say
from spark_mq.cli.output.message_printer import MessagePrinter, rows_of
from spark_mq.cli.output.value_text import local_time_of
from spark_mq.cli.several_stores import opened_stores
from spark_mq.errors import OptionError
from spark_mq.io.s3 import shown
from spark_mq.store.config.named_stores import STORE_COLUMNS, NamedRecord
from spark_mq.store.config.store_kind import has_delta_log
from spark_mq.tables.table import is_cluster

if TYPE_CHECKING:
    from spark_mq.archive.archived_messages import ArchivedMessages
    from spark_mq.filters.expression import Expression
    from spark_mq.live.cluster_messages import ClusterMessages
    from spark_mq.store.message_store import MessageStore

    Messages = StoredMessages | ArchivedMessages | ClusterMessages
    """The messages of what a command asks: all three have the same look-ups."""
    Found = Iterator[NamedRecord | str | None]
    """What is found: messages; a text is a line that says what is not there; None if more can only come later."""

FORM = f"""
STORE  the broker's store directory, or an archive's table of messages{OR_CLUSTER}
--stores FILE
--skip-unreadable
--client-conf FILE
--json    print one JSON object per row, bytes in Base64
--columns A,B,C
--body {{text,json,hex,base64,raw,none}}
"""
"""The stores, and how messages are printed."""
_MAX_DAMAGE_LINES = 10
"""Damaged parts of the log that get a line each; the others are counted in one more line."""
_ROWS_AT_ONCE = 256
_OF_STORES = ("broker_conf", "check_index", "explain", "as_broker", "keys_file")
"""Arguments of the commands that have no meaning for an archive or a cluster."""


def is_of_stores(arguments: argparse.Namespace) -> bool:
    """Whether a command asks store directories: not an archive, nor a running cluster, which refuse some arguments."""
    is_live = is_cluster(arguments.store)
    if not is_live:
        refuse_client_conf(arguments)
    if arguments.stores is not None or not (is_live or has_delta_log(arguments.store)):
        return True
    names = _OF_STORES if is_live else (*_OF_STORES, "follow")
    where = "a running cluster" if is_live else "an archive"
    refuse(arguments, names, f" has no effect: {shown(arguments.store)} is {where}")
    return False


@contextmanager
def _messages(
    arguments: argparse.Namespace, of_stores: bool, matching: MessageFilter | None, on_damage: Callable[[str], None]
) -> Iterator[Messages]:
    """A context with the messages of the stores, of the archive or of the cluster."""
    follows = getattr(arguments, "follow", False)
    if of_stores:
        how = {"check_index": arguments.check_index} if hasattr(arguments, "check_index") else {}
        with opened_stores(arguments, **how) as stores:
            yield StoredMessages(stores, matching, on_damage, follows)
        return
    if not is_cluster(arguments.store):
        from spark_mq.archive.archived_messages import ArchivedMessages

        yield ArchivedMessages(arguments.store)
        return
    from spark_mq.live.cluster_messages import ClusterMessages
    from spark_mq.live.options import STREAM_PATIENCE
    from spark_mq.remoting.client import RemotingClient

    selected = {name: getattr(arguments, name, None) for name in ("tag", "filter")}
    options = cluster_options(arguments.client_conf, arguments.store, topicPattern=".*", **selected)
    if follows:
        options = replace(options, client=replace(options.client, patience=STREAM_PATIENCE))
    with RemotingClient(options.client) as client:
        yield ClusterMessages(client, options)


def print_found(
    arguments: argparse.Namespace,
    find: Callable[[Messages], Found],
    what: str = "",
    why: Callable[[MessageStore, Selection], str] = lambda store, selection: "",
    *,
    as_table: bool = False,
    most: int | None = None,
    matching: MessageFilter | None = None,
) -> int:
    """Print the messages that `find` finds, wherever they are; returns the exit status.

    Args:
        what: What a line on stderr says if nothing is found in stores, before why each of them has none (`why`).
        most: The largest number of messages; None for all.
        matching: Which messages of a topic are read of stores.
    """
    of_stores = is_of_stores(arguments)  # on an object store, this is a request
    printer = MessagePrinter(arguments, as_table, names_stores=not of_stores)
    is_named = not of_stores or arguments.stores is not None
    damage: list[str] = []
    printed, lacking, has_more = 0, False, False
    waiting: list[NamedRecord] = []
    with _messages(arguments, of_stores, matching, damage.append) as messages:

        def flush() -> None:
            for names, part in groupby(waiting, key=lambda one: one.names):
                rows = rows_of([one.record for one in part], messages.situations(names))
                named = dict(zip(STORE_COLUMNS, names, strict=True)) if is_named else {}
                printer.print([{**named, **row} for row in rows])
            sys.stdout.flush()
            waiting.clear()
            _say_damage(damage)

        found = find(messages)
        try:
            for one in found:
                if isinstance(one, str):
                    say(one)
                    lacking = True
                elif one is not None:
                    if getattr(arguments, "body_file", None) and printed:
                        raise OptionError("--body-file takes the body of one message: there are several")
                    waiting.append(one)
                    printed += 1
                if one is None or len(waiting) == _ROWS_AT_ONCE:
                    flush()
                if printed == most:
                    break
            flush()
        finally:
            if printed:
                printer.finish()
        if printed == most and hasattr(arguments, "limit") and not arguments.follow:
            has_more = next(found, None) is not None
        if isinstance(messages, StoredMessages) and hasattr(arguments, "check_index"):
            print_index_problems(messages.index_problems)
        if not printed and not lacking:
            if isinstance(messages, StoredMessages):
                say(f"{what}: {messages.why(why)}")
            else:
                where = "cluster" if is_cluster(arguments.store) else "archive"
                queue_id = getattr(arguments, "queue", getattr(arguments, "queue_id", None))
                reason = why_nothing(messages, topic=arguments.topic, queue_id=queue_id)
                say(f"the {where} {shown(arguments.store)} has no such message{reason}")
    if has_more:
        say(f"there are more than --limit {most} messages")
    return NOT_FOUND if lacking or not printed else FOUND


def _say_damage(damage: list[str]) -> None:
    """Print damaged parts of the log on stderr, and forget them."""
    for reason in damage[:_MAX_DAMAGE_LINES]:
        say(f"skipped: {reason}")
    if len(damage) > _MAX_DAMAGE_LINES:
        say(f"skipped: {len(damage) - _MAX_DAMAGE_LINES} more damaged parts of the log")
    damage.clear()


def why_nothing(messages: Messages, **asked: Any) -> str:
    """Why a cluster has no message (`ClusterMessages.why_nothing`), to follow a text; empty for an archive."""
    of_cluster: Callable[..., str] | None = getattr(messages, "why_nothing", None)
    why = "" if of_cluster is None else of_cluster(**asked)
    return f": {why}" if why else ""


def condition_of(text: str | None) -> Expression | None:
    """The parsed value of `--filter`; None without one."""
    if text is None:
        return None
    from spark_mq.filters.parser import parse_sql92

    parsed = parse_sql92(text)
    if parsed.ignored:
        raise OptionError(f"--filter: {parsed.warning}: write the whole condition")
    return parsed.condition


def refuse_any_host(arguments: argparse.Namespace) -> None:
    """Raise `OptionError` if an id shall be answered by any host, and there are several stores to answer it."""
    if arguments.any_host and arguments.stores is not None:
        raise OptionError(
            "--any-host has no effect with --stores: the address in an offset message id chooses the store. Give the "
            "STORE that moved, without --stores"
        )


def begin_and_end(arguments: argparse.Namespace) -> tuple[int | None, int | None]:
    """The values of `--begin` and `--end` in milliseconds; None for an option that was not given."""
    begin, end = arguments.begin, arguments.end
    if begin is not None and end is not None and begin > end:
        raise OptionError(f"--begin ({local_time_of(begin)}) is after --end ({local_time_of(end)})")
    return begin, end


def filter_of(arguments: argparse.Namespace) -> tuple[MessageFilter, int | None, int | None]:
    """The rule by which messages are selected, and the bounds of their store times."""
    begin, end = begin_and_end(arguments)
    return (
        MessageFilter.between(
            begin,
            end,
            tags=asked_tags(arguments.tag),
            properties=arguments.property,
            key=arguments.key,
            body_text=arguments.body_contains,
            condition=condition_of(arguments.filter),
        ),
        begin,
        end,
    )


def print_index_problems(problems: Sequence[str]) -> None:
    """Print the damage of the index on stderr."""
    for problem in problems:
        say(f"{problem}; the log was read instead")
