"""`spark-mq sql --explain`: what a query would read of each store, found without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import tzinfo
from functools import partial
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from spark_mq._compat import TIME_ZONE
from spark_mq.archive.sql import VIEWS
from spark_mq.errors import SparkMqError
from spark_mq.format.message_schema import KEY
from spark_mq.io.location import Location
from spark_mq.io.s3 import shown
from spark_mq.query import local_constants
from spark_mq.query.catalog import Store, StoreRead, plan_reads
from spark_mq.query.conditions import UNIQUE_KEY, may_be_rolled_back
from spark_mq.query.plan import QueryPlan
from spark_mq.source.explain import explain
from spark_mq.source.options import names_cluster, parse_options
from spark_mq.source.store_choice import StoreChoice
from spark_mq.store.config.named_stores import is_pattern
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.tables.messages import MESSAGES, MESSAGES_BY_KEY

_FOLDERS = {"consume_queue": CONSUME_QUEUE, "index_entries": INDEX}
_NO_ROLLBACK = (
    "messages of transaction type ROLLBACK are in no index: with AND transaction_type <> 'ROLLBACK' in the query, the "
    "index can find the key"
)
_MESSAGES = (MESSAGES.name, MESSAGES_BY_KEY.name)


def explained(
    plan: QueryPlan,
    stores: Mapping[str, Store],
    archives: Iterable[str],
    settings: Mapping[str, str],
    sees_stores: bool,
) -> Iterator[str]:
    """The lines that describe the reads of a plan. `archives` are the tables of messages of the archives."""
    if not plan.references and not plan.named:
        yield "the statement reads no table of a store"
    for name in plan.named:
        what = "the driver makes of the archived messages" if name.startswith(VIEWS) else "Spark reads as a Delta table"
        yield f"{name}, which {what}"
    for read in plan_reads(plan, stores, partial(local_constants.evaluate, zone=_zone(settings))):
        yield str(read)
        if read.reference.is_history:
            yield f"  archive {shown(*archives)}, and after its end the store:"
        for name, text in _details(read, sees_stores):
            yield f"  {name:<6} {text}"


def _details(read: StoreRead, sees_stores: bool) -> Iterator[tuple[str, str]]:
    """The lines after the first one: access path, files and bytes, and notes."""
    table = read.reference.table
    if names_cluster(read.options):
        yield "path", f"the brokers of {read.options['path']} are asked when the query runs"
    elif not sees_stores:
        yield "note", "the access path is not known here: SPARK_REMOTE names a server, which has the store"
    elif "path" not in read.options or is_pattern(read.options["path"]):
        for store, options in StoreChoice.of(read.options).each():
            yield "store", str(store)
            yield from _details(replace(read, options=options), sees_stores)
        return
    elif table in _MESSAGES:
        options = dict(read.options)
        for line in explain(options.pop("path"), **options).splitlines():
            name, _, text = line.partition(" ")
            # The reason is another one if the query requests a key that the index cannot give.
            if not (_needs_type(read) and text.strip().startswith("why: ")):
                yield name, text.strip()
    elif table in _FOLDERS:
        yield "path", f"all of {_FOLDERS[table]}/" + "".join(f", {name} {value}" for name, value in _selection(read))
        yield "reads", _size(read)
    else:
        yield "path", "one task reads the table"
    if read.unused and not read.misses_rollback:
        yield "note", f"not evaluated without Spark: {'; '.join(map(str, read.unused))}"
    if _needs_type(read):
        yield "note", _NO_ROLLBACK


def _needs_type(read: StoreRead) -> bool:
    """Whether a condition on the transaction type would let the index find the keys of the query."""
    columns = {condition.column for condition in read.conditions}
    requests_key = read.misses_rollback or (UNIQUE_KEY in columns and KEY not in columns)
    is_messages = read.reference.table in _MESSAGES
    return is_messages and requests_key and "topic" in columns and may_be_rolled_back(read.conditions)


def _selection(read: StoreRead) -> list[tuple[str, str]]:
    return [
        (name, read.options[key]) for name, key in (("topic", "topic"), ("queue", "queueId")) if key in read.options
    ]


def _size(read: StoreRead) -> str:
    """The number of files that a read of queues or of the index opens, and their bytes."""
    folder = Location.resolve(parse_options(read.options).path) / _FOLDERS[read.reference.table]
    parts = [value for _, value in _selection(read)] if "topic" in read.options else []
    try:
        sizes = Location(folder.storage, "/".join([folder.path, *parts])).files_below().values()
    except OSError as error:
        raise SparkMqError(f"{folder} cannot be read: {error}") from error
    return f"{len(sizes):,} files: {sum(sizes):,} bytes"


def _zone(settings: Mapping[str, str]) -> tzinfo | None:
    name = settings.get(TIME_ZONE) or os.environ.get("TZ", "")
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
