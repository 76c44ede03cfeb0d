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
    """Mark a part of a stage as done; for tasks.

    Args:
        folder: The folder of the stage (`Progress.stage`).
        name: A name that no other part of the stage has.

    """
    with folder.filesystem.open_output_stream((folder / name).path):
        pass


def print_progress(line: str) -> None:
    """Write a line of progress to stderr, so that it does not mix with results."""
    print(line, file=sys.stderr, flush=True)


class Progress:
    """Counts the parts that tasks mark as done.

    While a stage runs, `on_progress` gets a line every two seconds if the count has changed.

    Attributes:
        seconds: The duration of each stage that has ended.

    """

    def __init__(self, folder: Location, on_progress: Callable[[str], None] | None) -> None:
        self.seconds: dict[str, float] = {}
        self._folder = folder
        self._on_progress = on_progress or (lambda line: None)

    @contextmanager
    def stage(self, name: str, total: int, what: str) -> Iterator[Location]:
        """A context for a stage, which gives the folder in which tasks mark their parts.

        Args:
            name: The name of the stage.
            total: The number of parts.
            what: What a part is, in the plural: `splits`.

        """
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
        self._on_progress(f"{name}: {total} {what} in {self.seconds[name]:.1f} s")

    def _watch(self, finished: threading.Event, folder: Location, name: str, total: int, what: str) -> None:
        reported = 0
        while not finished.wait(_SECONDS_BETWEEN_LINES):
            done = len(folder.entries())
            if done != reported:
                self._on_progress(f"{name}: {done} of {total} {what}")
                reported = done
