"""`repair`: a store is checked, and what is wrong with it is made again from its log."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_mq.errors import NoRoomError, StorageError
from spark_mq.format.amounts import counted
from spark_mq.format.consume_queue import Queue
from spark_mq.indexer.output_folder import check_file_sizes
from spark_mq.io.local import free_bytes
from spark_mq.io.location import Location
from spark_mq.io.publish import discard_folder
from spark_mq.job.output_committer import WORK_FOLDER, UnfinishedTrees
from spark_mq.job.progress import Progress
from spark_mq.job.task_errors import is_full, job_errors
from spark_mq.job.tasks import TaskRunner, Tasks, package_errors, spark_tasks
from spark_mq.repairer.changes import Backup
from spark_mq.repairer.new_files import NewFiles
from spark_mq.repairer.plan import Action, Left, RepairPlan, RepairRequest, plan_repair
from spark_mq.store.config.broker_conf import FileSetting
from spark_mq.store.config.checkpoint import CHECKPOINT
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import CONSUME_QUEUE
from spark_mq.store.log.commit_log import DEFAULT_SPLIT_SIZE
from spark_mq.store.store_lock import store_lock
from spark_mq.verifier.check import CheckedStore, VerifyRequest, check_store
from spark_mq.verifier.codes import CODES, Treatment
from spark_mq.verifier.finding import Damage
from spark_mq.verifier.result import VerifyReport, read_findings
from spark_mq.verifier.verify import task_runner, work_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NEW_FILES = "repair"
"""The folder below `.spark_mq` in which new files are made."""

AFTER = "after"
"""The folder, in the work folder, of the check after a repair."""


@dataclass(frozen=True)
class RepairReport:
    """What a repair did, or would do.

    Attributes:
        output: The folder that got the new files; None for the store itself.
        is_applied: Whether files were written; else this is a plan.
        actions: What was done, or would be done, by file.
        assumed: Settings of the new files that nothing in the store tells.
        backup: The folder with what was replaced; None if nothing was.
        room_needed: Bytes of the new files, and of what the backup copies; old files move there.
        room_free: Bytes that are free where the new files are made; None if that is not on a local filesystem.
        after: The check of the repaired store: what was sound and is kept was read before; None if nothing was changed
            in place.
        seconds: The duration of the repair, its check included.
        stages: The duration of each stage, in seconds.
    """

    store: str
    output: str | None
    is_applied: bool
    before: VerifyReport
    actions: tuple[Action, ...]
    left: tuple[Left, ...]
    assumed: tuple[FileSetting, ...] = ()
    room_needed: int = 0
    room_free: int | None = None
    backup: str | None = None
    after: VerifyReport | None = None
    seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is wrong, or all of it is, or would be, repaired."""
        if self.left:
            return False
        return bool(self.actions) or self.before.is_sound if self.after is None else self.after.is_sound

    @property
    def verdict(self) -> str:
        """The result in a few words."""
        files = counted(len(self.actions), "file")
        kinds = counted(len(self.left), "kind of findings", "kinds of findings")
        rest = f"; {kinds} cannot be repaired" if self.left else ""
        if not rest and not self.is_complete:
            rest = f"; the store is {(self.after or self.before).verdict}"
        given = ", if the broker has the assumed settings" if self.assumed else ""
        if not self.actions:
            return f"nothing to repair{rest}" if rest else f"nothing to repair: the store is {self.before.verdict}"
        if not self.is_applied:
            return f"a plan for {files}; nothing was changed{rest}{given}"
        return f"{files} repaired{rest}{given}"

    def to_json(self) -> str:
        """One JSON object: the fields of this class, `verdict` and `is_complete`."""
        more = {"actions": list(self._rows()), "verdict": self.verdict, "is_complete": self.is_complete}
        return json.dumps({**asdict(self), **more})

    def _rows(self) -> Iterator[dict[str, Any]]:
        for action in self.actions:
            change = action.change
            row: dict[str, Any] = {"kind": change.kind, "file": change.file, "treatment": action.treatment.name}
            if change.stop:
                row |= {"start": change.start, "stop": change.stop}
            yield {**row, "codes": dict(action.codes), "reason": str(action.treatment)}


def repair(
    spark: SparkSession,
    store: str,
    output: str | None = None,
    *,
    apply: bool = False,
    offsets: bool = False,
    broker_conf: str | None = None,
    scratch: str | None = None,
    split_size: int = DEFAULT_SPLIT_SIZE,
    assume_defaults: bool = False,
    progress: Callable[[str], None] | None = None,
) -> RepairReport:
    """Check a store, and make again from its log what is wrong with it: single queue files, index files, small files.

    Without `apply`, nothing is changed, and the result is a plan. Sound files keep every byte. What is replaced is kept
    in a folder `.spark_mq/backup-TIME` of the store, which `spark-mq repair --undo` puts back. Records are never
    changed; only the bytes after the live end of the log are, if they are old records.

    Args:
        spark: The session. The job uses a session of its own on the same Spark.
        store: The store directory, a path or a URI. No broker runs on it, if it is changed in place.
        output: A new folder that gets only the repaired files, under their paths in the store; by default the store
            itself.
        apply: Whether files are written.
        offsets: Whether offsets of consumers and delay levels after the end of a queue are set to that end.
        broker_conf: The broker's `broker.conf` (file sizes, slots and entries, delay levels).
        scratch: A folder for staged files that every machine sees; by default a temporary folder.
        split_size: Bytes of the log for a task.
        assume_defaults: Whether index files are made with the broker's defaults if neither `broker_conf` nor an index
            file tells their slots and entries. A broker with other settings finds nothing in such files.
        progress: Gets a line of progress every few seconds.

    Returns:
        The report: what was found, what was done to which file and why, and what cannot be repaired.

    Raises:
        OptionError: An argument is not valid.
        StoreNotFoundError: `store` is not a message store.
        UnsupportedStoreError: The store is of a kind that is not read.
        StoreLockedError: A broker runs on the store, or another job writes into it.
        OutputExistsError: The output is not empty.
        StoreChangedError: A file was removed while the store was checked.
        NoRoomError: A disk is full; no file of the store has been changed.
        NotSharedError: A task does not see the store or the folders that the driver sees.
        StorageError: A file cannot be read or written. What was changed before has its backup.

    >>> from spark_mq import repair
    >>> print(repair(spark, "/data/store").verdict)
    a plan for 2 files; nothing was changed
    >>> report = repair(spark, "/data/store", apply=True)
    """
    check = VerifyRequest.of(store, broker_conf, scratch, split_size)
    request = RepairRequest.of(check, output, apply=apply, offsets=offsets, assume_defaults=assume_defaults)
    with spark_tasks(spark, progress) as tasks:
        return repair_with(tasks, request)


def repair_with(tasks: Tasks, request: RepairRequest) -> RepairReport:
    """Repair what a request says; returns the report, and raises the errors, of `repair`."""
    started = time.monotonic()
    work = work_folder(request.check.scratch)
    stages = Progress(work, tasks.on_progress)
    try:
        with package_errors():
            report = repair_store(request, work, lambda output: task_runner(tasks, request.check, output, stages))
    finally:
        discard_folder(work)
    return replace(report, seconds=round(time.monotonic() - started, 3), stages=stages.seconds)


def repair_store(request: RepairRequest, work: Location, runner: Callable[[Location], TaskRunner]) -> RepairReport:
    """Check and repair a store; `work` is an empty folder, and `runner` runs tasks that write into a folder."""
    store = request.check.store
    with store_lock(store) if request.is_in_place else nullcontext():
        check_file_sizes(request.check.conf, None if has_rocksdb_queues(store) else store / CONSUME_QUEUE, store)
        checked = check_store(request.check, work, runner(work), has_lock=request.is_in_place)
        damage = Damage.of(read_findings(checked.files, ["code", "file", "position"]))
        plan = plan_repair(request, damage, checked)
        output = None if request.output is None else str(request.output)
        actions = tuple(plan.actions)
        room, home = plan.room_needed(request, checked), request.output or request.check.store
        free = free_bytes(home.path) if home.is_local else None
        left, assumed = tuple(plan.left), tuple(plan.assumed)
        report = RepairReport(
            str(request.check.store), output, False, checked.report, actions, left, assumed, room, free
        )
        if not request.apply or not actions:
            return report
        actions, backup = _apply(request, plan, checked, runner)
        after = None
        if request.output is None:
            # Neither records nor files that were sound and are kept are read again: the lock is held since the check.
            # A database that is made again has all queues.
            makes_database = any(action.treatment == Treatment.DATABASE for action in actions)
            changed = {file for _, file, _, _ in damage.counts} | {action.change.file for action in actions}
            doubtful = None if makes_database else changed
            folder = work / AFTER
            folder.make_folder()
            after = check_store(request.check, folder, runner(folder), checked.log, doubtful, has_lock=True).report
    return replace(report, is_applied=True, actions=actions, backup=backup, after=after)


def _apply(
    request: RepairRequest, plan: RepairPlan, checked: CheckedStore, runner: Callable[[Location], TaskRunner]
) -> tuple[tuple[Action, ...], str | None]:
    """Make the new files, and put them in place; returns the actions that changed something, and the backup."""
    store = request.check.store
    new_files = request.output or store / WORK_FOLDER / NEW_FILES
    tasks = new_files / WORK_FOLDER
    if request.output is None or not new_files.is_local:
        discard_folder(new_files)  # what a killed job left
    try:
        try:
            tasks.make_folder()
        except OSError as error:
            raise StorageError(f"{tasks}: the folder cannot be created: {error}") from error
        if not new_files.is_local:
            UnfinishedTrees(new_files, tasks).add(action.change.file for action in plan.actions)
        ends = _ends_of_queues(checked) if request.offsets else {}
        maker = NewFiles(
            store, new_files, plan, checked, request.check.conf, ends, copies_segments=request.output is not None
        )
        actions = tuple(maker.make(runner(tasks)))
        if request.output is not None or not actions:
            return actions, None
        changes = sorted((action.change for action in actions), key=lambda change: change.file == CHECKPOINT)
        backup = Backup.create(store)
        backup.apply(changes, new_files)
        return actions, str(backup.folder)
    except BaseException as error:
        if not new_files.is_local:
            discard_folder(new_files)
        if not (isinstance(error, job_errors()) and is_full(error)):
            raise
        raise NoRoomError(f"{new_files}: the disk is full; no file of the store has been changed") from error
    finally:
        discard_folder(tasks)  # in an output on S3: the end of what says that files are missing
        if request.output is None:
            discard_folder(new_files)
            with suppress(OSError):
                Path(store.path, WORK_FOLDER).rmdir()


def _ends_of_queues(checked: CheckedStore) -> dict[Queue, int]:
    """The next queue offset of the queues that have an offset after their end."""
    past_end = [name for name, code in CODES.items() if code.treatment == Treatment.OFFSETS]
    queues: set[Queue] = set()
    for batch in read_findings(checked.files, ["code", "topic", "queue_id"]):
        for row in batch.filter(pc.is_in(batch["code"], pa.array(past_end))).to_pylist():
            queues.add((row["topic"], row["queue_id"]))
    return {queue: checked.offsets.get(queue, range(0)).stop for queue in queues}
