"""Whether tasks see the store and the output that the driver sees.

Every machine looks a path up for itself. On another one `/data/store` may be missing, or be another broker's; and what
a task writes to a folder that is not shared stays there, and is lost. So the driver leaves a file with a nonce in the
output, and notes how the log's last segment begins; each task looks for both before it does anything. A look around
once, before the job, would miss executors that come later. The store needs no file of ours for this: one that is only
read is not written to.
"""

from __future__ import annotations

import socket
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from spark_mq.errors import NotSharedError
from spark_mq.io.location import Location
from spark_mq.store.log.commit_log import CommitLog

_MAX_HEAD = 1024

Batch = TypeVar("Batch")
Task = Callable[[Iterable[Batch]], Iterator[Batch]]
"""What `mapInArrow` and `mapInPandas` take."""


@dataclass(frozen=True)
class SharedStorageCheck:
    """What the driver saw: files, and the bytes that they begin with."""

    heads: tuple[tuple[Location, bytes], ...]

    @classmethod
    def record(cls, log: CommitLog, work_folder: Location) -> Self:
        """What is seen here: the last segment of `log`, which has one, and a new nonce in the job's `work_folder`."""
        last = log.segments[-1]
        # A running broker may still be writing the head: only what is there already counts.
        head = _read(last.location, min(last.data_end, _MAX_HEAD))
        nonce = uuid.uuid4().hex
        file = work_folder / f"nonce-{nonce}"
        with file.filesystem.open_output_stream(file.path) as stream:
            stream.write(nonce.encode("ascii"))
        return cls(((last.location, head), (file, nonce.encode("ascii"))))

    def check(self) -> None:
        """Raise `NotSharedError` where this machine sees something else."""
        for location, head in self.heads:
            try:
                found = _read(location, len(head))
            except OSError as error:
                raise _not_shared(location, "cannot open it") from error
            if found != head:
                raise _not_shared(location, "sees another file there")

    def wrap(self, task: Task[Batch]) -> Guarded[Batch]:
        """`task`, which now checks before it begins."""
        return Guarded(self, task)


@dataclass(frozen=True)
class Guarded(Generic[Batch]):
    """A task that checks what its machine sees, and only then begins."""

    places: SharedStorageCheck
    task: Task[Batch]

    def __call__(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Check, and run the task. Raises `NotSharedError`."""
        self.places.check()
        yield from self.task(batches)


def _read(location: Location, length: int) -> bytes:
    with location.filesystem.open_input_stream(location.path) as stream:
        return bytes(stream.read(length))


def _not_shared(location: Location, what: str) -> NotSharedError:
    return NotSharedError(
        f"{location}: the driver has this file, a task on {socket.gethostname()} {what}; give a store and an output "
        "that every machine of the cluster sees under the same path: a shared mount, or a URI such as s3://bucket/store"
    )
