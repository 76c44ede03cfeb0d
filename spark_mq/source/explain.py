"""A description of a read, for a person: the access path, and the number of files, bytes and records to read."""

from __future__ import annotations

from collections.abc import Sequence

from spark_mq.format.amounts import size_text
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from spark_mq.format.message_schema import MESSAGE_SCHEMA
from spark_mq.format.record import MAX_RECORD_SIZE
from spark_mq.source.options import parse_options
from spark_mq.source.planner import plan_messages
from spark_mq.source.read_plan import AccessPath, ReadPlan
from spark_mq.store.message_store import MessageStore

_MUCH = 1 << 30


def explain(store: str, **options: str) -> str:
    """How `spark.read.format("rocketmq").options(**options).load(store)` reads table `messages` or `messages_by_key`.

    Index entries and units of queues are read to count them; the log is not read.

    Args:
        store: The broker's store directory.
        options: The options of the read, see `RocketMQDataSource`.

    Returns:
        A line with the access path, lines with the files, bytes and records to read, and lines with notes.

    Raises:
        SparkMqError: The errors that the read itself would raise while Spark plans it.

    Examples:
        >>> print(explain("/data/store", topic="orders", key="order-42"))
    """
    parsed = parse_options({**options, "path": store})
    with MessageStore(parsed.path, broker_conf=parsed.broker_conf) as opened:
        plan = plan_messages(parsed, opened)
        reads = [*_look_ups(plan, opened, parsed.predicate.store_timestamp.bounds), *_log_parts(plan)]
    lines = [("path", plan.path.value), *(("reads", part) for part in reads), *(("note", note) for note in plan.notes)]
    return "\n".join(f"{name:<6} {text}" for name, text in lines)


def explain_plan(plan: ReadPlan) -> str:
    """The access path and the parts of the log to read, in one line; the function reads no file."""
    keys = sum(len(look_up.keys) for look_up in plan.look_ups)
    queues = [look_up.queue for look_up in plan.look_ups if look_up.queue is not None]
    parts = [plan.path.value]
    parts += [f"{keys:,} keys"] if keys else []
    parts += [f"{sum(part.stop - part.start for part in queues):,} queue offsets"] if queues else []
    return "; ".join([*parts, *_log_parts(plan), *plan.notes])


def advice(plan: ReadPlan, columns: Sequence[str]) -> str | None:
    """What makes a read of more than 1 GiB of the log cheaper, if it is of all columns or of the whole log; else None.

    The reader does not know of conditions that Spark applies to its rows, so a scan of the log says that none is used.
    """
    is_of_all_columns, is_whole = set(MESSAGE_SCHEMA.names) <= set(columns), plan.path == AccessPath.WHOLE_LOG
    if plan.scanned <= _MUCH or not (is_of_all_columns or is_whole):
        return None
    all_columns = f"all {len(columns)} columns of " if is_of_all_columns else ""
    text = f"this read takes {all_columns}{size_text(plan.scanned)} of the log"
    if is_of_all_columns:
        text += (
            ". It takes a fraction of the time if .schema('topic STRING, ...'), or the query of spark_mq.sql, names "
            "the columns that are needed"
        )
    if is_whole:
        text += "; .where(...) does not shorten it: options such as topic, key and startTimestamp can"
    return text


def _look_ups(plan: ReadPlan, store: MessageStore, times: tuple[int | None, int | None]) -> list[str]:
    lines = []
    keys = [key for look_up in plan.look_ups for key in look_up.keys]
    if keys and plan.index is not None:
        files = sum(file.start < file.stop for file in plan.index.spans)
        counted = (store.index.count_entries(*key, *times) for key in keys)
        walked, hits = (sum(counts) for counts in zip(*counted, strict=True))
        size = len(keys) * files * (HEADER_SIZE + SLOT_SIZE) + walked * ENTRY_SIZE
        lines.append(f"{files:,} index files: {walked:,} entries, {size:,} bytes, for {len(keys):,} keys")
        lines.append(f"{hits:,} records of the log that have a key's hash")
    for look_up in plan.look_ups:
        requested = look_up.queue
        queue = None if requested is None else store.find_queue(requested.topic, requested.queue_id)
        if requested is not None and queue is not None:
            units = queue.units(requested.start, requested.stop)
            name = f"{requested.topic}/{requested.queue_id}"
            lines.append(f"queue {name}: {units.size:,} units, {units.size * UNIT_SIZE:,} bytes")
            lines.append(f"{units.size:,} records of the log, {int(units['store_size'].sum()):,} bytes")
    return lines


def _log_parts(plan: ReadPlan) -> list[str]:
    lines = [f"{len(plan.ordered):,} partitions, in the order of their queues"] if plan.ordered else []
    if plan.splits:
        segments = {split.segment.base for split in plan.splits}
        lines.append(f"{len(segments):,} segments of the log: {len(plan.splits):,} splits, {plan.scanned:,} bytes")
        if plan.path == AccessPath.OFFSETS:
            lines.append(f"up to {MAX_RECORD_SIZE:,} bytes before each split, to find where its first record begins")
    return lines
