"""What a command does, on stderr: one rewritten line on a terminal, few lines in a log."""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self, TextIO

from spark_mq.format.amounts import duration_text

if TYPE_CHECKING:
    from spark_mq.archive.report import BatchProgress
    from spark_mq.job.progress import StageProgress

_SECONDS_BETWEEN_LINES = 30.0
"""In a log, the time between two lines of a stage that runs."""
_SECONDS_BETWEEN_REWRITES, _SECONDS_BETWEEN_WAITING_LINES = 1.0, 300.0
"""The same of the line that nothing is new: on a terminal, and in a log."""
_CLEAR_LINE = "\r\033[K"


class _StatusLine:
    """The last line of a terminal, which is rewritten."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_shown = False

    def show(self, text: str, finished: str = "") -> None:
        """Rewrite the line, after lines that stay."""
        # A line that is as wide as the terminal would wrap, and could not be rewritten.
        width = shutil.get_terminal_size().columns - 1
        print(f"{_CLEAR_LINE}{finished}{text[:width]}", end="", file=self._stream, flush=True)
        self._is_shown = bool(text)

    def clear(self) -> None:
        """Remove the line, so that another one can be printed."""
        if self._is_shown:
            self.show("")


class ProgressPrinter:
    """Prints the progress of stages, which can run at the same time. Its context ends with a clear line."""

    def __init__(
        self, is_quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._is_quiet = is_quiet
        self._is_terminal = self._stream.isatty() and not is_quiet
        self._clock = clock
        self._running: dict[str, StageProgress] = {}
        self._printed_at: dict[str, float] = {}
        self._line = _StatusLine(self._stream)
        self._lock = threading.Lock()

    def __call__(self, stage: StageProgress) -> None:
        """Show how far a stage is."""
        with self._lock:
            if self._is_terminal:
                self._running[stage.name] = stage
                if stage.is_done:
                    del self._running[stage.name]
                self._line.show("; ".join(map(str, self._running.values())), f"{stage}\n" if stage.is_done else "")
            elif not self._is_quiet and (stage.is_done or self._is_due(stage)):
                print(stage, file=self._stream, flush=True)

    def announce(self, text: str) -> None:
        """Show what happens before the first stage; only on a terminal, where the first stage takes the line."""
        if self._is_terminal:
            self._line.show(text)

    def _is_due(self, stage: StageProgress) -> bool:
        now = self._clock()
        if now - self._printed_at.setdefault(stage.name, now) < _SECONDS_BETWEEN_LINES:
            return False
        self._printed_at[stage.name] = now
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.clear()


class FollowOutput:
    """Prints batches, and how long nothing was new. On a terminal that is one line, which the next line replaces."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.time) -> None:
        """`clock` returns epoch seconds."""
        self._stream = stream
        self._clock = clock
        self._is_terminal = stream.isatty()
        self._since: float | None = None
        self._printed = 0.0
        line = _StatusLine(stream)
        self._show, self.end = line.show, line.clear

    def print_batch(self, batch: BatchProgress) -> None:
        """Print the line of a batch."""
        self.end()
        self._since = None
        print(f"{_moment(self._clock())} {batch}", file=self._stream, flush=True)

    def print_waiting(self, archived_to: int) -> None:
        """Print that nothing is new, if it is time to. `archived_to` is a commit log offset, -1 if unknown."""
        now = self._clock()
        interval = _SECONDS_BETWEEN_REWRITES if self._is_terminal else _SECONDS_BETWEEN_WAITING_LINES
        if self._since is None:
            self._since, self._printed = now, now
            if not self._is_terminal:
                return
        elif now - self._printed < interval:
            return
        self._printed = now
        place = f", log offset {archived_to:,}" if archived_to >= 0 else ""
        since = _moment(self._since).partition("T")[2] if self._is_terminal else _moment(self._since)
        line = f"waiting: nothing new since {since} ({duration_text(int(now - self._since) * 1000)}){place}"
        if self._is_terminal:
            self._show(line)
        else:
            print(f"{_moment(now)} {line}", file=self._stream, flush=True)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
