"""Both trees out of a staged log: consume queues and index, written at the same time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from spark_mq.indexer.index.build import ExistingIndex, IndexResult, write_index
from spark_mq.indexer.queue.build import QueueResult, write_queues
from spark_mq.indexer.queue.existing import ExistingQueues
from spark_mq.indexer.rebuild_plan import RebuildPlan
from spark_mq.indexer.staging.stage import StagedLog
from spark_mq.job.context import JobContext


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
