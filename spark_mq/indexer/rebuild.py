"""The main job: consume queues and index files rebuilt from the commit log, in a few stages.

Each stage returns a value, and the report is built of these values at the end:

1. stage (`staging/`): each split is read once. The result is files of units and of index entries. A manifest names all
   staged files, so that a killed job can be resumed.
2. judge (`staging/alignment`): segments whose splits do not fit together are read again. Damage ends the job, or is
   reported.
3. queues (`queue/`): the plan gives each run its file; a task assembles and writes a few files.
4. index (`index/`): the plan gives each entry its file; a task assembles and writes one file.
5. commit (`job/output_committer`): the trees are put in place, and a checkpoint that a broker accepts (`recovery`).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_mq import __version__
from spark_mq.format.index_file import IndexLayout
from spark_mq.format.system_topic import DEFAULT_DELAY_LEVELS
from spark_mq.indexer.forecast import file_settings, no_room_error, room_needed
from spark_mq.indexer.index_files import IndexResult, find_existing_index
from spark_mq.indexer.manifest import STAGED, Manifest
from spark_mq.indexer.new_checkpoint import next_boot, rebuilt_checkpoint
from spark_mq.indexer.output_folder import is_store_folder
from spark_mq.indexer.queue_files import QueueResult
from spark_mq.indexer.queue_plan import find_existing_queues
from spark_mq.indexer.rebuild_plan import RebuildPlan, StagingSettings
from spark_mq.indexer.rebuild_request import FAILFAST, RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.indexer.stage import StagedLog, stage_log
from spark_mq.indexer.tag_entries import TagDecision, TaggedRanges, TaskOf, keep_tags, tags_of_version
from spark_mq.indexer.trees import write_trees
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import OutputCommitter, output_lock
from spark_mq.job.progress import Progress, StageProgress
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.task_errors import JOB_ERRORS, is_full, unwrap_task_error
from spark_mq.job.tasks import JobContext, SparkTasks, Tasks, job_errors, job_session
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_kind import Door, check_form
from spark_mq.store.config.store_paths import CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX
from spark_mq.store.index.folder import IndexFileInfo, index_files
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE
from spark_mq.store.queue.folders import find_queue_file_size, listed
from spark_mq.store.store_lock import store_lock


def rebuild(
    spark: SparkSession,
    store: str,
    output: str | None = None,
    *,
    only: str | None = None,
    topic: str | None = None,
    queue_id: int | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    time_zone: str | None = None,
    mode: str = FAILFAST,
    replace: bool = False,
    backup: bool = True,
    resume: bool = False,
    split_size: int = DEFAULT_SPLIT_SIZE,
    assume_defaults: bool = False,
    progress: Callable[[str], None] | None = None,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` of a store from its commit log.

    The files are byte for byte those that a broker writes for the same log, except the names of index files: a broker
    names them after the time at which it creates them, and this function after the store time of their first message.

    A rebuild with neither `replace` nor `resume` needs an output without these trees. Damaged bytes are not skipped
    unless `mode` is `permissive`.

    Args:
        spark: The session. The job uses a session of its own on the same Spark.
        store: The store directory, a path or a URI.
        output: The folder in which the trees are written; the store itself by default.
        only: `consumequeue` or `index`, to rebuild one of the two.
        topic: The topic whose queues are rebuilt; the index, which has keys of all topics, is not rebuilt then.
        queue_id: The one queue of the topic that is rebuilt.
        broker_conf: The broker's `broker.conf` (file sizes, slots and entries, delay levels). Without it the sizes of
            existing files decide if they can, or else the broker's defaults; those of index files only if
            `assume_defaults` says so.
        broker_version: The broker's version, such as `5.1.0`, or a line such as `4.9` or `5`; by default as the
            store's own files show.
        time_zone: The zone of the names of index files (`Asia/Shanghai`); by default as existing names show, or else
            UTC.
        mode: `failfast` stops at damage; `permissive` skips and reports it.
        replace: Whether existing trees may be replaced. They are replaced when the new trees are complete.
        backup: Whether replaced trees are kept, in a folder `backup-TIME` of the output.
        resume: Whether to continue. If a job with the same settings was killed, this job continues with what it staged
            and wrote. Otherwise existing trees are continued from their own end: complete files stay unchanged, and the
            last file of each queue and of the index is completed. Without either, the trees are rebuilt from nothing.
        split_size: Bytes of the log for a task.
        assume_defaults: Whether index files are made with the broker's defaults if neither `broker_conf` nor an index
            file tells their slots and entries. A broker with other settings finds nothing in such files.
        progress: Gets a line of progress every few seconds.

    Returns:
        The report.

    Raises:
        OptionError: An argument is not valid, the output is inside a store, or nothing tells the slots and entries of
            index files.
        StoreNotFoundError: `store` is not a message store.
        UnsupportedStoreError: The store, or the output, is of a kind that cannot be rebuilt.
        EmptyStoreError: The log has no record.
        OutputExistsError: The output has such trees, and neither `replace` nor `resume` is given; or they cannot be
            replaced or continued.
        CorruptLogError: The log is damaged (`failfast`), or existing queue files contradict it (`resume`).
        CorruptIndexError: Existing index files cannot be continued (`resume`).
        UnsafeNameError: The name of a topic would lead out of the output (`failfast`).
        NotSharedError: A task does not see the store or the output that the driver sees.
        StoreLockedError: The output is a store on which a broker runs, or into which another job writes.
        OutputInUseError: Another job writes into the output.
        NoRoomError: A disk is full. The work stays, and `resume` continues with it.
        StorageError: The output cannot be written.

    >>> from spark_mq import rebuild
    >>> report = rebuild(spark, "/data/store", "/data/rebuilt")
    >>> print(report.to_text())
    """
    with job_session(spark) as session:
        request = RebuildRequest.of(
            store,
            output,
            only=only,
            topic=topic,
            queue_id=queue_id,
            broker_conf=broker_conf,
            broker_version=broker_version,
            time_zone=time_zone,
            mode=mode,
            replace=replace,
            backup=backup,
            resume=resume,
            split_size=split_size,
            assume_defaults=assume_defaults,
        )
        on_progress = None if progress is None else lambda stage: progress(str(stage))
        return _Rebuild(SparkTasks(session), request, on_progress).run()


def run_rebuild(
    spark: SparkSession, request: RebuildRequest, progress: Callable[[StageProgress], None] | None = None
) -> RebuildReport:
    """Rebuild what a request says; returns the report, and raises the errors, of `rebuild`.

    Args:
        spark: The session.
        request: What to rebuild.
        progress: Is called when a stage begins, when it ends, and about once a second between.
    """
    with job_session(spark) as session:
        return rebuild_with(SparkTasks(session), request, progress)


def rebuild_with(
    tasks: Tasks, request: RebuildRequest, progress: Callable[[StageProgress], None] | None = None
) -> RebuildReport:
    """Rebuild what a request says; returns the report, and raises the errors, of `rebuild`.

    The files are the same wherever the tasks run. Without Spark (`LocalTasks`), all runs are in the memory of this
    process, about 500 bytes each.

    Args:
        tasks: Where the tasks run.
        request: What to rebuild.
        progress: Is called when a stage begins, when it ends, and about once a second between.

    Example:
        >>> rebuild_with(LocalTasks(), RebuildRequest.of("/data/store", "/data/rebuilt")).messages
        1510
    """
    with job_errors():
        return _Rebuild(tasks, request, progress).run()


@dataclass(frozen=True)
class _Outcome:
    """The results of all stages; the result of a tree that is not rebuilt is empty."""

    staged: StagedLog
    queues: QueueResult
    index: IndexResult
    tagged: TaggedRanges | None
    stages: dict[str, float]
    backup: str | None = None


@dataclass(frozen=True)
class _Rebuild:
    """One run of a request."""

    tasks: Tasks
    request: RebuildRequest
    on_progress: Callable[[StageProgress], None] | None

    @property
    def store(self) -> Location:
        """The store whose log is read."""
        return self.request.store

    @property
    def committer(self) -> OutputCommitter:
        """The output, and the trees that are written into it."""
        return self.request.committer

    def run(self) -> RebuildReport:
        """Check the output, rebuild, and report."""
        started = time.monotonic()
        log, damage = self.request.check()
        output, settings = self.committer.output, file_settings(self.request)
        # The store's lock keeps a broker from starting on its own directory while files are written there.
        with store_lock(output) if is_store_folder(output) else nullcontext(), output_lock(output):
            try:
                outcome = self._rebuild(log)
            except JOB_ERRORS as error:
                if not is_full(error):
                    raise
                raise no_room_error(output, room_needed(self.request, log), self.tasks.scratch_folders()) from error
        seconds = round(time.monotonic() - started, 3)
        if outcome.tagged is not None:
            settings = (*settings, FileSetting("the index", f"{outcome.tagged}", outcome.tagged.source))
        return self._report(log, [str(setting) for setting in settings], damage, outcome, seconds)

    def _rebuild(self, log: CommitLog) -> _Outcome:
        """Write the trees and the checkpoint, and put them in place."""
        manifest, continued = self._prepare()
        plan = RebuildPlan(
            store=self.store,
            broker_conf=self.request.broker_conf,
            broker_versions=self.request.broker_versions,
            time_zone=self.request.time_zone,
            selection=self.request.selection,
            settings=manifest.settings,
            split_size=self.request.split_size,
            is_permissive=self.request.is_permissive,
            continued=continued,
            is_resumed=bool(manifest.splits),
        )
        try:
            outcome = self._write(log, plan, manifest)
            backup = self.committer.commit(continued, outcome.queues.stale_files)
            if self.request.selection.topic is None:  # the other queues may be older than the checkpoint that is there
                checkpoint = rebuilt_checkpoint(
                    Checkpoint.load(self.store),
                    self.committer.names,
                    outcome.staged.last_store_timestamp,
                    outcome.index.end_timestamp,
                    outcome.staged.last_unit_offset,
                    self.request.broker_versions,
                )
                publish(self.committer.output / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)
        except BaseException as error:
            # Any other end of a job (a full disk, a lost executor, an interrupt) leaves its work for `resume`.
            if unwrap_task_error(error) is not None and not manifest.splits:
                with suppress(OSError):
                    self.committer.abort()
            raise
        return replace(outcome, backup=backup)

    def _prepare(self) -> tuple[Manifest, tuple[str, ...]]:
        """Make the job's folder; returns what is staged in it, and the trees that are continued."""
        committer, queue_trees = self.committer, [self.store / CONSUME_QUEUE]
        existing: tuple[str, ...] = ()
        left = None
        if self.request.resume:
            existing = committer.resume()
            queue_trees += [committer.output / CONSUME_QUEUE for name in existing if name != INDEX]
            left = Manifest.load(committer.folder)
        else:
            committer.setup(self.request.replace)
        settings = StagingSettings(
            __version__,
            str(self.store),
            committer.names,
            find_queue_file_size(self.request.broker_conf, listed(queue_trees)).value,
            self.request.broker_conf.message_delay_level or DEFAULT_DELAY_LEVELS,
            self.request.replace,
            self._index_tags(left),
        )
        if left is not None and left.settings.stage_the_same_as(settings):
            committer.remove_staged(left.unlisted(committer.folder))
            return left, () if left.settings.replace else existing
        if self.request.resume:
            committer.clear()
        return Manifest(settings), existing

    def _index_tags(self, left: Manifest | None) -> bool | None:
        """Whether tags have index entries, by the version; None if an index shows it, or showed it to a killed job."""
        shown_by = self.request.tags_shown_by
        if self.request.tagged is not None:
            return None
        if shown_by is not None and ((left is not None and left.settings.index_tags is None) or index_files(shown_by)):
            return None
        return bool(tags_of_version(self.request.broker_versions).ranges)

    def _shown_index(self, continued: Collection[str]) -> list[IndexFileInfo]:
        """The index files that show which tags have entries; none if the version says it.

        A job that was killed while it put its trees in place can have moved the store's index away; its own shows it.
        """
        if INDEX in continued:
            return index_files(self.committer.output)
        shown_by = self.request.tags_shown_by
        return [] if shown_by is None else index_files(shown_by) or index_files(self.committer.folder)

    def _write(self, log: CommitLog, plan: RebuildPlan, manifest: Manifest) -> _Outcome:
        """Write the trees into the job's folder."""
        committer = self.committer
        context = JobContext(
            self.tasks.checked(SharedStorageCheck.record(log, committer.folder)),
            Progress(committer.folder / "progress" / uuid.uuid4().hex, self.on_progress),
            committer,
        )
        has_queues, has_index = plan.selection.has_queues, plan.selection.has_index
        # Existing files that cannot be continued end the job before the log is read.
        queues = find_existing_queues(plan, committer.output) if has_queues else None
        index = find_existing_index(plan, committer.output) if has_index else None
        folder = committer.folder / STAGED
        folder.make_folder()
        targets = plan.settings.targets(folder, has_queues, has_index)
        staged = stage_log(context, plan, log, manifest, targets)
        tagged = None
        if index is not None:
            staged, tagged = self._with_tags(context, staged, index.layout, plan)
        queue_result, index_result = write_trees(context, plan, staged, queues, index)
        return _Outcome(staged, queue_result, index_result, tagged, context.progress.seconds)

    def _with_tags(
        self, context: JobContext, staged: StagedLog, layout: IndexLayout, plan: RebuildPlan
    ) -> tuple[StagedLog, TaggedRanges]:
        """The staged log with entries for tags where the index has them, or as the version says."""
        versions = self.request.broker_versions
        if plan.settings.index_tags is not None:
            return staged, tags_of_version(versions)

        def run(name: str, task_of: TaskOf, count: int, schema: pa.Schema) -> pa.Table:
            with context.progress.stage(name, count, "splits") as done:
                return context.tasks.rows(task_of(done), count, schema)

        if self.request.tagged is not None:
            return keep_tags(staged, self.request.tagged, run), self.request.tagged
        files = tuple(file for file in self._shown_index(plan.continued) if file.size == layout.file_size)
        return TagDecision(files, layout, versions, run).apply(staged)

    def _report(
        self, log: CommitLog, settings: list[str], damage: tuple[CorruptRange, ...], outcome: _Outcome, seconds: float
    ) -> RebuildReport:
        staged, queues, index = outcome.staged, outcome.queues, outcome.index
        return RebuildReport(
            store=str(self.store),
            output=str(self.committer.output),
            trees=list(self.committer.names),
            settings=settings,
            backup=outcome.backup,
            messages=staged.messages,
            log_bytes=sum(segment.data_end for segment in log.segments),
            bytes_read=staged.bytes_read,
            queues=queues.queues,
            files=queues.files,
            units=queues.units,
            index_files=index.index_files,
            index_entries=index.index_entries,
            bytes_written=queues.bytes_written + index.bytes_written,
            segments_staged_before=staged.segments_staged_before,
            files_untouched=queues.files_untouched + index.files_untouched,
            files_completed=queues.files_completed + index.files_completed,
            seconds=seconds,
            stages=outcome.stages,
            corrupt=[*damage, *staged.corrupt, *queues.corrupt, *index.corrupt],
            topics_left_out=list(queues.topics_left_out),
            carried_over=list(queues.carried_over),
            lost_queues=list(queues.lost_queues),
            notes=[*queues.notes, *self._notes(staged.inner_batches)],
            next_boot=next_boot(self.store),
        )

    def _notes(self, inner_batches: int) -> list[str]:
        """What a rebuild leaves out, a sentence each."""
        notes, conf = [], self.request.broker_conf
        selection = self.request.selection
        if not selection.has_index and not conf.is_enabled("messageIndexEnable", default=True):
            notes.append("index is not rebuilt: the broker keeps none (messageIndexEnable=false)")
        if not selection.has_queues:
            return notes
        notes += map(str, check_form(self.store, Door.FILES))
        if inner_batches:
            notes.append(f"{inner_batches} inner batches belong to batch consume queues, which are not rebuilt")
        has_ext = (self.store / CONSUME_QUEUE_EXT).is_directory or conf.is_enabled("enableConsumeQueueExt")
        if has_ext and not selection.has_ext:
            notes.append(
                f"{CONSUME_QUEUE_EXT} is not rebuilt: new units have tags codes instead of addresses in it; a "
                "--broker-conf with enableConsumeQueueExt=true rebuilds it, unless queues are continued (--resume)"
            )
        if conf.is_enabled("enableMultiDispatch") and not (self.store / CONSUME_QUEUE).is_directory:
            notes.append("queues of INNER_MULTI_DISPATCH (light message queues) are not rebuilt")
        return notes
