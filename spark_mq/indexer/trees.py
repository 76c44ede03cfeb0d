"""Both trees out of a staged log, written at the same time, also as an extension of existing trees.

The existing trees must end where that part starts. New files are whole: the last file of each queue that gets messages
is completed, the last file of the index is continued until it is full, and then new files follow.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from spark_mq.errors import CorruptLogError
from spark_mq.indexer.index_files import ExistingIndex, IndexResult, find_existing_index, write_index
from spark_mq.indexer.manifest import STAGED
from spark_mq.indexer.queue_files import QueueResult, write_queues
from spark_mq.indexer.queue_plan import ExistingQueues, find_existing_queues
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.stage import StagedLog, stage_range
from spark_mq.job.tasks import JobContext
from spark_mq.store.log.splits import OffsetRange


@dataclass(frozen=True)
class Extension:
    """What was written for a part of the log."""

    staged: StagedLog
    queues: QueueResult
    index: IndexResult


def extend_trees(context: JobContext, plan: RebuildPlan, log_range: OffsetRange) -> Extension:
    """Write the queue files and index files that the records of a range change.

    Args:
        context: The job's context. Files are written in the folder of its committer, and nothing is put in place.
        plan: The plan: what a rebuild of the store would have, with both trees continued.
        log_range: The range. It starts with a record or a blank, and stops at the end of one.
    """
    has_queues, has_index = plan.selection.has_queues, plan.selection.has_index
    queues = find_existing_queues(plan, plan.store) if has_queues else None
    index = find_existing_index(plan, plan.store) if has_index else None
    folder = context.committer.folder / STAGED
    folder.make_folder()
    targets = plan.settings.targets(folder, has_queues, has_index)
    staged = stage_range(context, log_range.splits(plan.split_size), targets)
    if staged.end != log_range.end:
        raise CorruptLogError(
            f"{log_range.segments[-1].location}: the last record ends at commit log offset {staged.end}, not at "
            f"{log_range.end}"
        )
    return Extension(staged, *write_trees(context, plan, staged, queues, index))


def write_trees(
    context: JobContext,
    plan: RebuildPlan,
    staged: StagedLog,
    queues: ExistingQueues | None,
    index: ExistingIndex | None,
) -> tuple[QueueResult, IndexResult]:
    """Write queues and index at the same time, because neither alone keeps all cores busy; returns their results.

    Args:
        queues: The queues that exist; None leaves the queues out.
        index: The index that exists; None leaves the index out.
    """
    stopped = threading.Event()

    def write_index_files() -> IndexResult:
        if index is None:
            return IndexResult()
        return write_index(context, plan, index, staged, stopped.is_set)

    with ThreadPoolExecutor(1) as executor:
        try:
            pending_index = executor.submit(write_index_files)
            queue_result = QueueResult() if queues is None else write_queues(context, plan, queues, staged)
            return queue_result, pending_index.result()
        except BaseException:
            stopped.set()
            raise
