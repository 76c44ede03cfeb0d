"""An append to a stopped store: its lock, its folder, its queue files and index files, and its end.

The caller writes the new records into the append's folder, as segments. The first one is the last segment of the store
up to its live end, and then new records; zeros follow the last record of all. Everything else is made here, and only
the new records are read for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from spark_mq import __version__
from spark_mq.errors import CorruptLogError, NoRoomError, SparkMqError, UnfinishedAppendError
from spark_mq.format.consume_queue import UNIT_SIZE
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.indexer.rebuild_plan import RebuildPlan, Selection, StagingSettings
from spark_mq.indexer.trees import WrittenTrees, extend_trees, rebuilt_checkpoint
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import WORK_FOLDER, OutputCommitter
from spark_mq.job.progress import Progress, StageProgress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_errors import JOB_ERRORS, is_full
from spark_mq.job.tasks import JobContext, Tasks
from spark_mq.restorer.append_commit import (
    APPEND,
    FinishedAppend,
    begin_append,
    commit_append,
    discard_append,
    finish_append,
)
from spark_mq.restorer.append_target import AppendTarget, not_local
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_paths import COMMIT_LOG, CONFIG, CONSUME_QUEUE, INDEX
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE, list_offset_range
from spark_mq.store.queue.folders import QueueFolder, queue_folders
from spark_mq.store.store_lock import store_lock


@dataclass(frozen=True)
class Append:
    """An append that has begun.

    Attributes:
        target: Where the store ends.
        folder: The folder that gets the new files, under their paths in the store.
        interrupted: What has become of an append that was interrupted before; None if there was none. If it is in
            place, and is the same append, it must not be run again.
    """

    target: AppendTarget
    folder: Location
    interrupted: FinishedAppend | None

    def segment(self, base: int) -> Location:
        """The place of the new segment that starts at commit log offset `base`. It is written whole (`published`)."""
        return self.folder / COMMIT_LOG / f"{base:020d}"

    def write_trees(
        self,
        tasks: Tasks,
        log_end: int,
        split_size: int = DEFAULT_SPLIT_SIZE,
        on_progress: Callable[[StageProgress], None] | None = None,
    ) -> WrittenTrees:
        """Write queue files, index files and the checkpoint for the new records, into the append's folder.

        Args:
            log_end: The commit log offset at which the last new record ends.
            split_size: Bytes of the log for a task.
            on_progress: Is called when a stage begins, when it ends, and about once a second between.

        Returns:
            What was written.
        """
        target, trees = self.target, self._trees
        log_range = list_offset_range(self.folder, target.log_end, log_end)
        for missing in log_range.missing:
            raise CorruptLogError(f"{self.folder}: the new records are not all there: {missing.describe()}")
        committer = OutputCommitter(target.store, trees, work_folder=f"{WORK_FOLDER}/{APPEND}")
        log = CommitLog(self.folder / COMMIT_LOG, log_range.segments)
        context = JobContext(
            tasks.checked(SharedStorageCheck.record(log, self.folder)),
            Progress(self.folder / "progress" / uuid.uuid4().hex, on_progress),
            committer,
        )
        plan = RebuildPlan(
            store=target.store,
            broker_conf=target.conf,
            broker_versions=target.broker_versions,
            time_zone=None,
            selection=Selection(has_index=target.has_index),
            settings=StagingSettings(
                __version__,
                str(target.store),
                trees,
                target.queue_file_size,
                target.conf.message_delay_level or DEFAULT_DELAY_LEVELS,
                replace=False,
                index_tags=target.index_tags,
            ),
            split_size=split_size,
            is_permissive=False,
            continued=trees,
            is_resumed=False,
        )
        extension = extend_trees(context, plan, log_range)
        self._write_checkpoint(extension, log_end)
        return self._without_stale_units(extension)

    @property
    def _trees(self) -> tuple[str, ...]:
        return (CONSUME_QUEUE, INDEX) if self.target.has_index else (CONSUME_QUEUE,)

    def _write_checkpoint(self, extension: WrittenTrees, log_end: int) -> None:
        existing = replace(Checkpoint.load(self.target.store), written_end=log_end)
        last = extension.staged.last_store_timestamp or self.target.last_store_timestamp
        index_end = max(existing.index_msg_timestamp, extension.index.end_timestamp)
        last_unit = extension.staged.last_unit_offset or existing.logics_physical_offset
        checkpoint = rebuilt_checkpoint(existing, self._trees, last, index_end, last_unit, self.target.broker_versions)
        publish(self.folder / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)

    def _without_stale_units(self, extension: WrittenTrees) -> WrittenTrees:
        """Make the queues without new messages end where they end; their stale units could lead to new records."""
        written = self.folder / CONSUME_QUEUE
        ends = {
            (topic, queue_id): self.target.next_offsets[topic, queue_id]
            for topic, queue_id in self.target.stale_queues
            if not (written / topic / str(queue_id)).is_directory
        }
        removed = write_without_stale_units(self.target.store, ends, written)
        queues = replace(extension.queues, stale_files=(*extension.queues.stale_files, *removed))
        return replace(extension, queues=queues)

    def commit(
        self,
        extension: WrittenTrees,
        config: Mapping[str, bytes],
        about: Mapping[str, Any],
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Put everything in place, all or nothing. Afterwards the append's folder is gone.

        Args:
            extension: What `write_trees` wrote.
            config: New content of files of the store, by path, such as `config/topics.json`. As with a broker, the
                previous content of a file of `config/` stays as `.bak` (`MixAll.string2File`@5.3.3).
            about: What `finish_append` says of this append if it is interrupted: values that JSON can express.
            then: Is called when everything is in place. If the process is killed before, `finish_append` still tells
                of this append.
        """
        root = self.target.store
        for path, content in config.items():
            file = root / path
            previous = file.read_bytes() if file.is_file else None
            if previous == content:
                continue
            if previous is not None and path.startswith(f"{CONFIG}/"):
                publish(self.folder / f"{path}.bak", previous, len(previous))
            publish(self.folder / path, content, len(content))
        removed = [file.path.removeprefix(f"{root.path}/") for file in extension.queues.stale_files]
        commit_append(root, removed, about, then)


@contextmanager
def appending(store: Location, conf: BrokerConf) -> Iterator[Append]:
    """A context for an append; the store's lock is held in it. Without `commit`, the store stays as it is.

    An append that was interrupted is finished first.
    """
    with locked_store(store) as interrupted:
        target = AppendTarget.open(store, conf, has_lock=True)
        folder = begin_append(store)
        try:
            yield Append(target, folder, interrupted)
        except JOB_ERRORS as error:
            if isinstance(error, SparkMqError) or not is_full(error):
                raise
            raise NoRoomError(f"{folder}: the disk is full; nothing was appended, the store is as it was") from error
        finally:
            discard_append(store)


@contextmanager
def locked_store(store: Location) -> Iterator[FinishedAppend | None]:
    """A context in which the store's lock is held; an append that was interrupted is finished first.

    Yields:
        What has become of the interrupted append; None if there was none.
    """
    if not store.is_local:
        raise not_local(store)
    with suppress(UnfinishedAppendError):
        CommitLog.open(store)  # a path that is not a store gets no lock file
    with store_lock(store, or_else=None):
        yield finish_append(store)


def write_without_stale_units(store: Location, ends: Mapping[tuple[str, int], int], output: Location) -> list[Location]:
    """Write the files in which queues end, with zeros after the end. The time of a file stays.

    A recovery that cuts the log leaves the units of the records that it cut off, and new records take their place. Then
    a start of a broker takes the units for live ones (`ConsumeQueue.recover`@5.3.3 and @4.9.7 stop only at zeros).

    Args:
        ends: The next queue offset of each queue, by topic and queue id.
        output: The `consumequeue` folder that gets the files.

    Returns:
        The files of the store that have only stale units.
    """
    removed: list[Location] = []
    for folder in queue_folders(store / CONSUME_QUEUE) if ends else ():
        if (folder.topic, folder.queue_id) in ends:
            removed += _write(folder, ends[folder.topic, folder.queue_id] * UNIT_SIZE, output)
    return removed


def _write(folder: QueueFolder, end: int, output: Location) -> list[Location]:
    """Write the file that contains byte `end` of the queue; returns the files after that one."""
    removed = []
    for number, info in enumerate(folder.files):
        start = int(info.base_name)
        if end >= start + info.size:
            continue
        # Without any file, a queue that begins above 0 would begin at 0 again.
        if end > start or (number == 0 and start > 0):
            content = (folder.location / info.base_name).read_bytes()[: end - start]
            target = output / folder.topic / str(folder.queue_id) / info.base_name
            publish(target, content, info.size, info.mtime_ns // 1_000_000)
        else:
            removed.append(folder.location / info.base_name)
    return removed
