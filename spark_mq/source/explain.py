"""What a read touches, for a person: the path that the planner chose; how many files, bytes and records it reads."""

from __future__ import annotations

from collections.abc import Sequence

from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.index_file import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from spark_mq.format.record import MAX_RECORD_SIZE
from spark_mq.source.options import parse_options
from spark_mq.source.planner import AccessPath, LookUp, ReadPlan, plan_messages
from spark_mq.store.index.coverage import IndexedRange
from spark_mq.store.message_store import MessageStore


def explain(store: str, **options: str) -> str:
    """How `spark.read.format("rocketmq").options(**options).load(store)` reads table `messages` or `messages_by_key`.

    One line says the path, the others what is read: files, bytes and records. Index entries and units of queues are
    looked at for it. Raises what the read would raise while it is planned.
    """
    parsed = parse_options({**options, "path": store})
    with MessageStore(store, broker_conf=parsed.broker_conf) as opened:
        plan = plan_messages(parsed, opened)
        reads = [*_look_ups(plan.look_ups, opened), *_log_parts(plan)]
    lines = [("path", plan.path.value), *(("reads", part) for part in reads), *(("note", note) for note in plan.notes)]
    return "\n".join(f"{name:<6} {text}" for name, text in lines)


def explain_plan(plan: ReadPlan) -> str:
    """The path and what is read of the log, in one line; nothing is looked at."""
    keys = sum(len(look_up.keys) for look_up in plan.look_ups)
    queues = [look_up.queue for look_up in plan.look_ups if look_up.queue is not None]
    said = [plan.path.value]
    said += [f"{keys:,} keys"] if keys else []
    said += [f"{sum(part.stop - part.start for part in queues):,} queue offsets"] if queues else []
    return "; ".join([*said, *_log_parts(plan), *plan.notes])


def _look_ups(look_ups: Sequence[LookUp], store: MessageStore) -> list[str]:
    said = []
    keys = [key for look_up in look_ups for key in look_up.keys]
    if keys:
        files = sum(isinstance(part, IndexedRange) for part in store.index.parts)
        walked, hits = (sum(counts) for counts in zip(*(store.index.count_entries(*key) for key in keys), strict=True))
        size = len(keys) * files * (HEADER_SIZE + SLOT_SIZE) + walked * ENTRY_SIZE
        said.append(f"{files:,} index files: {walked:,} entries, {size:,} bytes, for {len(keys):,} keys")
        said.append(f"{hits:,} records of the log that have a key's hash")
    for look_up in look_ups:
        wanted = look_up.queue
        queue = None if wanted is None else store.find_queue(wanted.topic, wanted.queue_id)
        if wanted is not None and queue is not None:
            units = queue.units(wanted.start, wanted.stop)
            name = f"{wanted.topic}/{wanted.queue_id}"
            said.append(f"queue {name}: {units.size:,} units, {units.size * UNIT_SIZE:,} bytes")
            said.append(f"{units.size:,} records of the log, {int(units['store_size'].sum()):,} bytes")
    return said


def _log_parts(plan: ReadPlan) -> list[str]:
    said = []
    if plan.splits:
        segments = {split.segment.base for split in plan.splits}
        size = sum(split.stop - split.start for split in plan.splits)
        said.append(f"{len(segments):,} segments of the log: {len(plan.splits):,} splits, {size:,} bytes")
        if plan.path == AccessPath.OFFSETS:
            said.append(f"up to {MAX_RECORD_SIZE:,} bytes before each split, to find where its first record begins")
    return said
