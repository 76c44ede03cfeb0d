"""The main job: consume queues and index files rebuilt from the commit log; the package names its stages."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from spark_mq._version import __version__
from spark_mq.errors import OutputExistsError
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.forecast import file_settings, no_room_error, room_needed
from spark_mq.indexer.index_database import write_index_database
from spark_mq.indexer.manifest import Manifest
from spark_mq.indexer.output_folder import is_store_folder
from spark_mq.indexer.rebuild_plan import RebuildInput, RebuildPlan, StagingSettings
from spark_mq.indexer.rebuild_request import FAILFAST, RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.indexer.stage import StagedLog, stage_log
from spark_mq.indexer.tag_entries import TaggedRanges, decide_tags, keep_tags, tags_of_version
from spark_mq.indexer.trees import ExistingTrees, rebuilt_checkpoint, write_trees
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import output_lock
from spark_mq.job.progress import Progress
from spark_mq.job.task_errors import is_full, job_errors, unwrap_task_error
from spark_mq.job.tasks import JobContext, SharedStorageCheck, Tasks, package_errors, spark_tasks
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_kind import Door, batch_topics, check_form
from spark_mq.store.config.store_paths import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    ROCKSDB_STORE,
)
from spark_mq.store.index.folder import IndexFileInfo, index_files
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE, CommitLog
from spark_mq.store.log.segment_files import CorruptRange
from spark_mq.store.queue.folders import find_queue_file_size, listed
from spark_mq.store.queue.queue_database import has_light_queues, makes_light_queues
from spark_mq.store.store_lock import store_lock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AFTER_ABORT = (
    "the file abort says that the broker did not stop cleanly: it will check the log, and dispatch it again from one "
    "of its last segments. Queues ignore what they have; the index takes the keys of one message twice, which harms no "
    "query. Keep abort: the check finds a damaged end of the log"
)
_AFTER_STOP = "without a file abort, a broker takes the rebuilt files as they are, and dispatches only new messages"


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
    queue_store: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` of a store from its commit log, and its index in RocksDB if it has one.

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
        queue_store: `files`, or `rocksdb` for a database that a broker with `storeType=defaultRocksDB` reads. Both can
            be made of a store of either kind. By default files, which do not replace a database; and a database besides
            them if `broker_conf` has `rocksdbCQDoubleWriteEnable=true`.
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
    with spark_tasks(spark, progress) as tasks:
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
            queue_store=queue_store,
        )
        return rebuild_with(tasks, request)


def rebuild_with(tasks: Tasks, request: RebuildRequest) -> RebuildReport:
    """Rebuild what a request says; returns the report, and raises the errors, of `rebuild`.

    The files are the same wherever the tasks run.
    """
    with package_errors():
        return _Rebuild(tasks, request).run()


@dataclass(frozen=True)
class _Rebuild:
    tasks: Tasks
    request: RebuildRequest

    def run(self) -> RebuildReport:
        """Check the output, rebuild, and report."""
        started, request, output = time.monotonic(), self.request, self.request.committer.output
        log, damage = request.check()
        settings = file_settings(request)
        # The store's lock keeps a broker from starting on its own directory while files are written there.
        with store_lock(output) if is_store_folder(output) else nullcontext(), output_lock(output):
            try:
                report = self._rebuild(log, damage, settings)
            except job_errors() as error:
                if not is_full(error):
                    raise
                raise no_room_error(output, room_needed(request, log), self.tasks.scratch_folders()) from error
        return replace(report, seconds=round(time.monotonic() - started, 3))

    def _rebuild(
        self, log: CommitLog, damage: tuple[CorruptRange, ...], settings: Collection[FileSetting]
    ) -> RebuildReport:
        request, committer = self.request, self.request.committer
        manifest, continued = self._prepare()
        if BATCH_CONSUME_QUEUE in continued:
            tree = committer.output / BATCH_CONSUME_QUEUE
            raise OutputExistsError(f"{tree} exists, and batch consume queues are not continued: give --replace")
        plan = RebuildPlan(
            **{field.name: getattr(request, field.name) for field in fields(RebuildInput)},
            settings=manifest.settings,
            continued=continued,
            is_resumed=bool(manifest.splits),
        )
        try:
            tasks = self.tasks.checked(SharedStorageCheck.record(log, committer.folder))
            progress = Progress(committer.folder, self.tasks.on_progress)
            context = JobContext(tasks, progress, committer=committer)
            # Existing files that cannot be continued end the job before the log is read.
            existing = ExistingTrees.find(plan, committer.output)
            staged = stage_log(context, plan, log, manifest)
            if existing.index is not None:
                staged, tagged = self._with_tags(context, plan, staged, existing.index.layout)
                settings = (*settings, FileSetting("the index", f"{tagged}", tagged.source))
            written = write_trees(context, plan, staged, existing).written
            if plan.selection.has_index_database:
                database = committer.staging_path(ROCKSDB_STORE)
                is_copied = all(one.file != ROCKSDB_STORE for one in damage)
                written += write_index_database(plan.store, staged, database, is_copied=is_copied)
            backup = committer.commit(continued, written.stale_files)
            if request.selection.topic is None:  # the other queues may be older than the checkpoint that is there
                checkpoint = rebuilt_checkpoint(
                    Checkpoint.load(request.store),
                    committer.names,
                    staged.last_store_timestamp,
                    written.end_timestamp,
                    staged.last_unit_offset,
                    request.broker_versions,
                )
                publish(committer.output / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)
        except BaseException as error:
            # Any other end of a job (a full disk, a lost executor, an interrupt) leaves its work for `resume`.
            if unwrap_task_error(error) is not None and not manifest.splits:
                with suppress(OSError):
                    committer.abort()
            raise
        return RebuildReport(
            store=str(request.store),
            output=str(committer.output),
            trees=list(committer.names),
            messages=staged.messages,
            log_bytes=sum(segment.data_end for segment in log.segments),
            bytes_read=staged.bytes_read,
            queues=written.queues,
            files=written.files,
            units=written.units,
            index_files=written.index_files,
            index_entries=written.index_entries,
            index_records=written.index_records,
            bytes_written=written.bytes_written,
            segments_staged_before=staged.segments_staged_before,
            files_untouched=written.files_untouched,
            files_completed=written.files_completed,
            stages=progress.seconds,
            corrupt=[*damage, *staged.corrupt, *written.corrupt],
            topics_left_out=list(written.topics_left_out),
            carried_over=list(written.carried_over),
            lost_queues=list(written.lost_queues),
            settings=[str(setting) for setting in settings],
            backup=backup,
            notes=[*written.notes, *self._notes(staged.inner_batches)],
            next_boot=_AFTER_ABORT if (request.store / ABORT).is_file else _AFTER_STOP,
            engine=self.tasks.engine,
        )

    def _prepare(self) -> tuple[Manifest, tuple[str, ...]]:
        """Make the job's folder; returns what is staged in it, and the trees that are continued."""
        request, committer = self.request, self.request.committer
        queue_trees = [request.store / CONSUME_QUEUE]
        existing: tuple[str, ...] = ()
        left = None
        if request.resume:
            existing = committer.resume()
            queue_trees += [committer.output / CONSUME_QUEUE for name in existing if name != INDEX]
            left = Manifest.load(committer.folder)
        else:
            committer.setup(request.replace)
        settings = StagingSettings(
            find_queue_file_size(request.broker_conf, listed(queue_trees)).value,
            request.broker_conf.message_delay_level,
            self._index_tags(left),
            (makes_light_queues if request.selection.in_rocksdb else has_light_queues)(
                request.store, request.broker_conf
            ),
            tuple(sorted(batch_topics(request.store))) if request.selection.has_batches else (),
            request.selection.in_rocksdb,
            version=__version__,
            store=str(request.store),
            trees=committer.names,
            replace=request.replace,
        )
        if left is not None and left.settings.stage_the_same_as(settings):
            left.remove_others(committer.folder)
            return left, () if left.settings.replace else existing
        if request.resume:
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

    def _with_tags(
        self, context: JobContext, plan: RebuildPlan, staged: StagedLog, layout: IndexLayout
    ) -> tuple[StagedLog, TaggedRanges]:
        """The staged log with entries for tags where the index has them, or as the version says."""
        if plan.settings.index_tags is not None:
            return staged, tags_of_version(plan.broker_versions)
        if self.request.tagged is not None:
            return keep_tags(staged, self.request.tagged, context), self.request.tagged
        files = tuple(file for file in self._shown_index(plan.continued) if file.size == layout.file_size)
        return decide_tags(staged, files, layout, plan.broker_versions, context)

    def _shown_index(self, continued: Collection[str]) -> list[IndexFileInfo]:
        """The index files that show which tags have entries; none if the version says it.

        A job that was killed while it put its trees in place can have moved the store's index away; its own shows it.
        """
        shown_by, committer = self.request.tags_shown_by, self.request.committer
        if INDEX in continued:
            return index_files(committer.output)
        return [] if shown_by is None else index_files(shown_by) or index_files(committer.folder)

    def _notes(self, inner_batches: int) -> Iterator[str]:
        conf, selection, store = self.request.broker_conf, self.request.selection, self.request.store
        if not selection.has_index and conf.without_index_files is not None:
            yield f"index is not rebuilt: the broker keeps none ({conf.without_index_files})"
        if not selection.has_queues:
            return
        made = {selection.database, ROCKSDB_STORE if selection.has_index_database else None}
        yield from (str(note) for note in check_form(store, Door.FILES) if note.path not in made)
        if inner_batches:
            yield (
                f"{inner_batches} inner batches are of topics without queue.type=BatchCQ in config/topics.json, and "
                "without files in batchconsumequeue/: they are in no queue"
            )
        has_ext = (store / CONSUME_QUEUE_EXT).is_directory or conf.is_enabled("enableConsumeQueueExt")
        if has_ext and not selection.has_ext:
            yield (
                f"{CONSUME_QUEUE_EXT} is not rebuilt: new units have tags codes instead of addresses in it; a "
                "--broker-conf with enableConsumeQueueExt=true rebuilds it, unless queues are continued (--resume)"
            )
