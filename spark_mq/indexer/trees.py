"""Both trees and the checkpoint out of a staged log, also as an extension of existing trees.

The existing trees must end where that part starts. New files are whole: the last file of each queue that gets messages
is completed, the last file of the index is continued until it is full, and then new files follow.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Self

from spark_mq.errors import CorruptLogError
from spark_mq.format.broker_version import CHECKPOINT_LOGICS_OFFSET, BrokerVersions
from spark_mq.format.consume_queue import Queue
from spark_mq.indexer.batch_queues import write_batch_queues
from spark_mq.indexer.index_files import ExistingIndex, find_existing_index, write_index
from spark_mq.indexer.queue_files import write_queues
from spark_mq.indexer.queue_plan import ExistingQueues, find_existing_queues
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.report import Written
from spark_mq.indexer.stage import StagedLog, stage_range
from spark_mq.io.file_reader import FileReaders
from spark_mq.io.location import Location
from spark_mq.job.tasks import JobContext
from spark_mq.store.config.checkpoint import Checkpoint
from spark_mq.store.config.store_paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, INDEX
from spark_mq.store.log.commit_log import OffsetRange
from spark_mq.store.queue.batch_consume_queue import BatchConsumeQueue
from spark_mq.store.queue.folders import queue_folders


@dataclass(frozen=True)
class WrittenTrees:
    """What was written for a log, or for a part of it."""

    staged: StagedLog
    written: Written


@dataclass(frozen=True)
class ExistingTrees:
    """What exists of the trees that are written; None for a tree that is not written.

    `batches` are the batch consume queues that are continued.
    """

    queues: ExistingQueues | None
    index: ExistingIndex | None
    batches: Mapping[Queue, BatchConsumeQueue] = field(default_factory=dict)

    @classmethod
    def find(cls, plan: RebuildPlan, output: Location) -> Self:
        """The trees in `output`. Raises the errors of files that cannot be continued."""
        return cls(
            find_existing_queues(plan, output) if plan.selection.has_queues else None,
            find_existing_index(plan, output) if plan.selection.has_index else None,
        )


def extend_trees(context: JobContext, plan: RebuildPlan, log_range: OffsetRange) -> WrittenTrees:
    """Write the queue files and index files that the records of a range change; nothing is put in place.

    The range starts with a record or a blank, and stops at the end of one.
    """
    existing = replace(ExistingTrees.find(plan, plan.store), batches=_batch_queues(plan, log_range.start))
    staged = stage_range(context, plan, log_range)
    if staged.end != log_range.end:
        raise CorruptLogError(
            f"{log_range.segments[-1].location}: the last record ends at commit log offset {staged.end}, not at "
            f"{log_range.end}"
        )
    return write_trees(context, plan, staged, existing)


def _batch_queues(plan: RebuildPlan, log_end: int) -> dict[Queue, BatchConsumeQueue]:
    """The batch consume queues of a store whose log ends at an offset."""
    with closing(FileReaders()) as files:
        folders = list(queue_folders(plan.store / BATCH_CONSUME_QUEUE))
        queues = [BatchConsumeQueue(folder, files, 0, log_end) for folder in folders]
    return {(queue.topic, queue.queue_id): queue for queue in queues}


def write_trees(context: JobContext, plan: RebuildPlan, staged: StagedLog, existing: ExistingTrees) -> WrittenTrees:
    """Write queues and index at the same time, because neither alone keeps all cores busy."""
    stopped = threading.Event()
    queues, index = existing.queues, existing.index

    def write_index_files() -> Written:
        return Written() if index is None else write_index(context, plan, index, staged, stopped.is_set)

    with ThreadPoolExecutor(1) as executor:
        try:
            pending_index = executor.submit(write_index_files)
            written = Written() if queues is None else write_queues(context, plan, queues, staged)
            if plan.selection.has_batches:
                written += write_batch_queues(context, plan, staged, existing.batches)
            return WrittenTrees(staged, written + pending_index.result())
        except BaseException:
            stopped.set()
            raise


def rebuilt_checkpoint(
    existing: Checkpoint,
    trees: Collection[str],
    last_store_timestamp: int,
    index_end_timestamp: int,
    last_unit_offset: int,
    versions: BrokerVersions,
) -> Checkpoint:
    """The checkpoint of a store whose trees were rebuilt up to the log's end. Other offsets stay unchanged.

    A broker that finds the file `abort` dispatches the log again, from a segment chosen by the times of the checkpoint,
    and deletes an index file that ends after `indexMsgTimestamp` (`CommitLog.isMappedFileMatchedRecover`,
    `IndexService.load`@5.3.3 and @4.9.7).

    Args:
        last_store_timestamp: The store time of the last message in the log, in milliseconds. A broker writes that of
            the last message that it flushed, which is not the latest one if its clock was set back; readers take older
            messages after it for stale ones. With an earlier time a recovery begins at an earlier segment.
        index_end_timestamp: The latest end timestamp of an index file, full or not, in milliseconds; with it a recovery
            keeps all files.
        last_unit_offset: The commit log offset of the last message that has a unit; 0 without one. It becomes
            `logicsPhysicalOffset`, unless a possible version does not write that: without it, a broker that knows the
            field goes by the times (`ConsumeQueueStore.isMappedFileMatchedRecover`@5.5.0).
    """
    last = max(last_store_timestamp, 0)  # brokers know no time before 1970: they take one of 0 for unknown
    checkpoint = replace(existing, physic_msg_timestamp=last)
    if CONSUME_QUEUE in trees:
        offset = last_unit_offset if versions.decide(CHECKPOINT_LOGICS_OFFSET) else 0
        checkpoint = replace(checkpoint, logics_msg_timestamp=last, logics_physical_offset=offset)
    if INDEX in trees:
        checkpoint = replace(checkpoint, index_msg_timestamp=index_end_timestamp)
    return checkpoint
