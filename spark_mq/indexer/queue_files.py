"""Queues out of a staged log, as files, in RocksDB or in both, and findings: missing, doubled and contradicted units.

For a RocksDB database (`storeType=defaultRocksDB`), tasks write sorted tables of units (`*.sst`), each those of its
runs, and the driver makes the database of them, with the table of the ends of queues. A broker that boots takes the
queues as they are, and dispatches what comes after the checkpoint (`RocksDBConsumeQueueStore.recover`@5.3.3).

A queue whose messages have all expired has no unit there, and goes on at its next offset. A queue offset without a
message has no unit either; a broker skips it.
"""

from __future__ import annotations

import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
from pyarrow import fs

from spark_mq.errors import OptionError, StorageError, similar_names
from spark_mq.format.consume_queue import DATABASE_UNIT_DTYPE, UNIT_DTYPE, UNIT_SIZE, Queue, queue_file_name
from spark_mq.format.dispatch import LIGHT_PREFIX
from spark_mq.indexer.queue_extensions import ExtSettings, write_extensions
from spark_mq.indexer.queue_lives import staged_runs
from spark_mq.indexer.queue_plan import ExistingQueues, QueuePlan, carry_over, plan_queues
from spark_mq.indexer.queue_runs import Run, StagedQueue, of_runs
from spark_mq.indexer.queue_writer import COMPLETED, NEW, STAGED, QueueFile, QueueWriter, WrittenQueueFile, files_of
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import Written, raise_or_report
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.io.rocksdb import make_database, write_table
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.config_file import consumed_offsets
from spark_mq.store.config.store_kind import double_written_database, queue_database
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.queue.consume_queue import ConsumeQueue
from spark_mq.store.queue.queue_database import (
    OFFSETS,
    End,
    OffsetTable,
    QueueDatabase,
    database_tree,
    has_light_database,
    has_light_queues,
    in_files,
    offset_records,
    queue_tree,
    unit_key_prefix,
)

_MAX_RANGES_SHOWN = 10
_TABLES = "tables"
"""The folder, in the job's folder, of tables that become a RocksDB database."""
_OFFSET_SIZE = 8


def unit_findings(plan: QueuePlan, written: Sequence[WrittenQueueFile]) -> Iterator[CorruptRange]:
    """What is wrong with the units of queues: those that are missing, doubled, or contradicted by the log."""
    files: dict[Queue, list[WrittenQueueFile]] = {}
    for file in written:
        files.setdefault((file.topic, file.queue_id), []).append(file)
    starts = {queue.key: queue.commit_log_offset for queue in plan.queues}
    for queue in plan.queues:
        of_queue = sorted(files[queue.key], key=lambda file: file.file_number)
        count = queue.queue_max - queue.queue_min - sum(file.units for file in of_queue)
        if count:
            text = missing_text(missing_ranges(of_queue, plan.units_per_file), count)
            yield CorruptRange(queue.name, queue.commit_log_offset, 0, "MISSING_UNITS", text)
    for file in written:
        if file.doubled:
            reason = (
                f"{file.doubled} messages have a queue offset that an earlier message has, the first of them "
                f"queue offset {file.first_doubled}: they are in no queue"
            )
            start = starts[file.topic, file.queue_id]
            yield CorruptRange(f"{file.topic}/{file.queue_id}", start, 0, "DOUBLED_UNITS", reason)
    for file in written:
        if file.contradicted:
            reason = (
                f"{file.contradicted} units of {queue_file_name(file.file_number, plan.units_per_file * UNIT_SIZE)} "
                f"are not what the log says, the first names commit log offset {file.first_contradicted}; --replace "
                "rebuilds the queues from the log"
            )
            name = f"{file.topic}/{file.queue_id}"
            yield CorruptRange(name, file.first_contradicted, 0, "CONTRADICTED_UNITS", reason)


def missing_ranges(files: Sequence[WrittenQueueFile], units_per_file: int) -> list[range]:
    """The queue offsets of a queue that have no message, as ranges that do not touch; of many only the first ones."""
    ranges: list[range] = []
    end = files[0].file_number * units_per_file
    for file in files:
        start = file.file_number * units_per_file
        of_file = [range(end, start), *map(range, file.missing_starts, file.missing_stops)]
        for missing in filter(None, of_file):
            if ranges and ranges[-1].stop == missing.start:
                ranges[-1] = range(ranges[-1].start, missing.stop)
            else:
                ranges.append(missing)
        end = start + units_per_file
    return ranges


def missing_text(missing: Sequence[range], count: int) -> str:
    """The text of the report about queue offsets without a message."""
    shown = missing[:_MAX_RANGES_SHOWN]
    texts = [str(offsets.start) if len(offsets) == 1 else f"{offsets.start} to {offsets.stop - 1}" for offsets in shown]
    if count == 1:
        return f"queue offset {texts[0]} has no message"
    rest = count - sum(map(len, shown))
    more = f" and {rest} more" if rest else ""
    return f"queue offsets {', '.join(texts)}{more} have no message ({count} in all)"


def write_queues(context: JobContext, plan: RebuildPlan, existing: ExistingQueues, staged: StagedLog) -> Written:
    """Write every queue file, and carry over queues without a live message."""
    shown_by = None if plan.queues_shown_by is None else _readable_queues(plan.queues_shown_by)
    has_lite_topics = plan.settings.has_light_queues
    runs = staged_runs(context.tasks, staged.units, shown_by=shown_by, has_lite_topics=has_lite_topics)
    queues = runs.queues()
    queue_plan = plan_queues(plan, existing, queues, staged.start if staged.follows_trees else staged.end)
    next_offsets = queue_plan.next_offsets
    if not next_offsets and not existing.of_store and not existing.continued:
        _refuse_unknown_topic(plan, queues)
    ext = ExtSettings.of(plan.store, plan.broker_conf) if plan.selection.has_ext else None
    written: list[WrittenQueueFile] = []
    if next_offsets:
        work = _writing(context, plan, existing, staged, queue_plan, ext)
        written = of_runs(context, "write queues", runs, queue_plan.assignment(), work)
    if ext is not None:
        write_extensions(context, plan, queue_plan, ext)
    of_tables = [file for file in written if file.table]
    all_queues = of_tables or written
    findings = raise_or_report(unit_findings(queue_plan, all_queues), plan.is_permissive)
    kept_queues, lost, files = list[str](), list[str](), len(written) - len(of_tables)
    if plan.selection.in_files:
        kept_queues, lost = _keep_files(context, plan, existing, queue_plan)
    if plan.selection.in_rocksdb:
        kept, made = _make_database(context, plan, existing, next_offsets, of_tables, staged.start)
        kept_queues, files = [*dict.fromkeys((*kept_queues, *kept))], files + made
    continued_files = existing.continued if plan.selection.in_files else {}
    stale_files = [
        folder.location / info.base_name
        for queue, folder in continued_files.items()
        for info in folder.files
        if queue in queue_plan.file_ranges
        and int(info.base_name) // plan.settings.queue_file_size >= queue_plan.file_ranges[queue].stop
    ]
    states = Counter(file.state for file in written)
    there = sum(len(folder.files) for folder in continued_files.values()) if written else 0
    return Written(
        queues=len(next_offsets),
        files=files,
        units=sum(file.units for file in all_queues),
        bytes_written=sum(file.bytes for file in written),
        files_untouched=there - states[COMPLETED] + states[STAGED] - len(stale_files),
        files_completed=states[COMPLETED],
        corrupt=(*queue_plan.corrupt, *findings),
        topics_left_out=queue_plan.topics_left_out,
        carried_over=tuple(kept_queues),
        lost_queues=(*lost, *_lost_offsets(plan, next_offsets, kept_queues)),
        notes=queue_plan.notes,
        stale_files=tuple(stale_files),
    )


def _writing(
    context: JobContext,
    plan: RebuildPlan,
    existing: ExistingQueues,
    staged: StagedLog,
    queue_plan: QueuePlan,
    ext: ExtSettings | None,
) -> Callable[[Iterable[Run]], Iterator[WrittenQueueFile]]:
    """What a task does with its runs: write them as files, into a table of RocksDB, or both."""
    committer, in_files, in_rocksdb = context.committer, plan.selection.in_files, plan.selection.in_rocksdb
    as_table = partial(_write_table, tables=committer.folder / _TABLES, capacity=queue_plan.units_per_file)
    if not in_files:
        return as_table
    files = QueueWriter(
        committer.staging_path(CONSUME_QUEUE),
        committer.target(CONSUME_QUEUE) if existing.continued else None,
        plan.settings.queue_file_size,
        staged.start,
        plan.is_resumed,
        missing_offset(staged),
        ext,
    )
    if not in_rocksdb:
        return files.write
    has_light_files = has_light_queues(plan.store, plan.broker_conf)
    return partial(_write_both, table=as_table, files=files, has_light_files=has_light_files)


def _keep_files(
    context: JobContext, plan: RebuildPlan, existing: ExistingQueues, queue_plan: QueuePlan
) -> tuple[list[str], list[str]]:
    """Keep the files of queues without a live message; returns these queues, and those whose next offset is lost.

    Of what a killed job wrote, only files that this job writes are kept.
    """
    committer, file_size = context.committer, plan.settings.queue_file_size
    not_continued = (one for one in existing.of_store if (one.topic, one.queue_id) not in existing.continued)
    growing = committer.staging_path(CONSUME_QUEUE)
    kept, lost = carry_over(not_continued, queue_plan.next_offsets, growing, file_size)
    kept += (f"{topic}/{id_}" for topic, id_ in existing.continued if (topic, id_) not in queue_plan.next_offsets)

    def is_planned(path: str) -> bool:
        """Whether this job writes the file TOPIC/QUEUE/NAME."""
        queue, _, name = path.rpartition("/")
        topic, _, queue_id = queue.rpartition("/")
        numbers = queue_plan.file_ranges.get((topic, int(queue_id)), range(0))
        return queue in kept or (name.isdigit() and int(name) // file_size in numbers)

    committer.keep_only(CONSUME_QUEUE, is_planned)
    return kept, lost


def _make_database(
    context: JobContext,
    plan: RebuildPlan,
    existing: ExistingQueues,
    live: Collection[Queue],
    written: Sequence[WrittenQueueFile],
    log_start: int,
) -> tuple[tuple[str, ...], int]:
    """Make the database of queues; returns those in it without a live message, and the number of tables."""
    folder = context.committer.staging_path(plan.selection.database or CONSUME_QUEUE)
    for info in folder.entries():  # what a killed job left; queue files are in folders
        if info.type == fs.FileType.File:
            (folder / info.base_name).delete()
    expired = expired_ends(plan.store, existing, live, log_start)
    make_queue_database(folder, context.committer.folder / _TABLES, written, expired)
    made = sum(1 for info in folder.entries() if info.base_name.endswith(".sst"))
    return tuple(f"{topic}/{queue_id}" for topic, queue_id in expired.maximum), made


def _write_both(
    runs: Iterable[Run],
    table: Callable[[Iterable[Run]], Iterator[WrittenQueueFile]],
    files: QueueWriter,
    has_light_files: bool,
) -> Iterator[WrittenQueueFile]:
    """Write runs into a table, and those of queues that have files, too, as files."""
    staged = list(runs)
    yield from table(staged)
    with_files = (run for run in staged if has_light_files or not run.topic.startswith(LIGHT_PREFIX))
    yield from files.write(map(_without_times, with_files))


def _without_times(run: Run) -> Run:
    """A run with the units of files."""
    units = np.frombuffer(run.units, DATABASE_UNIT_DTYPE)[list(UNIT_DTYPE.names or ())].astype(UNIT_DTYPE)
    return replace(run, units=pa.py_buffer(units))


def _readable_queues(store: Location) -> Location | None:
    """The queues of a store; None if they are in a database that RocksDB does not open."""
    try:
        return queue_tree(store)
    except StorageError:
        return None


def _refuse_unknown_topic(plan: RebuildPlan, queues: Sequence[StagedQueue]) -> None:
    topic, queue_id = plan.selection.topic, plan.selection.queue_id
    if topic is None:
        return
    ids = sorted(queue.queue_id for queue in queues if queue.topic == topic)
    if ids:
        hint = f"topic {topic} has messages in queues {', '.join(map(str, ids))}"
        raise OptionError(f"--queue-id {queue_id}: the queue has neither messages nor files; {hint}")
    similar = similar_names(topic, {queue.topic for queue in queues})
    hint = f"; similar topics: {', '.join(similar)}" if similar else "; `spark-mq topics` lists the topics"
    raise OptionError(f"--topic {topic!r}: the topic has neither messages nor queue files{hint}")


def _lost_offsets(plan: RebuildPlan, next_offsets: Mapping[Queue, int], kept: Collection[str]) -> Iterator[str]:
    """A text for each selected queue whose consumers are past its end: its next offset falls back."""
    is_elsewhere = has_light_database(plan.store, plan.broker_conf) and not plan.selection.in_rocksdb
    for queue, offset in sorted(consumed_offsets(plan.store).items()):
        if is_elsewhere and queue[0].startswith(LIGHT_PREFIX):
            continue
        name = "{}/{}".format(*queue)
        next_offset = next_offsets.get(queue, 0)
        is_batch = queue[0] in plan.settings.batch_topics
        if plan.selection.has_queue(*queue) and offset > next_offset and name not in kept and not is_batch:
            yield f"{name}: consumers hold offset {offset}, the rebuilt queue ends at {next_offset}"


def missing_offset(staged: StagedLog) -> int:
    """The commit log offset in units without a message: that of the second segment, if both first ones are in no queue.

    A broker of 5.3 searches a queue's first unit in the log by bisection, which ends at a unit with the log's start
    (`ConsumeQueue.correctMinOffset`@5.3.3). So units after the first one need later offsets. A broker reads no record
    for such a unit, because of its size, and continues with the next segment (`DefaultMessageStore.getMessage`, the
    same in 4.9.7). So messages in the segment that the unit names would be skipped. If the first segments have
    messages, the units are pre-blank, which is right for 4.9 only.
    """
    bases = sorted({split.segment for split in staged.splits})[:2]
    has_units = any(split.units for split in staged.splits if split.segment in bases)
    return 0 if has_units or len(bases) < 2 else bases[1]


def _write_table(runs: Iterable[Run], tables: Location, capacity: int) -> Iterator[WrittenQueueFile]:
    """Write the units of runs into a new table; yields what each queue has in it, in pieces of `capacity` units."""
    files = list(files_of(runs, capacity, DATABASE_UNIT_DTYPE))
    files.sort(key=lambda file: (unit_key_prefix(file.topic, file.queue_id), file.number))
    name = f"{uuid.uuid4().hex}.sst"
    size = write_table((tables / name).path, (record for file in files for record in _records(file)))
    for file in files:
        row = file.row(NEW, 0)
        offsets, units = file.messages()
        row.first, row.last = ((int(units["commit_log_offset"][at]), int(offsets[at])) for at in (0, -1))
        row.stop, row.table = row.last[0] + int(units["store_size"][-1]), name
        row.bytes, size = size, 0
        yield row


def _records(file: QueueFile) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a file, as `rocksdict` takes them: one by one."""
    offsets, units = file.messages()
    prefix = np.frombuffer(unit_key_prefix(file.topic, file.queue_id), np.uint8)
    keys = np.empty((offsets.size, prefix.size + _OFFSET_SIZE), np.uint8)
    keys[:, : prefix.size] = prefix
    keys[:, prefix.size :] = offsets.astype(">i8").view(np.uint8).reshape(-1, _OFFSET_SIZE)
    yield from zip(
        keys.view(f"V{keys.shape[1]}")[:, 0].tolist(), units.view(f"V{units.itemsize}").tolist(), strict=True
    )


def make_queue_database(
    folder: Location, tables: Location, written: Sequence[WrittenQueueFile], expired: OffsetTable
) -> None:
    """Make the database of tables; `expired` has the ends of queues without a live message."""
    ends = OffsetTable(dict(expired.minimum), dict(expired.maximum), max((row.stop for row in written), default=0))
    for row in sorted(written, key=lambda row: row.file_number):
        queue = row.topic, row.queue_id
        ends.minimum.setdefault(queue, row.first)
        ends.maximum[queue] = row.last
    names = dict.fromkeys(row.table for row in written)
    make_database(folder.path, [(tables / name).path for name in names], {OFFSETS: offset_records(ends)})
    shutil.rmtree(tables.path, ignore_errors=True)


def expired_ends(store: Location, existing: ExistingQueues, live: Collection[Queue], log_start: int) -> OffsetTable:
    """The ends of the store's queues that have no live message; they begin after their last unit."""
    database, maximum = double_written_database(store) or queue_database(store), dict[Queue, End]()
    with suppress(StorageError):  # if RocksDB does not open it, offsets of consumers show the loss
        if database is not None and isinstance(storage := database_tree(database).storage, QueueDatabase):
            maximum = storage.offset_table().maximum
    with closing(FileReaders()) as files:
        for folder in in_files(existing.of_store):
            queue = ConsumeQueue(folder, files)
            if end := queue.end_before(log_start):
                last = int(queue.units(end - 1, end)["commit_log_offset"][0])
                maximum[folder.topic, folder.queue_id] = last, end - 1
    kept = {queue: last for queue, last in maximum.items() if queue not in live and last[0] < log_start}
    return OffsetTable({queue: (log_start, last[1] + 1) for queue, last in kept.items()}, kept, None)
