"""Messages that are appended to a stopped store: they get offsets after its own, and an identity.

The file is put in place with all other files of an append, and stays in the store. An append has an identity: the id
that the caller gives, or else its source and its arguments. Rows of a DataFrame have no source that can be named, so
without an id only an append of the same rows, right after it, is recognized.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_mq.errors import OptionError, UnfinishedAppendError
from spark_mq.io.location import Location
from spark_mq.job.progress import Progress
from spark_mq.restorer.append import Append, appending, locked_store
from spark_mq.restorer.append_target import AppendTarget
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.config_files import TOPICS, topics_json
from spark_mq.restorer.offset_map import complete_map
from spark_mq.restorer.placement import TRANSACTION_TOPICS, place_after
from spark_mq.restorer.restore_request import CHUNKS
from spark_mq.restorer.store_job import RestoreReport, Stage, StoreJob
from spark_mq.store.config.store_paths import APPENDS

_VERSION = 1
_MOST = 1000
"""The number of appends that are kept, the last ones."""
_AGAIN = "to have them twice, give the append an id of its own (--append-id, option appendId)"


@dataclass(frozen=True)
class Appended:
    """An append that is in a store; `state` is the part of its source that it read, or a digest of its rows."""

    identity: str | None
    state: str
    report: RestoreReport


def identity_of(job: StoreJob) -> str | None:
    """A text that two runs of the same append have in common; None for rows without an id."""
    request = job.request
    if request.append_id is not None:
        return f"id {request.append_id}"
    if not job.source.is_store:
        return None
    arguments = (request.where, request.only_delivered, request.store_host, dict(request.topic_map))
    return repr((job.source.name, *arguments))


def find_append(job: StoreJob, log_end: int, chunks: Iterable[Chunk] | None = None) -> RestoreReport | None:
    """The report of the same append, if the store has it already; else None."""
    identity = identity_of(job)
    done = [one for one in _load(job.request.store) if one.report.log_end <= log_end]
    if identity is None:
        last = done[-1] if done else None
        if last is None or chunks is None or (last.report.log_end, last.state) != (log_end, _digest(chunks)):
            return None
        raise OptionError(f"{job.request.store}: {_where(last)} are the same rows: nothing was appended; {_AGAIN}")
    same = next((one for one in reversed(done) if one.identity == identity), None)
    if same is None:
        return None
    if job.request.append_id is None and same.state != _state(job):
        raise OptionError(
            f"{job.request.store} has {_where(same)} from the same source, which has changed since then: nothing was "
            f"appended now, because these messages would be there twice. Choose the new ones with --where; {_AGAIN}"
        )
    note = f"{_where(same)} are those of this append, which ran before: nothing was appended now; {_AGAIN}"
    return dataclasses.replace(same.report, notes=[note], seconds=0.0, stages={})


def _load(store: Location) -> list[Appended]:
    file = store / APPENDS
    if not file.is_file:
        return []
    try:
        content = json.loads(file.read_bytes())
        if content.get("version", 1) != _VERSION:  # the first files have none
            raise ValueError(f"version {content['version']}, and this spark-mq reads {_VERSION}: update it")
        appends = content["appends"]
        return [Appended(one["identity"], one["state"], RestoreReport(**one["report"])) for one in appends]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnfinishedAppendError(
            f"{file} is not as an append wrote it, so it is not known which messages the store has already: put the "
            f"file back, or remove it if nothing has to be appended again ({error})"
        ) from error


def _where(appended: Appended) -> str:
    report = appended.report
    return f"the {report.messages:,} messages that were appended up to commit log offset {report.log_end:,}"


def _state(job: StoreJob) -> str | None:
    source = job.source
    return f"log {source.log_start} to {source.log_end}" if source.is_store else None


def _digest(chunks: Iterable[Chunk]) -> str:
    return " ".join(sorted(chunk.digest for chunk in chunks))


def append_messages(job: StoreJob, stage: Stage) -> RestoreReport:
    """Append the messages of a request to its store, all or nothing, and report.

    If the store has the same append already, nothing is appended twice. An interrupted append is finished.
    """
    started = time.monotonic()
    with appending(job.request.store, job.request.broker_conf) as append:
        finished = _report_of_same(job, append.interrupted) or find_append(job, append.target.log_end)
        if finished is not None:
            return finished
        report = _append(job, append, stage)
    return dataclasses.replace(report, seconds=round(time.monotonic() - started, 3))


def check_append(job: StoreJob) -> None:
    """Raise an error if messages cannot be appended, before any row is read. An interrupted append is finished."""
    with locked_store(job.request.store) as interrupted:
        _report_of_same(job, interrupted)
        AppendTarget(job.request.store, job.request.broker_conf)


def _report_of_same(job: StoreJob, interrupted: Mapping[str, Any] | None) -> RestoreReport | None:
    """The report of an interrupted append if it is now in place, and was the same; else None."""
    if interrupted is None:
        return None
    _complete_map(interrupted)
    if interrupted.get("request") != (identity_of(job) or job.source.name):
        return None
    report = RestoreReport(**interrupted["report"])
    if identity_of(job) is None:
        raise UnfinishedAppendError(
            f"{job.request.store}: an append of {report.messages:,} messages of a DataFrame was interrupted, and is "
            f"complete now; the log ends at {report.log_end}. If these are the same messages, nothing is left to do. "
            "If they are others, append them again"
        )
    return report


def _append(job: StoreJob, append: Append, stage: Stage) -> RestoreReport:
    target, chunk_folder = append.target, append.folder / CHUNKS
    os.makedirs(chunk_folder.path)
    progress = Progress(append.folder, job.tasks.on_progress)
    chunks = job.stage(stage, chunk_folder, progress)
    find_append(job, target.log_end, chunks)
    chunks, queues = job.numbered(chunks, progress, target.next_offsets)
    plan = place_after(chunks, queues, target.segment_size, target.log_end)
    if transactional := plan.topics.intersection(TRANSACTION_TOPICS):
        raise OptionError(
            f"messages of {', '.join(sorted(transactional))} cannot be appended: they name each other by their "
            "offsets, which change; --only-delivered leaves them out"
        )
    notes = job.notes(plan, chunks)
    folder, earliest = append.folder, target.last_store_timestamp
    previous = None if target.last_segment is None else target.last_segment.location
    with job.offset_map(chunks, plan) as offset_map:
        log = job.write_log(plan, folder, folder, offset_map, progress, previous, earliest)
        extension = append.write_trees(job.tasks, log.end)
    written = extension.written
    report = job.report(
        log,
        offset_map,
        notes=notes,
        queues=written.queues,
        queue_files=written.files,
        index_files=written.index_files,
        index_entries=written.index_entries,
        stages=progress.seconds,
    )
    shutil.rmtree(chunk_folder.path)
    about = {"request": identity_of(job) or job.source.name, "report": dataclasses.asdict(report)}
    topics = target.store / TOPICS
    existing = topics.read_bytes() if topics.is_file else None
    config = {
        TOPICS: topics_json(
            existing, log.queue_counts, {}, target.broker_versions, log.last_store_timestamp, log.appended_counts
        ),
        APPENDS: recorded(job, chunks, report, _load(target.store)),
    }
    append.commit(extension, config, about, then=lambda: _complete_map(about))
    return report


def recorded(job: StoreJob, chunks: Iterable[Chunk], report: RestoreReport, before: Sequence[Appended] = ()) -> bytes:
    """The content of the file `APPENDS` with this append, or with the write that made the store, if it has an id."""
    kept = [*before, Appended(identity_of(job), _state(job) or _digest(chunks), report)][-_MOST:]
    appends = [dataclasses.asdict(one) for one in kept]
    return json.dumps({"version": _VERSION, "appends": appends}, indent=1).encode()


def _complete_map(about: Mapping[str, Any]) -> None:
    folder = about.get("report", {}).get("offset_map")
    if folder is not None:
        complete_map(Location.resolve(folder))
