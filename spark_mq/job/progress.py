"""Progress of a running Spark stage, on any Spark: tasks leave empty files, the driver counts them."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spark_mq.io.location import Location

_SECONDS_BETWEEN_LINES = 2.0


def mark_done(folder: Location, name: str) -> None:
    """Say, from a task, that its part is done."""
    with folder.filesystem.open_output_stream((folder / name).path):
        pass


def print_progress(line: str) -> None:
    """Write a line of progress where it does not mix with results: on stderr."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Counts what tasks mark below `folder`.

    While a stage runs, `say` gets a line every two seconds, if more parts are done than in the line before.
    """

    def __init__(self, folder: Location, say: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._folder = folder
        self._say = say or (lambda line: None)

    @contextmanager
    def stage(self, name: str, total: int, what: str) -> Iterator[Location]:
        """A stage of `total` parts (`what` names them); gives the folder in which tasks mark them."""
        folder = self._folder / name.replace(" ", "-")
        folder.filesystem.create_dir(folder.path, recursive=True)
        started = time.monotonic()
        finished = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(finished, folder, name, total, what), daemon=True)
        watcher.start()
        try:
            yield folder
        finally:
            finished.set()
            watcher.join()
            self.seconds[name] = round(time.monotonic() - started, 3)
        self._say(f"{name}: {total} {what} in {self.seconds[name]:.1f} s")

    def _watch(self, finished: threading.Event, folder: Location, name: str, total: int, what: str) -> None:
        said = 0
        while not finished.wait(_SECONDS_BETWEEN_LINES):
            done = len(folder.entries())
            if done != said:
                self._say(f"{name}: {done} of {total} {what}")
                said = done
