"""Queue files out of a staged log, and findings about them: missing, doubled and contradicted units."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from spark_mq.errors import OptionError, similar_names
from spark_mq.format.consume_queue import UNIT_SIZE, Queue, queue_file_name
from spark_mq.indexer.ext_settings import ExtSettings
from spark_mq.indexer.queue_database import TableWriter, expired_ends, make_queue_database
from spark_mq.indexer.queue_extensions import write_extensions
from spark_mq.indexer.queue_plan import ExistingQueues, QueuePlan, carry_over, plan_queues
from spark_mq.indexer.queue_runs import StagedQueue, of_runs, staged_runs
from spark_mq.indexer.queue_writer import COMPLETED, STAGED, QueueWriter, WrittenQueueFile
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import raise_or_report
from spark_mq.indexer.stage import StagedLog
from spark_mq.io.location import Location
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.config_file import consumed_offsets
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.segment_files import CorruptRange

_MAX_RANGES_SHOWN = 10
_TABLES = "tables"
"""The folder, in the job's folder, of tables that become a RocksDB database."""


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


@dataclass(frozen=True)
class QueueResult:
    """What was written of the consume queues. The fields are named as in `RebuildReport`.

    `stale_files` are after the end of a continued queue, and have to be removed.
    """

    queues: int = 0
    files: int = 0
    units: int = 0
    bytes_written: int = 0
    files_untouched: int = 0
    files_completed: int = 0
    corrupt: tuple[CorruptRange, ...] = ()
    topics_left_out: tuple[str, ...] = ()
    carried_over: tuple[str, ...] = ()
    lost_queues: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    stale_files: tuple[Location, ...] = ()


def write_queues(context: JobContext, plan: RebuildPlan, existing: ExistingQueues, staged: StagedLog) -> QueueResult:
    """Write every queue file, and carry over queues without a live message."""
    committer, file_size = context.committer, plan.settings.queue_file_size
    runs = staged_runs(context.tasks, staged.units)
    queues = runs.queues()
    log_end = staged.start if staged.follows_trees else staged.end
    queue_plan = plan_queues(plan, existing, queues, log_end)
    next_offsets, file_ranges = queue_plan.next_offsets, queue_plan.file_ranges
    if not next_offsets and not existing.of_store and not existing.continued:
        _refuse_unknown_topic(plan, queues)
    ext = ExtSettings.of(plan.store, plan.broker_conf) if plan.selection.has_ext else None
    growing = committer.staging_path(CONSUME_QUEUE)
    tables = committer.folder / _TABLES
    written: list[WrittenQueueFile] = []
    if next_offsets:
        continued = committer.target(CONSUME_QUEUE) if existing.continued else None
        missing = missing_offset(staged)
        writer = QueueWriter(growing, continued, file_size, staged.start, plan.is_resumed, missing, ext)
        work = TableWriter(tables, queue_plan.units_per_file).write if plan.selection.in_rocksdb else writer.write
        written = of_runs(context, "write queues", runs, queue_plan.assignment(), work)
    if ext is not None:
        write_extensions(context, plan, queue_plan, ext)
    findings = raise_or_report(unit_findings(queue_plan, written), plan.is_permissive)
    if plan.selection.in_rocksdb:
        expired = expired_ends(plan.store, existing, next_offsets, staged.start)
        make_queue_database(growing, tables, written, expired)
        return QueueResult(
            queues=len(next_offsets),
            files=sum(1 for info in growing.entries() if info.base_name.endswith(".sst")),
            units=sum(file.units for file in written),
            bytes_written=sum(file.bytes for file in written),
            corrupt=(*queue_plan.corrupt, *findings),
            topics_left_out=queue_plan.topics_left_out,
            carried_over=tuple(f"{topic}/{queue_id}" for topic, queue_id in expired.maximum),
            lost_queues=tuple(_lost_offsets(plan, next_offsets, [f"{name}/{id_}" for name, id_ in expired.maximum])),
            notes=queue_plan.notes,
        )
    copied, lost = carry_over(existing.not_continued(), next_offsets, growing, file_size)
    carried_over = [
        *copied,
        *(f"{topic}/{id_}" for topic, id_ in existing.continued if (topic, id_) not in next_offsets),
    ]

    def is_planned(path: str) -> bool:
        """Whether this job writes the file TOPIC/QUEUE/NAME."""
        queue, _, name = path.rpartition("/")
        topic, _, queue_id = queue.rpartition("/")
        files = file_ranges.get((topic, int(queue_id)), range(0))
        return queue in carried_over or (name.isdigit() and int(name) // file_size in files)

    committer.keep_only(CONSUME_QUEUE, is_planned)
    stale_files = existing.stale_files(file_ranges, file_size)
    states = Counter(file.state for file in written)
    there = sum(len(folder.files) for folder in existing.continued.values()) if written else 0
    return QueueResult(
        queues=len(next_offsets),
        files=len(written),
        units=sum(file.units for file in written),
        bytes_written=sum(file.bytes for file in written),
        files_untouched=there - states[COMPLETED] + states[STAGED] - len(stale_files),
        files_completed=states[COMPLETED],
        corrupt=(*queue_plan.corrupt, *findings),
        topics_left_out=queue_plan.topics_left_out,
        carried_over=tuple(carried_over),
        lost_queues=(*lost, *_lost_offsets(plan, next_offsets, carried_over)),
        notes=queue_plan.notes,
        stale_files=tuple(stale_files),
    )


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
    for queue, offset in sorted(consumed_offsets(plan.store).items()):
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
