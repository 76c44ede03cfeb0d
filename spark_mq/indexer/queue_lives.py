"""Queues that were deleted and used again: which runs of the log are of the queue as it is now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.format.consume_queue import UNIT_SIZE, Queue, queue_file_name
from spark_mq.format.dispatch import LITE_PREFIX
from spark_mq.indexer.queue_runs import Runs, StagedQueue, found_in, runs_of
from spark_mq.indexer.staged_files import StagedUnits
from spark_mq.io.file_reader import FileReader
from spark_mq.io.location import Location
from spark_mq.job.tasks import Tasks
from spark_mq.store.config.config_file import is_topic_name


def staged_runs(
    tasks: Tasks, splits: Sequence[StagedUnits], *, shown_by: Location | None = None, has_lite_topics: bool = False
) -> Runs:
    """The runs of all splits, for tasks that run there.

    A queue that was deleted, and used again, has only its newer messages: it begins with offset 0 again
    (`DefaultMessageStore.deleteTopics`, `AbstractLiteLifecycleManager.deleteLmq`, `QueueOffsetOperator.remove`@5.5.0).
    Of a lite topic the log tells it, of other queues the first unit in the folder `shown_by` of queues: see
    `_later_lives`.
    """
    lite = _lives(tasks, splits) if has_lite_topics else {}
    starts = {queue: at[-1] for queue, at in lite.items() if queue[0].startswith(LITE_PREFIX) and len(at) > 1}
    runs = runs_of(tasks, splits, starts)
    # Queue offsets that two messages have, or none, are rare.
    queues = [] if shown_by is None else runs.queues()
    if shown_by is None or all(queue.is_without_gaps for queue in queues):
        return runs
    again = _later_lives(tasks, splits, queues, shown_by)
    return runs_of(tasks, splits, starts | again) if again else runs


def _later_lives(
    tasks: Tasks, splits: Sequence[StagedUnits], queues: Sequence[StagedQueue], shown_by: Location
) -> dict[Queue, int]:
    """Where the messages of queues begin whose topic was deleted and created again.

    The first unit of such a queue is that of the newest message with queue offset 0. If another queue of the topic
    kept a unit from before the deletion, the topic was not deleted: a queue lost its files. A queue without files has
    no message since the topic was created again.
    """
    lives = _lives(tasks, splits)
    queues = [queue for queue in queues if is_topic_name(queue.topic)]
    firsts = {queue.key: _first_offset(shown_by, queue.key) for queue in queues}
    starts = {
        queue.key: firsts[queue.key]
        for queue in queues
        if not queue.is_without_gaps and queue.commit_log_offset < firsts[queue.key] == lives.get(queue.key, [-1])[-1]
    }
    if not starts:
        return {}
    columns = [[topic for topic, _ in starts], pa.array([id_ for _, id_ in starts], pa.int32()), [*starts.values()]]
    find = partial(_before_starts, starts=pa.table(columns, ["topic", "queue_id", "start"]))
    found = found_in(tasks, splits, find).group_by("topic").aggregate([("commit_log_offset", "max")]).to_pylist()
    ends = {row["topic"]: row["commit_log_offset_max"] for row in found}
    again = ends.keys() - {topic for (topic, _), first in firsts.items() if 0 <= first < ends.get(topic, 0)}
    begin: dict[str, int] = {}
    for (topic, _), at in starts.items():
        if topic in again:
            begin[topic] = min(at, begin.get(topic, at))
    without_files = {
        queue: begin[queue[0]]
        for queue, first in firsts.items()
        if queue[0] in begin and first < 0 and not (shown_by / queue[0] / str(queue[1])).entries()
    }
    return {queue: start for queue, start in starts.items() if queue[0] in begin} | without_files


def _before_starts(runs: pa.Table, starts: pa.Table) -> pa.Table:
    runs = runs.select(["topic", "queue_id", "commit_log_offset"]).join(
        starts, ["topic", "queue_id"], join_type="inner"
    )
    return runs.filter(pc.less(runs["commit_log_offset"], runs["start"])).select(["topic", "commit_log_offset"])


def _lives(tasks: Tasks, splits: Sequence[StagedUnits]) -> dict[Queue, list[int]]:
    """The commit log offsets of the messages with queue offset 0 of each queue, ascending."""
    firsts = found_in(tasks, splits, _first_of_queues).group_by(["topic", "queue_id"])
    rows = firsts.aggregate([("commit_log_offset", "list")]).to_pylist()
    return {(row["topic"], row["queue_id"]): sorted(row["commit_log_offset_list"]) for row in rows}


def _first_of_queues(runs: pa.Table) -> pa.Table:
    is_first = pc.equal(runs["first_queue_offset"], 0)
    return runs.filter(is_first).select(["topic", "queue_id", "commit_log_offset"])


def _first_offset(queues: Location, queue: Queue) -> int:
    """The commit log offset in the first unit of a queue whose files begin with queue offset 0; else -1."""
    file = queues / "/".join(map(str, queue)) / queue_file_name(0, 0)
    if not file.is_file or file.info().size < UNIT_SIZE:
        return -1
    with FileReader(file) as reader:
        return int.from_bytes(reader.read(0, 8), "big", signed=True)


def restarted_queues(runs: Runs) -> Mapping[Queue, int]:
    """The queues that were used again after they had been deleted, and the commit log offset from which on."""
    return runs.splits[0].starts if runs.splits else {}
