"""Whether tasks see the store and the output that the driver sees.

Every machine resolves a path for itself. On another machine `/data/store` can be missing, or it can be the store of
another broker. A file that a task writes to a folder that is not shared is lost. So the driver writes a file with a
nonce into the output, and notes the first bytes of the log's last segment; each task checks both before it starts. One
check before the job would miss executors that start later. Nothing is written to the store, which is only read.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from spark_mq.errors import NotSharedError
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog

if TYPE_CHECKING:
    from spark_mq.job.tasks import ArrowTask

_MAX_HEAD = 1024

NONCE = "nonce-"
"""The beginning of the name of a file in a job's folder that each task must see."""


@dataclass(frozen=True)
class SharedStorageCheck:
    """Files that the driver saw, and their first bytes (`heads`)."""

    heads: tuple[tuple[Location, bytes], ...]

    @classmethod
    def record(cls, log: CommitLog, work_folder: Location) -> Self:
        """The check for what this machine sees."""
        last = log.segments[-1]
        # A running broker may still be writing the head: only the bytes before the end of the data count.
        head = _read(last.location, min(last.data_end, _MAX_HEAD))
        return cls(((last.location, head), *cls.of_folder(work_folder).heads))

    @classmethod
    def of_folder(cls, work_folder: Location) -> Self:
        """The check for a job that reads no store: only its folder, into which a new nonce is written."""
        nonce = uuid.uuid4().hex.encode()
        file = work_folder / f"{NONCE}{nonce.decode()}"
        with file.open_output() as stream:  # under its own name, by which the next job knows what a killed one left
            stream.write(nonce)
        return cls(((file, nonce),))

    def check(self) -> None:
        """Raise `NotSharedError` if this machine sees other files or bytes."""
        for location, head in self.heads:
            try:
                seen = _read(location, len(head))
            except OSError as error:
                raise _not_shared(location, "cannot open it") from error
            if seen != head:
                raise _not_shared(location, "sees another file there")


def checked_task(
    batches: Iterable[pa.RecordBatch], check: SharedStorageCheck, task: ArrowTask
) -> Iterator[pa.RecordBatch]:
    """The batches of a task that starts with the check. Raises `NotSharedError` if it fails."""
    check.check()
    yield from task(batches)


def _read(location: Location, length: int) -> bytes:
    with location.open_input() as stream:
        return bytes(stream.read(length))


def _not_shared(location: Location, what: str) -> NotSharedError:
    return NotSharedError(
        f"{location}: the driver has this file, a task on {socket.gethostname()} {what}; give a store and an output "
        "that every machine of the cluster sees under the same path: a shared mount, or a URI such as s3://bucket/store"
    )
