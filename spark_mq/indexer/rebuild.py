"""The main job: consume queues and index files rebuilt from the commit log, whole files, in a few Spark stages.

1. dispatch: each split is read once and becomes staged runs of units and staged index entries (`dispatch`,
   `staged_log`); a manifest says what is staged, for a job that goes on after a kill (`manifest`).
2. judge: did the splits fit together (`seams`)? Segments that did not are read again. Damage stops the job, or is
   reported.
3. queues: every queue's first and last offset, a task for every few files, which assemble and write them
   (`queue_build`, `queue_writer`).
4. index: every entry's file, a task for every file (`index_build`, `index_writer`).
5. publish: the trees are put in place (`committer`), and with them a checkpoint that a broker accepts (`boot`).
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from datetime import tzinfo

from pyspark.sql import SparkSession

from spark_mq import __version__
from spark_mq.errors import EmptyStoreError, OptionError
from spark_mq.format.index_file import IndexLayout
from spark_mq.indexer.disk_space import no_room_error, room_needed
from spark_mq.indexer.index.build import IndexBuild
from spark_mq.indexer.manifest import MANIFEST, Manifest, Settings
from spark_mq.indexer.output_folder import check_output, is_store_folder
from spark_mq.indexer.queue.build import QueueBuild, queue_file_size
from spark_mq.indexer.recovery import next_boot, rebuilt_checkpoint
from spark_mq.indexer.report import RebuildReport
from spark_mq.indexer.run import Job, refuse
from spark_mq.indexer.stage import StagedLog
from spark_mq.indexer.staged_files import INDEX_ENTRIES
from spark_mq.io.location import Location
from spark_mq.io.publish import publish
from spark_mq.job.output_committer import OutputCommitter
from spark_mq.job.progress import Progress
from spark_mq.job.session import job_session, scratch_folders
from spark_mq.job.shared_storage import SharedStorageCheck
from spark_mq.job.storage_errors import is_full
from spark_mq.job.task_errors import JOB_ERRORS, unwrap_task_error
from spark_mq.store.config.broker_conf import BrokerConf
from spark_mq.store.config.broker_version import BrokerVersion, detect_broker_version, parse_broker_version
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_kind import refuse_rocksdb, rocksdb_notes
from spark_mq.store.config.store_paths import CONSUME_QUEUE, INDEX
from spark_mq.store.index.folder import index_layout
from spark_mq.store.index.names import parse_time_zone
from spark_mq.store.log.commit_log import CommitLog
from spark_mq.store.log.splits import DEFAULT_SPLIT_SIZE
from spark_mq.store.store_lock import store_lock

FAILFAST = "failfast"
PERMISSIVE = "permissive"


def rebuild(
    spark: SparkSession,
    store: str,
    output: str | None = None,
    *,
    only: str | None = None,
    broker_conf: str | None = None,
    broker_version: str | None = None,
    time_zone: str | None = None,
    mode: str = FAILFAST,
    replace: bool = False,
    resume: bool = False,
    split_size: int = DEFAULT_SPLIT_SIZE,
    progress: Callable[[str], None] | None = None,
) -> RebuildReport:
    """Rebuild `consumequeue/` and `index/` of the store directory `store`, below `output` (by default in the store).

    `only` rebuilds one of the two. The files are byte for byte those that a broker makes of the same log, but for the
    index files' names, which say when a broker made them: these say when their first message was stored.
    `broker_conf` names the broker's settings (file sizes, slots and entries, delay levels); without it the size of
    existing files counts where it tells, else the broker's defaults. `broker_version` (`4.9`, `5`, ...) and `time_zone`
    (`Asia/Shanghai`) are by default what the store's own files show, else 5 and UTC.
    `mode` `failfast` stops at damage, `permissive` skips and reports it. `replace` allows existing trees to be
    replaced, which happens when the new ones are complete. `progress` gets a line now and then.

    `resume` goes on where a job that was killed with the same settings left off: what it staged of segments that did
    not change since is not read again, and what it wrote is not written again. Where it left nothing, trees that are
    there are continued from their own end: finished files stay as they are, the last file of each queue and of the
    index is completed. Without either it is a rebuild like any other. Where existing files are not what the log says,
    it raises `CorruptLogError` or `CorruptIndexError`, and changes nothing.

    Raises `StoreNotFoundError`, `UnsupportedStoreError`, `EmptyStoreError`, `OutputExistsError`, `CorruptLogError`
    (failfast), `UnsafeNameError` (failfast), `NotSharedError` (a task does not see the store or the output that the
    driver sees), `StoreLockedError` (the output is a store on which a broker runs), `NoRoomError` (a disk is full: the
    work stays, and `resume` continues), `StorageError` (the output cannot be written) and `OptionError`.
    """
    kinds = (CONSUME_QUEUE, INDEX) if only is None else (only,)
    _check_choice("--only", kinds[-1], (CONSUME_QUEUE, INDEX))
    _check_choice("--mode", mode, (FAILFAST, PERMISSIVE))
    if resume and replace:
        raise OptionError("--resume goes on with what is there, --replace makes it anew: give one of them")
    zone = None if time_zone is None else parse_time_zone(time_zone)
    version = None if broker_version is None else parse_broker_version(broker_version)
    conf = BrokerConf.of(broker_conf)
    with job_session(spark) as session:
        one = _Rebuild(session, store, output, conf, kinds, mode == PERMISSIVE, split_size)
        return one.run(replace, resume, progress, zone, version)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise OptionError(f"{name} {value!r} is none of {', '.join(choices)}")


class _Rebuild:
    """One run of the job; `kinds` are the trees that it makes."""

    def __init__(
        self,
        spark: SparkSession,
        store: str,
        output: str | None,
        conf: BrokerConf,
        kinds: tuple[str, ...],
        permissive: bool,
        split_size: int,
    ) -> None:
        self._spark = spark
        self._store = Location.resolve(store)
        if not conf.is_enabled("messageIndexEnable", default=True):
            kinds = tuple(kind for kind in kinds if kind != INDEX)
        if not kinds:
            raise OptionError(f"--only index: the broker keeps none ({conf.source}: messageIndexEnable=false)")
        self._committer = OutputCommitter(self._store if output is None else Location.resolve(output), kinds, MANIFEST)
        self._conf = conf
        self._permissive = permissive
        self._split_size = split_size
        self._report = RebuildReport(store=str(self._store), output=str(self._committer.output), trees=list(kinds))

    def run(
        self,
        replace: bool,
        resume: bool,
        say: Callable[[str], None] | None,
        zone: tzinfo | None,
        version: BrokerVersion | None,
    ) -> RebuildReport:
        started = time.monotonic()
        log = CommitLog.open(self._store)
        if not log.segments:
            raise EmptyStoreError(f"{log.location} holds no record: there is nothing to rebuild from")
        output = self._committer.output
        check_output(output, self._store, self._committer.names)
        refuse([*log.gaps, *log.stray], self._report, self._permissive)
        if CONSUME_QUEUE in self._committer.names:
            refuse_rocksdb(self._committer.target(CONSUME_QUEUE))
        if not resume:
            self._committer.check_targets(replace)
        # A store's own directory is written to only while no broker can.
        with store_lock(output) if is_store_folder(output) else nullcontext():
            try:
                self._make(log, replace, resume, say, zone, version or detect_broker_version(self._store))
            except JOB_ERRORS as error:
                if not is_full(error):
                    raise
                names = self._committer.names
                layout = index_layout(self._store, self._conf) if INDEX in names else IndexLayout()
                needed = room_needed(log, self._split_size, names, layout)
                raise no_room_error(output, needed, scratch_folders(self._spark)) from error
        self._report.log_bytes = sum(segment.data_end for segment in log.segments)
        self._report.seconds = round(time.monotonic() - started, 3)
        self._note()
        return self._report

    def _make(
        self,
        log: CommitLog,
        replace: bool,
        resume: bool,
        say: Callable[[str], None] | None,
        zone: tzinfo | None,
        version: BrokerVersion,
    ) -> None:
        """Make the trees and the checkpoint, and put them in place."""
        manifest, continued = self._prepare(replace, resume)
        try:
            checkpoint = self._build(log, say, zone, version, manifest, continued)
            self._committer.commit(continued, self._stale_files)
            publish(self._committer.output / CHECKPOINT, checkpoint.encode(), CHECKPOINT_SIZE)
        except BaseException as error:
            # What else ends a job (a full disk, a lost executor, an interrupt) leaves its work for `resume`.
            if unwrap_task_error(error) is not None and not manifest.rounds:
                with suppress(OSError):
                    self._committer.abort()
            raise

    def _prepare(self, replace: bool, resume: bool) -> tuple[Manifest, tuple[str, ...]]:
        """Make the job's folder; returns what is staged in it, and the trees that are continued."""
        committer, queue_trees = self._committer, [self._store / CONSUME_QUEUE]
        existing: tuple[str, ...] = ()
        left = None
        if resume:
            existing = committer.resume()
            queue_trees += [committer.target(name) for name in existing if name == CONSUME_QUEUE]
            left = Manifest.load(committer.folder)
        else:
            committer.setup(replace)
        settings = Settings(
            __version__,
            str(self._store),
            committer.names,
            queue_file_size(self._conf, queue_trees),
            self._conf.message_delay_level or _default_delay_levels(),
            replace,
        )
        if left is not None and left.settings.stage_the_same_as(settings):
            committer.remove_staged(left.unlisted(committer.folder))
            return left, () if left.settings.replace else existing
        if resume:
            committer.clear()
        return Manifest(settings), existing

    def _build(
        self,
        log: CommitLog,
        say: Callable[[str], None] | None,
        zone: tzinfo | None,
        version: BrokerVersion,
        manifest: Manifest,
        continued: tuple[str, ...],
    ) -> Checkpoint:
        committer, names = self._committer, self._committer.names
        job = Job(
            self._spark,
            self._store,
            self._conf,
            committer,
            SharedStorageCheck.record(log, committer.folder),
            Progress(committer.folder / "progress" / uuid.uuid4().hex, say),
            self._report,
            self._permissive,
            continued,
            is_resumed=bool(manifest.rounds),
        )
        queues = QueueBuild(job, manifest.settings.queue_file_size) if CONSUME_QUEUE in names else None
        index = IndexBuild(job, zone, version, committer.folder / INDEX_ENTRIES) if INDEX in names else None
        staged_log = StagedLog(job, manifest, None if index is None else index.blobs)
        staged, rows = staged_log.dispatch(log, self._split_size)
        self._inner_batches = sum(row.inner_batches for row in rows)
        # Queues and index are written at once: neither alone keeps all cores busy.
        stopped = threading.Event()
        with ThreadPoolExecutor(1) as beside:
            try:
                indexed = None if index is None else beside.submit(index.write, rows, stopped.is_set)
                if queues is not None:
                    queues.write(staged, rows)
                if indexed is not None:
                    indexed.result()
            except BaseException:
                stopped.set()
                raise
        self._stale_files = [] if queues is None else queues.stale_files()
        self._report.bytes_written = sum(kind.bytes_written for kind in (queues, index) if kind is not None)
        self._report.stages = job.progress.seconds
        last = max((row.last_store_timestamp for row in rows if row.last_store_timestamp is not None), default=0)
        end = 0 if index is None else index.end_timestamp
        return rebuilt_checkpoint(Checkpoint.load(self._store), names, last, end)

    def _note(self) -> None:
        self._report.next_boot = next_boot(self._store)
        notes = self._report.notes
        if INDEX not in self._committer.names and not self._conf.is_enabled("messageIndexEnable", default=True):
            notes.append("index is not rebuilt: the broker keeps none (messageIndexEnable=false)")
        if CONSUME_QUEUE not in self._committer.names:
            return
        notes += rocksdb_notes(self._store)
        if self._inner_batches:
            notes.append(f"{self._inner_batches} inner batches belong to batch consume queues, which are not rebuilt")
        if (self._store / "consumequeue_ext").is_directory or self._conf.is_enabled("enableConsumeQueueExt"):
            notes.append("consumequeue_ext is not rebuilt: units carry tags codes instead of addresses in it")
        if self._conf.is_enabled("enableMultiDispatch"):
            notes.append("queues of INNER_MULTI_DISPATCH (light message queues) are not rebuilt")


def _default_delay_levels() -> str:
    from spark_mq.format.kernels.dispatch import DEFAULT_DELAY_LEVELS

    return DEFAULT_DELAY_LEVELS
