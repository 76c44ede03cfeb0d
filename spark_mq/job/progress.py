"""Progress of a running Spark stage, on any Spark: tasks leave empty files, the driver counts them."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count

from spark_mq.format.amounts import duration_text, size_text
from spark_mq.io.location import Location

_SECONDS_BETWEEN_LOOKS = 1.0
PROGRESS = "progress"
"""The folder of marks, in that of a job."""
_LISTING_SHARE = 20
"""On an object store, the list of a long stage's marks takes a while: it may take a twentieth of the time."""


def mark_done(folder: Location, name: str) -> None:
    """Mark a part of a stage as done; for tasks."""
    with (folder / name).open_output():
        pass


@dataclass(frozen=True)
class StageProgress:
    """How far a stage is, which has parts such as `splits`, and reads `size` bytes, if they are a measure of it."""

    name: str
    done: int
    total: int
    what: str
    size: int | None
    seconds: float
    is_done: bool = False

    def __str__(self) -> str:
        """One line: the parts, and if the stage reads bytes, the rate and the time that is left."""
        if self.is_done:
            return f"{self.name}: {self.total} {self.what} in {self.seconds:.1f} s"
        line = f"{self.name}: {self.done} of {self.total} {self.what}"
        if self.size is None or not self.done or not self.seconds:
            return line
        read = self.size * self.done // self.total
        left = self.seconds * (self.total - self.done) / self.done
        rate, wait = size_text(int(read / self.seconds)), duration_text(round(left) * 1000)
        return f"{line}, {size_text(read)} of {size_text(self.size)}, {rate}/s, {wait} left"


OnProgress = Callable[[StageProgress], None]
"""Is called when a stage begins, when it ends, and between once a second if the count of its parts has changed."""


class Progress:
    """Counts the parts that tasks of a job mark as done, in the job's folder."""

    def __init__(self, folder: Location, on_progress: OnProgress | None) -> None:
        self.seconds: dict[str, float] = {}
        self._folder = folder / PROGRESS / uuid.uuid4().hex
        self._numbers = count()
        self._on_progress = on_progress or (lambda stage: None)

    @contextmanager
    def stage(self, name: str, total: int, what: str, size: int | None = None) -> Iterator[Location]:
        """A context for a stage, which gives the folder in which tasks mark their parts. `what` is such as `splits`."""
        folder = self._folder / f"{name.replace(' ', '-')}-{next(self._numbers)}"  # a stage can come twice
        folder.make_folder()
        started = time.monotonic()
        finished = threading.Event()
        begin = StageProgress(name, 0, total, what, size, 0.0)
        self._on_progress(begin)
        watcher = threading.Thread(target=self._watch, args=(finished, folder, begin, started), daemon=True)
        watcher.start()
        try:
            yield folder
        finally:
            finished.set()
            watcher.join()
            seconds = round(time.monotonic() - started, 3)
            self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 3)
        self._on_progress(replace(begin, done=total, seconds=seconds, is_done=True))

    def _watch(self, finished: threading.Event, folder: Location, begin: StageProgress, started: float) -> None:
        reported, pause = 0, _SECONDS_BETWEEN_LOOKS
        while not finished.wait(pause):
            looked = time.monotonic()
            done = len(folder.entries())
            pause = max(_SECONDS_BETWEEN_LOOKS, _LISTING_SHARE * (time.monotonic() - looked))
            if done != reported:
                self._on_progress(replace(begin, done=done, seconds=time.monotonic() - started))
                reported = done
