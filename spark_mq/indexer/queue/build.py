"""Consume queues out of staged runs: plan the files, write them, and copy the queues that the log does not know."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from spark_mq.errors import OptionError
from spark_mq.indexer.damage import raise_or_report
from spark_mq.indexer.queue.carry_over import Queue, carry_over, lost_offsets
from spark_mq.indexer.queue.existing import ExistingQueues
from spark_mq.indexer.queue.ext_settings import ExtSettings
from spark_mq.indexer.queue.extensions import write_extensions
from spark_mq.indexer.queue.findings import unit_findings
from spark_mq.indexer.queue.plan import QueuePlan, plan_queues
from spark_mq.indexer.queue.runs import Runs, StagedQueue, staged_runs
from spark_mq.indexer.queue.writer import COMPLETED, STAGED, WRITTEN_SCHEMA, QueueWriter, WrittenFile
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.staging.stage import StagedLog
from spark_mq.io.location import Location
from spark_mq.job.context import JobContext
from spark_mq.similar_names import similar_names
from spark_mq.store.config.consumer_offsets import consumed_offsets
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.corrupt_range import CorruptRange


@dataclass(frozen=True)
class QueueResult:
    """What was written of the consume queues. The fields are named as in `RebuildReport`.

    Attributes:
        stale_files: Files of continued queues that are after the end of their queue, and have to be removed.
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
    file_size = plan.settings.queue_file_size
    runs = staged_runs(context.tasks, staged.units)
    queues = runs.queues()
    queue_plan = plan_queues(plan, existing, queues, staged.end_of_trees)
    next_offsets, file_ranges = queue_plan.next_offsets, queue_plan.file_ranges
    if not next_offsets and not existing.of_store and not existing.continued:
        _refuse_unknown_topic(plan, queues)
    ext = ExtSettings.of(plan.store, plan.broker_conf) if plan.selection.has_ext else None
    written = _write_files(context, plan, existing, staged, queue_plan, runs, ext) if next_offsets else []
    if ext is not None:
        write_extensions(context, plan, queue_plan, ext)
    findings = raise_or_report(unit_findings(queue_plan, written), plan.is_permissive)
    growing = context.committer.staging_path(CONSUME_QUEUE)
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

    context.committer.keep_only(CONSUME_QUEUE, is_planned)
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
        lost_queues=(*lost, *lost_offsets(_consumed_offsets(plan), next_offsets, carried_over)),
        notes=queue_plan.notes,
        stale_files=tuple(stale_files),
    )


def _refuse_unknown_topic(plan: RebuildPlan, queues: Sequence[StagedQueue]) -> None:
    """Raise `OptionError` if a topic or queue is selected: the log has no message of it, and the store no file."""
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


def _consumed_offsets(plan: RebuildPlan) -> dict[Queue, int]:
    """The largest offset that consumers committed, for each selected queue."""
    consumed = consumed_offsets(plan.store)
    return {queue: offset for queue, offset in consumed.items() if plan.selection.has_queue(*queue)}


def _write_files(
    context: JobContext,
    plan: RebuildPlan,
    existing: ExistingQueues,
    staged: StagedLog,
    queue_plan: QueuePlan,
    runs: Runs,
    ext: ExtSettings | None,
) -> list[WrittenFile]:
    """Write the planned files; returns what was written."""
    committer, assignment = context.committer, queue_plan.assignment()
    with context.progress.stage("write queues", assignment.tasks, "tasks") as done:
        writer = QueueWriter(
            committer.staging_path(CONSUME_QUEUE),
            committer.target(CONSUME_QUEUE) if existing.continued else None,
            plan.settings.queue_file_size,
            staged.start,
            plan.is_resumed,
            done,
            missing_offset(staged),
            ext,
        )
        return [WrittenFile(**row) for row in runs.spread(assignment, writer, WRITTEN_SCHEMA).to_pylist()]


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
