"""A new store: it is made in a folder beside it, which is renamed (on S3: copied) when all is complete.

A job that is killed leaves that folder, and the next one removes it.

While that lasts, a file in `commitlog/` says so. No reader takes the folder for a store, no broker starts on a copy of
it, and the next restore begins again. The removal of this file is the commit.
"""

from __future__ import annotations

import ctypes
import dataclasses
import errno
import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from spark_mq.errors import InvalidMessageError, StorageError
from spark_mq.format.broker_version import MIN_OFFSET_BY_HALVING
from spark_mq.format.consume_queue import Queue
from spark_mq.format.system_topic import HALF_TOPIC
from spark_mq.indexer.rebuild import rebuild_with
from spark_mq.indexer.rebuild_request import PERMISSIVE, RebuildRequest
from spark_mq.indexer.report import RebuildReport
from spark_mq.io.local import flush_to_disk
from spark_mq.io.location import Location
from spark_mq.io.publish import discard_folder, publish
from spark_mq.job.output_committer import output_lock, unused
from spark_mq.job.progress import Progress
from spark_mq.job.task_errors import reason_of
from spark_mq.restorer.appended_messages import recorded
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.config_files import TOPICS, CopyType
from spark_mq.restorer.finish import finish_store
from spark_mq.restorer.offset_map import complete_map
from spark_mq.restorer.placement import LEADING, LogPlan, place_after, place_as_before, with_leading_segments
from spark_mq.restorer.restore_request import CHUNKS, STORE
from spark_mq.restorer.store_job import RestoreReport, Stage, StoreJob
from spark_mq.store.config.checkpoint import CHECKPOINT, CHECKPOINT_SIZE, Checkpoint
from spark_mq.store.config.store_kind import has_rocksdb_queues
from spark_mq.store.config.store_paths import APPENDS, COMMIT_LOG, INDEX, RESTORE_UNFINISHED
from spark_mq.store.index.folder import index_files
from spark_mq.store.store_lock import store_lock

BACKUP = ".backup-"
"""In the name of a store that was replaced, before the time of that."""

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)
"""Errors of a system, or of a filesystem such as NFS, that cannot exchange two names."""

_MARK: Final = f"{COMMIT_LOG}/{RESTORE_UNFINISHED}"
_COPIERS: Final = 8
"""Requests at the same time."""
_EXPIRY_NOTE = "the segments are as new as this job: a broker deletes them after fileReservedTime (72 h) from now"
_FILES_NOTE = (
    "the queues are files, which a broker with storeType=defaultRocksDB does not read: for such a broker, `spark-mq "
    "rebuild STORE --only consumequeue --queue-store rocksdb --replace` comes before its start"
)
_ID_NOTE = "offset message ids contain the address of another broker than before"


def put_in_place(made: Location, store: Location, replaces: bool = False) -> str | None:
    """Rename a complete store to its final name; returns the new name of the store that it replaces, if there is one.

    Nothing is deleted. On Linux, the final name is that of a whole store at every moment, also if the process is
    killed. A filesystem that cannot exchange two names has no store of that name for a moment.
    """
    try:
        for folder, _, _ in os.walk(made.path):
            flush_to_disk(folder)
        if not (replaces and store.entries()):
            os.rename(made.path, store.path)
            flush_to_disk(store.parent.path)
            return None
        with store_lock(store, or_else=None):
            backup = unused(store.parent, f"{store.name}{BACKUP}{datetime.now(UTC):%Y%m%dT%H%M%SZ}").path
            os.rename(made.path, backup)
            try:
                is_exchanged = _exchange(backup, store.path)
            except OSError:
                os.rename(backup, made.path)
                raise
            if not is_exchanged:
                os.rename(backup, made.path)
                os.rename(store.path, backup)
                os.rename(made.path, store.path)
            flush_to_disk(store.parent.path)
            return backup
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"{store}: the new store cannot be put there: {reason_of(error)}") from error


def _exchange(one: str, other: str) -> bool:
    """Exchange the names of two folders in one step (`renameat2` of Linux); returns whether the system can do that."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    if not rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE:
        return False
    raise OSError(code, os.strerror(code), other)


def copy_in_place(made: Location, store: Location) -> None:
    """Copy a complete store to its final name, also over what a killed restore left there."""
    publish(store / _MARK, f"a restore copies {made.name}/ to here\n".encode())
    try:
        _remove_files(store)
        sizes = made.files_below()
        _each(sizes, lambda name: (made / name).copy_to(store / name))
        copied = store.files_below()
        del copied[_MARK]
        if copied != sizes:
            differing = min(name for name in {*copied, *sizes} if copied.get(name) != sizes.get(name))
            raise StorageError(f"{store / differing}: the server did not copy the whole file: run the restore again")
        (store / _MARK).delete()
    except Exception:
        with suppress(OSError, StorageError):  # the mark stays then
            _remove_files(store)
            (store / _MARK).delete()
        raise


def _remove_files(store: Location) -> None:
    """Remove all files of an unfinished store, except the one that says that it is unfinished."""
    _each((store / name for name in store.files_below() if name != _MARK), Location.delete)


def _each(items: Iterable[Any], action: Callable[[Any], None]) -> None:
    with ThreadPoolExecutor(_COPIERS) as threads:
        list(threads.map(action, items))


def make_store(job: StoreJob, stage: Stage) -> RestoreReport:
    """Make the store of a request, put it in place, and report."""
    started = time.monotonic()
    work = job.request.work_folder
    with output_lock(work):
        try:
            report = _make(job, work, stage)
        finally:
            discard_folder(work)
    return dataclasses.replace(report, seconds=round(time.monotonic() - started, 3))


def _make(job: StoreJob, work: Location, stage: Stage) -> RestoreReport:
    store, chunk_folder = work / STORE, work / CHUNKS
    for folder in (store, chunk_folder):
        discard_folder(folder)  # what a killed job left
        folder.make_folder()
    progress = Progress(work, job.tasks.on_progress)
    chunks = job.stage(stage, chunk_folder, progress)
    chunks, plan = _place(job, chunks, progress)
    notes = job.notes(plan, chunks)
    with job.offset_map(chunks, plan) as offset_map:
        log = job.write_log(plan, work, store, offset_map, progress)
        # All of the log is live, whatever its store times are, where messages are left out, too.
        publish(store / CHECKPOINT, Checkpoint(written_end=log.end).encode(), CHECKPOINT_SIZE)
        if job.batch_topics:  # a rebuild asks the settings of topics which queues are batch consume queues
            publish(store / TOPICS, job.topics)
        rebuilt = _derive(job, store)
        notes += [*_missing_notes(job, plan, rebuilt), *finish_store(job, store, log, offset_map), _EXPIRY_NOTE]
        origin = job.source.location
        if job.request.broker_conf.has_rocksdb_store or (origin is not None and has_rocksdb_queues(origin)):
            notes.append(_FILES_NOTE)
        report = job.report(
            log,
            offset_map,
            notes=notes if job.request.store_host is None else [*notes, _ID_NOTE],
            queues=rebuilt.queues,
            queue_files=rebuilt.files,
            index_files=rebuilt.index_files,
            index_entries=rebuilt.index_entries,
            settings=list(rebuilt.settings),
            stages={**progress.seconds, **rebuilt.stages},
        )
        backup = None
        if store.is_local:
            if job.request.append_id is not None:
                publish(store / APPENDS, recorded(job, chunks, report))
            backup = put_in_place(store, job.request.store, job.request.replace)
        else:
            copy_in_place(store, job.request.store)
    if offset_map is not None:
        complete_map(offset_map.folder)
    return dataclasses.replace(report, backup=backup)


def _missing_notes(job: StoreJob, plan: LogPlan, rebuilt: RebuildReport) -> list[str]:
    """Sentences about queue offsets of two messages, and about those without one that a broker of 5.x does not skip."""
    doubled = [f"queue {one.file}: {one.reason}" for one in rebuilt.corrupt if one.code == "DOUBLED_UNITS"]
    queues = {damage.file for damage in rebuilt.corrupt if damage.code == "MISSING_UNITS"}
    if (
        not queues
        or job.broker_versions.decide(MIN_OFFSET_BY_HALVING) is False
        or not any(segment.pieces for segment in plan.segments[:LEADING])
    ):
        return doubled
    return [
        *doubled,
        f"{len(queues):,} queues have offsets without a message, and the log starts too early to mark them: "
        "`spark-mq verify` reports QUEUE_NO_MESSAGE, and a broker of 5.x can stop consumers there until it starts "
        "again (--renumber gives new offsets without gaps)",
    ]


def _place(job: StoreJob, chunks: list[Chunk], progress: Progress) -> tuple[list[Chunk], LogPlan]:
    size = job.request.segment_size
    if job.is_faithful:
        is_whole = job.source.is_store and job.is_whole
        plan = place_as_before(chunks, size, job.source.log_end if is_whole else None)
        _check_batch_queues(job, plan.lacking)
        # An archive can lack messages that expired before they were archived.
        return chunks, plan if is_whole and not plan.lacking else with_leading_segments(plan)
    keeps, after_leading = job.request.keeps_queue_offsets, (LEADING + 1) * size
    chunks, queues = job.numbered(chunks, progress, keeps_queue_offsets=keeps)
    if keeps:
        _check_batch_queues(job, queues.lacking)
        start = (job.source.log_start or 0) // size * size
        # Queue offsets of messages that are lost or left out, as in a log that keeps all offsets.
        is_early = queues.lacking and start <= LEADING * size
        plan = place_after(chunks, queues, size, after_leading if is_early else start)
        return chunks, with_leading_segments(plan) if plan.lacking else plan
    if any(topic == HALF_TOPIC for topic, _ in queues.messages):
        # Half messages keep their queue offsets, of which some can be left out.
        return chunks, with_leading_segments(place_after(chunks, queues, size, after_leading))
    return chunks, place_after(chunks, queues, size)


def _check_batch_queues(job: StoreJob, lacking: Collection[Queue]) -> None:
    """Refuse a batch consume queue without some of its offsets.

    At such an offset, a broker finds the unit before it, and sends its messages again
    (`BatchConsumeQueue.binarySearch`@5.3.3).
    """
    of_batches = sorted(queue for queue in lacking if queue[0] in job.batch_topics)
    if of_batches and job.copy_type != CopyType.WHOLE:
        topic, queue_id = of_batches[0]
        raise InvalidMessageError(
            f"batch consume queue {topic}/{queue_id} would have queue offsets without a message between others. There, "
            "a broker sends the messages before again: give new offsets (--renumber), or leave out the whole queue"
        )


def _derive(job: StoreJob, store: Location) -> RebuildReport:
    # Queue offsets without a message do not stop it: their messages were left out.
    request = dataclasses.replace(
        RebuildRequest.of(store.uri, mode=PERMISSIVE, assume_defaults=True),
        broker_conf=job.request.broker_conf,
        time_zone=job.request.time_zone or job.source.time_zone,
        broker_versions=job.broker_versions,
        tags_shown_by=job.source.location if job.keeps_tags else None,
        tagged=job.source.tagged if job.keeps_tags else None,
        queues_shown_by=job.source.location if job.is_faithful else None,
    )
    report = rebuild_with(job.tasks, request)
    doubled = [damage for damage in report.corrupt if damage.code == "DOUBLED_UNITS"]
    if doubled and job.source.location is None:
        raise InvalidMessageError(
            f"consume queue {doubled[0].file}: {doubled[0].reason}; leave out one of the messages, or give new offsets "
            "(--renumber)"
        )
    if job.is_faithful:
        restore_index_names(store, job.source.index_names)
    return report


def restore_index_names(store: Location, names: Mapping[int, str]) -> int:
    """The number of index files that were renamed: they get the names that they had in the source.

    A broker names an index file after the moment at which it makes it, which no message shows. A file that begins with
    the same message as one of the source gets that name. If brokers, which read the files in the order of their names,
    would have another order then, because only some of the files have a name, no file is renamed.
    """
    files = index_files(store)
    known = [names.get(file.stored_header().begin_commit_log_offset, file.name) for file in files]
    if known != sorted(set(known)):
        return 0
    renamed = [(file.name, name) for file, name in zip(files, known, strict=True) if file.name != name]
    folder = store / INDEX
    # A new name can be the old name of a later file.
    steps = [(old, f"{new}.new") for old, new in renamed] + [(f"{new}.new", new) for _, new in renamed]
    for before, after in steps:
        folder.storage.rename((folder / before).path, (folder / after).path)
    return len(renamed)
