"""Which appends a store has: so an append that is run again, because its process was killed, adds nothing twice.

The file is put in place with all other files of an append, and stays in the store. An append has an identity: the id
that the caller gives, or else its source and its arguments. Rows of a DataFrame have no source that can be named, so
without an id only an append of the same rows, right after it, is recognized.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from spark_mq.errors import OptionError, UnfinishedAppendError
from spark_mq.io.location import Location
from spark_mq.restorer.chunk import Chunk
from spark_mq.restorer.report import RestoreReport
from spark_mq.restorer.store_job import StoreJob
from spark_mq.store.config.store_paths import APPENDS

_MOST = 1000
"""The number of appends that are kept, the last ones."""
_AGAIN = "to have them twice, give the append an id of its own (--append-id, option appendId)"


@dataclass(frozen=True)
class Appended:
    """An append that is in a store.

    Attributes:
        identity: What tells it from other appends; None if only its rows do.
        state: The part of its source that it read, or a digest of its rows.
    """

    identity: str | None
    state: str
    report: RestoreReport

    @classmethod
    def of(cls, job: StoreJob, chunks: Iterable[Chunk], report: RestoreReport) -> Self:
        """The append of a job, with the chunks of its rows."""
        return cls(identity_of(job), _state(job) or _digest(chunks), report)


def identity_of(job: StoreJob) -> str | None:
    """A text that two runs of the same append have in common; None for rows without an id."""
    request, name = job.request, job.origin.name
    if request.append_id is not None:
        return f"id {request.append_id}"
    if job.origin.facts is None:
        return None
    return repr((name, request.where, request.only_delivered, request.store_host, dict(request.topics)))


def find_append(job: StoreJob, log_end: int, chunks: Iterable[Chunk] | None = None) -> RestoreReport | None:
    """The report of the same append, if the store has it already; else None.

    Args:
        log_end: The commit log offset at which the store's log ends.
        chunks: The rows, staged; None if they are not staged yet.
    """
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


def with_append(store: Location, appended: Appended) -> bytes:
    """The content of the file with one more append."""
    kept = [*_load(store), appended][-_MOST:]
    return json.dumps({"appends": [dataclasses.asdict(one) for one in kept]}, indent=1).encode()


def _load(store: Location) -> list[Appended]:
    file = store / APPENDS
    if not file.is_file:
        return []
    try:
        appends = json.loads(file.read_bytes())["appends"]
        return [Appended(one["identity"], one["state"], RestoreReport(**one["report"])) for one in appends]
    except (ValueError, KeyError, TypeError) as error:
        raise UnfinishedAppendError(
            f"{file} is not as an append wrote it, so it is not known which messages the store has already: put the "
            f"file back, or remove it if nothing has to be appended again ({error})"
        ) from error


def _where(appended: Appended) -> str:
    report = appended.report
    return f"the {report.messages:,} messages that were appended up to commit log offset {report.log_end:,}"


def _state(job: StoreJob) -> str | None:
    facts = job.origin.facts
    return None if facts is None else f"log {facts.log_start} to {facts.log_end}"


def _digest(chunks: Iterable[Chunk]) -> str:
    return " ".join(sorted(chunk.digest for chunk in chunks))
